"""Tests of what queries may do on a device: a table of attacks, and isolation."""

import random
import re
import time
import tracemalloc
from unittest import mock

from absl.testing import absltest, parameterized

from federated_hh.statistics.recipes import store, verification

_STREAM = store.EventStream(
    "KeyboardNGrams",
    {"age": "INTEGER", "ngrams": "TEXT", "contact": "TEXT"},
    retention=100,
)
_CLASS = verification.QueryClass(_STREAM, frozenset(["age", "ngrams"]))
_ROWS = [(31, "hello world", "bob"), (52, "i got home", "eve")]
_FROM = "from KeyboardNGrams"
# Queries and why each is refused.
_REFUSED = (
    # Fields that are not approved, wherever they stand.
    (f"select * {_FROM}", "field contact"),
    (f"select contact as ngrams {_FROM}", "field contact"),
    (f"select age {_FROM} where contact = 'bob'", "field contact"),
    (f"select age {_FROM} order by contact", "field contact"),
    (f"select age {_FROM} group by contact", "field contact"),
    (f"select age {_FROM} group by age having max(contact) > 'a'", "field contact"),
    (f"select lower(contact) as ngrams {_FROM}", "field contact"),
    (f"select count(contact) as age {_FROM}", "field contact"),
    (f"select count(*) filter (where contact = 'bob') as age {_FROM}", "contact"),
    (f"select iif(contact = 'bob', 1, 2) as age {_FROM}", "field contact"),
    (f"select [contact] as ngrams {_FROM}", "field contact"),
    (f"select `contact` as ngrams {_FROM}", "field contact"),
    (f"select KeyboardNGrams.contact as ngrams {_FROM}", "field contact"),
    (f"select age {_FROM} where age in KeyboardNGrams", "field contact"),
    (f"select rowid as age {_FROM}", "field ROWID"),
    (f"select oid as age {_FROM}", "field ROWID"),
    # Joins that compare fields without the authorizer's being asked.
    (f"select a.age {_FROM} a join KeyboardNGrams b using (contact)", "'join'"),
    (f"select a.age {_FROM} a, KeyboardNGrams b using (contact)", "'using'"),
    (f"select a.age {_FROM} a natural join KeyboardNGrams b", "'natural'"),
    (f"select a.age {_FROM} a cross join KeyboardNGrams b", "'join'"),
    # More than one SELECT.
    (f"select (select max(age) {_FROM}) as age {_FROM}", "second SELECT"),
    (f"select age from (select age {_FROM})", "second SELECT"),
    (f"select age {_FROM} where age in (select 1)", "second SELECT"),
    (f"select age {_FROM} where exists (select 1)", "second SELECT"),
    (f"select age {_FROM} limit (select 1)", "second SELECT"),
    (f"select age {_FROM}, (values (1))", "second SELECT"),
    (f"select age {_FROM} union select 1", "compound SELECT"),
    (f"select age {_FROM} union all values (1)", "compound SELECT"),
    (f"with k as (select * {_FROM}) select age from k", "begin with SELECT"),
    (
        "with KeyboardNGrams as (select 1 as age) select age from KeyboardNGrams",
        "begin with SELECT",
    ),
    (
        f"select age {_FROM} where 1 in (with k as (select 1) select * from k)",
        "second SELECT",
    ),
    (
        "with recursive k(age) as (select 1 union all select age + 1 from k) "
        "select age from k",
        "begin with SELECT",
    ),
    (f"select age, count(*) over () as n {_FROM}", "second SELECT"),
    (f"select row_number() over () as age {_FROM}", "function row_number"),
    # Other tables, and what SQLite tells of itself.
    ("select age from others", "no such table"),
    ("select age from temp.KeyboardNGrams", "no such table"),
    ("select name as ngrams from sqlite_master", "table sqlite_master"),
    ("select name as ngrams from sqlite_schema", "table sqlite_master"),
    ("select name as ngrams from sqlite_temp_master", "table sqlite_temp_master"),
    ("select count(*) as age from sqlite_master", "table sqlite_master"),
    ("select 1 as age from sqlite_master", "table sqlite_master"),
    (f"select age {_FROM} where age in sqlite_master", "table sqlite_master"),
    ("select name as ngrams from pragma_table_info('KeyboardNGrams')", "action"),
    ("select value as ngrams from json_each('[1]')", "action"),
    ("select value as age from generate_series(1, 5)", "no such table"),
    (f"select sqlite_version() as ngrams {_FROM}", "function sqlite_version"),
    (f"select changes() as age {_FROM}", "function changes"),
    # What takes memory, time or chance, or is another each time.
    (f"select zeroblob(1000000000) as ngrams {_FROM}", "function zeroblob"),
    (f"select printf('%999999999d', 1) as ngrams {_FROM}", "function printf"),
    (f"select replace(ngrams, 'a', 'aaaa') as ngrams {_FROM}", "function replace"),
    (f"select group_concat(ngrams) as ngrams {_FROM}", "function group_concat"),
    (f"select hex(ngrams) as ngrams {_FROM}", "function hex"),
    (f"select ngrams {_FROM} where ngrams like '%a%'", "function like"),
    (f"select ngrams {_FROM} where ngrams glob '*a*'", "function glob"),
    (f"select random() as age {_FROM}", "function random"),
    (f"select randomblob(5) as ngrams {_FROM}", "function randomblob"),
    (f"select age {_FROM} order by random()", "function random"),
    (f"select date('now') as ngrams {_FROM}", "function date"),
    (f"select strftime('%s') as age {_FROM}", "function strftime"),
    (f"select current_timestamp as ngrams {_FROM}", "function current_timestamp"),
    (f"select load_extension('x') as ngrams {_FROM}", "function load_extension"),
    (f"select age {_FROM} where ngrams regexp 'a'", "no such function"),
    (f"select ngrams -> 'a' as age {_FROM}", "function ->"),
    (f"select ngrams ->> 'a' as age {_FROM}", "function ->>"),
    # What takes as long as the product of two texts' lengths, in one of its steps.
    (f"select trim(ngrams, 'abc') as age {_FROM}", "function trim"),
    (f"select ltrim(ngrams, 'abc') as age {_FROM}", "function ltrim"),
    (f"select rtrim(ngrams, 'abc') as age {_FROM}", "function rtrim"),
    (f"select trim(ngrams) as age {_FROM}", "function trim"),
    (f"select instr(ngrams, 'abc') as age {_FROM}", "function instr"),
    # No SELECT at all.
    ("values (1)", "begin with SELECT"),
    (f"explain select age {_FROM}", "begin with SELECT"),
    (f"explain query plan select age {_FROM}", "begin with SELECT"),
    ("pragma table_info(KeyboardNGrams)", "begin with SELECT"),
    ("attach 'x.db' as x", "begin with SELECT"),
    ("detach x", "begin with SELECT"),
    ("vacuum into 'x.db'", "begin with SELECT"),
    ("insert into KeyboardNGrams values (1, 'a', 'b')", "begin with SELECT"),
    ("replace into KeyboardNGrams values (1, 'a', 'b')", "begin with SELECT"),
    ("update KeyboardNGrams set age = 1", "begin with SELECT"),
    ("delete from KeyboardNGrams", "begin with SELECT"),
    ("create table x (a)", "begin with SELECT"),
    ("create temp table x as select 1", "begin with SELECT"),
    ("create view x as select 1", "begin with SELECT"),
    ("drop table KeyboardNGrams", "begin with SELECT"),
    ("alter table KeyboardNGrams add column x", "begin with SELECT"),
    ("begin", "begin with SELECT"),
    ("savepoint x", "begin with SELECT"),
    ("reindex", "begin with SELECT"),
    ("analyze", "begin with SELECT"),
    ("selectage from KeyboardNGrams", "begin with SELECT"),
    ("", "begin with SELECT"),
    # Several statements, comments, parameters, and names that become texts.
    (f"select age {_FROM}; delete {_FROM}", "';'"),
    (f"select age {_FROM};", "';'"),
    (f"select age {_FROM} -- approved", "'--'"),
    (f"select /* approved */ age {_FROM}", "'/*'"),
    (f"/* approved */ select age {_FROM}", "begin with SELECT"),
    (f"select age {_FROM}\0where contact = 'bob'", r"'\x00'"),
    (f'select "contact" as ngrams {_FROM}', "'\"'"),
    (f'select "no_such" as ngrams {_FROM}', "'\"'"),
    (f"select age {_FROM} where age = ?", "'?'"),
    (f"select age {_FROM} where age = :a", "':'"),
    (f"select age {_FROM} where age = @a", "'@'"),
    (f"select age {_FROM} where age = $a", "'$'"),
    # What is too long.
    (f"select length('{'a' * 4000}') as age {_FROM}", "too large"),
    (f"select age {_FROM}{' ' * 4000}", "too large"),
    (f"select age {_FROM} where age in ({','.join(['1'] * 9000)})", "too large"),
    (f"select {'+'.join(['age'] * 60)} as age {_FROM}", "Expression tree"),
    (f"select 1 as age {', '.join([_FROM] + ['KeyboardNGrams'] * 70)}", "at most 64"),
    # Columns of other names than the recipe's.
    (f"select age as years {_FROM}", "columns are years"),
    (f"select age, age {_FROM}", "columns are age, age"),
)
# Queries, the fields that they count as reading, and what they find.
_ALLOWED = (
    (f"select age {_FROM}{' ' * 3900}", {"age"}, [31, 52]),
    (f"select age {_FROM}", {"age"}, [31, 52]),
    ("  SELECT\nage FROM keyboardngrams", {"age"}, [31, 52]),
    ("select age from main.KeyboardNGrams", {"age"}, [31, 52]),
    (f"select k.age {_FROM} k", {"age"}, [31, 52]),
    (f"select age {_FROM} where ngrams > 'hz'", {"age", "ngrams"}, [52]),
    (f"select age {_FROM} order by ngrams desc limit 1", {"age", "ngrams"}, [52]),
    (f"select max(age) as age {_FROM} group by ngrams", {"age", "ngrams"}, [31, 52]),
    (f"select distinct 1 as age {_FROM} where age > 3", {"age"}, [1]),
    # Each other's rows are the device's own.
    (f"select a.age {_FROM} a, KeyboardNGrams b where b.age = 52", {"age"}, [31, 52]),
    # Who counts rows learns of every approved field's.
    (f"select count(*) as age {_FROM}", {"age", "ngrams"}, [2]),
    (f"select 1 as age {_FROM}", {"age", "ngrams"}, [1, 1]),
    ("select 1 as age", set(), [1]),
    (f"select 9e999 as age {_FROM} limit 1", {"age", "ngrams"}, [float("inf")]),
    (f"select length(ngrams) as age {_FROM}", {"ngrams"}, [11, 10]),
    (f"select age {_FROM} where ngrams = 'using contact'", None, []),
)


