"""Tests of the command line, run as a user runs it, and of the papers' tables."""

import csv
import dataclasses
import inspect
import io
import json
import math
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.options import fields
from federated_hh.privacy.accounting import (
    answers,
    arguments,
    paper_tables,
    plots,
    varied,
)
from federated_hh.privacy.shuffle import amplification as shuffling
from tests import ROOT
from tests.federated_hh import accounting_program

_POPULATIONS = ["10000", "20000", "40000"]
_TRIEHH = ("--mechanism=triehh", "--population=100000", "--max_length=10")

_FTRL = (
    "--mechanism=dp_ftrl",
    "--num_rounds=930",
    "--min_separation=212",
    "--max_participation=4",
    "--delta=1e-10",
)


def _values(*arguments: str) -> dict[str, list]:
    """Runs it with JSON output: quantity to its values, in order."""
    done = accounting_program.run(*arguments, "--format=json")
    if done.returncode:
        raise AssertionError(done.stderr)
    values: dict[str, list] = {}
    for row in json.loads(done.stdout):
        values.setdefault(row["quantity"], []).append(row["value"])
    return values


def _answer(mechanism: str, **values) -> dict[str, list]:
    """Asks the answer itself: quantity to its values, in order."""
    found: dict[str, list] = {}
    for row in arguments.call(answers.ANSWERS[mechanism], mechanism, values):
        found.setdefault(row["quantity"], []).append(row["value"])
    return found


