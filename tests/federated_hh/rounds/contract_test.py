"""Tests of the engine's promises, with all algorithms.

Killed at any moment and resumed, a run has the same bytes; nobody is asked twice for
different things; a run does not go on under other code, data or flags; two runs that
differ in anything have random numbers of their own.
"""

import atexit
import contextlib
import functools
import glob
import json
import math
import os
import pathlib
import shutil
import signal
import tempfile
import threading
from typing import Any, ClassVar
from unittest import mock

import jsonschema
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from federated_hh.files import freed_memory, seal, software
from federated_hh.privacy import plan as plan_lib
from federated_hh.randomness import identities, noise_keys, streams
from federated_hh.reports import page
from federated_hh.rounds import (
    block_round,
    checkpoints,
    experiment,
    record,
    run,
    steps,
)
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from federated_hh.runtime import runtime
from federated_hh.runtime.worker import stops, worker, worker_context
from tests import ROOT, run_directories
from tests.federated_hh.rounds import contract_cases

_KEY = noise_keys.NoiseKey(7, is_secret=True)
_NAMES = tuple(contract_cases.CASES)
# With these every moment can be tried, or every third.
_QUICK = {"tally": 1, "tally_saved_seldom": 3}


def _stay(algorithm, state, released):
    """Updates nothing."""
    del algorithm, released
    return state, {}


class Killed(BaseException):
    """Stands for a kill: nothing in the program handles it."""


@functools.cache
def _shared_folder():
    """Returns a folder for runs of several tests."""
    folder = tempfile.mkdtemp(prefix="contract_test_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def killed_at(moment):
    """Kills at a moment: a file, a line of the record, an answer, a release."""
    passed = [0]

    def before(function):
        def wrapped(*args, **kwargs):
            if passed[0] == moment:
                raise Killed
            passed[0] += 1
            return function(*args, **kwargs)

        return wrapped

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (run_files.RunFiles, "append"),
            (run_files.RunFiles, "write_bytes"),
            (record.RoundRecord, "add"),
            (steps.Steps, "ask"),
            (plan_lib.Plan, "release"),
        ):
            wrapped = before(getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, wrapped))
        yield passed


_WORKERS: dict[int, worker_context.WorkerContext] = {}
_STATEMENTS: dict[tuple[str, float, int], Any] = {}


def tearDownModule():
    while _WORKERS:
        _WORKERS.popitem()[1].worker.close()


@contextlib.contextmanager
def shared_worker(*, max_concurrent_calls=-1):
    """Runs computations in one worker for all runs of this process."""
    context = _WORKERS.get(max_concurrent_calls)
    if context is None:
        made = worker.Worker(max_concurrent_calls, runtime.ANSWER_TIMEOUT_SECONDS)
        context = worker_context.WorkerContext(made, None)
        context.worker = made
        _WORKERS[max_concurrent_calls] = context
    with tff.framework.get_context_stack().install(context):
        yield


def planned_once(original):
    """Returns `Plan.statement`, which states what is planned once a plan."""

    def statement(plan, made, delta, *, repeats=1):
        if made is not None:
            return original(plan, made, delta, repeats=repeats)
        key = (identities.canonical(plan), delta, repeats)
        if key not in _STATEMENTS:
            _STATEMENTS[key] = original(plan, made, delta, repeats=repeats)
        return _STATEMENTS[key]

    return statement


def no_curves(section, metrics, stem="metrics"):
    """Stands for `Section.metrics`: writes a picture without drawing it."""
    section._page.add_file(f"{stem}.png", b"a picture", covered=section.covered)
    return section


