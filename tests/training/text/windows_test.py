"""Tests of the places of clients' text against the batches of training."""

import pathlib

import numpy as np
from absl.testing import absltest

from federated_hh.populations.columns import client_text
from tests.training import training_test_case as common
from training.text import examples, windows


class WindowsTest(absltest.TestCase):
    def text(self, clients):
        path = pathlib.Path(self.create_tempdir().full_path) / "text"
        rows = [(str(i), sentences) for i, sentences in enumerate(clients)]
        return client_text.ClientText.from_rows(path, rows)

    def test_windows_are_those_of_the_sentences(self):
        clients = common.random_clients(6, seed=4)
        limits = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)
        found = windows.of_clients(
            self.text(clients), np.array([1, 4, 2]), limits, common.NUM_TOKENS
        )
        expected = []
        for client in (1, 4, 2):
            for sentence in clients[client][:4]:
                inputs, targets = common.sequence(sentence, 4)
                before = [0, *inputs]
                expected += [
                    list(w) for w in zip(before, inputs, targets, strict=False)
                ]
        self.assertEqual(found.tokens.tolist(), expected)
        self.assertEqual(found.targets.tolist(), [w[2] for w in expected])
        for order in (1, 2, 3):
            numbers = [
                int("0" + "".join(f"{t:02}" for t in w[3 - order : 2]))
                for w in expected
            ]
            # Digits in another base: the same order, and the same ones alike.
            self.assertEqual(
                np.unique(found.contexts(order), return_inverse=True)[1].tolist(),
                np.unique(numbers, return_inverse=True)[1].tolist(),
            )

    def test_sequences_are_the_sentences(self):
        clients = common.random_clients(5, seed=2)
        limits = examples.ClientLimits(max_sentences=3, max_words=4)
        found = windows.of_clients(
            self.text(clients), np.array([4, 0]), limits, common.NUM_TOKENS
        )
        inputs, targets = found.sequences(7)
        sentences = [s for client in (4, 0) for s in clients[client][:3]]
        self.assertEqual(inputs.shape, (len(sentences), 7))
        for *rows, sentence in zip(inputs, targets, sentences, strict=True):
            for row, expected in zip(rows, common.sequence(sentence, 4), strict=True):
                padding = [0] * (7 - len(expected))
                self.assertEqual(row.tolist(), [*expected, *padding])

    def test_a_sentence_that_is_cut_has_no_end(self):
        text = self.text([[[4] * n] for n in range(1, 5)])
        limits = examples.ClientLimits(max_words=2)
        used = [
            len(windows.of_clients(text, np.array([i]), limits, 5).targets)
            for i in range(4)
        ]
        self.assertEqual(used, [2, 3, 2, 2])


if __name__ == "__main__":
    absltest.main()