# Queries each of whose steps handles a text of 1,000 bytes, if it can, and what stops
# them: each function and operation that may be used, the costly ones nested.
_TEXTS = f"{_FROM} a, KeyboardNGrams b, KeyboardNGrams c"
_UPPER = f"length({'upper(' * 8}a.ngrams{')' * 8})"
_COSTLY = (
    *(
        (f"select max({'+'.join([part] * 25)}) as age {_TEXTS}", "interrupted")
        for part in (
            _UPPER,
            _UPPER.replace("upper", "lower"),
            "length(a.ngrams||b.age)",
            "length(substr(a.ngrams,-2,1))",
            "length(substr(a.ngrams,998,1))",
            "length(nullif(a.ngrams,b.ngrams||1))",
            "length(iif(b.age,a.ngrams||1,b.ngrams))",
            "length(ifnull(a.ngrams||1,coalesce(b.ngrams||2,3)))",
            "(max(a.ngrams,b.ngrams,c.ngrams,a.ngrams,b.ngrams)>min(b.ngrams,9))",
            "(a.ngrams=b.ngrams collate nocase)",
            "(cast(a.ngrams as blob)>b.ngrams)",
            "(a.ngrams between b.ngrams and c.ngrams)",
            "(a.ngrams||1 in (b.ngrams,c.ngrams,1,2,3))",
            "abs(a.contact||b.age)",
            "round(a.age+0.1234567,30)",
            "length(a.age*1.23456789e-290)",
        )
    ),
    (f"select sum(a.contact)+total(b.contact)+avg(1) as age {_TEXTS}", "interrupted"),
    (f"select a.ngrams||b.age as age {_TEXTS} order by 1", "interrupted"),
    (f"select a.age {_TEXTS} group by a.ngrams||b.age||c.age", "interrupted"),
    (f"select count(distinct a.ngrams||b.age||c.age) as age {_TEXTS}", "interrupted"),
    (f"select distinct a.ngrams||b.age||c.age as age {_TEXTS}", "10,000,000 bytes"),
    (f"select a.ngrams as age {_TEXTS}", "10,000,000 bytes"),
    (f"select a.ngrams||b.ngrams||c.ngrams as age {_TEXTS}", "too big"),
)


