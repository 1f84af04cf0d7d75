"""Tests of what runs guarantee together, also through the program."""

import hashlib
import json
import math
import pathlib
from unittest import mock

from absl.testing import absltest, parameterized

from examples import median_length
from federated_hh.populations.options import population_options
from federated_hh.privacy import conversions
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import voting_rounds as triehh_curve
from federated_hh.privacy.accounting import run_totals
from federated_hh.privacy.dp_ftrl import model_updates, update_noise
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.rounds import experiment, samplers, timers
from tests.federated_hh import accounting_program

_CLIENTS = 100_000


def _words(delta=1e-9, repeats=1, threshold=30):
    plan = plan_lib.Plan(
        sampler=samplers.UniformCohorts(_CLIENTS, 5_000),
        contribution=triehh_plan.OneVote(redraws_each_round=False),
        mechanism=triehh_plan.Threshold(threshold, max_rounds=8),
    )
    return plan.statement(None, delta, repeats=repeats)


class _Reports:
    """Stands for a local randomizer."""

    def __init__(self, epsilon, domain_size):
        del domain_size
        self.guarantee = mock.Mock(replacement_epsilon=epsilon)


def _reports(delta=1e-9, repeats=1, bound=2):
    plan = plan_lib.Plan(
        sampler=samplers.DisjointCohorts(_CLIENTS, 10_000),
        contribution=local_reports_plan.LdpTrieHHReports(
            randomizer=_Reports,
            epsilon=1.0,
            replacement_epsilon=1.0,
            name="Reports",
            bound=bound,
            sampler="greedy",
            draws_sum=True,
            aggregation="secure_sum",
            max_depth=2,
            num_passes=1,
            max_prefixes=10,
        ),
        mechanism=plan_lib.NoNoise(),
    )
    return plan.statement(None, delta, repeats=repeats)


def _training(delta=1e-9, repeats=1, noise_multiplier=4.0):
    noise = update_noise.GaussianNoise(
        num_rounds=4, clip_norm=1.0, noise_multiplier=noise_multiplier
    )
    sampler = timers.Timers(
        num_clients=_CLIENTS, cohort_size=100, num_rounds=4, max_participation=2
    )
    return training_plan.plan_of(sampler, noise).statement(None, delta, repeats=repeats)


def _run(statement, name="run", program="p", population="f"):
    return run_totals.Run(name, statement, program, population)


def _best(statement, unit):
    """Returns epsilon of what is stated of all repeats for a unit."""
    return min(
        g.epsilon
        for g in statement.guarantees
        if g.unit.value == unit and g.is_upper_bound and not g.of_one_repeat
    )


def _total(rows, unit):
    """Returns the one total of a unit, and what it rests on."""
    (found,) = [
        (row["value"], row["basis"])
        for row in rows
        if row["quantity"].startswith("total epsilon")
        and row["quantity"].endswith(unit)
    ]
    return found


