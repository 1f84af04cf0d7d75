"""Tests of generated clients: against exact laws, a prepared population, and cuts."""

import collections
import itertools
import math
import os
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.heavy_hitters import (
    alphabet,
    contributions,
    coverage,
    evaluation,
    generated_clients,
    selection,
)
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters, results
from federated_hh.populations.columns import client_words, generated_words
from federated_hh.runtime import runtime
from tests.federated_hh.heavy_hitters.ldp_triehh import ldp_triehh_test_case

_GREEDY = contributions.ItemSampler.GREEDY
_RANDOM = contributions.ItemSampler.RANDOM
_MOST_FREQUENT = selection.WordSelection.MOST_FREQUENT
_BY_FREQUENCY = selection.WordSelection.BY_FREQUENCY
_CLIENTS = 60_000
_FALSE_ALARM = 1e-6  # of a test, as all its comparisons together
_ZIPF = 1 / np.arange(1, 91)
_ZIPF /= _ZIPF.sum()
_FLAT = np.full(90, 1 / 90)


def _nodes():
    """Returns nodes and weights on (0, 1), exact for what is integrated here."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    return (nodes + 1) / 2, weights / 2


def _fewer(chances, without, bound):
    """Returns the probability that fewer than `bound` of the others happen.

    Args:
        chances: float64 [events, ...], independent.
        without: The event that is left out.
        bound: The most events that are taken, at least 1.
    """
    law = np.zeros((bound, *chances.shape[1:]))
    law[0] = 1
    for event, chance in enumerate(chances):
        if event != without:
            law[1:] = law[1:] * (1 - chance) + law[:-1] * chance
            law[0] *= 1 - chance
    return law.sum(axis=0)


def reported(means, sampler, bound):
    """Returns the probability that a client reports each item, by Algorithm 2.

    An item's count is Poisson. Each gets a uniform number, which breaks ties, or orders
    held items.
    """
    nodes, weights = _nodes()
    if sampler is _RANDOM:
        held = -np.expm1(-means)
        keys = held[:, None] * nodes
        return np.array(
            [h * (_fewer(keys, i, bound) @ weights) for i, h in enumerate(held)]
        )
    counts = np.arange(1, int(max(means) + 12 * np.sqrt(max(means)) + 30))
    equal = stats.poisson.pmf(counts, means[:, None])
    above = stats.poisson.sf(counts, means[:, None])
    greater = above[..., None] + equal[..., None] * (1 - nodes)
    return np.array(
        [e @ (_fewer(greater, i, bound) @ weights) for i, e in enumerate(equal)]
    )


class GeneratedTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.enterContext(tempfile.TemporaryDirectory())

    def law(self, chances, typed, num_clients=_CLIENTS, seed=3, words=None):
        """Returns a law.

        Args:
            chances: Mean counts of words, a word typed.
            typed: Probabilities of numbers of words.
            num_clients: Number of clients.
            seed: The seed.
            words: The words, by spelling.
        """
        path = os.path.join(tempfile.mkdtemp(dir=self.scratch), "law")
        words = words or [f"w{i:04d}" for i in range(len(chances))]
        shares = np.zeros(max(typed))
        for number, share in typed.items():
            shares[number - 1] = share
        ends = np.minimum(np.cumsum(shares), 1.0)
        ends[-1] = 1.0
        with generated_words.new_law(path) as writer:
            writer.set_law(words, np.asarray(chances, float), ends)
            writer.finish(None, {"num_clients": num_clients, "seed": seed})
        return generated_words.GeneratedWords.open(path)

    def asker(self, law, sampler, bound, candidates=None, seed=1):
        """Returns a function of clients to their items, and the level's message."""
        if candidates is None:
            candidates = np.arange(law.num_words, dtype=np.int32)
        asked = generated_clients.items_of(law, sampler, bound)
        message = asked.message(candidates, np.array([seed, 7], np.int32))
        tensors = {name: tf.constant(value) for name, value in message.items()}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
        def ask(clients):
            return asked.items_of_block(tensors, {"clients": clients})

        return ask, message

    def items(self, law, *arguments, **options):
        """Returns the items of all clients, one after the other, and the message."""
        ask, message = self.asker(law, *arguments, **options)
        return ask(np.arange(law.num_clients)).numpy(), message

    def assert_shares(self, counts, expected, size, other_size=np.inf):
        """Compares counts of yes-or-no answers with probabilities.

        Args:
            counts: Number of `size` clients that have each.
            expected: Its probability, or its share of `other_size` clients.
            size: Number of clients.
            other_size: Number of other clients.
        """
        expected = np.clip(expected, 0, 1)
        both = expected
        if other_size < np.inf:
            both = (counts + other_size * expected) / (size + other_size)
        variance = both * (1 - both) * (1 / size + 1 / other_size)
        rare = both * min(size, other_size) < 25
        scores = (counts / size - expected)[~rare] / np.sqrt(
            np.maximum(variance[~rare], size**-2.0)  # of what is certain
        )
        limit = stats.norm.isf(_FALSE_ALARM / len(expected) / 2)
        self.assertLess(np.abs(scores).max(), limit)
        # All rare ones together; 9 for those that are too few for a normal law.
        rest = counts[rare].sum() / size - expected[rare].sum()
        limit *= np.sqrt(both[rare].sum() * (1 / size + 1 / other_size) + 9 / size**2)
        self.assertLess(abs(rest), limit)


