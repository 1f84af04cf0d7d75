"""Tests of the curve of rounds of votes against the exact law of small runs.

Laws are enumerated in rational arithmetic (`triehh_law`). The hockey-stick divergence
of D from D' is compared with the curve at the same alpha, on both sides of 1. Every
step of the proof in docs/triehh_privacy.md that the code relies on is broken on
purpose, and the same comparison has to notice.
"""

import fractions
import functools
import itertools
import math
import pathlib
import types
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import loss_composition
from federated_hh.privacy import voting_rounds as triehh_curve
from federated_hh.privacy.triehh import guarantees as triehh
from tests.federated_hh.privacy.triehh import triehh_law

_ONE = fractions.Fraction(1)
# Two symbols; "$" ends a word, so max_length = 3 has all of each word.
_WORDS = ("a$", "b$", "aa$", "ab$")
_EPSILONS = (-3.0, -1.0, -0.3, -0.05, 0.0, 0.02, 0.1, 0.3, 0.6, 1.0, 1.7, 3.0)
# How far above the exact value the curve of one round is at most, where it is reached:
# chords of the curve are above it, at alpha = 1 by rounding alone.
_CLOSE = 1e-4
_Case = tuple[triehh.TrieHHParameters, triehh_law.Law, triehh_law.Law]
_Rounds = Callable[[triehh.TrieHHParameters], triehh_curve.VotingRounds]


def _exact(law: triehh_law.Law, emptied: triehh_law.Law, epsilon: float):
    """Returns H at alpha = e^epsilon, rounded to a float upwards."""
    alpha = fractions.Fraction(math.exp(epsilon + 1e-12))
    return triehh_law.exact_delta(alpha, law, emptied)


@functools.cache
def _curve(rounds_of: "_Rounds", parameters) -> list[fractions.Fraction]:
    rounds = rounds_of(parameters)
    return [fractions.Fraction(rounds.delta(epsilon)) for epsilon in _EPSILONS]


def _compare(case: _Case, rounds_of: _Rounds = triehh.TrieHHParameters.voting_rounds):
    """Compares the curve with a law.

    Returns:
        (above, reached): the exact points above the curve, and those that reach it.
    """
    parameters, law, emptied = case
    above, reached = [], []
    curve = _curve(rounds_of, parameters)
    for epsilon, stated in zip(_EPSILONS, curve, strict=True):
        exact = _exact(law, emptied, epsilon)
        if exact > stated:
            above.append((parameters, epsilon, float(exact), float(stated)))
        elif exact > 0 and stated <= exact * (1 + fractions.Fraction(_CLOSE)):
            reached.append((parameters, epsilon))
    return above, reached


def _law(words, mine, parameters):
    return triehh_law.trie_law(words, {mine: _ONE}, parameters)


def _populations(users: int):
    """All ways in which users hold one of `_WORDS` each, or nothing."""
    for bars in itertools.combinations(range(users + len(_WORDS)), len(_WORDS)):
        ends = [-1, *bars]
        yield {word: ends[i + 1] - ends[i] - 1 for i, word in enumerate(_WORDS)}


@functools.cache
def _small_cases() -> list[_Case]:
    """Every population of five clients, one of whom holds any of the words."""
    cases = []
    for cohort in range(1, 6):
        for theta in range(1, cohort + 1):
            parameters = triehh.TrieHHParameters(5, cohort, theta, 3)
            for words in _populations(4):
                emptied = _law(words, None, parameters)
                for mine in _WORDS:
                    cases.append((parameters, _law(words, mine, parameters), emptied))
    return cases


def _tight_cases() -> Iterator[_Case]:
    """Cohorts as large as the threshold, words that all hold, and rare words."""
    for n, theta, length in ((6, 2, 3), (7, 3, 1), (9, 4, 2), (5, 1, 1)):
        for holders in range(theta, n + 1):
            parameters = triehh.TrieHHParameters(n, theta, theta, length)
            words = {"ab$": holders - 1, "b$": n - holders}
            emptied = _law(words, None, parameters)
            yield parameters, _law(words, "ab$", parameters), emptied