class ContractTestCase(parameterized.TestCase):
    # Runs that several tests look at, by case: they are made once a process.
    _whole: ClassVar[dict[str, tuple[Any, int]]] = {}
    # The bounds of each run's sums over blocks; None for a sum in the clear.
    _bounds: ClassVar[dict[str, list[Any]]] = {}
    _interrupted: ClassVar[dict[str, str]] = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Each of hundreds of runs would look at all that is imported.
        cls.enterClassContext(freed_memory.quick_collections())

    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        self.folders = 0
        # Drawing takes two thirds of a small run, and no picture is compared.
        self.enter_context(mock.patch.object(page.Section, "metrics", no_curves))
        # The class does it for all runs; each would count a million objects.
        quick = contextlib.nullcontext
        self.enter_context(mock.patch.object(freed_memory, "quick_collections", quick))
        statement = planned_once(plan_lib.Plan.statement)
        self.enter_context(mock.patch.object(plan_lib.Plan, "statement", statement))
        # A resumed run has a worker of its own, and all others have one together.
        self.own_worker = runtime.computing
        self.enter_context(mock.patch.object(runtime, "computing", shared_worker))
        # Thousands of small writes wait for the disk, and no test cuts the power:
        # what a killed process has written stays. `atomic_files_test` has the syncs.
        self.enter_context(mock.patch.object(os, "fsync"))

    def make(self, case, data="a", plan="a"):
        folder = self.new_folder()
        os.mkdir(folder)
        return contract_cases.CASES[case].make(folder, data, plan)

    def whole(self, case):
        """Returns the experiment of a case's whole run, and its number of moments."""
        if case not in self._whole:
            path = os.path.join(_shared_folder(), f"{case}_whole")
            algorithm = self.make(case)
            built, bounds = block_round.BlockRound._sum, []

            def recorded(round_, values, largest):
                bounds.append(largest)
                return built(round_, values, largest)

            sums = mock.patch.object(block_round.BlockRound, "_sum", recorded)
            with sums, killed_at(math.inf) as passed:
                self._whole[case] = self.start(case, algorithm, path), passed[0]
            self._bounds[case] = bounds
        return self._whole[case]

    def new_folder(self):
        self.folders += 1
        return os.path.join(self.scratch, str(self.folders))

    def start(self, case, algorithm, path=None, **options):
        definition = contract_cases.CASES[case]
        values = {
            "seed": 3,
            "noise_key": _KEY,
            "repeats": definition.repeats,
            "save_every": definition.save_every,
            "delta": definition.delta,
            "observers": definition.observers,
        }
        path = path or self.new_folder()
        return experiment.run_experiment(algorithm, path, **values | options)

    def fails_at(self, rounds):
        update = contract_cases.Tally.update

        def wrapped(state, released):
            if state.rounds == rounds:
                raise ArithmeticError
            return update(mock.Mock(), state, released)

        return wrapped

    def steps_in_tensorboard(self, path):
        found = []
        folder = os.path.join(path, "simulator", "tensorboard")
        for file in sorted(glob.glob(f"{folder}/repeat_*/*")):
            curve = os.path.basename(os.path.dirname(file))
            for event in tf.compat.v1.train.summary_iterator(file):
                tags = [value.tag for value in event.summary.value]
                found += [(curve, event.step)] * tags.count("simulator/seconds")
        return found