# Queries whose answer depends on the order of the rows that SQLite has.
_IN_ORDER = (
    f"select age {_FROM} limit 1 offset 1",
    f"select age {_FROM} limit 2",
    f"select age {_FROM} where age > 30 limit 1",
    f"select age {_FROM} order by 1 limit 1 offset 1",
    f"select age {_FROM} order by ngrams desc limit 1",
    f"select age {_FROM} order by ngrams collate nocase limit 2",
    f"select age {_FROM} order by length(ngrams), 1 limit 2",
    f"select age {_FROM} group by ngrams",
    f"select age {_FROM} group by length(ngrams) having count(*) > 1",
    f"select distinct ngrams collate nocase as age {_FROM} limit 1",
    f"select ngrams as age {_FROM} group by ngrams collate nocase",
    f"select ngrams || max(age) as age {_FROM}",
    f"select ngrams || min(length(ngrams)) as age {_FROM}",
    f"select max(ngrams collate nocase) as age {_FROM}",
    f"select coalesce(max(length(ngrams)), 0) || age as age {_FROM}",
    f"select a.age {_FROM} a, KeyboardNGrams b limit 1 offset 3",
    f"select length(a.age || b.ngrams) as age {_FROM} a, KeyboardNGrams b limit 3",
    f"select sum(age * 9007199254740993) as age {_FROM}",
    f"select total(weight) as age {_FROM}",
    f"select avg(weight) as age {_FROM}",
    f"select weight as age {_FROM} limit 1",
    f"select 1 as age {_FROM} limit 1 offset 2",
)


class VerificationTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.sandbox = self.enter_context(verification.Sandbox(_CLASS))

    @parameterized.parameters(*_REFUSED)
    def test_refused(self, query, reason):
        for _ in range(2):  # what was refused once is refused again
            with self.assertRaisesRegex(
                verification.QueryRefusedError, re.escape(reason)
            ):
                self.sandbox.answer(query, ["age"], _ROWS)
        # And nothing is left of it.
        rows = self.sandbox.answer(f"select age {_FROM}", ["age"], _ROWS)
        self.assertEqual(rows, [(31,), (52,)])

    @parameterized.parameters(*_ALLOWED)
    def test_allowed(self, query, fields, found):
        if fields is None:  # a text with a forbidden word is refused, to be safe
            with self.assertRaises(verification.QueryRefusedError):
                self.sandbox.verify(query, ["age"])
            return
        self.assertEqual(self.sandbox.verify(query, ["age"]), fields)
        rows = self.sandbox.answer(query, ["age"], _ROWS)
        self.assertEqual(rows, [(age,) for age in found])
        self.assertEqual(self.sandbox.verify(query, ["age"]), fields)

    def test_a_query_sees_one_device_and_the_fields_that_it_pays_for(self):
        query = f"select age {_FROM}"
        for age in (20, 30):
            rows = self.sandbox.answer(query, ["age"], [(age, "x", "y")])
            self.assertEqual(rows, [(age,)])
        self.assertEqual(self.sandbox.answer(query, ["age"], []), [])
        # Were a way found to read a field without the authorizer's being asked, as
        # USING is one, there would be nothing to read.
        words = re.compile("no such word")
        with mock.patch.object(verification, "_FORBIDDEN_WORDS", words):
            for field in ("contact", "ngrams"):
                query = f"select a.age {_FROM} a join KeyboardNGrams b using ({field})"
                self.assertEqual(self.sandbox.verify(query, ["age"]), {"age"})
                self.assertEqual(self.sandbox.answer(query, ["age"], _ROWS), [])

    @parameterized.parameters(*_IN_ORDER, f"select age {_FROM}")
    def test_the_order_of_events_tells_nothing(self, query):
        fields = {**_STREAM.fields, "weight": "REAL"}
        stream = store.EventStream(_STREAM.name, fields, retention=100)
        read = frozenset(fields) - {"contact"}
        query_class = verification.QueryClass(stream, read)
        sandbox = self.enter_context(verification.Sandbox(query_class))
        draw, answers = random.Random(1), set()
        values = [(31, "ab"), (52, "AB"), (31, "b"), (None, "b"), (1000, None)]
        values += [(31, "ab"), ("x", "aB")]
        weights = [1e16, 1.0, -1e16, 3.0, 0.1, None, 7e-20]
        for _ in range(40):
            events = self.enter_context(store.EventStore([stream]))
            rows = [
                (0, draw.random(), *value, str(draw.random()), weight)
                for value, weight in zip(values, weights, strict=True)
            ]
            events.donate(stream.name, draw.sample(rows, len(rows)))
            found = events.rows(stream.name, 0, 1.0)
            try:
                answer = sandbox.answer(query, ["age"], found)
            except verification.QueryFailedError as error:
                answer = [str(error)]
            if verification.is_plain(query):  # a device takes any of them
                answer.sort(key=repr)
            answers.add(repr(answer))
        self.assertLen(answers, 1)

    def test_columns_come_in_the_order_that_is_asked_for(self):
        query = f"select ngrams, age {_FROM}"
        rows = [(age, f"word{age}", "x") for age in range(75)]
        for columns in (["age", "ngrams"], ["ngrams", "age"]):
            found = self.sandbox.answer(query, columns, rows)
            # More rows than go into the sandbox at once.
            expected = [row[:2] if columns[0] == "age" else row[1::-1] for row in rows]
            self.assertEqual(found, expected)

    def test_runaway_queries_are_stopped(self):
        tables = ", ".join(f"KeyboardNGrams k{i}" for i in range(4))
        query = f"select max(k0.age + k1.age + k2.age + k3.age) as age from {tables}"
        self.sandbox.verify(query, ["age"])
        before = time.process_time()
        with self.assertRaisesRegex(verification.QueryFailedError, "interrupted"):
            self.sandbox.answer(query, ["age"], _ROWS * 1000)
        self.assertLess(time.process_time() - before, 0.5)
        query = f"select a.age {_FROM} a, KeyboardNGrams b"
        with self.assertRaisesRegex(verification.QueryFailedError, "10,000 rows"):
            self.sandbox.answer(query, ["age"], _ROWS * 60)

    @parameterized.parameters(*_COSTLY)
    def test_no_step_of_a_query_takes_long(self, query, reason):
        fields = frozenset(["age", "ngrams", "contact"])
        query_class = verification.QueryClass(_STREAM, fields)
        sandbox = self.enter_context(verification.Sandbox(query_class))
        texts, digits = "ab" * (store.MOST_BYTES // 2), "9" * 400
        sandbox.verify(query, ["age"])
        before = time.process_time()
        with self.assertRaisesRegex(verification.QueryFailedError, reason):
            sandbox.answer(query, ["age"], [(i, texts, digits) for i in range(200)])
        self.assertLess(time.process_time() - before, 2)  # mostly below 0.2

    def test_all_allowed_functions_are_among_the_costly(self):
        cheap = {"count"}
        queries = " ".join(query for query, _ in _COSTLY)
        for name in verification.FUNCTIONS - cheap:
            self.assertIn(f"{name}(", queries)

    def test_what_is_found_takes_little_memory(self):
        rows = [(i, "a" * 900, "x") for i in range(100)]
        pairs = f"{_FROM} a, KeyboardNGrams b"
        found = self.sandbox.answer(f"select a.ngrams as age {pairs}", ["age"], rows)
        self.assertLen(found, 10_000)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        query = f"select a.ngrams||b.ngrams as age {pairs}"
        with self.assertRaisesRegex(verification.QueryFailedError, "00,000 bytes"):
            self.sandbox.answer(query, ["age"], rows)
        self.assertLess(tracemalloc.get_traced_memory()[1], 15_000_000)

    def test_rows_that_are_too_long_are_no_refusal(self):
        rows = [(31, "a" * 1_100_000, "bob")]
        query = f"select ngrams {_FROM}"
        with self.assertRaisesRegex(verification.QueryFailedError, "too big"):
            self.sandbox.answer(query, ["ngrams"], rows)
        # And nothing is left of them, nor do they matter where they are not read.
        self.assertEqual(self.sandbox.answer(query, ["ngrams"], []), [])
        query = f"select age {_FROM}"
        self.assertEqual(self.sandbox.answer(query, ["age"], rows), [(31,)])

    def test_what_fails_on_rows_is_no_refusal(self):
        query = f"select sum(9223372036854775807) as age {_FROM}"
        self.assertEqual(self.sandbox.answer(query, ["age"], _ROWS[:1]), [(2**63 - 1,)])
        with self.assertRaisesRegex(verification.QueryFailedError, "overflow"):
            self.sandbox.answer(query, ["age"], _ROWS)

    def test_analysts_are_told_nothing_hidden(self):
        for hidden in ("contact", "bob", "sqlite", "KeyboardNGrams"):
            self.assertNotIn(hidden, verification.PUBLIC_REASON)

    @parameterized.parameters(
        *("größe > 10", "10 < Größe", "KeyboardNGrams.größe >= .5", "(größe) = (-1)"),
        *("[größe] not between 1 and 3", "`größe` in (1, 2)", "größe * 2 > 'a'"),
        *("coalesce(größe, 0) > 1e-5", "größe != age", "substr(größe, 1, 2) > 10"),
        *("city = 'a' and (age > 3 or größe < 4 * 2)", "größe is not 3"),
        *("iif(age > 3, größe, '') > 3", "sum(größe) > age", "not (größe > 10)"),
    )
    def test_texts_taken_for_numbers(self, condition):
        kinds = {"city": "TEXT", "größe": "TEXT", "age": "INTEGER"}
        query = f"select city {_FROM} where {condition}"
        found = verification.text_as_number(query, kinds, ["age"])
        self.assertEqual(found[0], "größe")
        # Of a column of numbers all of that is right.
        right = kinds | {"größe": "REAL"}
        self.assertIsNone(verification.text_as_number(query, right, ["age"]))

    @parameterized.parameters(
        *(
            "max(größe) as age",
            "größe as X",
            "city, max(größe) größe",
            "min(größe) as x",
        ),
    )
    def test_a_text_counted_as_a_number(self, selected):
        kinds = {"city": "TEXT", "größe": "TEXT", "age": "INTEGER"}
        query = f"select {selected} {_FROM}"
        found = verification.text_as_number(query, kinds, ["age", "x", "größe"])
        self.assertEqual(found, ("größe", "takes it for a number"))

    @parameterized.parameters(
        *("city = 'größe > 10'", "length(city) > 3", "city in ('a', 'b')", "age > 1"),
        *("city is not null and age in (1, 2)", "cast(city as real) > 10"),
        *("city between 'a' and 'b' and age < 3", "lower(city) = 'x' or 3 < age"),
        *("iif(city = 'x', age, 0) > 3", "city || 'x' = 'yx'", "city = 'it''s'"),
    )
    def test_texts_taken_for_texts(self, condition):
        kinds = {"city": "TEXT", "age": "INTEGER"}
        query = (
            f"select max(city) as city, max(age) as age {_FROM} where {condition} "
            "group by city having count(*) > 2 order by city limit 3"
        )
        self.assertIsNone(verification.text_as_number(query, kinds, ["age"]))

    def test_arguments(self):
        with self.assertRaisesRegex(ValueError, "fields is"):
            verification.QueryClass(_STREAM, frozenset(["name"]))
        with self.assertRaisesRegex(ValueError, "fields is"):
            verification.QueryClass(_STREAM, frozenset())


if __name__ == "__main__":
    absltest.main()