class ItemsTest(GeneratedTestCase):
    @parameterized.named_parameters(
        # Of random items: a threshold, several numbers of words to a table, all held.
        ("random", _RANDOM, 3, _ZIPF, {400: 1.0}, (0, 0.2)),
        ("random_mixed", _RANDOM, 3, _ZIPF, {400: 0.3, 420: 0.3, 440: 0.4}, (0, 0.2)),
        ("random_few", _RANDOM, 3, _ZIPF, {10: 0.5, 11: 0.5}, (0, 0.0)),
        ("random_flat", _RANDOM, 2, _FLAT, {2000: 1.0}, (0, 0.3)),
        # Of greedy ones, too: of counts above 1, of 1 alone, of large ones.
        ("greedy", _GREEDY, 3, _ZIPF, {400: 1.0}, (2, 0.0)),
        ("greedy_mixed", _GREEDY, 2, _ZIPF, {400: 0.3, 420: 0.3, 440: 0.4}, (2, 0.0)),
        ("greedy_few", _GREEDY, 3, _ZIPF, {10: 0.5, 11: 0.5}, (1, 0.0)),
        ("greedy_ones", _GREEDY, 2, _FLAT, {60: 0.5, 65: 0.5}, (1, 0.1)),
        ("greedy_flat", _GREEDY, 2, _FLAT, {7000: 0.5, 7800: 0.5}, (65, 0.0)),
        ("greedy_huge", _GREEDY, 2, [0.34, 0.335, 0.325], {2400: 1.0}, (1, 0.0)),
        ("greedy_spread", _GREEDY, 5, _ZIPF, {3: 0.4, 100: 0.3, 5000: 0.3}, (1, 0.0)),
    )
    def test_law(self, sampler, bound, chances, typed, least):
        # 60,000 clients; each item's share, all together at the false-alarm rate.
        law = self.law(chances, typed)
        items, message = self.items(law, sampler, bound)
        # The case is what its name says.
        self.assertGreaterEqual(max(message["whole"]), least[0])
        self.assertGreaterEqual(max(message["part"]), least[1])
        expected = sum(
            share * reported(number * np.asarray(chances), sampler, bound)
            for number, share in typed.items()
        )
        counts = np.bincount(items, minlength=len(chances))
        self.assert_shares(counts, expected, _CLIENTS)

    @parameterized.parameters(_RANDOM, _GREEDY)
    def test_subsets(self, sampler):
        # Items of a client depend on each other as in Algorithm 2, enumerated over all
        # counts: chi-square over the sets of at most two of four items.
        means = np.array([2.0, 1.5, 1.0, 0.3])
        law = self.law(means / 5, {5: 1.0})
        ask, _ = self.asker(law, sampler, 2)
        self.assertEmpty(ask(np.zeros(0, np.int64)).numpy())
        exact = collections.Counter()
        for counts in itertools.product(range(11), repeat=4):
            chance = np.prod(stats.poisson.pmf(counts, means))
            order = [min(c, 1) if sampler is _RANDOM else c for c in counts]
            sets = [
                chosen
                for chosen in itertools.combinations(
                    range(4), min(2, sum(map(bool, counts)))
                )
                if all(counts[i] for i in chosen)
            ]
            best = max(sorted(order[i] for i in chosen) for chosen in sets)
            best_sets = [s for s in sets if sorted(order[i] for i in s) == best]
            for chosen in best_sets:
                exact[chosen] += chance / len(best_sets)
        found = collections.Counter()
        size = 12_000
        each = tf.function(
            lambda: tf.map_fn(
                lambda client: tf.pad(
                    items := ask(client[None]),
                    [[0, 2 - tf.size(items)]],
                    constant_values=-1,
                ),
                tf.range(size, dtype=tf.int64),
                fn_output_signature=tf.TensorSpec([2], tf.int32),
            ),
            autograph=False,
        )
        for row in each().numpy().tolist():
            found[tuple(sorted(item for item in row if item >= 0))] += 1
        kinds = sorted(exact)
        observed = np.array([found[kind] for kind in kinds])
        expected = np.array([exact[kind] for kind in kinds])
        self.assertEqual(observed.sum(), size)
        test = stats.chisquare(observed, size * expected / expected.sum())
        self.assertGreater(test.pvalue, _FALSE_ALARM)

    @parameterized.product(sampler=[_RANDOM, _GREEDY], bound=[1, 3, 20])
    def test_tables_have_room_for_every_client(self, sampler, bound):
        # No candidate exceeds the threshold more often than its table has it, and
        # enough do, whatever a client types.
        numbers = [1, 2, 40, 45, 47, 700, 720, 790, 9000]
        law = self.law(_ZIPF, {number: 1 / 9 for number in numbers})
        _, message = self.asker(law, sampler, bound)
        group = np.repeat(np.arange(len(message["sizes"])), message["sizes"])
        steps = np.unique(np.floor(4 * np.log2(numbers)))
        buckets = set()
        for number in numbers:
            bucket = sum(np.floor(4 * np.log2(number)) > steps)
            buckets.add(bucket)
            means = number * message["chances"]
            whole, part = message["whole"][bucket], message["part"][bucket]
            chances = (1 - part) * -np.expm1(-means)
            if sampler is _GREEDY:
                above = stats.poisson.sf(whole, means)
                chances = above + (1 - part) * stats.poisson.pmf(whole, means)
            caps = message["caps"][group, bucket]
            self.assertTrue((chances <= caps * (1 + 1e-12)).all(), number)
            if (whole, part) not in [(0, 0), (1, 0)]:
                least = stats.poisson.cdf(bound - 1, chances.sum())
                self.assertLess(least, 1.01e-12)
        self.assertLen(buckets, message["caps"].shape[1])

    @parameterized.parameters(_RANDOM, _GREEDY)
    def test_words_share_a_candidate_or_have_none(self, sampler):
        # Three words a candidate, and every seventh word is a known one.
        law = self.law(_ZIPF, {600: 1.0})
        candidates = np.arange(90, dtype=np.int32) // 3 + 4
        candidates[::7] = -1
        items, _ = self.items(law, sampler, 4, candidates)
        kept = candidates >= 0
        means = 600 * np.bincount(candidates[kept], _ZIPF[kept])
        expected = np.zeros(len(means))
        expected[4:] = reported(means[4:], sampler, 4)
        counts = np.bincount(items, minlength=len(means))
        self.assertEqual(counts[:4].sum(), 0)
        self.assert_shares(counts[4:], expected[4:], _CLIENTS)
        nobody = np.full(90, -1, np.int32)
        self.assertEmpty(self.items(law, sampler, 4, nobody)[0])

    @parameterized.parameters(_RANDOM, _GREEDY)
    def test_law_is_that_of_a_prepared_population(self, sampler):
        # 60,000 generated clients and 8,000 on disk with counts of the same law: the
        # difference of each item's share, all together at the false-alarm rate.
        typed, others = {50: 0.4, 300: 0.6}, 8_000
        random = np.random.default_rng(8)
        numbers = random.choice(list(typed), others, p=list(typed.values()))
        counts = random.poisson(np.outer(numbers, _ZIPF))
        rows = (
            (str(i), ((f"w{w:04d}", int(row[w])) for w in np.flatnonzero(row)))
            for i, row in enumerate(counts)
        )
        prepared = client_words.ClientWords.from_rows(
            os.path.join(self.scratch, "prepared"), rows
        )
        place = [int(word[1:]) for word in prepared.words.to_pylist()]
        on_disk = generated_clients.items_of(prepared, sampler, 5).items_of_block(
            {"candidate_of_word": np.array(place, np.int32)},
            {"clients": tf.range(others, dtype=tf.int64), "seed": tf.constant([1, 2])},
        )
        items, _ = self.items(self.law(_ZIPF, typed), sampler, 5)
        self.assert_shares(
            np.bincount(items, minlength=90),
            np.bincount(on_disk.numpy(), minlength=90) / others,
            _CLIENTS,
            others,
        )

    @parameterized.parameters(_RANDOM, _GREEDY)
    def test_a_client_answers_alike_in_any_block(self, sampler):
        law = self.law(_ZIPF, {7: 0.3, 300: 0.4, 5000: 0.3})
        clients = np.random.default_rng(2).permutation(_CLIENTS)[:5_000]
        ask, _ = self.asker(law, sampler, 6)
        whole = ask(clients).numpy()
        cuts = [*clients[:50, None], *np.array_split(clients[50:], 7)]
        self.assertEqual(
            collections.Counter(whole.tolist()),
            collections.Counter(np.concatenate([ask(cut) for cut in cuts]).tolist()),
        )
        np.testing.assert_array_equal(ask(clients), whole)
        other_round, _ = self.asker(law, sampler, 6, seed=2)
        typed = {7: 0.3, 300: 0.4, 5000: 0.3}
        other_seed, _ = self.asker(self.law(_ZIPF, typed, seed=4), sampler, 6)
        for other in (other_round, other_seed):
            self.assertNotEqual(other(clients).numpy().tolist(), whole.tolist())


