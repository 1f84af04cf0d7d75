"""Tests of devices without events, with too long ones, and with unknown words."""

import dataclasses

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.randomness import streams
from federated_hh.statistics.devices import fleet, vector_fleet
from federated_hh.statistics.recipes import contents, events
from tests.federated_hh.statistics import cases, collected


def _recipe(tokens, query="select ngrams from KeyboardNGrams"):
    tree = {"dataType": "PrefixTree", "tree": {"root": []}, "tokens": [*tokens]}
    return cases.recipe(query=query, dataTypeContent={"ngrams": tree})


def _without(stored, empty):
    """Returns events of which some devices have none."""
    sizes = np.diff(stored.splits)
    kept = ~np.isin(np.repeat(np.arange(len(sizes)), sizes), empty)
    sizes[[*empty]] = 0
    return dataclasses.replace(
        stored,
        grams=stored.grams[kept],
        seconds=stored.seconds[kept],
        splits=np.append(0, np.cumsum(sizes)),
    )


class FleetEdgesTest(parameterized.TestCase):
    def fleets(self, stored):
        self.collected = collected.Collected()
        approval = cases.approval()
        return (
            fleet.DeviceFleet(approval, stored, self.collected),
            vector_fleet.VectorFleet(approval, stored),
        )

    def cells(self, stored, recipe, chance):
        """Returns the cells of all devices, which real and vectorised ones agree on."""
        real, vector = self.fleets(stored)
        cells = [
            real.devices.true_cell(i, recipe, stored.now, chance)
            for i in range(stored.num_devices)
        ]
        everybody = np.arange(stored.num_devices)
        for some in (everybody, everybody[::2], everybody[5:], everybody[:0]):
            found = vector.true_cells(recipe, some, np.full(len(some), chance))
            self.assertEqual(found.tolist(), [cells[i] for i in some])
        return cells

    def test_texts_of_n_grams_are_what_devices_store(self):
        stored = cases.stored(300)
        texts = [row[3] for row in stored.rows()][:20]
        values = sorted({*texts, "i went", "no such words"})
        recipe = cases.recipe(
            query="select ngrams from KeyboardNGrams",
            dataTypeContent={"ngrams": {"dataType": "TextType", "values": values}},
        )
        for chance in (0.0, 0.7):
            self.assertGreater(len(set(self.cells(stored, recipe, chance))), 5)

    @parameterized.parameters(
        ((0,),), ((3,),), ((7,),), ((0, 1, 4, 6, 7),), (range(8),)
    )
    def test_arrays_without_events_answer_as_devices_do(self, empty):
        whole = cases.stored(8)
        recipe = _recipe(whole.words)
        for chance in (0.0, 0.5, 0.99):
            expected = self.cells(whole, recipe, chance)
            for i in empty:
                expected[i] = 0
            found = self.cells(_without(whole, empty), recipe, chance)
            self.assertEqual(found, expected)

    def test_a_device_whose_rows_are_too_long_is_not_silent(self):
        real, _ = self.fleets(cases.stored(3))
        long = [(1, 0.0, "a" * 900, "b" * 900, "c" * 900)]
        real.devices.events.donate(events.STREAM.name, long)
        recipe = _recipe(
            ["i"], "select ngrams from KeyboardNGrams where age > 0 and seconds > 0"
        )
        stream = streams.Stream(7, ("round", 0))
        real.ask(recipe, np.arange(3), (), stream)
        self.assertLen(self.collected.reports, 3)
        self.assertEqual(real.devices.true_cell(1, recipe, 5.0, 0.99), 0)
        self.assertGreater(real.devices.true_cell(0, recipe, 5.0, 0.99), 0)

    def test_no_token_is_an_unknown_word(self):
        stored = cases.stored(60)
        unknown = contents.NULL
        with self.assertRaisesRegex(ValueError, unknown):
            _recipe([unknown])
        recipe = _recipe([*stored.words, "\N{REPLACEMENT CHARACTER}", "unknown"])
        last = recipe.content.num_cells - 2
        for chance in (0.01, 0.5, 0.99):
            cells = self.cells(stored, recipe, chance)
            self.assertIn(2, cells)  # that of unknown words
            self.assertLess(max(cells), last)


if __name__ == "__main__":
    absltest.main()