class KilledTest(ContractTestCase):
    """Killed before a file is written, a round is written down, or clients answer."""

    @parameterized.parameters(*_NAMES)
    def test_resumed_run_has_the_same_bytes(self, case):
        algorithm = self.make(case)
        whole, moments = self.whole(case)
        expected = run_directories.untimed_files(whole.path)
        self.assertGreater(moments, 20)
        places = [*range(0, moments, _QUICK.get(case, 1))]
        if case not in _QUICK:
            # The beginning, one kind of moment in the middle, and the end.
            kind = sorted(_NAMES).index(case) % 4
            places = [1, moments // 2 + kind, moments - 2]
        for place in places:
            with self.subTest(f"moment {place} of {moments}"):
                path = self.new_folder()
                with killed_at(place), self.assertRaises(Killed):
                    self.start(case, algorithm, path)
                resume = os.path.exists(os.path.join(path, "run.json"))
                with mock.patch.object(runtime, "computing", self.own_worker):
                    done = self.start(case, algorithm, path, resume=resume)
                self.assertEqual(run_directories.untimed_files(path), expected)
                self.assertEqual(
                    [checkpoints.digest(state) for state in done.outcome.states],
                    [checkpoints.digest(state) for state in whole.outcome.states],
                )
                self.assertEqual(
                    self.steps_in_tensorboard(path),
                    self.steps_in_tensorboard(whole.path),
                )

    @parameterized.parameters(*_NAMES)
    def test_no_sum_is_in_the_clear(self, case):
        self.whole(case)
        self.assertNotIn(None, self._bounds[case])
        # The others have no blocks: NumPy alone, or devices that add up themselves.
        with_blocks = {"triehh", "ldp_triehh", "median_length", "sfp", "set_union"}
        with_blocks |= {"opt_prefix_tree", "set_union_adaptive", "training"}
        self.assertEqual(bool(self._bounds[case]), case in with_blocks)

    @parameterized.parameters(*_NAMES)
    def test_a_client_s_bytes_are_on_file(self, case):
        of_case = type(self.make(case))
        metrics = self.whole(case)[0].metrics
        if of_case.__module__ == contract_cases.__name__:  # has no clients
            self.assertNotIn("upload_bytes", metrics)
            return
        sizes = metrics[["download_bytes", "upload_bytes"]]
        self.assertEqual(sizes.dtypes.unique().tolist(), [np.int64])
        # Later rounds may ask for nothing.
        self.assertTrue((sizes[metrics["round"] == 1]["upload_bytes"] > 0).all())
        report = pathlib.Path(self.whole(case)[0].path, "report.html").read_text()
        self.assertIn("A client downloads at most", report)

    def test_a_round_is_on_the_disk_before_anybody_is_asked(self):
        path = pathlib.Path(self.new_folder())
        file = path / "simulator" / "rounds.jsonl"
        # The record's bytes, and whether its folder had its name, when last synced.
        on_disk: dict[pathlib.Path, Any] = {}
        ask = steps.Steps.ask

        def fsync(descriptor):
            synced = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if synced == file:
                on_disk[synced] = file.read_bytes()
            elif synced == file.parent:
                on_disk[synced] = file.exists()

        def asked(by_hand, *arguments):
            self.assertEqual(on_disk.get(file), file.read_bytes())
            self.assertTrue(on_disk.get(file.parent))
            return ask(by_hand, *arguments)

        with (
            mock.patch.object(os, "fsync", fsync),
            mock.patch.object(steps.Steps, "ask", asked),
        ):
            self.start("tally", self.make("tally"), str(path))
        self.assertLen(file.read_bytes().splitlines(), 10)

    def test_half_a_line_of_the_record_asked_nobody(self):
        algorithm = self.make("tally")
        expected = self.start("tally", algorithm).outcome
        path = self.new_folder()
        with killed_at(20), self.assertRaises(Killed):
            self.start("tally", algorithm, path)
        with open(os.path.join(path, "simulator", "rounds.jsonl"), "a") as file:
            file.write('{"repeat": 0, "num')
        done = self.start("tally", algorithm, path, resume=True)
        self.assertEqual(done.outcome.record.rounds, expected.record.rounds)

    def test_an_error_keeps_the_rounds_before_it(self):
        algorithm = self.make("tally_saved_seldom")
        path = self.new_folder()
        with (
            mock.patch.object(algorithm, "update", side_effect=self.fails_at(4)),
            self.assertRaises(ArithmeticError),
        ):
            self.start("tally_saved_seldom", algorithm, path)
        with mock.patch.object(steps.Steps, "ask", autospec=True) as ask:
            ask.side_effect = Killed
            with self.assertRaises(Killed):
                self.start("tally_saved_seldom", algorithm, path, resume=True)
        self.assertEqual(ask.call_args.args[1].rounds, 4)

    def signal_at(self, repeat, number):
        """Catches signals; returns an observer that sends SIGTERM in a round."""
        self.enter_context(mock.patch.object(stops, "_stop", stops._Stop()))
        for caught in stops.SIGNALS:
            self.addCleanup(signal.signal, caught, signal.getsignal(caught))
        stops.catch()

        def send(seen):
            if (seen.repeat, seen.number) == (repeat, number):
                os.kill(os.getpid(), signal.SIGTERM)
            return {}

        return send

    def test_a_signal_lets_the_round_end_and_keeps_it(self):
        algorithm = self.make("tally_saved_seldom")
        expected = self.start("tally_saved_seldom", algorithm)
        path = self.new_folder()
        send = self.signal_at(0, 2)
        with self.assertRaises(KeyboardInterrupt):
            self.start("tally_saved_seldom", algorithm, path, observers=(send,))
        lines = pathlib.Path(path, "simulator", "rounds.jsonl").read_text()
        self.assertLen(lines.splitlines(), 2)
        stops._stop = stops._Stop()
        with mock.patch.object(steps.Steps, "ask", autospec=True) as ask:
            ask.side_effect = Killed
            with self.assertRaises(Killed):
                self.start("tally_saved_seldom", algorithm, path, resume=True)
        self.assertEqual(ask.call_args.args[1].rounds, 2)
        done = self.start("tally_saved_seldom", algorithm, path, resume=True)
        self.assertEqual(
            run_directories.untimed_files(path),
            run_directories.untimed_files(expected.path),
        )
        self.assertEqual(done.outcome.record, expected.outcome.record)

    def test_what_a_signal_saves_goes_when_the_run_is_complete(self):
        """Also in the last repeat, which no later checkpoint follows."""
        algorithm = self.make("tally_saved_seldom")
        expected = self.start("tally_saved_seldom", algorithm)
        last = expected.outcome.record.rounds.rounds[-1]
        self.assertEqual(last.number, 5)  # the last one saved is 3
        path = self.new_folder()
        send = self.signal_at(last.repeat, 4)
        with self.assertRaises(KeyboardInterrupt):
            self.start("tally_saved_seldom", algorithm, path, observers=(send,))
        stops._stop = stops._Stop()
        self.start("tally_saved_seldom", algorithm, path, resume=True)
        self.assertEqual(run_directories.differing(path, expected.path), [])

    def test_a_signal_is_urgent_outside_of_rounds_and_the_second_time(self):
        stop = stops._Stop()
        with self.assertRaises(KeyboardInterrupt):
            stop.handle(signal.SIGHUP, None)
        stop = stops._Stop()
        stop.is_in_rounds = True
        stop.handle(signal.SIGHUP, None)
        stop.timer.cancel()
        with self.assertRaises(KeyboardInterrupt):
            stop.handle(signal.SIGTERM, None)

    def test_a_round_that_takes_longer_than_the_grace_is_interrupted(self):
        stop = stops._Stop()
        stop.is_in_rounds = True
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with (
            mock.patch.object(stops, "GRACE_SECONDS", 0.01),
            self.assertRaises(KeyboardInterrupt),
        ):
            stop.handle(signal.SIGTERM, None)
            threading.Event().wait(60)

    def test_an_error_after_a_kill_keeps_the_checkpoint(self):
        # Killed between a checkpoint's arrays and what names it, there is a file of a
        # later round; the next run's error must not take that for the last.
        algorithm = self.make("tally")
        expected = run_directories.untimed_files(self.start("tally", algorithm).path)
        path = self.new_folder()
        write = run_files.RunFiles.write_bytes

        def kill(folder, name, contents):
            if name == "checkpoint.jsonl" and b'"rounds": 3' in contents:
                raise Killed
            write(folder, name, contents)

        with (
            mock.patch.object(run_files.RunFiles, "write_bytes", kill),
            self.assertRaises(Killed),
        ):
            self.start("tally", algorithm, path)
        with (
            mock.patch.object(algorithm, "update", side_effect=ArithmeticError),
            self.assertRaises(ArithmeticError),
        ):
            self.start("tally", algorithm, path, resume=True)
        self.start("tally", algorithm, path, resume=True)
        self.assertEqual(run_directories.untimed_files(path), expected)


class RefusedTest(ContractTestCase):
    def interrupted(self, case):
        """Returns a run that was killed when its second round was to be asked.

        That of an algorithm of one round is the first of its second repeat. Each call
        returns a copy of the same run.
        """
        if case not in self._interrupted:
            self._interrupted[case] = self._interrupt(case)
        path = self.new_folder()
        shutil.copytree(self._interrupted[case], path)
        return path

    def _interrupt(self, case):
        path = os.path.join(_shared_folder(), f"{case}_interrupted")
        ask = steps.Steps.ask
        asked = []

        def kill(self_, place, query, cohort, failed):
            asked.append(place.rounds)
            if len(asked) == 2:
                raise Killed
            return ask(self_, place, query, cohort, failed)

        with mock.patch.object(steps.Steps, "ask", kill), self.assertRaises(Killed):
            self.start(case, self.make(case), path)
        return path

    @parameterized.parameters(*_NAMES)
    def test_other_data_plan_seed_or_repeats(self, case):
        path = self.interrupted(case)
        for changes, message in (
            ({"data": "b"}, "the run began with"),
            ({"plan": "b"}, "the run began with plan"),
        ):
            with self.assertRaisesRegex(run_directory.RunDirectoryError, message):
                self.start(case, self.make(case, **changes), path, resume=True)
        for changes in ({"seed": 4}, {"repeats": 5}):
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, f"began with {next(iter(changes))}"
            ):
                self.start(case, self.make(case), path, resume=True, **changes)
        # All of it is as it was: the run goes on.
        self.start(case, self.make(case), path, resume=True)

    @parameterized.parameters(*_NAMES)
    def test_other_code_or_key(self, case):
        path = self.interrupted(case)
        with (
            mock.patch.object(software, "digest", return_value="other"),
            self.assertRaisesRegex(record.RecordError, "with other code, packages"),
        ):
            self.start(case, self.make(case), path, resume=True)
        other = noise_keys.NoiseKey(8, is_secret=True)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "another noise"):
            self.start(case, self.make(case), path, resume=True, noise_key=other)

    @parameterized.parameters(*_NAMES)
    def test_other_clients_than_were_written_down(self, case):
        for edit, message in (
            (
                lambda lines: [
                    lines[0],
                    lines[1].replace('"cohort": "', '"cohort": "0'),
                ],
                "damaged",
            ),
            (lambda lines: [lines[0], self.other_cohort(lines[1])], "would ask"),
            (lambda lines: lines[1:], "other rounds|would ask"),
            (lambda lines: [], "other rounds|damaged"),
            (
                lambda lines: [self.other_cohort(lines[0]), lines[1]],
                "other rounds|would ask",
            ),
        ):
            path = self.interrupted(case)
            file = os.path.join(path, "simulator", "rounds.jsonl")
            with open(file) as contents:
                lines = contents.read().splitlines(keepends=True)
            self.assertLen(lines, 2)
            lines = edit(lines)
            if contract_cases.CASES[case].save_every > 1 and not lines:
                continue  # nothing was saved that could tell
            with open(file, "w") as contents:
                contents.write("".join(lines))
            with self.assertRaisesRegex(record.RecordError, message):
                self.start(case, self.make(case), path, resume=True)

    def test_a_loop_without_facts_knows_its_algorithm(self):
        # `run.run` by itself, in a directory that records nothing of the algorithm.
        path = pathlib.Path(self.new_folder())
        same = {"program": "test", "facts": {}, "noise_key": _KEY}
        options = {"seed": 3, "repeats": 2, "save_every": 1, "delta": 0.9}
        algorithm = self.make("tally")
        with (
            run_directory.RunDirectory.create(path, flags=(), **same) as directory,
            mock.patch.object(algorithm, "update", side_effect=self.fails_at(2)),
            self.assertRaises(ArithmeticError),
        ):
            run.run(algorithm, directory, **options)
        with (
            run_directory.RunDirectory.resume(path, **same) as directory,
            self.assertRaisesRegex(record.RecordError, "has another plan"),
        ):
            run.run(self.make("tally", data="b"), directory, **options)

    def test_more_rounds_on_file_than_the_run_comes_to(self):
        whole = self.start("tally", self.make("tally")).path
        lines = pathlib.Path(whole, "simulator", "rounds.jsonl").read_text()
        *_, last = map(json.loads, lines.splitlines())
        beyond = json.dumps(last | {"number": last["number"] + 1}) + "\n"
        path = self.interrupted("tally")
        pathlib.Path(path, "simulator", "rounds.jsonl").write_text(lines + beyond)
        with self.assertRaisesRegex(
            record.RecordError, "1 rounds? after the last round"
        ):
            self.start("tally", self.make("tally"), path, resume=True)

    def other_cohort(self, line):
        values = json.loads(line)
        values["cohort"] = "0" * 64
        return json.dumps(values) + "\n"

    def test_a_client_twice(self):
        algorithm = self.make("tally")
        cohort = np.sort(np.append(np.arange(19), 5))
        drawn = plan_lib.Draw(cohort, None)
        kind = type(algorithm.plan.sampler)
        with (
            mock.patch.object(kind, "draw", return_value=drawn),
            self.assertRaisesRegex(ValueError, "a duplicate client"),
        ):
            self.start("tally", algorithm)

    def test_an_edited_state(self):
        path = self.interrupted("tally")
        file = next(
            os.path.join(path, "simulator", name)
            for name in os.listdir(os.path.join(path, "simulator"))
            if name.endswith(".npz")
        )
        with open(file, "r+b") as contents:
            contents.seek(200)
            contents.write(b"\1")
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "SHA-256"):
            self.start("tally", self.make("tally"), path, resume=True)