class AnswersTest(parameterized.TestCase):
    def test_dp_ftrl(self):
        values = _values(
            "--mechanism=dp_ftrl",
            "--noise_multiplier=7",
            "--num_rounds=930",
            "--min_separation=212",
            "--max_participation=4",
            "--delta=1e-10",
            "--group_size=2",
            "--count_stddev=325",
        )
        self.assertEqual(values["squared sensitivity (S2)"], [47])
        # For zero-out, an emptied and a replaced client, and a user with two devices.
        for found, factor in zip(values["zCDP (rho)"], (1, 1, 4, 4), strict=True):
            self.assertAlmostEqual(found, factor * 47 / 98, places=12)
        self.assertAlmostEqual(
            values["noise multiplier of the deltas"][0], 7.000406, places=5
        )
        self.assertLen(values["epsilon at delta = 1e-10"], 6)

    @parameterized.parameters("dp_ftrl", "blt", "banded", "dp_fedavg")
    def test_a_plan_needs_only_population_cohort_and_rounds(self, mechanism):
        sizes = {"population": 50_000, "cohort_size": 500, "num_rounds": 200}
        values = _answer(mechanism, **sizes, epsilon=4.0)
        self.assertEqual(values["min separation (MinS)"], [99])
        self.assertEqual(values["max participation (MaxP)"], [2])
        self.assertAlmostEqual(values["epsilon to quote"][0], 4, places=6)
        (noise,) = values["noise multiplier (z)"]
        # What the limits say by hand has the same noise.
        by_hand = _answer(mechanism, num_rounds=200, min_separation=99, epsilon=4.0)
        self.assertEqual(by_hand["noise multiplier (z)"], [noise])
        several = _answer(mechanism, **sizes)
        self.assertEqual(several["noise multiplier (z) for epsilon 4"], [noise])

    @parameterized.product(
        mechanism=("dp_ftrl", "blt", "dp_fedavg"),
        name=("population", "cohort_size", "num_rounds"),
    )
    def test_the_number_that_is_left_out(self, mechanism, name):
        sizes = {"population": 20_000, "cohort_size": 100, "num_rounds": 300}
        title = {"population": "population (n)", "cohort_size": "cohort size (m)"}

        def epsilon(number):
            found = _answer(mechanism, **{**sizes, name: number}, noise_multiplier=8.0)
            return found["epsilon at delta = 1e-10"][0]

        given = {key: value for key, value in sizes.items() if key != name}
        found = _answer(mechanism, **given, noise_multiplier=8.0, epsilon=3.0)
        (number,) = found[title.get(name, "rounds (T)")]
        self.assertLessEqual(epsilon(number), 3)
        worse = number - 1 if name == "population" else number + 1
        self.assertGreater(epsilon(worse), 3)

    def test_numbers_with_an_exponent(self):
        given = ("--mechanism=dp_ftrl", "--population=5e6", "--cohort_size=6500")
        values = _values(*given, "--num_rounds=1e3", "--noise_multiplier=7")
        self.assertEqual(values["min separation (MinS)"], [768])
        done = accounting_program.run(*given[:2], "--cohort_size=6.5e0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--cohort_size=6.5e0: has to be a whole number", done.stderr)

    @parameterized.parameters((1, "uniform"), (2, "uniform"), (2, "adaptive"))
    def test_set_union_is_planned_as_it_runs(self, num_passes, weights):
        from federated_hh.heavy_hitters.set_union import options

        given = {"epsilon": 1.0, "num_passes": num_passes}
        found = _answer("set_union", population=100_000, word_weights=weights, **given)
        run = options.SetUnionOptions(weights=weights, **given)
        passes = run.passes_for(100_000)
        numbers = [name for name in found if name.startswith("noise multiplier")]
        self.assertEqual([found[n][0] for n in numbers], [*passes.noise_multipliers])
        holders = [
            row["holders"]
            for row in run.what_is_found(100_000)
            if row["setting"] == "as given" and row["probability"] == 0.9
        ]
        asked = [v[0] for name, v in found.items() if name.startswith("holders")]
        self.assertEqual(asked, holders[::-1])
        emptied, replaced = found["epsilon at delta = 1e-10"]
        self.assertBetween(emptied, 0.9999, 1)
        self.assertBetween(replaced, 1.4, 2)

    def test_holders_of_ldp_triehh(self):
        given = ("--mechanism=ldp_triehh", "--population=4727", "--local_epsilon=10")
        sizes = ("--max_depth=12", "--kept_prefixes=300", "--alphabet_size=28")
        values = _values(*given, *sizes)
        done = accounting_program.run(*given, *sizes, "--detectable", "--format=json")
        holders = [
            row["holders"]
            for row in json.loads(done.stdout)
            if row["setting"] == "as given" and row["probability"] == 0.9
        ]
        asked = [v for name, v in values.items() if name.startswith("holders")]
        self.assertEqual(asked, [[number] for number in holders])

    @parameterized.parameters(10_000, 100_000, 5_000_000)
    def test_ldp_triehh_is_planned_as_it_runs(self, population):
        from federated_hh.heavy_hitters.ldp_triehh import options

        run = options.LdpTrieHHOptions(epsilon=8.0)
        sizes = run.sensible(population, 100, ("cohort_size", "max_prefixes"))
        law = dataclasses.replace(run, **sizes).detection(population, 100)
        found = answers.ANSWERS["ldp_triehh"](population=population, local_epsilon=8.0)
        values = {row["quantity"]: row["value"] for row in found}
        self.assertEqual(values["cohort size of a level"], sizes["cohort_size"])
        self.assertEqual(values["kept prefixes of a level"], sizes["max_prefixes"])
        self.assertEqual(
            values["holders for a discovery rate of 0.9, 6 characters"],
            law.holders_needed(0.9, 6),
        )

    def test_ldp_triehh_plans_have_the_epsilons_of_the_statement(self):
        from federated_hh.privacy.local import report_guarantees

        given = ("--mechanism=ldp_triehh", "--population=1e6", "--delta=1e-8")
        values = _values(*given, "--local_epsilon=9")
        stated, _ = report_guarantees.guarantees(
            report_guarantees.ReportRounds(
                local_epsilon=9.0,
                cohort_size=60_000,
                contribution_bound=60,
                domain_sizes=(10_101,),
            ),
            1e-8,
        )
        central = {
            f"central epsilon per {one.unit.value}, {one.adjacency.value}": one.epsilon
            for one in stated
            if one.delta and not one.is_comparison
        }
        self.assertLen(central, 3)
        for name, epsilon in central.items():
            self.assertAlmostEqual(values[name][0], epsilon, places=6)
        self.assertEqual(values["delta"], [1e-8])
        done = accounting_program.run(
            *given, "--vary=local_epsilon=8:9:2", "--format=csv"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        last = list(csv.DictReader(io.StringIO(done.stdout)))[-1]
        for name in (*central, "delta", "central epsilon to quote"):
            self.assertEqual(float(last[name]), values[name][0])
        wrong = accounting_program.run(
            *given, "--local_epsilon=9", "--vary=epsilon=1:8"
        )
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--local_epsilon is what --mechanism=ldp", wrong.stderr)

    @parameterized.parameters(
        ("asymmetric_one_hot", 3), ("symmetric_one_hot", 3), ("asymmetric_one_hot", 1)
    )
    def test_a_count_of_holders_stands_out(self, randomizer, queries):
        clients, trials = 30_000, 20_000
        values = _answer(
            "statistics",
            population=clients,
            num_queries=queries,
            randomizer=randomizer,
            cohorts="disjoint",
            min_standard_errors=3.0,
        )
        local = values["local epsilon of a report"][0]
        own = 0.5
        if randomizer == "symmetric_one_hot":
            local /= 2
            own = math.exp(local) / (1 + math.exp(local))
        other = 1 / (1 + math.exp(local))
        cohort = clients // queries
        random = np.random.default_rng(7)
        holders = values["holders for a discovery rate of 0.9"][0]
        asked = random.hypergeometric(holders, clients - holders, cohort, trials)
        votes = random.binomial(asked, own) + random.binomial(cohort - asked, other)
        estimates = (votes - cohort * other) / (own - other)
        error = math.sqrt(cohort * other * (1 - other)) / (own - other)
        self.assertAlmostEqual(
            values["standard error of an empty cell"][0], error, places=6
        )
        # A standard error of the share is 0.002; the normal law is off by as much.
        self.assertBetween((estimates >= 3 * error).mean(), 0.885, 0.92)

    def test_statistics_tells_which_limit_binds(self):
        given = ("--mechanism=statistics", "--population=5e6")
        done = accounting_program.run(*given, "--vary=epsilon=1:8", "--format=json")
        self.assertLen({row["value"] for row in json.loads(done.stdout)}, 1)
        spent = _values(*given)["epsilon 1 is not reached, spent"][0]
        for told in (
            rf"epsilon 8 is not reached, spent: {spent:.3g} \(local epsilon 6 binds;",
            r"epsilon to quote at delta = 3e-06 \(replace_one_item",
            r"delta above 1/n = 2e-07: 3e-06 \(--delta=1e-08 would do\)",
        ):
            self.assertRegex(done.stderr, told)
        given += ("--cohorts=everybody",)
        values = _values(*given, "--local_epsilon=20", "--delta=1e-8")
        self.assertNotIn("not reached", str(values))
        self.assertNotIn("above 1/n", str(values))
        self.assertAlmostEqual(values["epsilon to quote at delta = 3e-08"][0], 1.0, 3)

    def test_tables_over_flags(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        given = ("--mechanism=dp_ftrl", "--population=50000", "--cohort_size=500")
        wanted = ("--num_rounds=200", "--epsilon=4", f"--plot={folder / 'z.png'}")
        done = accounting_program.run(
            *given, *wanted, "--vary=epsilon=1:16,population", "--format=csv"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([float(row["epsilon"]) for row in rows], [1, 2, 4, 8, 16])
        self.assertEqual({row["quantity"] for row in rows}, {"noise multiplier (z)"})
        single = _values(*given, *wanted[:2])["noise multiplier (z)"][0]
        self.assertEqual(float(rows[2]["population = 50,000"]), single)
        self.assertTrue((folder / "z.png").read_bytes().startswith(b"\x89PNG"))
        done = accounting_program.run(
            *("--mechanism=triehh", "--population=1000", "--max_length=3"),
            *("--epsilon=4", "--delta=1e-2", "--vary=epsilon=2:8", "--format=csv"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        holders = [float(r["value"]) for r in csv.DictReader(io.StringIO(done.stdout))]
        self.assertEqual(holders, sorted(holders, reverse=True))

    def test_cells_without_a_number_are_no_points(self):
        from matplotlib import figure

        given = {"population": 1500, "local_epsilon": 10.0}
        vary = ["local_epsilon=1:10"]
        rows = varied.table(answers.ANSWERS, "ldp_triehh", given, vary, "holders")
        self.assertEqual(rows[0]["value"], "not possible")
        points = [
            [row["local_epsilon"], row["value"]]
            for row in rows
            if row["value"] != "not possible"
        ]
        self.assertLen(points, 2)
        with mock.patch.object(figure.Figure, "savefig", autospec=True) as saved:
            plots.table("holders.png", rows)
        [line] = saved.call_args.args[0].axes[0].lines
        self.assertEqual(line.get_xydata().tolist(), points)

    def test_mechanisms_of_training_are_compared(self):
        given = ("--mechanism=blt", "--population=20000", "--cohort_size=100")
        given += ("--num_rounds=60", "--delta=1e-8")
        for asked, quantity in (
            ("--epsilon=4", "noise on the worst prefix sum"),
            ("--noise_multiplier=3", "epsilon at delta = 1e-08"),
        ):
            vary = "--vary=population=10000:40000:3,mechanism"
            done = accounting_program.run(*given, asked, vary, "--format=csv")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = list(csv.DictReader(io.StringIO(done.stdout)))
            self.assertEqual([row["population"] for row in rows], _POPULATIONS)
            for mechanism in ("dp_ftrl", "blt", "banded", "dp_fedavg"):
                single = accounting_program.run(
                    *(f"--mechanism={mechanism}", *given[1:], asked, "--format=csv")
                )
                found = next(
                    row["value"]
                    for row in csv.DictReader(io.StringIO(single.stdout))
                    if row["quantity"] == quantity
                )
                self.assertEqual(rows[1][mechanism], found)

    @parameterized.parameters(
        ("--vary=plot", "has to be a number that --mechanism=triehh takes: .*epsilon"),
        ("--vary=epsilon=3", "has to be epsilon=LOW:HIGH"),
        ("--vary=epsilon=1:3:1", "POINTS is 1; it has to be in 2..200"),
        ("--vary=mechanism", "has to be a number that --mechanism=triehh takes"),
        ("--vary=epsilon=3:1", "LOW has to be above 0 and below HIGH"),
        ("--vary=epsilon=1:5000", "epsilon=5000 has to be a number in"),
        ("--vary=threshold", "give --threshold, around which it varies"),
        ("--vary=epsilon,epsilon", "epsilon is given twice"),
        ("--vary=epsilon,delta,population", "one or two"),
    )
    def test_wrong_tables_are_refused(self, vary, message):
        done = accounting_program.run(*_TRIEHH, "--epsilon=2", "--delta=1e-10", vary)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, message)

    def test_what_can_be_found(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "found.png"
        # Parameters are solved for 16 times, and this is where that is quick.
        small = ("--mechanism=triehh", "--population=300", "--max_length=2")
        given = (*small, "--epsilon=4", "--delta=1e-2", "--discovery_rate=0.9")
        asked = ("--detectable", "--word_length=1", "--format=csv", f"--plot={path}")
        done = accounting_program.run(*given, *asked)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        needed = _values(*given)["holders for a discovery rate of 0.9"]
        self.assertEqual(int(rows[0]["holders"]), needed[0])
        self.assertEqual(float(rows[0]["share"]), needed[0] / 300)
        self.assertLen({row["setting"] for row in rows}, 3)
        self.assertTrue(path.read_bytes().startswith(b"\x89PNG"))
        done = accounting_program.run(
            "--mechanism=ldp_triehh",
            "--detectable",
            "--population=4727",
            "--local_epsilon=10",
            "--max_depth=12",
            "--kept_prefixes=300",
            "--alphabet_size=28",
            "--word_length=6",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertLen(lines, 1 + 3 * 2)
        self.assertStartsWith(lines[1], "as given")
        self.assertIn("each holder reports on it", lines[1])

    @parameterized.parameters(
        (("--plot=x.png", "--epsilon=2", "--delta=1e-10"), "need --detectable"),
        (
            (
                "--detectable",
                "--plot=x.png",
                "--threshold=9",
                "--cohort_size=99",
                "--delta=1e-10",
            ),
            "--plot needs --epsilon and --delta",
        ),
        (
            ("--detectable", "--word_length=10", "--epsilon=2", "--delta=1e-10"),
            "word_length is 10; it has to be at most 9",
        ),
    )
    def test_what_can_be_found_is_refused(self, arguments, message):
        done = accounting_program.run(*_TRIEHH, *arguments)
        self.assertEqual(done.returncode, 2)
        self.assertIn(message, done.stderr)

    def test_blt(self):
        run = ("--num_rounds=60", "--min_separation=9", "--max_participation=4")
        given = (
            "--mechanism=blt",
            "--noise_multiplier=2",
            "--delta=1e-6",
            "--forgotten=0.1,0.5",
            "--weights=0.2,0.3",
        )
        # By hand: participations in the rounds 0, 10, 20 and 30.
        c = [1, *(0.2 * 0.9**t + 0.3 * 0.5**t for t in range(59))]
        column = [sum(c[t - s] for s in (0, 10, 20, 30) if s <= t) for t in range(60)]
        square = sum(value**2 for value in column)
        values = _values(*run, *given)
        self.assertAlmostEqual(values["squared sensitivity"][0], square, places=9)
        rho, emptied, replaced = values["zCDP (rho)"]
        self.assertEqual(emptied, rho)
        self.assertAlmostEqual(rho / (square / 8), 1, places=4)
        self.assertEqual(replaced, 4 * rho)
        self.assertLen(values["epsilon at delta = 1e-06"], 5)
        best = _values(*run, *given[:3])
        self.assertLen(best["weights"][0].split(","), 2)
        self.assertEqual(best, _values(*run, *given[:3], "--buffers=2"))
        found = _values(
            *run,
            *given[:3],
            f"--forgotten={best['forgotten a round'][0]}",
            f"--weights={best['weights'][0]}",
        )
        self.assertEqual(found, best)
        blocks = _values(*run, *given, "--restart_first=19", "--restart_period=20")
        self.assertEqual(blocks["rounds of each block"], ["20, 20, 20"])
        # Twice in two of the blocks.
        column = [sum(c[t - s] for s in (0, 10) if s <= t) for t in range(20)]
        square = 2 * sum(value**2 for value in column)
        self.assertAlmostEqual(blocks["squared sensitivity"][0], square, places=9)

    def test_a_tree_against_blt(self):
        answer = ("--mechanism=tree_against_blt", "--delta=1e-10", "--format=json")
        done = accounting_program.run(*answer, "--table=xu_2023")
        rows = {row["run"]: row for row in json.loads(done.stdout)}
        self.assertLen(rows, 21)
        for name, before, after in (
            ("de-DE", 0.480, 0.116),
            ("fr-FR", 0.888, 0.168),
            ("it-IT", 0.714, 0.157),
            ("es-ES", 0.347, 0.084),
            ("en-US", 1.306, 0.254),
        ):
            found = rows[f"Table 1 {name}"]
            self.assertEqual(round(found["rho"], 3), before)
            self.assertEqual(round(found["BLT, same noise: rho"], 3), after)
        # 0.308 with a matrix that forgets faster.
        self.assertEqual(round(rows["Table 1 pt-PT"]["BLT, same noise: rho"], 3), 0.3)
        self.assertEqual(round(rows["Table 1 de-DE"]["BLT, same rho: z"], 2), 4.01)
        done = accounting_program.run(
            *answer,
            "--noise_multiplier=1",
            "--num_rounds=2000",
            "--min_separation=400",
            "--max_participation=5",
        )
        rows = {row["mechanism"]: row for row in json.loads(done.stdout)}
        scale = math.sqrt(2 * rows["tree"]["rho at the tree's noise"])
        for name, expected in (
            ("tree", 18.66),
            ("BLT, 2 buffers", 9.497),
            ("BLT, 3 buffers", 9.448),
            ("banded, 401 bands", 9.61),
            ("independent", 100.0),
        ):
            found = rows[name]["noise"] * scale
            self.assertAlmostEqual(found / expected, 1, delta=0.002)

    def test_dp_ftrl_restarts(self):
        values = _values(
            "--mechanism=dp_ftrl",
            "--noise_multiplier=7",
            "--num_rounds=2000",
            "--min_separation=300",
            "--restart_first=128",
            "--restart_period=1024",
            "--delta=1e-10",
        )
        self.assertEqual(values["rounds of each tree"], ["129, 1024, 847"])
        self.assertEqual(values["max participation (MaxP)"], [7])

    def test_shuffle(self):
        done = accounting_program.run(
            "--mechanism=shuffle",
            "--randomizer=subset_selection",
            "--local_epsilon=10",
            "--domain_size=1000001",
            "--num_reports=30000000",
            "--delta=1e-10",
            "--format=csv",
        )
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertAlmostEqual(float(rows[0]["value"]), 0.1493, delta=5.1e-5)
        self.assertIn("blanket", rows[0]["basis"])
        self.assertIn("replace_one_item", rows[0]["basis"])

    def test_triehh_and_back(self):
        values = _values(*_TRIEHH, "--epsilon=2", "--delta=1e-10")
        given = (
            f"--threshold={values['threshold (theta)'][0]}",
            f"--cohort_size={values['cohort size (m)'][0]}",
        )
        back = _values(*_TRIEHH, "--delta=1e-10", *given)
        self.assertEqual(back, values)
        self.assertLess(values["epsilon"][0], 2)
        self.assertEqual(values["delta"][0], 1e-10)
        epsilon = values["epsilon"][0]
        back = _values(*_TRIEHH, f"--epsilon={epsilon!r}", *given)
        self.assertAlmostEqual(back["delta"][0] / 1e-10, 1.0, delta=0.05)

    def test_triehh_with_a_given_cohort(self):
        asked = (*_TRIEHH, "--epsilon=2", "--delta=1e-10")
        free, given = _values(*asked), _values(*asked, "--cohort_size=5000")
        self.assertEqual(given["cohort size (m)"], [5000])
        holders = "holders for a discovery rate of 0.9"
        cohort = free["cohort size (m)"][0]
        self.assertGreater(given[holders][0], free[holders][0])
        # What larger cohorts would give.
        self.assertEqual(given[f"{holders}, with cohorts of {cohort:,}"], free[holders])

    def test_triehh_names_both_bounds_and_their_direction(self):
        rows = json.loads(
            accounting_program.run(
                *_TRIEHH,
                "--epsilon=2",
                "--delta=1e-10",
                "--parameters=corollary1",
                "--format=json",
            ).stdout
        )
        self.assertEqual(rows[0]["value"], 14)
        epsilons = {r["basis"]: r["value"] for r in rows if r["quantity"] == "epsilon"}
        self.assertLen(epsilons, 2)
        (tight,) = [v for name, v in epsilons.items() if "the curve" in name]
        (printed,) = [v for name, v in epsilons.items() if "Theorem 1" in name]
        self.assertLess(tight, 0.3 * printed)
        for basis in epsilons:
            self.assertIn("one-sided", basis)
        found = _values(*_TRIEHH, "--delta=1e-10", "--epsilon=2")
        holders = "holders for a discovery rate of 0.9"
        needed = {r["quantity"]: r["value"] for r in rows}[holders]
        self.assertLess(found[holders][0], 0.2 * needed)
        # A theorem that is for other parameters is no failure.
        self.assertEqual(found["epsilon by the paper"][0], "-")

    def test_k_anonymity_and_cohort_size(self):
        values = _values(
            "--mechanism=k_anonymity",
            "--local_epsilon=10",
            "--alphabet_size=100",
            "--kept_prefixes=10000",
            "--num_reports=30000000",
            "--alpha=0.95",
        )
        self.assertEqual(values["largest k"], ["none", 49])
        values = _values(
            "--mechanism=cohort_size",
            "--randomizer=asymmetric_one_hot",
            "--local_epsilon=3",
            "--epsilon=1",
            "--delta=1e-6",
        )
        self.assertEqual(values["smallest cohort (best)"], [736])
        self.assertEqual(values["smallest cohort"], [736, 2935])

    def test_text(self):
        done = accounting_program.run(
            "--mechanism=triehh",
            "--population=10000",
            "--max_length=10",
            "--epsilon=2",
            "--delta=1e-8",
            "--parameters=corollary1",
        )
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"threshold \(theta\) +12\n")


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        ((), "--mechanism"),
        (("--mechanism=dp_ftrl",), "all but one of --population, .* Given: none"),
        (
            ("--mechanism=blt", "--min_separation=3", "--noise_multiplier=1"),
            "with min_separation, num_rounds and one of noise_multiplier and epsilon",
        ),
        (
            (
                *("--mechanism=dp_ftrl", "--population=100", "--cohort_size=10"),
                *("--num_rounds=5", "--noise_multiplier=1", "--epsilon=1"),
            ),
            "leave out the one to compute",
        ),
        (
            (
                *("--mechanism=banded", "--population=100", "--cohort_size=101"),
                *("--num_rounds=5", "--epsilon=1"),
            ),
            "num_clients is 100; it has to be at least 101",
        ),
        (
            (
                *("--mechanism=dp_ftrl", "--population=100", "--cohort_size=10"),
                *("--noise_multiplier=1", "--epsilon=0.01"),
            ),
            "no num_rounds gives epsilon 0.01 at delta 1e-10",
        ),
        (("--mechanism=tree_against_blt", "--delta=1e-9"), "give noise_multiplier"),
        (
            (
                "--mechanism=tree_against_blt",
                "--delta=1e-9",
                "--table=xu_2023",
                "--num_rounds=3",
            ),
            "table cannot be combined with other",
        ),
        (
            ("--mechanism=blt", *_FTRL[1:], "--noise_multiplier=1", "--weights=1"),
            "give forgotten and weights",
        ),
        (
            (
                "--mechanism=blt",
                *_FTRL[1:],
                "--noise_multiplier=1",
                "--forgotten=0.1",
                "--weights=x",
            ),
            "weights is .*; it has to be numbers",
        ),
        (
            ("--mechanism=triehh", "--num_rounds=3"),
            "--num_rounds does not apply to --mechanism=triehh",
        ),
        (("--mechanism=other",), "--mechanism=other"),
        (("--paper_tables", "--delta=0.1"), "--paper_tables takes no other flag"),
        (("--mechanism=triehh", "more"), "what is 'more'"),
        (("--no_such_flag=1",), "no_such_flag"),
        (
            (
                "--mechanism=shuffle",
                "--delta=1e-6",
                "--randomizer=arbitrary",
                "--local_epsilon=1",
                f"--num_reports={2**63}",
            ),
            "num_reports=9.*: has to be an integer in .1, 1,?000.*100 for each human",
        ),
        (
            (
                "--mechanism=dp_ftrl",
                "--noise_multiplier=7",
                "--num_rounds=1000000",
                "--min_separation=9",
                "--delta=1e-6",
            ),
            "max_participation is .*; it has to be at most .* minutes",
        ),
        (
            (
                "--mechanism=dp_ftrl",
                "--noise_multiplier=7",
                "--num_rounds=1000000000",
                "--min_separation=0",
                "--restart_first=1",
                "--restart_period=1",
                "--delta=1e-6",
            ),
            "restart_period is .*; it has to be at least 1000 .* trees",
        ),
        (
            (
                "--mechanism=dp_ftrl",
                "--noise_multiplier=7",
                "--num_rounds=10",
                "--min_separation=10",
                "--delta=1e-6",
            ),
            "min_separation is 10; it has to be .*",
        ),
        (
            (*_FTRL, "--noise_multiplier=7", "--count_stddev=1e-300"),
            "count_stddev is 1e-300; it has to be above noise_multiplier / 2 = 3.5",
        ),
        (
            (*_FTRL, "--noise_multiplier=1e-300"),
            "noise_multiplier=1e-300: has to be .*0.001, .*no guarantee",
        ),
        (
            (*_FTRL, "--noise_multiplier=5e-324"),
            "noise_multiplier=5e-324: has to be a number in .0.001",
        ),
        (
            (
                "--mechanism=dp_ftrl",
                "--noise_multiplier=0.001",
                "--num_rounds=1000000000",
                "--min_separation=0",
                "--group_size=1000000",
                "--delta=1e-10",
            ),
            "values, taken together, are too large",
        ),
        (
            (
                "--mechanism=triehh",
                "--population=1000000",
                "--max_length=10",
                "--epsilon=2",
                "--delta=1e-12",
                "--discovery_rate=0.9999999999999999",
            ),
            "discovery_rate=0.9.*: has to be .*0.999999.*long",
        ),
        (
            (
                "--mechanism=ldp_triehh",
                "--detectable",
                "--population=15",
                "--local_epsilon=1e-7",
                "--contribution_bound=1",
                "--word_length=3",
            ),
            "with 1 reports a level, ties leave .* prefixes of noise",
        ),
        (
            (
                "--mechanism=triehh",
                "--detectable",
                "--population=1000",
                "--threshold=10",
                "--cohort_size=100",
                "--delta=1e-6",
                "--max_length=1",
            ),
            "room for the word end only",
        ),
        (
            ("--mechanism=triehh", "--population=1000", "--max_length=5"),
            "needs --epsilon, such as .* or --threshold and --cohort_size with one",
        ),
    )
    def test_one_line_and_status_2(self, arguments, message):
        done = accounting_program.run(*arguments)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, message)
        self.assertLen(done.stderr.splitlines(), 1)
        self.assertStartsWith(done.stderr, "error: ")


class LimitsTest(absltest.TestCase):
    def test_answers_take_options_and_all_of_them(self):
        made = arguments.options_class(answers.ANSWERS.values())
        taken = {
            name
            for answer in answers.ANSWERS.values()
            for name in inspect.signature(answer).parameters
        }
        self.assertEqual(taken, set(fields.fields_of(made)))
        self.assertEqual(
            list(arguments.RANDOMIZERS),
            [randomizer.value for randomizer in shuffling.Randomizer],
        )

    def test_ten_thousand_rounds_without_separation_take_no_time(self):
        done = accounting_program.run(
            "--mechanism=dp_ftrl",
            "--noise_multiplier=7",
            "--num_rounds=10000",
            "--min_separation=0",
            "--delta=1e-10",
        )
        # Every round in every node: the squares of the sizes of all nodes.
        square_sum = sum((10_000 >> height) * 4**height for height in range(14))
        self.assertIn(str(square_sum), done.stdout)


class ImportTest(absltest.TestCase):
    def test_nothing_heavy_is_imported(self):
        modules = ", ".join(
            ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for path in sorted((ROOT / "federated_hh/privacy").rglob("*.py"))
            if path.stem != "__init__"
        )
        heavy = ["tensorflow", "tensorflow_federated", "tensorflow_privacy", "jax"]
        slow = ["dp_accounting", "scipy.stats", "pandas"]
        done = accounting_program.python(
            "-c",
            f"import sys, {modules}\n"
            f"print([name for name in {heavy + slow} if name in sys.modules])",
        )
        self.assertEqual(done.stdout.strip(), "[]", done.stderr)


class PaperTablesTest(absltest.TestCase):
    def test_which_numbers_are_not_equal(self):
        rows = paper_tables.all_rows()
        different = {(row.item, row.computed) for row in rows if row.equal == "no"}
        self.assertEqual(
            different,
            {
                ("Table 1 en-US*: zCDP", "0.24"),
                ("k-anonymity at alpha = 0.95, Lemma 1: k", "none"),
                ("k-anonymity at alpha = 0.95, direct evaluation: k", "49"),
            },
        )
        self.assertEqual(sum(row.equal == "yes" for row in rows), 40)
        for row in rows:
            self.assertTrue(row.reason or row.equal == "yes", row)
            self.assertEqual(row.equal == "-", row.printed == "-")

    def test_the_tools_discretization(self):
        found = paper_tables.tool_2021_epsilon(
            local_epsilon=10.0,
            num_reports=3 * 10**7,
            delta=1e-10,
            step=100,
            iterations=10,
        )
        self.assertAlmostEqual(found, 0.31475, delta=1e-5)

    def test_command_line(self):
        done = accounting_program.run("--paper_tables", "--format=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual(
            list(rows[0]), ["paper", "item", "printed", "computed", "equal", "reason"]
        )


if __name__ == "__main__":
    absltest.main()