class LevelTest(GeneratedTestCase):
    @parameterized.product(sampler=[_RANDOM, _GREEDY], num_blocks=[1, 7])
    def test_votes_of_a_level_have_the_law(self, sampler, num_blocks):
        # Level 1 of 30,000 of 60,000 clients; all shares at the false-alarm rate.
        words = sorted(map("".join, itertools.product("abcdefghi", repeat=2)))
        words = [word + ending for word in words for ending in ("", "x")][:90]
        law = self.law(_ZIPF, {150: 0.5, 160: 0.5}, words=words)
        algorithm = ldp_triehh.LdpTrieHH(
            law,
            parameters.LdpTrieHHParameters(
                cohort_size=_CLIENTS // 2,
                max_depth=1,
                max_prefixes=10,
                contribution_bound=3,
                epsilon=math.inf,
                sampler=sampler,
            ),
            alphabet.Alphabet("abcdefghix"),
            num_blocks=num_blocks,
        )
        with mock.patch.object(results, "MOST_GENERATED", 100):
            self.assertLen(results.counting_group(algorithm, 1, 0, None), 100)
        with runtime.tff_worker():
            votes = ldp_triehh_test_case.Level(algorithm).sums()
        prefixes = np.array([word[:2] for word in words])
        kinds, kind = np.unique(prefixes, return_inverse=True)
        means = np.bincount(kind, _ZIPF)
        expected = sum(reported(n * means, sampler, 3) for n in (150, 160)) / 2
        places = ["abcdefghix".index(a) * 11 + "abcdefghix".index(b) for a, b in kinds]
        self.assert_shares(votes[places], expected, _CLIENTS // 2)
        self.assertEqual(votes.sum(), votes[places].sum())


class WordsTest(GeneratedTestCase):
    def select(self, law, selected, clients, bits=None):
        words = generated_clients.words_of(law).select(
            selected, tf.constant(clients, tf.int64), bits
        )
        return words.numpy()

    def bits(self, seed, size):
        random = np.random.default_rng(seed)
        return tf.constant(random.integers(0, 1 << 64, size, np.uint64))

    def test_words_by_frequency(self):
        # A client without words, of which a third types one word, has none.
        law = self.law(0.9 * _ZIPF, {1: 1 / 3, 30: 2 / 3})
        words = self.select(
            law, _BY_FREQUENCY, np.arange(_CLIENTS), self.bits(1, _CLIENTS)
        )
        empty = np.exp(-0.9) / 3 + 2 / 3 * np.exp(-27)
        counts = np.bincount(words + 1, minlength=91)
        expected = np.concatenate([[empty], (1 - empty) * _ZIPF])
        self.assert_shares(counts, expected, _CLIENTS)
        truth = evaluation.GroundTruth.of(law, _BY_FREQUENCY)
        np.testing.assert_allclose(truth.counts, _CLIENTS * expected[1:], rtol=1e-9)

    def test_favorites(self):
        typed = {4: 0.5, 25: 0.5}
        law = self.law(_ZIPF, typed)
        words = self.select(law, _MOST_FREQUENT, np.arange(_CLIENTS))
        counts = np.bincount(words[words >= 0], minlength=90)
        expected = sum(
            share * reported(number * _ZIPF, _GREEDY, 1)
            for number, share in typed.items()
        )
        self.assert_shares(counts, expected, _CLIENTS)
        truth = evaluation.GroundTruth.of(law, _MOST_FREQUENT)
        np.testing.assert_array_equal(truth.counts, counts)

    def test_a_client_has_the_same_words_in_every_round(self):
        # 300 clients of 12 words in 2,000 rounds: words come in proportion to whole
        # counts, which add up to the same number, and the favorite has most.
        law = self.law(_ZIPF, {12: 1.0})
        rounds, size = 2_000, 300
        found = np.zeros([size, 91], np.int64)
        draw = tf.function(
            lambda bits: generated_clients.words_of(law).select(
                _BY_FREQUENCY, tf.range(size, dtype=tf.int64), bits
            ),
            autograph=False,
        )
        for number in range(rounds):
            words = draw(self.bits(number, size)).numpy()
            found[np.arange(size), words] += 1
        favorites = self.select(law, _MOST_FREQUENT, np.arange(size))
        for client in range(size):
            if favorites[client] < 0:
                self.assertEqual(found[client, -1], rounds)
                continue
            shares = found[client][found[client] > 0] / rounds
            errors = [
                np.abs(shares - np.maximum(np.rint(shares * n), 1) / n).max()
                for n in range(1, 40)
            ]
            self.assertLess(min(errors), 0.05)  # more than 5 standard errors
            self.assertLess(len(shares), 30)
            best = found[client, :90].max()
            self.assertGreater(found[client, favorites[client]], best - 0.06 * rounds)

    @parameterized.parameters(_MOST_FREQUENT, _BY_FREQUENCY)
    def test_a_client_has_the_same_words_in_any_block(self, selected):
        law = self.law(_ZIPF, {1: 0.2, 50: 0.4, 3000: 0.4})
        clients = np.random.default_rng(2).permutation(_CLIENTS)[:2_000]
        bits = self.bits(5, len(clients))
        whole = self.select(law, selected, clients, bits)
        cuts = np.array_split(np.arange(len(clients)), 9)
        cut = [
            self.select(law, selected, clients[part], tf.gather(bits, part))
            for part in [*cuts, cuts[0][:0]]
        ]
        np.testing.assert_array_equal(np.concatenate(cut), whole)


class TruthTest(GeneratedTestCase):
    def test_numbers_of_words_typed(self):
        shares = {1: 0.1, 2: 0.2, 5: 0.3, 9: 0.4}
        law = self.law(_ZIPF, shares)
        typed = generated_clients.typed_by(law, tf.range(_CLIENTS, dtype=tf.int64))
        counts = np.bincount(typed.numpy(), minlength=10)
        self.assertEqual(counts.sum(), counts[list(shares)].sum())
        expected = _CLIENTS * np.array(list(shares.values()))
        test = stats.chisquare(counts[list(shares)], expected)
        self.assertGreater(test.pvalue, _FALSE_ALARM)

    def test_expectations(self):
        typed = {10: 0.5, 200: 0.5}
        law = self.law(0.9 * _ZIPF, typed)
        held = [-np.expm1(-number * 0.9 * _ZIPF) for number in typed]
        np.testing.assert_allclose(law.holders, _CLIENTS * sum(held) / 2)
        expected = _CLIENTS * 105 * 0.9 * _ZIPF
        np.testing.assert_allclose(law.occurrences(), expected)
        self.assertEqual(law.num_entries, round(_CLIENTS * np.sum(held) / 2))
        sums = [part.sum() for part in held]
        share = sum(min(s, 20) for s in sums) / sum(sums)
        self.assertAlmostEqual(law.reported_share(20), share)
        totals = coverage.WordTotals.of(law)
        self.assertEqual(totals.coverage(["w0000", "none"]), totals.coverage(["w0000"]))
        self.assertAlmostEqual(totals.coverage(["w0000"]), _ZIPF[0], places=4)

    def test_a_word_that_hardly_anybody_has_is_not_real(self):
        law = self.law(np.append(_ZIPF, 1e-9), {10: 1.0})
        places = coverage.WordTotals.of(law).places(["w0089", "w0090", "none"])
        self.assertEqual(places.tolist(), [89, -1, -1])

    def test_counting_task(self):
        law = self.law(_ZIPF, {10: 0.5, 200: 0.5})
        counted = np.arange(90) > 0
        task = coverage.CountingTask(law, np.arange(20_000), counted)
        small, large = task.estimates([np.arange(3), np.arange(10)], None)
        for estimate, size in ((small, 3), (large, 10)):
            truth = _ZIPF[1:size].sum() / _ZIPF[1:].sum()
            self.assertLess(abs(estimate.coverage - truth), 5 * estimate.standard_error)
        self.assertEqual(small.contributions, large.contributions)
        mean, error = 105 * _ZIPF[1:].sum(), 95 * _ZIPF[1:].sum() / np.sqrt(20_000)
        self.assertLess(abs(small.contributions / 20_000 - mean), 5 * error)
        self.assertEqual(task.estimates([np.arange(3)])[0].num_clients, 20_000)

    def test_fingerprint_is_the_law(self):
        laws = [
            self.law(_ZIPF, {3: 1.0}),
            self.law(_ZIPF, {4: 1.0}),
            self.law(_FLAT, {3: 1.0}),
            self.law(_ZIPF, {3: 1.0}, num_clients=5),
            self.law(_ZIPF, {3: 1.0}, seed=4),
        ]
        self.assertLen({law.fingerprint for law in laws}, len(laws))
        self.assertEqual(self.law(_ZIPF, {3: 1.0}).fingerprint, laws[0].fingerprint)


if __name__ == "__main__":
    absltest.main()