class NoiseTest(ContractTestCase):
    @parameterized.parameters(*_NAMES)
    def test_runs_that_differ_in_anything_have_noise_of_their_own(self, case):
        same = self.make(case)
        runs = {
            "itself": (same, {}),
            "again": (self.make(case), {}),
            "data": (self.make(case, data="b"), {}),
            "plan": (self.make(case, plan="b"), {}),
            "seed": (same, {"seed": 4}),
            "key": (same, {"noise_key": noise_keys.NoiseKey(8, is_secret=True)}),
            "code": (same, {"code": "other"}),
        }
        drawn = {}
        for name, (algorithm, changes) in runs.items():
            options = {"seed": 3, "noise_key": _KEY} | changes
            by_hand = steps.Steps(algorithm, **options)
            for repeat in (0, 1):
                drawn[name, repeat] = self.streams_of(by_hand, repeat)
        self.assertEqual(drawn["itself", 0], drawn["again", 0])
        del drawn["again", 0], drawn["again", 1]
        seen = [value for values in drawn.values() for value in values]
        self.assertLen(set(seen), len(seen))

    def streams_of(self, by_hand, repeat):
        """Returns what clients and mechanism draw in the first rounds, two at most."""
        seen = []

        def note(cohort, stream):
            seen.append(stream.bits("test").bytes(0, 8))
            seen.append(stream.stateless_seed("test").tobytes())
            return np.arange(3)

        def release(self_, total, state, facts, stream):
            seen.append(stream.bits("test").bytes(0, 8))
            return plan_lib.Release(total, state)

        place = by_hand.begin(repeat)
        algorithm = by_hand._algorithm
        facts = algorithm.next_query(place.state).facts
        query = mock.Mock(ask=note, facts=facts)
        with (
            mock.patch.object(plan_lib.Plan, "release", release),
            mock.patch.object(
                type(algorithm), "update", lambda s, state, _: (state, {})
            ),
        ):
            for _ in range(min(2, algorithm.max_rounds)):
                drawn = by_hand.draw(place)
                total = by_hand.ask(place, query, drawn.cohort)
                place = by_hand.update(place, query, drawn, total).progress
        return seen

    def test_other_sums_have_other_noise(self):
        by_hand = steps.Steps(self.make("tally"), seed=3, noise_key=_KEY)
        place = by_hand.begin()
        query = mock.Mock(facts={})
        seen = []

        def release(self_, total, state, facts, stream):
            seen.append(stream.bits("noise").bytes(0, 8))
            return plan_lib.Release(total, state)

        with (
            mock.patch.object(plan_lib.Plan, "release", release),
            mock.patch.object(contract_cases.Tally, "update", _stay),
        ):
            drawn = by_hand.draw(place)
            totals = [np.array([5, 2, 1]), np.array([5, 2, 2]), np.array([5, 2, 1])]
            places = [
                by_hand.update(place, query, drawn, total).progress for total in totals
            ]
            self.assertEqual(seen[0], seen[2])
            self.assertNotEqual(seen[0], seen[1])
            # And from there on, also over the same sums.
            for following in places:
                by_hand.update(following, query, drawn, totals[0])
        self.assertEqual(seen[3], seen[5])
        self.assertNotEqual(seen[3], seen[4])

    def test_the_key_is_not_shown(self):
        self.assertNotIn("123456789", repr(streams.Stream(123456789, ("a",))))


