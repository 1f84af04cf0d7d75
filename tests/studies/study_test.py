"""Tests of what all studies share, with one that counts and does nothing else."""

import dataclasses
import itertools
import pathlib
from unittest import mock

from absl.testing import absltest

from federated_hh.command_line import experiment_flags
from federated_hh.files import software
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from studies import study, study_parts

_KEY = noise_keys.NoiseKey.of_seed(1)
_ROUNDS = 3
_TOTALS = """\
setting,repeat,total
"by one, slowly",0,3
by two,0,6
"by one, slowly",1,103
by two,1,106
"""


@dataclasses.dataclass(frozen=True)
class _Setting:
    name: str
    step: int


class _Counting:
    """Adds a number in each of three rounds, with a checkpoint after each."""

    title = "Counting"
    settings = (_Setting("by one, slowly", 1), _Setting("by two", 2))
    num_repeats = 2
    needs_worker = False

    def __init__(self):
        self.data = {"numbers": "0123abcd"}
        self.rounds = []
        self.check_clients = mock.Mock()

    def run_part(self, setting, repeat, part):
        done, total = part.load_checkpoint() or (0, 100 * repeat)
        for number in range(done, _ROUNDS):
            self.rounds.append((setting.name, repeat, number))
            total += setting.step
            part.save_checkpoint([number + 1, total])
        return {"totals": [{"total": total}]}

    def files(self, tables, directory):
        parts = sorted(path.name for path in directory.glob("*_repeat_*"))
        totals = tables["totals"].to_csv(index=False, lineterminator="\n")
        return {"totals.csv": totals.encode(), study.PAGE: "\n".join(parts).encode()}


class _KilledError(Exception):
    pass


class StudyTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def perform(self, counting, name, resume=False, flags=(), **parts):
        """Runs a study; returns the folder of its results."""
        results = self.scratch / f"{name}_results"
        arguments = experiment_flags.Arguments(
            output_dir=str(self.scratch / name),
            resume=resume,
            seed=1,
            noise_key=_KEY,
            flags=(
                "--data_dir=/some where",
                f"--results_dir={results}",
                "--known=two words",
                "--nofast",
                *flags,
            ),
        )
        study.perform(counting, arguments, "scripts.t", results, **parts)
        return results

    def test_each_repeat_of_each_setting_has_a_part(self):
        counting = _Counting()
        results = self.perform(counting, "whole")
        self.assertEqual((results / "totals.csv").read_text(), _TOTALS)
        self.assertEqual(
            (results / study.PAGE).read_text().splitlines(),
            [
                "by_one_slowly_repeat_1",
                "by_one_slowly_repeat_2",
                "by_two_repeat_1",
                "by_two_repeat_2",
            ],
        )
        self.assertLen(counting.rounds, 2 * 2 * _ROUNDS)
        for name in ("totals.csv", study.PAGE, "README.md"):
            kept = self.scratch / "whole" / "simulator" / name
            self.assertEqual(kept.read_bytes(), (results / name).read_bytes())

    def test_settings_of_the_same_folder_are_refused(self):
        counting = _Counting()
        counting.settings = (_Setting("by one", 1), _Setting("by-one", 2))
        with self.assertRaisesRegex(ValueError, "same folder: by_one_repeat_1"):
            self.perform(counting, "same")
        self.assertEmpty(counting.rounds)

    def test_a_population_that_is_not_enough_leaves_nothing(self):
        counting = _Counting()
        counting.check_clients.side_effect = ValueError("too few")
        with self.assertRaisesRegex(ValueError, "too few"):
            self.perform(counting, "refused")
        self.assertEmpty(counting.rounds)
        self.assertEmpty(list(self.scratch.iterdir()))

    def test_killed_at_any_moment_it_goes_on_where_it_was(self):
        save = run_directory.RunDirectory.save_checkpoint
        # After each round of each run, and after each run.
        for moment in range(1, 2 * 2 * (_ROUNDS + 1) + 1):
            calls = itertools.count(1)

            def save_and_die(directory, state, calls=calls, moment=moment):
                save(directory, state)
                if next(calls) == moment:
                    raise _KilledError

            counting, name = _Counting(), f"cut_{moment}"
            with (
                self.subTest(moment),
                mock.patch.object(
                    run_directory.RunDirectory, "save_checkpoint", save_and_die
                ),
            ):
                with self.assertRaises(_KilledError):
                    self.perform(counting, name)
                results = self.perform(counting, name, resume=True)
                counting.check_clients.assert_called_once()  # of the new run
                self.assertEqual((results / "totals.csv").read_text(), _TOTALS)
                # No round is run again, in the middle of a setting neither.
                self.assertLen(counting.rounds, 2 * 2 * _ROUNDS)
                self.assertLen(set(counting.rounds), 2 * 2 * _ROUNDS)

    def test_results_say_command_commit_and_data(self):
        results = self.perform(_Counting(), "told")
        text = (results / "README.md").read_text()
        self.assertStartsWith(text, "# Counting\n")
        self.assertIn(
            "    scripts/run scripts.t --data_dir=... '--known=two words' --nofast\n",
            text,
        )
        self.assertIn(f"* Commit: {software.version()} ", text)
        self.assertIn("* Data: numbers, fingerprint 0123abcd.", text)
        self.assertIn("numpy ", text)
        self.assertNotIn("some where", text)
        self.assertNotIn(str(self.scratch), text)

    def test_parts_give_what_the_whole_gives(self):
        paths, rounds = [], []
        for number in (3, 1, 2):
            counting = _Counting()
            part = study_parts.StudyPart.parse(f"{number}/3")
            flags = (f"--study_part={number}/3",)
            self.perform(counting, f"part_{number}", flags=flags, part=part)
            paths.append(str(self.scratch / f"part_{number}"))
            rounds += counting.rounds
        # Each run of a setting is in one part.
        self.assertLen(rounds, 2 * 2 * _ROUNDS)
        self.assertLen(set(rounds), 2 * 2 * _ROUNDS)
        nothing = _Counting()
        flags = (f"--gather={','.join(paths)}",)
        results = self.perform(nothing, "gathered", flags=flags, parts=paths)
        self.assertEmpty(nothing.rounds)
        nothing.check_clients.assert_not_called()
        self.assertEqual((results / "totals.csv").read_text(), _TOTALS)
        self.assertLen((results / study.PAGE).read_text().splitlines(), 4)
        self.assertNotIn("gather", (results / "README.md").read_text())

    def test_parts_that_are_not_the_whole(self):
        for number in (1, 2):
            part = study_parts.StudyPart(number, 3)
            self.perform(_Counting(), f"part_{number}", part=part)
        self.perform(
            _Counting(), "other", flags=("--x=1",), part=study_parts.StudyPart(3, 3)
        )
        one, two, other = (
            str(self.scratch / name) for name in ("part_1", "part_2", "other")
        )
        for paths, message in (
            ([one, two], "1 of 4 runs are in no part, as by one, slowly, repeat 2"),
            ([one, two, two], "both have by two, repeat 1"),
            ([one, two, other], "other flags: --x=1"),
            ([str(self.scratch / "nowhere")], "holds no run"),
        ):
            with (
                self.subTest(message),
                self.assertRaisesRegex(run_directory.RunDirectoryError, message),
            ):
                self.perform(_Counting(), f"gathered_{len(message)}", parts=paths)

    def test_names_of_parts(self):
        for wrong in ("0/3", "4/3", "1", "1/0", "a/b", "1/3/5", "-1/3"):
            with self.assertRaisesRegex(ValueError, "--study_part is"):
                study_parts.StudyPart.parse(wrong)

    def test_other_data_are_not_gone_on_with(self):
        counting = _Counting()
        with (
            mock.patch.object(counting, "run_part", side_effect=_KilledError),
            self.assertRaises(_KilledError),
        ):
            self.perform(counting, "other")
        counting.data = {"numbers": "4567"}
        with self.assertRaisesRegex(
            run_directory.RunDirectoryError,
            "numbers = '0123abcd', and it is now '4567'",
        ):
            self.perform(counting, "other", resume=True)


if __name__ == "__main__":
    absltest.main()