def _random_cases(generator, runs: int) -> Iterator[_Case]:
    """Populations of up to 14 clients with one word each, over three levels."""
    for _ in range(runs):
        n = int(generator.integers(7, 15))
        cohort = int(generator.integers(1, n + 1))
        theta = int(generator.integers(1, min(cohort, 5) + 1))
        parameters = triehh.TrieHHParameters(n, cohort, theta, 3)
        shares = generator.dirichlet(np.full(len(_WORDS) + 1, 0.7))
        counts = generator.multinomial(n - 1, shares)
        words = dict(zip(_WORDS, counts[:-1].tolist(), strict=True))
        emptied = _law(words, None, parameters)
        for mine in _WORDS:
            yield parameters, _law(words, mine, parameters), emptied


def _redrawing_cases(generator, runs: int) -> Iterator[_Case]:
    """All clients draw one of two words in each of three rounds."""

    def client():
        words = generator.choice([*_WORDS, "ba$"], size=2, replace=False).tolist()
        share = fractions.Fraction(int(generator.integers(1, 10)), 10)
        return {words[0]: share, words[1]: 1 - share}

    for _ in range(runs):
        n = int(generator.integers(3, 7))
        cohort = int(generator.integers(1, n + 1))
        theta = int(generator.integers(1, cohort + 1))
        parameters = triehh.TrieHHParameters(n, cohort, theta, 3)
        clients = [client() for _ in range(n)]
        law = triehh_law.redrawing_law(clients, parameters)
        emptied = triehh_law.redrawing_law([*clients[:-1], {None: _ONE}], parameters)
        yield parameters, law, emptied


def _voting_law(votes_of, parameters, history=()) -> triehh_law.Law:
    """The law of what is kept where votes may be for anything.

    `votes_of` gives each client's candidate, or None, from what was kept before.
    """
    if len(history) == parameters.max_length:
        return {history: _ONE}
    votes = votes_of(history)
    holders = {name: votes.count(name) for name in set(votes) - {None}}
    law: triehh_law.Law = {}
    for kept, chance in triehh_law.round_outcomes(
        holders, votes.count(None), parameters.cohort_size, parameters.threshold
    ).items():
        later = _voting_law(votes_of, parameters, (*history, kept))
        for out, rest in later.items():
            law[out] = law.get(out, 0) + chance * rest
    return law


def _free_cases(generator, runs: int) -> Iterator[_Case]:
    """Votes for anything, which depend on all that was kept before."""
    for _ in range(runs):
        n = int(generator.integers(3, 13))
        cohort = int(generator.integers(1, n + 1))
        theta = int(generator.integers(1, cohort + 1))
        parameters = triehh.TrieHHParameters(n, cohort, theta, 3)
        chosen: dict[tuple, list] = {}

        def votes_of(history, chosen=chosen, n=n):
            if history not in chosen:
                drawn = generator.integers(0, 3, n)
                chosen[history] = [(None, "x", "y")[vote] for vote in drawn]
            return chosen[history]

        law = _voting_law(votes_of, parameters)
        emptied = _voting_law(
            lambda kept, votes_of=votes_of: [*votes_of(kept)[:-1], None], parameters
        )
        yield parameters, law, emptied


def _several_runs(case: _Case, runs: int) -> _Case:
    """The law of independent runs of one case, told as one of more rounds."""
    parameters, law, emptied = case
    laws = []
    for one in (law, emptied):
        together: triehh_law.Law = {(): _ONE}
        for _ in range(runs):
            together = {
                (*before, out): chance * more
                for before, chance in together.items()
                for out, more in one.items()
            }
        laws.append(together)
    rounds = triehh.TrieHHParameters(
        parameters.population_size,
        parameters.cohort_size,
        parameters.threshold,
        runs * parameters.max_length,
    )
    return rounds, *laws