class SealTest(ContractTestCase):
    @parameterized.parameters(*_NAMES)
    def test_a_changed_byte_of_any_file_is_named(self, case):
        done, _ = self.whole(case)
        path = pathlib.Path(done.path)
        record = run_record.read(path)
        seal.check(path, record)
        released, simulators = (
            json.loads((path / name).read_text())["files"] for name in seal.FILES
        )
        self.assertContainsSubset({"run.json", "privacy.json"}, released)
        # Digests of exact counts are no released results.
        self.assertEqual({n for n in released if "simulator" in n}, set())
        self.assertContainsSubset(
            {"report.html", "simulator/summary.json", "seal.json"}, simulators
        )
        names = {*released, *simulators, *seal.FILES}
        for name in names:
            whole = (path / name).read_bytes()
            place = len(whole) * 2 // 3
            changed = bytearray(whole)
            changed[place : place + 1] = bytes([whole[place] ^ 1]) if whole else b"x"
            (path / name).write_bytes(changed)
            with self.subTest(name), self.assertRaisesRegex(seal.SealError, name):
                seal.check(path, record)
            (path / name).write_bytes(whole)
        seal.check(path, record)


class StatementTest(ContractTestCase):
    def check_schema(self, fields, name):
        schema = json.loads((ROOT / "federated_hh" / name).read_text())
        jsonschema.validate(fields, schema, jsonschema.Draft202012Validator)

    @parameterized.parameters(*_NAMES)
    def test_planned_is_no_less_than_realised(self, case):
        algorithm = self.make(case)
        done, _ = self.whole(case)
        definition = contract_cases.CASES[case]
        planned = algorithm.plan.statement(
            None, definition.delta, repeats=definition.repeats
        )
        written = {
            name: json.loads((pathlib.Path(done.path) / f"{name}.json").read_text())
            for name in ("run", "privacy")
        }
        self.check_schema(written["run"], "run_directory/run.schema.json")
        for stated in (written["privacy"], json.loads(planned.to_json())):
            self.check_schema(stated, "privacy/statement.schema.json")
        self.assertEqual(planned.basis, "planned")
        self.assertEqual(done.statement.basis, "realised")
        self.assertEqual(
            done.statement.realised.rounds, len(done.outcome.record.rounds.rounds)
        )
        before, after = _smallest_epsilons(planned), _smallest_epsilons(done.statement)
        self.assertNotEmpty(before)
        self.assertEqual(before.keys(), after.keys())
        for about, epsilon in before.items():
            self.assertGreaterEqual(epsilon, after[about], about)

    @parameterized.parameters(*_NAMES)
    def test_an_observer_cannot_change_a_state(self, case):
        def spoil(observed):
            arrays = {}
            seen = (observed.state, observed.total, observed.released)
            checkpoints.encode(seen, arrays)
            for array in arrays.values():
                with self.assertRaises(ValueError):
                    array[...] = 0
            return {}

        expected = self.whole(case)[0].outcome.states
        observers = (*contract_cases.CASES[case].observers, spoil)
        found = self.start(case, self.make(case), observers=observers).outcome.states
        for one, other in zip(expected, found, strict=True):
            self.assertEqual(checkpoints.digest(one), checkpoints.digest(other))


def _smallest_epsilons(made):
    """Returns the smallest epsilon of each kind of guarantee."""
    found = {}
    for one in made.guarantees:
        about = (one.adjacency, one.of_one_repeat, one.delta)
        found[about] = min(found.get(about, math.inf), one.epsilon)
    return found


if __name__ == "__main__":
    absltest.main()
