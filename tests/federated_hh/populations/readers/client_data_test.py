"""Tests of making populations from TFF's client data."""

import collections
import os

import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest

from federated_hh.populations.languages import tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import client_data


class FromClientDataTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path + "/population"

    def _words(self, data, **options):
        prepared = client_data.from_client_data(data, self.directory, **options)
        return {
            prepared.client_id(i): prepared.client(i)
            for i in range(prepared.num_clients)
        }

    def test_a_string_feature_and_a_users_tokenizer(self):
        data = tff.simulation.datasets.TestClientData(
            {
                "bob": {"text": ["The sun, the SUN", "moon"], "n": [1, 2]},
                "ann": {"text": ["star"], "n": [1]},
                "cy": {"text": ["é"], "n": [1]},
            }
        )
        self.assertEqual(
            self._words(data),
            # In the order of client_ids, which TestClientData sorts.
            {"ann": [("star", 1)], "bob": [("the", 2), ("sun", 2), ("moon", 1)]},
        )
        self.directory += "2"
        own = tokenizers.Tokenizer("letters", list, "san")
        self.assertEqual(
            self._words(data, tokenizer=own),
            {"ann": [("s", 1), ("a", 1)], "bob": [("n", 2), ("s", 1)]},
        )

    def test_plain_and_batched_strings(self):
        texts = {"a": ["sun moon", "sun"], "b": [], "c": ["star"]}

        def plain(client_id):
            return tf.data.Dataset.from_tensor_slices(
                tf.constant(texts[client_id], tf.string)
            )

        for i, make in enumerate((plain, lambda c: plain(c).batch(2))):
            data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
                list(texts), make
            )
            prepared = client_data.from_client_data(
                data,
                f"{self.directory}{i}",
                options=population_options.PopulationOptions(empty_clients="keep"),
            )
            self.assertEqual(
                [prepared.client(i) for i in range(3)],
                [[("sun", 2), ("moon", 1)], [], [("star", 1)]],
            )
            self.assertEqual(prepared.metadata["clients_without_words"], 1)

    def test_wrong_data_is_refused(self):
        data = tff.simulation.datasets.TestClientData({"a": {"n": [1]}})
        with self.assertRaisesRegex(ValueError, "'text'; the elements have n"):
            self._words(data)
        with self.assertRaisesRegex(ValueError, "'a' has an element of type int"):
            self._words(data, text_feature="n")
        data = tff.simulation.datasets.TestClientData({"a": {"text": [b"caf\xe9"]}})
        with self.assertRaisesRegex(ValueError, "'a' has text that is not UTF-8"):
            self._words(data)
        data = tff.simulation.datasets.TestClientData(
            collections.OrderedDict(a={"text": ["é ?"]})
        )
        with self.assertRaisesRegex(ValueError, "population is empty"):
            self._words(data)
        self.assertFalse(os.path.exists(self.directory))


if __name__ == "__main__":
    absltest.main()
