"""Tests of a client's bytes, against messages that are written out here."""

import os

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import alphabet, selection
from federated_hh.heavy_hitters.found_words import FoundWord
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.set_union import algorithm as set_union
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.populations.columns import client_words
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.privacy.sets import weighted_gaussian
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import masked_sums, samplers, steps
from federated_hh.runtime.masking import messages, protocol
from federated_hh.runtime.worker import engine_options

_ALPHABET = alphabet.Alphabet("aбが")
_STREAM = streams.Stream(1)


def _sent(message):
    """Returns the bytes of all fields of a message of the masking protocol."""
    fields = [value for name, value in vars(message).items() if name != "client"]
    if not isinstance(message, messages.ToClient):
        fields.append(0)  # the sender's number
    return sum(map(_size, fields))


def _size(value):
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, int):
        return len(np.uint32(value).tobytes())
    if isinstance(value, dict):
        return sum(_size(key) + _size(part) for key, part in value.items())
    if isinstance(value, tuple):
        return sum(map(_size, value))
    return _sent(value)


class ClientBytesTest(parameterized.TestCase):
    def population(self, clients):
        folder = os.path.join(self.create_tempdir().full_path, "words")
        rows = [(str(i), [(word, 1) for word in c]) for i, c in enumerate(clients)]
        return client_words.ClientWords.from_rows(folder, rows)

    def asked(self, algorithm, state):
        query = algorithm.next_query(state)
        found = query.client_bytes()
        self.assertIsInstance(found.download, int)
        self.assertIsInstance(found.upload, int)
        return found

    def test_triehh_sends_a_frontier_and_receives_a_vote_a_candidate(self):
        population = self.population([["aб"]] * 40)
        parameters = triehh_privacy.TrieHHParameters(40, 20, 3, 4)
        plan = triehh.plan_of(parameters, selection.WordSelection.MOST_FREQUENT)
        algorithm = triehh.TrieHH(population, plan, _ALPHABET)
        trie = algorithm.initialize(0).trie
        trie = trie.extend(np.array([0, 2]), np.array([9, 9]))  # a, が
        # a and its end, aб and がが: the frontier is the last two.
        trie = trie.extend(np.array([1, 3, 6]), np.array([9, 9, 9]))
        found = self.asked(algorithm, triehh.TrieHHState(trie, 2))
        self.assertEqual(found.download, len("aбが\naб\nがが\n".encode()))
        # Sums of 20 clients are below 2^5; two prefixes have four candidates each.
        self.assertEqual(found.upload, len(np.packbits(np.ones((8, 5), bool))))

    @parameterized.parameters("secure_sum", "ephemeral")
    def test_ldp_triehh_sends_reports_as_the_aggregation_takes_them(self, aggregation):
        population = self.population([["aб"]] * 400)
        parameters = ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=50,
            max_depth=2,
            max_prefixes=4,
            contribution_bound=3,
            epsilon=1.0,
            num_passes=2,
        )
        algorithm = ldp_triehh.LdpTrieHH(
            population,
            parameters,
            _ALPHABET,
            aggregation=ldp_triehh_parameters.Aggregation(aggregation),
        )
        state = algorithm.initialize(0)
        words = [FoundWord("aб", 1, 2, 9, 9.0, 1.0), FoundWord("бб", 2, 1, 9, 9.0, 1.0)]
        state = ldp_triehh.LdpTrieHHState(state.trie, tuple(words), 2)
        found = self.asked(algorithm, state)
        # The alphabet, its characters as the first prefixes, the first pass's word.
        self.assertEqual(found.download, len("aбが\na\nб\nが\naб\n".encode()))
        candidates = state.trie.num_candidates
        if aggregation == "secure_sum":
            # Of 50 clients with 3 votes each, sums below 2^8.
            vector = np.zeros(candidates, np.uint8)
            self.assertEqual(found.upload, len(vector.tobytes()))
            return
        reports = parameters.randomizer(candidates).randomize([0, 1, 2], [1, 2])
        # Of 13 items, each report a set of several: a bit an item is the shortest.
        self.assertGreater(reports.shape[1] * 4, candidates + 1)
        sets = np.zeros((3, candidates + 1), bool)
        np.put_along_axis(sets, reports.numpy(), True, axis=1)
        self.assertEqual(found.upload, len(np.packbits(sets)))

    def test_set_union_sends_words_and_receives_the_released_ones(self):
        clients = [["aб", "か", "long"], ["aб"], [], ["aб", "か"]] * 5
        population = self.population(clients)
        passes = weighted_gaussian.solve(8.0, 1e-3, 3, [1.0, 3.0])
        plan = sets_plan.plan_of(samplers.Everybody(20), passes)
        algorithm = set_union.SetUnion(population, plan)
        key = noise_keys.NoiseKey(5, is_secret=True)
        by_hand = steps.Steps(algorithm, seed=1, noise_key=key)
        left = population.words.to_pylist().index("aб")
        some = np.array([left])
        levels = np.ones(population.num_words, np.uint8)
        levels[left] = 0
        ones = np.ones(1, np.int64)
        second = set_union.SetUnionState(some, np.ones(1), ones, levels, 1)
        place = by_hand.begin()
        for state, told in ((place.state, []), (second, ["aб"])):
            query = algorithm.next_query(state)
            with algorithm.worker():
                by_hand.ask(place, query, np.arange(20))
            sent = [
                "".join(f"{word}\n" for word in words if word not in told)
                for words in clients
            ]
            found = query.client_bytes()
            self.assertEqual(found.upload, round(len("".join(sent).encode()) / 20))
            text = "".join(f"{word}\n" for word in told)
            self.assertEqual(found.download, len(text.encode()))

    def test_masks_send_all_messages_of_the_protocol(self):
        options = engine_options.SecureSumOptions(secure_sum="masked")
        masking = masked_sums.MaskedSums(options)
        own = np.eye(12, 7, dtype=np.uint64)
        masking.add(12, 7, 1, lambda places: own[places], _STREAM)
        transcript = messages.Transcript(keep=True)
        protocol.masked_sum(
            masking.graph(12),
            bits=4,
            size=7,
            vectors=lambda places: own[places],
            stream=_STREAM.at("masked sum"),
            gone={},
            transcript=transcript,
        )
        to_server = [m for m in transcript.kept if isinstance(m, messages.ToServer)]
        to_client = [m for m in transcript.kept if isinstance(m, messages.ToClient)]
        found = masking.client_bytes(1000)
        self.assertEqual(found.upload, round(sum(map(_sent, to_server)) / 12))
        self.assertEqual(found.download, 1000 + round(sum(map(_sent, to_client)) / 12))
        # Two public keys and a vector of 7 numbers, at the least.
        self.assertGreater(found.upload, 2 * 32 + 7)


if __name__ == "__main__":
    absltest.main()