class EnumerationTest(parameterized.TestCase):
    def check(self, cases, least_reached=0):
        above, reached, count = [], [], 0
        for case in cases:
            found = _compare(case)
            above += found[0]
            reached += found[1]
            count += 1
        self.assertEmpty(above)
        self.assertGreater(count, 0)
        self.assertGreaterEqual(len(reached), least_reached)
        return reached

    def test_the_oracle_is_algorithm_2_on_every_cohort(self):
        users = ["a$", "a$", "aa$", "ab$", None]
        parameters = triehh.TrieHHParameters(5, 3, 2, 3)
        words = {"a$": 1, "aa$": 1, "ab$": 1}
        brute = triehh_law.brute_force_law
        self.assertEqual(_law(words, "a$", parameters), brute(users, parameters))
        users[1] = None
        self.assertEqual(_law(words, None, parameters), brute(users, parameters))

    def test_the_oracle_of_redrawing_clients(self):
        # With one word each it is the other oracle; a mixture in one round alone is
        # the mixture of the laws.
        parameters = triehh.TrieHHParameters(5, 3, 2, 3)
        words = ("a$", "aa$", "aa$", "b$", None)
        self.assertEqual(
            triehh_law.redrawing_law([{word: _ONE} for word in words], parameters),
            triehh_law.brute_force_law(words, parameters),
        )
        parameters = triehh.TrieHHParameters(4, 3, 2, 1)
        half = fractions.Fraction(1, 2)
        law = triehh_law.redrawing_law(
            [{"a$": _ONE}, {"b$": _ONE}, {None: _ONE}, {"a$": half, "b$": half}],
            parameters,
        )
        parts = [
            triehh_law.brute_force_law(["a$", "b$", None, word], parameters)
            for word in ("a$", "b$")
        ]
        for out, chance in law.items():
            self.assertEqual(chance, sum(part.get(out, 0) for part in parts) / 2)

    def test_every_run_of_five_clients(self):
        reached = self.check(_small_cases(), least_reached=100)
        self.assertLess(min(epsilon for _, epsilon in reached), 0)
        self.assertGreater(max(epsilon for _, epsilon in reached), 0)

    def test_where_the_curve_is_reached(self):
        reached = self.check(_tight_cases(), least_reached=20)
        # The total variation distance too.
        self.assertIn(0.0, [epsilon for _, epsilon in reached])

    def test_random_runs_of_three_levels(self):
        self.check(_random_cases(np.random.default_rng(7), 40))

    def test_clients_who_redraw_in_every_round(self):
        self.check(_redrawing_cases(np.random.default_rng(11), 80))

    def test_votes_for_anything(self):
        self.check(_free_cases(np.random.default_rng(17), 40))

    def test_several_runs_on_the_same_clients(self):
        generator = np.random.default_rng(19)
        cases = itertools.chain(_tight_cases(), _random_cases(generator, 3))
        few = (case for case in cases if len(case[1]) < 20)
        self.check(_several_runs(case, 2) for case in few)

    def test_a_new_rare_candidate_in_every_round(self):
        # In each round the last client votes with one other, for what is new: the
        # infinite loss of theta holders is spent in every round.
        for rounds in (1, 2, 3):
            parameters = triehh.TrieHHParameters(7, 3, 2, rounds)

            def votes_of(history, last=True):
                return [len(history) if last else None, len(history), *[None] * 5]

            law = _voting_law(votes_of, parameters)
            emptied = _voting_law(
                lambda kept, votes_of=votes_of: votes_of(kept, False), parameters
            )
            exact = _exact(law, emptied, 5.0)
            self.assertEqual(exact, 1 - (1 - fractions.Fraction(1, 7)) ** rounds)
            stated = fractions.Fraction(parameters.voting_rounds().delta(5.0))
            self.assertBetween(stated, exact, exact * fractions.Fraction(1.2))

    def test_the_other_direction_fails(self):
        # The counterexample of `federated_hh.privacy.triehh.guarantees`.
        parameters = triehh.TrieHHParameters(54, 9, 5, 1)
        words = {"a": 27, "b": 26}
        law, emptied = _law(words, "a", parameters), _law(words, None, parameters)
        self.assertEqual(_compare((parameters, law, emptied))[0], [])
        nothing = (frozenset(),)
        self.assertNotIn(nothing, law)
        self.assertGreater(emptied[nothing], 0.04)
        self.assertLess(parameters.voting_rounds().delta(1.8), 1e-4)
        self.assertGreater(triehh_law.exact_delta(_ONE * 7, emptied, law), 0.04)
        # But not at alpha = 1, where the divergence has no direction.
        distance = triehh_law.exact_delta(_ONE, emptied, law)
        self.assertLessEqual(distance, parameters.voting_rounds().delta(0.0))

    @parameterized.parameters((12, 4, 2, 8), (12, 6, 3, 7), (10, 3, 1, 5))
    def test_the_other_direction_holds_among_silent_clients(
        self, n, cohort, theta, silent
    ):
        # docs/triehh_privacy.md, Proposition C: clients who never vote, without delta.
        length = 3
        parameters = triehh.TrieHHParameters(n, cohort, theta, length)
        spare = cohort - theta + 1
        factor = (1 + fractions.Fraction(spare, silent - spare + 1)) ** length
        for words in _populations(n - 1 - silent):
            if sum(words.values()) != n - 1 - silent:
                continue
            emptied = _law(words, None, parameters)
            for mine in _WORDS:
                law = _law(words, mine, parameters)
                self.assertEqual(triehh_law.exact_delta(factor, emptied, law), 0)


