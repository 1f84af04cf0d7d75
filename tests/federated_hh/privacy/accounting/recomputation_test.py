"""Tests that statements which were edited are refused, and no honest one is."""

import copy
import functools
import hashlib
import json
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import drawn_noise, realised
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.accounting import recomputation, run_totals
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    participation_table,
    update_noise,
)
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.local import device_policy, device_reports_plan, sketch_plan
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.privacy.sets import adaptive_gaussian, weighted_gaussian
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.randomizers import count_mean_sketch
from federated_hh.rounds import samplers, timers
from tests.federated_hh import accounting_program

_CLIENTS = 90_000


def _record(clients, facts, repeats=1, places=()):
    """Returns a record of rounds with these facts in each repeat."""
    rounds = tuple(
        realised.Round(repeat, number + 1, clients, f"{repeat}{number:063x}", facts=one)
        for repeat in range(repeats)
        for number, one in enumerate(facts)
    )
    return plan_lib.Record(realised.RealisedRounds(rounds), places)


def _triehh():
    plan = plan_lib.Plan(
        sampler=samplers.UniformCohorts(_CLIENTS, 5_000),
        contribution=triehh_plan.OneVote(
            redraws_each_round=False, extends_prefixes=True
        ),
        mechanism=triehh_plan.Threshold(30, max_rounds=8),
    )
    return plan.statement(_record(5_000, [{}] * 8, 2), 1e-9)


def _ldp_triehh(name="Reports", epsilon=1.0, cohort=10_000):
    class Reports:
        def __init__(self, epsilon, domain_size):
            del domain_size
            self.guarantee = mock.Mock(
                replacement_epsilon=epsilon, amplification="subset_selection"
            )

    plan = plan_lib.Plan(
        sampler=samplers.DisjointCohorts(_CLIENTS, cohort),
        contribution=local_reports_plan.LdpTrieHHReports(
            randomizer=Reports,
            epsilon=epsilon,
            replacement_epsilon=epsilon,
            name=name,
            bound=2,
            sampler="greedy",
            draws_sum=True,
            aggregation="secure_sum",
            max_depth=2,
            num_passes=1,
            max_prefixes=10,
        ),
        mechanism=plan_lib.NoNoise(),
    )
    facts = [
        {local_reports_plan.CANDIDATES: size, local_reports_plan.REPORTS: 2 * cohort}
        for size in (100, 900)
    ]
    return plan.statement(_record(cohort, facts, 2), 1e-9)


def _sketch():
    plan = plan_lib.Plan(
        sampler=samplers.DisjointCohorts(_CLIENTS, 40_000),
        contribution=sketch_plan.SketchReports(
            sketch=count_mean_sketch.CountMeanSketch(3.0, 500, num_hashes=8),
            num_groups=4,
            draws_sum=True,
            algorithm="A sketch",
        ),
        mechanism=plan_lib.NoNoise(),
    )
    facts = [{sketch_plan.REPORTS: 40_000}]
    return plan.statement(_record(40_000, facts, 2), 1e-9)


