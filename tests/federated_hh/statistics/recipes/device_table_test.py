"""Tests of custom device tables: their files, their types, and devices' answers."""

import dataclasses
import gzip
import pathlib
import re

import numpy as np
from absl import logging as absl_logging
from absl.testing import absltest, parameterized

from federated_hh.privacy.local import device_policy
from federated_hh.statistics.devices import device, fleet, vector_fleet
from federated_hh.statistics.recipes import device_table, verification
from tests.federated_hh.statistics import cases, collected

_CSV = """user,age,city,weight
anna,34,Oslo,60.5
ben,,"New York, NY",
anna,35,"a ""quoted"" one",61
"ça",7,東京,.5
"""


class DeviceTableTest(parameterized.TestCase):
    def read(self, text, **options):
        path = pathlib.Path(self.create_tempdir().full_path) / "survey.csv"
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(data)
        return device_table.DeviceTable.read(str(path), name="DeviceTable", **options)

    def test_rows_are_typed_and_of_their_devices(self):
        table = self.read(_CSV)
        self.assertEqual(
            table.stream.fields, {"age": "INTEGER", "city": "TEXT", "weight": "REAL"}
        )
        self.assertEqual(
            list(table.rows()),
            [
                (0, 0, 34, "Oslo", 60.5),
                (0, 1, 35, 'a "quoted" one', 61.0),
                (1, 0, None, "New York, NY", None),
                (2, 0, 7, "東京", 0.5),
            ],
        )
        self.assertEqual((table.num_devices, table.now), (3, 2.0))
        self.assertEqual(
            table.summary,
            "3 devices with 4 rows; the columns of DeviceTable are age (INTEGER), city "
            "(TEXT), weight (REAL).",
        )

    def test_files_of_other_programs(self):
        expected = self.read(_CSV).fingerprint
        plain = "user{0}age{0}city\nanna{0}34{0}Oslo\n"
        for delimiter in ",;\t":
            table = self.read(plain.format(delimiter))
            self.assertEqual([*table.rows()], [(0, 0, 34, "Oslo")])
        for data in (
            ("\ufeff" + _CSV).encode(),
            _CSV.replace("\n", "\r\n").encode(),
            _CSV.replace("\n", "\n\n").encode(),
        ):
            self.assertEqual(self.read(data).fingerprint, expected)
        named = self.read("sep=|\n" + plain.format("|"))
        self.assertEqual([*named.rows()], [(0, 0, 34, "Oslo")])
        latin = "user,city\nanna,Tromsø\n".encode("latin-1")
        self.assertEqual(
            self.read(latin, encoding="latin-1").columns["city"].tolist(), ["Tromsø"]
        )
        packed = pathlib.Path(self.create_tempdir().full_path) / "survey.csv.gz"
        packed.write_bytes(gzip.compress(_CSV.encode()))
        table = device_table.DeviceTable.read(str(packed), name="DeviceTable")
        self.assertEqual(table.fingerprint, expected)
        self.assertNotEqual(self.read(_CSV.replace("34", "36")).fingerprint, expected)

    def test_types_that_a_policy_gives(self):
        table = self.read("id,code\na,007\nb,12\n", user_column="id")
        self.assertEqual(table.stream.fields, {"code": "TEXT"})
        table = self.read(
            "id,code,rest\na,007,x\n", user_column="0", types={"code": "INTEGER"}
        )
        self.assertEqual({n: [*c] for n, c in table.columns.items()}, {"code": [7]})
        with self.assertRaisesRegex(ValueError, "no column 'age'.*id, code"):
            self.read("id,code\na,1\n", user_column="id", types={"age": "INTEGER"})

    @parameterized.parameters(
        ("a,1\n,2\n", ":3: .*|line 3: the user is empty"),
        ("a,1\nb,2,3\n", "line 3: 3 fields instead of 2"),
        ('a,1\nb,"2\nc,3\n', "line 3: a quote is not closed"),
        (b"a,1\nb,\xff\n", "line 3: bytes that the encoding"),
        ("a," + "x" * 1001 + "\n", "line 2: age has 1,001 bytes"),
        ("".join(f"u{i},{i}\n" for i in range(20)) + "z,4O\n", "line 22: age is '4O'"),
        ("".join(f"u{i},{i}\n" for i in range(20)) + f"z,{2**63}\n", "whole number"),
        ("".join(f"u{i},{i}.5\n" for i in range(20)) + "z,nan\n", "a number like"),
        (
            "".join(f"u{i},{i}.5\n" for i in range(20)) + 'z,"7,5"\n',
            "age is '7,5'; .*: write the decimal comma as a point",
        ),
    )
    def test_bad_rows_are_named(self, rows, message):
        rows = rows if isinstance(rows, bytes) else rows.encode()
        with self.assertRaisesRegex(ValueError, message):
            self.read(b"user,age\n" + rows)

    @parameterized.parameters(
        ("24,8", True), ("1.234,5", True), ("1'234,50", True), ("3٫5", True),
        ("1 234,5", True), ("Oslo, NY", False), ("1,2,3", False),
    )  # fmt: skip
    def test_a_column_of_decimal_commas_is_told(self, cell, is_told):
        rows = "".join(f"u{i};{cell if i else 7}\n" for i in range(20))
        with self.assertLogs(level="WARNING") as logs:
            absl_logging.warning("one at least")
            table = self.read("user;größe\n" + rows)
        self.assertEqual(table.stream.fields, {"größe": "TEXT"})
        told = f"größe is TEXT, .* such as {cell!r}: write the decimal comma as a point"
        self.assertEqual(bool(re.search(told, "".join(logs.output))), is_told)

    def test_names_of_columns_stay(self):
        table = self.read("user,_age,Größe_\na,1,2\n")
        self.assertEqual([*table.stream.fields], ["_age", "Größe_"])

    def test_bad_rows_may_be_left_out(self):
        table = self.read("user,age\na,1\n,2\nb,3\n", max_bad_rows=1)
        self.assertEqual([*table.rows()], [(0, 0, 1), (1, 0, 3)])

    @parameterized.parameters(
        ("age\n1\n", "no column 'user'"),
        ("user,user\na,b\n", "2 columns 'user'"),
        ("user,age\n", "no row"),
        ("", "no column 'user'"),
        ("user,first name\na,1\n", "'first name': rename it, as to first_name;"),
        ("user,2nd (%)\na,1\n", r"'2nd \(%\)': rename it, as to _2nd;"),
        ("user,age,\na,1,\n", "column '': rename it, as to column;"),
        ("user,Time\na,1\n", "'Time': rename it, as to Time_;"),
        ("user,group\na,1\n", "'group': rename it, as to group_;"),
        ("user,age,AGE\na,1,2\n", "two columns called age"),
        ("user|age\na|1\n", r"no column 'user'.*try --delimiter='\|'"),
        (
            "Nutzer|Größe\na|ü\n".encode("latin-1"),
            r"names have bytes.*try --encoding=cp1252, .*'Nutzer\|Größe'",
        ),
        (
            "id|city\na|Tromsø\n".encode("latin-1"),
            r"try --delimiter='\|'.* 'city', and give --user_column\. .*'Tromsø'",
        ),
        ("user,age\na,1\n".encode("utf-16"), "try --encoding=utf-16"),
        ("user\na\n", "has to have a field"),
    )
    def test_bad_files(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            self.read(text)

    def test_arrays_answer_as_devices_do(self):
        generator = np.random.default_rng(1)
        cities = ["oslo", "new york", "東京", "", "oslo bay"]
        lines = [
            f"u{generator.integers(40)},{age if age < 60 else ''},{city},{x:.3f}"
            for age, city, x in zip(
                generator.integers(10, 70, 200),
                generator.choice(cities, 200),
                generator.normal(size=200),
                strict=True,
            )
        ]
        table = self.read("user,age,città,höhe\n" + "\n".join(lines) + "\n")
        limits = device_policy.Limits(
            aggregate_epsilon=1.0, reports=4, local_epsilon=5.0
        )
        policy = dataclasses.replace(
            cases.approval().policy, fields=dict.fromkeys(table.stream.fields, limits)
        )
        approval = device.Approval(
            policy,
            verification.QueryClass(table.stream, frozenset(table.stream.fields)),
        )
        real = fleet.DeviceFleet(approval, table, collected.Collected())
        vector = vector_fleet.VectorFleet(approval, table)
        bucketed = {"dataType": "BucketedType", "boundaries": [20, 30, 50]}
        tree = {
            "dataType": "PrefixTree",
            "tree": {"root": ["new", "oslo", "null"]},
            "tokens": ["new", "york", "oslo", "東京"],
        }
        both = {"dataType": "CombinationType", "structure": ["age", "città"]}
        for query, content in (
            ("select age from DeviceTable", {"age": bucketed}),
            ("select città from DeviceTable", {"città": tree}),
            (
                "select höhe from DeviceTable",
                {"höhe": {**bucketed, "boundaries": [-1, 0, 1]}},
            ),
            ("select age from DeviceTable", {"age": tree}),
            (
                "select città, age from DeviceTable",
                {"age": bucketed, "città": tree, "both": both},
            ),
        ):
            recipe = cases.recipe(query=query, dataTypeContent=content)
            chances = generator.random(table.num_devices)
            cells = [
                real.devices.true_cell(i, recipe, table.now, chance)
                for i, chance in enumerate(chances)
            ]
            found = vector.true_cells(recipe, np.arange(table.num_devices), chances)
            self.assertEqual(found.tolist(), cells)
            # An age is no text.
            is_of_type = content != {"age": tree}
            self.assertEqual(len(set(cells)) > 1, is_of_type)
            self.assertEqual(
                approval.verify(recipe, real.devices.sandbox), {*content} - {"both"}
            )


if __name__ == "__main__":
    absltest.main()