def _changed(old: str, new: str) -> _Rounds:
    """Returns rounds by the code of `triehh_curve` with one place changed."""
    source = pathlib.Path(triehh_curve.__file__).read_text()
    assert source.count(old) == 1, old
    module = types.ModuleType("changed")
    module.__dict__["__name__"] = triehh_curve.__name__
    exec(compile(source.replace(old, new), "changed", "exec"), module.__dict__)

    def rounds_of(parameters):
        return module.VotingRounds(
            parameters.population_size,
            parameters.cohort_size,
            parameters.threshold,
            parameters.max_length,
        )

    return rounds_of


class MutantTest(parameterized.TestCase):
    """The proof's conditions, broken: the comparisons above have to notice."""

    def assert_noticed(self, rounds_of):
        cases = itertools.chain(_tight_cases(), _small_cases())
        self.assertTrue(any(_compare(case, rounds_of)[0] for case in cases))

    @parameterized.named_parameters(
        (
            "a_smaller_threshold",
            "return theta * scale -",
            "return (theta - 1) * scale -",
        ),
        ("k_from_theta_plus_1", "low, high = theta,", "low, high = theta + 1,"),
        ("too_few_k", "theta * (n + 1) // m)", "theta * (n + 1) // (2 * m))"),
        ("one_round_fewer", "self.num_rounds,\n", "max(1, self.num_rounds - 1),\n"),
        ("gains_rounded_down", "gains * (1 + 1e-15)", "gains * (1 - 1e-5)"),
    )
    def test_the_curve(self, old, new):
        self.assert_noticed(_changed(old, new))

    @parameterized.parameters(
        (triehh_curve, "_LOG_SLACK"),
        (loss_composition, "_RAISED"),
        (loss_composition, "_SLACK"),
    )
    def test_rounding_down(self, module, name):
        with mock.patch.object(module, name, -1e-5):
            self.assert_noticed(lambda parameters: parameters.voting_rounds())

    def test_unchanged(self):
        with self.assertRaises(AssertionError):
            self.assert_noticed(_changed("gains * (1 + 1e-15)", "gains * (1 + 2e-15)"))