def _statistics(composition="basic", repeats=2, is_everybody=True):
    limits = device_policy.Limits(aggregate_epsilon=3.0, reports=4, local_epsilon=6.0)
    slack = None if composition == "basic" else 1e-7
    policy = device_policy.Policy(
        analysis="org.example",
        limits=limits,
        fields={"age": limits},
        randomizer=shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
        delta=1e-8,
        composition=device_policy.Composition(composition),
        slack=slack,
        order=30 if composition == "renyi" else None,
    )
    plan = plan_lib.Plan(
        sampler=samplers.UniformCohorts(_CLIENTS, _CLIENTS)
        if is_everybody
        else samplers.DisjointCohorts(_CLIENTS, _CLIENTS // 3),
        contribution=device_reports_plan.DeviceReports(
            policy=policy, max_queries=4, aggregation="secure_sum"
        ),
        mechanism=device_reports_plan.MinimumCohort(),
    )
    facts = [
        {
            device_reports_plan.CELLS: 5,
            device_reports_plan.LOCAL_UNITS: local,
            device_reports_plan.AGGREGATE_UNITS: 400_001,
            device_reports_plan.MINIMUM_COHORT: 50_000,
        }
        for local in (2_000_000, 2_000_000, 3_123_456)
    ]
    cohort = _CLIENTS if is_everybody else _CLIENTS // 3
    return plan.statement(_record(cohort, facts, repeats), 1e-9)


def _training(noise=None, repeats=1, seed=1, num_rounds=12, min_separation=2):
    draw = np.random.default_rng(seed)
    noise = noise or update_noise.TreeNoise(
        num_rounds=num_rounds, clip_norm=1.0, noise_multiplier=2.0, restart_rounds=(4,)
    )
    rounds, places = [], []
    for repeat in range(repeats):
        table = participation_table.ParticipationTable.empty(30)
        last = np.full(30, -99)
        for number in range(num_rounds):
            free = np.flatnonzero(number - last > min_separation)
            cohort = np.sort(draw.choice(free, 5, replace=False))
            last[cohort] = number
            table = table.record(cohort, number)
            rounds.append(realised.Round.of(repeat, number + 1, cohort))
        places.append(_Places(table))
    record = plan_lib.Record(realised.RealisedRounds(tuple(rounds)), tuple(places))
    sampler = timers.Timers(
        num_clients=30,
        cohort_size=5,
        num_rounds=num_rounds,
        min_separation=min_separation,
    )
    return training_plan.plan_of(sampler, noise).statement(record, 1e-9)


class _Places:
    def __init__(self, table):
        self.table = table


def _set_union(kind=weighted_gaussian.WeightedGaussian):
    passes = weighted_gaussian.solve(2.0, 1e-9, 20, [1, 3], kind)
    plan = sets_plan.plan_of(samplers.Everybody(_CLIENTS), passes)
    return plan.statement(_record(_CLIENTS, [{}] * 2, 2), 1e-9)


# By kind: the statement, and the parameters that its numbers depend on.
_KINDS = {
    "triehh": (_triehh, "population_size (n)|cohort_size (m)|threshold (theta)|runs"),
    "ldp_triehh": (
        _ldp_triehh,
        "local_epsilon|delta|cohort_size (N)|contribution_bound (B)|num_repeats",
    ),
    "subset_selection": (
        lambda: _ldp_triehh(name=None, epsilon=8.0, cohort=300),
        "local_epsilon|delta|cohort_size (N)|contribution_bound (B)|domain_sizes (s)",
    ),
    "sketch": (_sketch, "local_epsilon|delta|clients (n)|num_repeats"),
    "set_union": (
        _set_union,
        "most words of a client|passes|noise multipliers|thresholds in 2^-20|runs",
    ),
    "set_union_adaptive": (
        functools.partial(_set_union, adaptive_gaussian.AdaptiveGaussian),
        "most words of a client|noise multipliers|thresholds in 2^-20"
        "|factors of passes",
    ),
    "statistics": (
        _statistics,
        "delta of a query|composition|num_repeats|reports of the analysis",
    ),
    "training": (_training, "rounds|noise multiplier z|MaxP|report goal m"),
}


def _cached(recomputed):
    """Returns what computes guarantees once for the same parameters."""
    known = {}

    def from_parameters(stated):
        key = repr((stated.mechanism, stated.parameters, stated.realised))
        if key not in known:
            known[key] = recomputed(stated)
        return known[key]

    return from_parameters


# Training's guarantees are checked one by one.
_CACHED = {
    name: recomputed if name == "report goal m" else _cached(recomputed)
    for name, recomputed in recomputation._FAMILIES.items()
}


def _edited_guarantees(fields):
    """Yields what an edit is, and guarantees that a forger would like better."""
    for index, one in enumerate(fields["guarantees"]):
        for name, value in one.items():
            if isinstance(value, bool):
                news = [not value]
            elif isinstance(value, int):
                news = [value + 1]
            elif isinstance(value, float):
                news = [0.9 * value, 1.1 * value] if value else [0.1]
            elif name == "rho":
                news = [0.1]
            elif name == "voting":
                news = [value | {"cohort_size": 2_500}, value | {"num_rounds": 1}]
            else:
                continue
            for new in news:
                edited = copy.deepcopy(fields["guarantees"])
                edited[index][name] = new
                if name == "rho" and value is None:
                    edited[index]["noise_rounds"] = 3
                yield f"{index} {name} {new}", edited
        for adjacency, unit in (("emptied", "client"), ("replace_one_item", "item")):
            if adjacency != one["adjacency"]:
                edited = copy.deepcopy(fields["guarantees"])
                edited[index] |= {"adjacency": adjacency, "unit": unit}
                yield f"{index} {adjacency}", edited
        if one["rho"] is not None:
            edited = copy.deepcopy(fields["guarantees"])
            edited[index] |= {"rho": None, "noise_rounds": None}
            yield f"{index} without rho", edited
            for factor in (0.1, 0.9, 10.0):
                rho = factor * one["rho"]
                drawn = drawn_noise.zcdp_to_epsilon(
                    rho, one["delta"], one["noise_rounds"]
                )
                edited = copy.deepcopy(fields["guarantees"])
                edited[index] |= {"rho": rho, "epsilon": drawn.epsilon}
                yield f"{index} rho and epsilon of {rho}", edited
        if len(fields["guarantees"]) > 1:
            without = [*fields["guarantees"]]
            del without[index]
            yield f"{index} removed", without
        yield f"{index} twice", [*fields["guarantees"], one]


class RecomputationTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.dict(recomputation._FAMILIES, _CACHED))
        self.path = pathlib.Path(self.create_tempdir().full_path) / "run"
        self.path.mkdir()

    def write(self, text, *, of=None, flags=(), **changes):
        """Writes a run whose record has the digest of a text, or of another one."""
        (self.path / "privacy.json").write_text(text)
        flags = list(flags)
        digest = hashlib.sha256(json.dumps(flags).encode()).hexdigest()
        record = {
            "program": "federated_hh.run_any",
            "status": "complete",
            "flags": flags,
            "flags_sha256": digest,
            "privacy_sha256": hashlib.sha256((of or text).encode()).hexdigest(),
        }
        record |= changes
        record = {name: value for name, value in record.items() if value is not None}
        (self.path / "run.json").write_text(json.dumps(record))

    def read(self):
        return run_totals.read_run(str(self.path))

    def assert_refused(self, file, what):
        with self.assertRaises(ValueError, msg=what) as caught:
            self.read()
        message = str(caught.exception)
        self.assertIn(f"{self.path}/{file}: ", message)
        self.assertNotIn("\n", message)
        return message

    @parameterized.parameters(
        *_KINDS,
        *(
            lambda c=c, e=e, r=r: _statistics(c, r, e)
            for c in ("basic", "advanced", "renyi")
            for e in (True, False)
            for r in (1, 2)
        ),
    )
    def test_what_a_run_wrote_is_read(self, kind):
        stated = kind() if callable(kind) else _KINDS[kind][0]()
        text = stated.to_json()
        self.write(text)
        self.assertEqual(self.read().statement, stated)
        self.assertEmpty(self.read().warnings)
        # Of an earlier version, without a digest.
        self.write(text, privacy_sha256=None)
        (warning,) = self.read().warnings
        self.assertIn("an earlier version made it", warning)
        (row,) = [
            row["basis"]
            for row in run_totals.totals([self.read()], 1e-3)
            if row["quantity"] == "warning"
        ]
        self.assertIn(warning, row)

    @parameterized.product(seed=[*range(8)], kind=("tree", "gaussian", "blt"))
    def test_no_honest_training_is_refused(self, seed, kind):
        draw = np.random.default_rng(seed)
        common = {
            "num_rounds": int(draw.integers(4, 20)),
            "clip_norm": 1.0,
            "noise_multiplier": float(draw.uniform(0.5, 5)),
        }
        if kind == "tree":
            restarts = sorted(draw.choice(common["num_rounds"] - 1, 2, replace=False))
            noise = update_noise.TreeNoise(
                restart_rounds=tuple(map(int, restarts)), **common
            )
        elif kind == "gaussian":
            noise = update_noise.GaussianNoise(**common)
        else:
            matrix = blt.Blt((0.9, 0.4), (0.2, 0.1))
            noise = correlated_noise.BltNoise(matrix=matrix, **common)
        stated = _training(
            noise,
            repeats=int(draw.integers(1, 4)),
            seed=seed,
            num_rounds=common["num_rounds"],
            min_separation=int(draw.integers(0, 3)),
        )
        self.write(stated.to_json())
        self.assertEqual(self.read().statement, stated)

    @parameterized.parameters(*_KINDS)
    def test_edited_guarantees_are_refused(self, kind):
        made, _ = _KINDS[kind]
        honest = made().to_json()
        count = 0
        for what, guarantees in _edited_guarantees(json.loads(honest)):
            fields = json.loads(honest) | {"guarantees": guarantees}
            text = json.dumps(fields)
            # Whether the digest stays, is made again, or is taken away.
            self.write(text, of=honest)
            message = self.assert_refused("privacy.json", what)
            self.assertIn("SHA-256", message)
            self.write(text)
            self.assert_refused("privacy.json", what)
            count += 1
        self.assertGreater(count, 5)

    @parameterized.parameters(*_KINDS)
    def test_smaller_guarantees_of_earlier_versions_are_refused(self, kind):
        fields = json.loads(_KINDS[kind][0]().to_json())
        for index, one in enumerate(fields["guarantees"]):
            if not one["is_upper_bound"] or not one["epsilon"]:
                continue
            edited = copy.deepcopy(fields)
            smallest = min(
                g["epsilon"]
                for g in fields["guarantees"]
                if g["adjacency"] == one["adjacency"]
            )
            edited["guarantees"][index]["epsilon"] = 0.9 * smallest
            self.write(json.dumps(edited), privacy_sha256=None)
            self.assert_refused("privacy.json", index)
            if one["delta"] and not one.get("is_comparison"):
                edited = copy.deepcopy(fields)
                edited["guarantees"][index]["delta"] = 1e-30
                self.write(json.dumps(edited), privacy_sha256=None)
                self.assert_refused("privacy.json", f"delta of {index}")

    def test_what_is_composed_of_earlier_versions_is_recomputed_too(self):
        fields = json.loads(_triehh().to_json())
        together, distance, *_ = fields["guarantees"]
        for what, new in (
            ("voting", together | {"voting": together["voting"] | {"num_rounds": 8}}),
            ("rho", distance | {"rho": 1e-9, "noise_rounds": 1}),
            ("direction", together | {"voting": None, "one_sided": False}),
        ):
            edited = fields | {"guarantees": [new]}
            self.write(json.dumps(edited), privacy_sha256=None)
            self.assert_refused("privacy.json", what)
        del together["voting"]
        self.write(json.dumps(fields | {"guarantees": [together]}), privacy_sha256=None)
        self.read()

    def test_an_adaptive_clip_costs_an_emptied_client_more(self):
        clip = update_noise.AdaptiveClip(count_stddev=1.5)
        noise = update_noise.TreeNoise(
            num_rounds=12, clip_norm=1.0, noise_multiplier=2.0, adaptive_clip=clip
        )
        fields = json.loads(_training(noise).to_json())
        self.write(json.dumps(fields))
        self.read()
        zero_out, emptied, _ = fields["guarantees"]
        self.assertAlmostEqual(emptied["rho"] / zero_out["rho"], 7 / 3)
        emptied |= {name: zero_out[name] for name in ("rho", "epsilon")}
        self.write(json.dumps(fields))
        self.assert_refused("privacy.json", "emptied for the price of zero-out")

    @parameterized.parameters(*_KINDS)
    def test_edited_parameters_are_refused(self, kind):
        made, names = _KINDS[kind]
        honest = json.loads(made().to_json())
        names = names.split("|")
        for name in names:
            value = honest["parameters"][name]
            news = ["x"] if isinstance(value, str) else [value + 1, value / 2, "x"]
            if name == "report goal m":  # is a flag, and no number depends on it
                news = []
            if name == "domain_sizes (s)":
                news = ["x", value.replace("101", "50", 1), f"{value}, 3"]
            for new in news:
                fields = copy.deepcopy(honest)
                fields["parameters"][name] = new
                self.write(json.dumps(fields))
                self.assert_refused("privacy.json", f"{name} {new}")
            fields = copy.deepcopy(honest)
            del fields["parameters"][name]
            self.write(json.dumps(fields))
            self.assert_refused("privacy.json", f"without {name}")
        fields = copy.deepcopy(honest)
        fields["parameters"] = {"other": 1}
        self.write(json.dumps(fields))
        self.assert_refused("privacy.json", "no parameters")
        if kind in ("ldp_triehh", "subset_selection", "sketch", "statistics"):
            fields = copy.deepcopy(honest)
            fields["realised"]["rounds"] += 1
            fields["realised"]["clients"] *= 2
            self.write(json.dumps(fields))
            self.assert_refused("privacy.json", "realised")

    def test_parameters_that_are_flags_are_those_of_the_run(self):
        # All consistent, for a contribution bound of 1 where it was 2.
        text = _ldp_triehh().to_json()
        self.write(text, flags=["--contribution_bound=2", "--num_repeats=2"])
        self.read()
        self.write(text, flags=["--contribution_bound=3", "--num_repeats=2"])
        message = self.assert_refused("privacy.json", "bound")
        self.assertIn("the run had --contribution_bound=3", message)
        text = _training().to_json()
        self.write(text, flags=["--noise_multiplier=1", "--mechanism=dp_ftrl"])
        self.assert_refused("privacy.json", "noise")
        text = _triehh().to_json()
        made = ["--population=synthetic", "--empty_clients=keep"]
        for flag in ("--delta=1 / N^2", "--cohort_size=1", "--num_clients=1"):
            self.write(text, flags=[*made, flag])
            self.assert_refused("privacy.json", flag)
        asked = f'"delta asked for": {1 / (300 * _CLIENTS)}'
        flags = [*made, "--delta=1/(300n)", f"--num_clients={_CLIENTS}"]
        self.write(text.replace('"delta asked for": 1e-09', asked), flags=flags)
        # The guarantees are of another delta, but the flags are those of the run.
        message = self.assert_refused("privacy.json", "delta")
        self.assertIn("does not follow from its parameters", message)
        # Noise of somebody's own may mean something else by the flag.
        text = _training().to_json()
        self.write(text, flags=["--noise_multiplier=1", "--mechanism=mine:Noise"])
        self.read()

    def test_the_record_of_the_run_is_checked(self):
        text = _ldp_triehh().to_json()
        self.write(text, status="running")
        self.assertIn("'running'", self.assert_refused("run.json", "status"))
        self.write(text, flags=["--seed=1"], flags_sha256="0" * 64)
        self.assertIn("flags_sha256", self.assert_refused("run.json", "flags"))
        for name in ("program", "status", "flags", "flags_sha256"):
            self.write(text)
            record = json.loads((self.path / "run.json").read_text())
            del record[name]
            (self.path / "run.json").write_text(json.dumps(record))
            self.assertIn(
                f"field {name} is missing", self.assert_refused("run.json", name)
            )
        for record in ("[]", "{", "null", "\xff"):
            (self.path / "run.json").write_text(record)
            self.assert_refused("run.json", record)

    def test_a_theorem_of_somebodys_own_is_taken_as_it_is(self):
        fields = json.loads(_ldp_triehh().to_json())
        fields["parameters"] = {"mine": 1}
        self.write(json.dumps(fields), program="mine:Algorithm")
        (warning,) = self.read().warnings
        self.assertIn("not one of this code", warning)
        self.write(
            json.dumps(fields),
            program="federated_hh.run_algorithm",
            flags=[
                "--algorithm=federated_hh.heavy_hitters.sfp.algorithm:SequenceFragmentPuzzle"
            ],
        )
        self.assert_refused("privacy.json", "own")

    def test_the_program_ends_with_a_line(self):
        honest = _triehh().to_json()
        self.write(honest)
        arguments = (f"--compose={self.path}", "--delta=1e-6", "--format=json")
        done = accounting_program.run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write(honest.replace('"one_sided": true', '"one_sided": false'), of=honest)
        done = accounting_program.run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertLen(done.stderr.splitlines(), 1)
        self.assertIn(f"{self.path}/privacy.json", done.stderr)


if __name__ == "__main__":
    absltest.main()