class TotalsTest(parameterized.TestCase):
    def test_trainings_add_their_zcdp(self):
        runs = [_run(_training(), "a"), _run(_training(repeats=2), "b")]
        epsilon, basis = _total(run_totals.totals(runs, 1e-8), "client")
        # 2 participations of noise multiplier 4, in 3 repeats.
        rho = 3 * 2 / (2 * 4**2)
        self.assertAlmostEqual(epsilon, conversions.zcdp_to_epsilon(rho, 1e-8))
        self.assertStartsWith(basis, "zero_out: ")

    def test_training_and_reports_are_for_an_exchange(self):
        reports, training = _reports(), _training()
        runs = [_run(reports, "a"), _run(training, "b", "q")]
        rows = run_totals.totals(runs, 1e-6)
        epsilon, basis = _total(rows, "client")
        self.assertStartsWith(basis, "replace_client: ")
        four = conversions.zcdp_to_epsilon(4 * 2 / (2 * 4**2), 1e-6 - 1e-9)
        once = conversions.zcdp_to_epsilon(2 / (2 * 4**2), 1e-6)
        self.assertLess(epsilon, four + _best(reports, "client"))
        self.assertGreater(epsilon, four)
        self.assertGreater(four, 1.9 * once)
        # An item of the reports, beside all that a client holds for the model.
        of_an_item, basis = _total(rows, "item")
        self.assertStartsWith(basis, "replace_one_item: ")
        self.assertBetween(of_an_item, four, epsilon)

    def test_words_make_the_total_one_sided(self):
        words, reports, training = _words(repeats=2), _reports(), _training()
        runs = [
            _run(words, "a"),
            _run(reports, "b", "q"),
            _run(training, "c", "r"),
        ]
        rows = run_totals.totals(runs, 1e-6)
        epsilon, basis = _total(rows, "client")
        self.assertStartsWith(basis, "emptied, one-sided (from D to D' only): ")
        # Of both runs together, which are released.
        together, _, alone, _ = words.guarantees
        self.assertBetween(together.epsilon, alone.epsilon, 2 * alone.epsilon)
        noise = conversions.zcdp_to_epsilon(2 / (2 * 4**2), 1e-6)
        most = together.epsilon + _best(reports, "client") + noise
        self.assertBetween(epsilon, noise, most)
        # Two runs are two of four: their curves compose as one of four repeats.
        again = [_run(_words(repeats=2), "a"), _run(_words(repeats=2), "b")]
        four, basis = _total(run_totals.totals(again, 1e-6), "client")
        self.assertIn("curves of rounds of votes", basis)
        rounds = triehh_curve.VotingRounds(_CLIENTS, 5_000, 30, 32)
        self.assertAlmostEqual(four, rounds.epsilon(1e-6), places=3)
        # Nothing is known of the exchange of an item, with guarantees one way only.
        refused, why = _total(rows, "item")
        self.assertEqual(refused, "-")
        self.assertIn("a: a guarantee for 'emptied' in one direction has no", why)

    @parameterized.parameters((True, 6.40), (False, 13.94))
    def test_words_and_training_for_an_emptied_client(self, keeps_empty, alone):
        # rho 0.48: five participations in ten rounds.
        noise = update_noise.GaussianNoise(
            num_rounds=10, clip_norm=1.0, noise_multiplier=math.sqrt(5 / 0.96)
        )
        sampler = timers.Timers(
            num_clients=_CLIENTS, cohort_size=100, num_rounds=10, max_participation=5
        )
        sent = model_updates.ClippedUpdate(population_has_empty_clients=keeps_empty)
        training = training_plan.plan_of(sampler, noise, sent).statement(None, 1e-10)
        # Words of a threshold that few reach add little, and less than their epsilon.
        for words, most in ((_words(threshold=4_950), 0.05), (_words(), 0.3)):
            runs = [_run(words, "a"), _run(training, "b", "q")]
            epsilon, basis = _total(run_totals.totals(runs, 1e-10), "client")
            self.assertStartsWith(basis, "emptied, one-sided (from D to D' only): ")
            self.assertBetween(epsilon, alone - 0.01, alone + most)
            self.assertLess(most, words.guarantees[0].epsilon)

    def test_the_local_guarantee_is_taken_where_delta_is_too_small(self):
        runs = [_run(_reports(1e-3))]
        central, _ = _total(run_totals.totals(runs, 1e-3), "client")
        local, _ = _total(run_totals.totals(runs, 1e-6), "client")
        self.assertLess(central, 0.5 * local)
        self.assertAlmostEqual(local, 2.0, places=3)

    def test_items_of_two_programs_need_not_be_the_same(self):
        runs = [_run(_reports(), "a"), _run(_reports(), "b")]
        together, _ = _total(run_totals.totals(runs, 1e-6), "item")
        self.assertBetween(together, 1e-3, 2 * _best(_reports(), "item"))
        runs[1] = _run(_reports(), "b", "other program")
        rows = run_totals.totals(runs, 1e-6)
        refused, why = _total(rows, "item")
        self.assertEqual(refused, "-")
        self.assertIn("an item of other program and one of p need not be the same", why)
        self.assertLess(_total(rows, "client")[0], 4)
        # Nor those of two populations, whose words may be cut otherwise.
        for population in ("g", None):
            runs[1] = _run(_reports(), "b", population=population)
            refused, why = _total(run_totals.totals(runs, 1e-6), "item")
            self.assertEqual(refused, "-")
            self.assertIn("the populations differ, so their items", why)

    @parameterized.parameters(
        (("f", "f"), False), (("f", "g"), True), (("f", None), True), ((None,), False)
    )
    def test_populations(self, populations, is_said):
        runs = [
            _run(_training(), str(number), population=population)
            for number, population in enumerate(populations)
        ]
        rows = run_totals.totals(runs, 1e-6)
        said = any("populations differ" in row["basis"] for row in rows)
        self.assertEqual(said, is_said)
        # Whoever they are, no total is that of a part of the runs.
        alone, _ = _total(run_totals.totals(runs[:1], 1e-6), "client")
        epsilon, _ = _total(rows, "client")
        self.assertEqual(epsilon > 1.2 * alone, len(runs) > 1)

    @parameterized.parameters(
        (
            lambda: _words(threshold=1),
            "a: nothing is guaranteed: no guarantee at delta",
        ),
        (lambda: _training(1e-40), "a: its epsilon is not a proved upper bound"),
        (
            lambda: _words(1e-3, threshold=5),
            "delta is 1e-06; it has to be at least .*, the sum of the least .* of a$",
        ),
    )
    def test_refused(self, statement, message):
        with self.assertRaisesRegex(ValueError, f"^no total: for clients, {message}"):
            run_totals.totals([_run(statement(), "a")], 1e-6)


class ProgramTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def directory(self, name, statement, population="f", schema_version=3):
        path = self.scratch / name
        (path / "simulator").mkdir(parents=True)
        fields = json.loads(statement.to_json()) | {"schema_version": schema_version}
        text = json.dumps(fields)
        (path / "privacy.json").write_text(text)
        record = {
            "program": name,
            "status": "complete",
            "flags": [],
            "flags_sha256": hashlib.sha256(b"[]").hexdigest(),
            "privacy_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        (path / "run.json").write_text(json.dumps(record))
        facts = {"population": population}
        (path / "simulator" / "facts.json").write_text(json.dumps(facts))
        return str(path)

    def compose(self, *paths, arguments=("--delta=1e-6",)):
        return accounting_program.run(
            f"--compose={','.join(paths)}", "--format=json", *arguments
        )

    def test_statements_of_all_three_algorithms(self):
        made = {"words": _words(), "reports": _reports(), "model": _training()}
        paths = [self.directory(*each) for each in made.items()]
        done = self.compose(*paths)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = [
            _run(statement, path, name)
            for path, (name, statement) in zip(paths, made.items(), strict=True)
        ]
        self.assertEqual(json.loads(done.stdout), run_totals.totals(runs, 1e-6))
        # The simulator's part need not be at hand.
        (pathlib.Path(paths[0]) / "simulator" / "facts.json").unlink()
        self.assertIn("populations differ", self.compose(*paths).stdout)

    def test_real_runs(self):
        paths = []
        words = self.scratch / "words.txt"
        words.write_text("".join(f"{'abcdefghi'[:n]}\t1\n" for n in range(1, 10)))
        for name, clients in (("first", 40), ("second", 60)):
            paths.append(str(self.scratch / name))
            algorithm = median_length.MedianLength.of(
                median_length.Options(cohort_size=clients),
                population_options.PopulationOptions(
                    num_clients=500, common_words=str(words)
                ),
                str(self.scratch / "cache"),
                1,
            )
            experiment.run_experiment(algorithm, paths[-1])
        done = self.compose(*paths)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        for unit in ("client", "item"):
            epsilon, basis = _total(rows, unit)
            # Two reports of epsilon 1, of one client and of one item.
            self.assertBetween(epsilon, 1.0, 2.0)
            self.assertNotIn("one-sided", basis)
        self.assertNotIn("populations differ", done.stdout)
        # What the run recorded of its statement is checked.
        self.assertNotIn("warning", done.stdout)
        for name, file in (("privacy_sha256", "privacy"), ("flags_sha256", "run")):
            path = pathlib.Path(paths[0]) / "run.json"
            honest = path.read_text()
            path.write_text(json.dumps(json.loads(honest) | {name: "0" * 64}))
            done = self.compose(*paths)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"first/{file}.json: ", done.stderr)
            path.write_text(honest)
        (pathlib.Path(paths[0]) / "simulator/README.txt").write_text("edited")
        self.assertIn("README.txt changed", self.compose(*paths).stderr)

    def test_bad_input(self):
        path = self.directory("words", _words())
        other = self.directory("other", _training())
        few = self.directory("few", _words(1e-3, threshold=5))
        unfinished = self.scratch / "unfinished"
        unfinished.mkdir()
        old = self.directory("old", _reports(), schema_version=2)
        for paths, arguments, message in (
            ([path, path + "/"], None, "names .*words/ twice"),
            ([path, str(unfinished)], None, "unfinished has no privacy.json; give"),
            ([old], None, "old/privacy.json: schema_version is 2; it has to be 3"),
            ([path], (), "--compose takes --delta"),
            ([path], ("--delta=1e-6", "--epsilon=1"), "--compose takes --delta"),
            ([path], ("--delta=2",), "delta=2: has to be a number in "),
            ([""], None, "compose names no run"),
            (
                [few, other],
                ("--delta=1e-6",),
                "delta is 1e-06; it has to be above .*, the sum of .*few",
            ),
        ):
            if arguments is None:
                arguments = ("--delta=1e-6",)
            done = self.compose(*paths, arguments=arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), message)
            self.assertRegex(done.stderr, message)
            # Of each run without a seal there may be a warning.
            *warnings, _ = done.stderr.splitlines()
            self.assertTrue(all("an earlier version" in line for line in warnings))


if __name__ == "__main__":
    absltest.main()