class VotingRoundsTest(parameterized.TestCase):
    @parameterized.parameters((30, 6, 3), (100, 20, 8), (54, 9, 5), (200, 150, 9))
    def test_the_curve_of_a_round_is_the_largest_of_all_k(self, n, cohort, theta):
        rounds = triehh_curve.VotingRounds(n, cohort, theta, 1)
        epsilons = np.linspace(0, math.log(theta + 2), 60)
        found = rounds.deltas(epsilons)
        for epsilon, delta in zip(epsilons, found.tolist(), strict=True):
            alpha = fractions.Fraction(math.exp(epsilon))
            exact = max(
                fractions.Fraction(
                    math.comb(k, theta) * math.comb(n - k, cohort - theta),
                    math.comb(n, cohort),
                )
                * max(fractions.Fraction(0), 1 - alpha * (1 - _ONE * theta / k))
                for k in range(theta, n + 1)
            )
            self.assertGreaterEqual(fractions.Fraction(delta), exact * (1 - 10**-12))
            self.assertLessEqual(
                fractions.Fraction(delta), exact * (1 + 10**-8) + 1e-15
            )

    # n, m, theta, rounds, delta; epsilon, and the total variation distance.
    @parameterized.parameters(
        (10**6, 93_506, 39, 10, 1e-12, 1.011, 0.0617),
        (10**6, 93_506, 39, 50, 5e-12, 2.004, 0.2725),
        (10**6, 93_506, 39, 50, 1e-6, 1.3205, 0.2725),
        (10**6, 49_252, 40, 10, 1e-12, 0.505, 0.0317),
        (10**5, 8_935, 30, 10, 1e-10, 0.900, 0.0672),
        (20_001, 2_875, 27, 6, 1e-9, 1.164, 0.0708),
    )
    def test_numbers(self, n, cohort, theta, count, delta, epsilon, distance):
        # By another implementation, of floating-point Fourier transforms.
        rounds = triehh_curve.VotingRounds(n, cohort, theta, count)
        found = rounds.epsilon(delta)
        self.assertAlmostEqual(found, epsilon, delta=6e-4)
        self.assertAlmostEqual(rounds.delta(0.0), distance, delta=1e-4)
        self.assertAlmostEqual(rounds.delta(found) / delta, 1.0, delta=0.05)

    def test_an_epsilon_is_no_larger_for_more(self):
        rounds = triehh_curve.VotingRounds(1000, 100, 15, 10)
        deltas = [1e-9, 1e-6, 1e-3, 0.1, 0.9]
        epsilons = [rounds.epsilon(delta) for delta in deltas]
        self.assertEqual(epsilons, sorted(epsilons, reverse=True))
        self.assertEqual(epsilons[-1], 0.0)
        counts = [
            triehh_curve.VotingRounds(1000, 100, 15, count).epsilon(1e-6)
            for count in (1, 2, 10, 100, 1000)
        ]
        self.assertEqual(counts, sorted(counts))

    def test_nothing_can_be_kept(self):
        rounds = triehh_curve.VotingRounds(10, 3, 4, 5)
        self.assertEqual((rounds.epsilon(1e-9), rounds.delta(0.0)), (0.0, 0.0))
        self.assertEqual(rounds.least_delta, 0.0)
        self.assertEqual(
            _law({"a$": 5}, "a$", triehh.TrieHHParameters(6, 2, 3, 2)),
            {(frozenset(),): 1},
        )

    @parameterized.parameters(
        ((100, 10, 3, 5), 1e-9, "smallest delta is .* words with 3 holders"),
        ((100, 10, 3, 5), 0.0, "delta"),
        ((2**31, 10, 3, 5), 0.1, "population_size"),
        ((100, 101, 3, 5), 0.1, "cohort_size"),
        ((100, 10, 0, 5), 0.1, "threshold"),
        ((100, 10, 3, 0), 0.1, "num_rounds"),
        ((100, 10, 3, 10**7 + 1), 0.1, "num_rounds"),
        ((100, 10.0, 3, 1), 0.1, "cohort_size"),
    )
    def test_bad_arguments(self, arguments, delta, message):
        with self.assertRaisesRegex(ValueError, message):
            triehh_curve.VotingRounds(*arguments).epsilon(delta)


if __name__ == "__main__":
    absltest.main()
