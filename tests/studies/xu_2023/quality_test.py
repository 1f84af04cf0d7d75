"""Tests of the study of quality: what runs with which flags, and what is shown."""

import dataclasses
import json
import lzma
import pathlib
from unittest import mock

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.options import fields
from federated_hh.populations.options import population_options
from federated_hh.randomness import noise_keys
from federated_hh.reports import plots
from federated_hh.rounds import timers
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.xu_2023 import quality
from studies.xu_2023 import quality_report as xu_2023_quality_report
from studies.xu_2023 import quality_steps as steps_lib
from training.central import options as pretrain_options
from training.federated import options as training_options
from training.models import metric_names

_TRAIN, _PRETRAIN = "training.run_training", "training.pretrain"
_KEY = noise_keys.NoiseKey.of_seed(1)


def values_of(flags):
    """Returns the flags that have a value, by name: the last of each, as absl does."""
    return dict(
        flag[2:].split("=", 1)
        for flag in flags
        if flag.startswith("--") and "=" in flag
    )


class OptionsTest(parameterized.TestCase):
    def test_steps_come_with_what_they_begin_with(self):
        options = quality.Options(data_dir="", steps=("dp_ftrl_pretrained",))
        chosen = options.chosen(steps_lib.STEPS)
        self.assertEqual([s.name for s in chosen], ["chat", "dp_ftrl_pretrained"])
        options = quality.Options(data_dir="")
        self.assertEqual(options.chosen(steps_lib.STEPS), steps_lib.STEPS)

    def test_the_chat_alone_has_no_bloggers_who_judge(self):
        options = quality.Options(data_dir="", steps=("chat",))
        with self.assertRaisesRegex(ValueError, "steps=chat: has .* on bloggers, too"):
            options.chosen(steps_lib.STEPS)

    @parameterized.parameters(
        ("xu_quality", "adam"),
        ("xu_quality", "clients_3_server_8"),
        (quality.CHOICE, "fedavg"),
        (quality.SYNTHETIC, "chat"),
        (quality.SYNTHETIC, "dp_ftrl_pretrained"),
    )
    def test_unknown_steps(self, name, step):
        known = {
            "xu_quality": "chat, .*fedavg_pretrained",
            quality.CHOICE: "adaptive_clients_3.*clients_6_server_4",
            quality.SYNTHETIC: "central, .*fedavg_plateau$",
        }[name]
        with self.assertRaisesRegex(
            ValueError, f"steps={step}: has to name some of .*{known}"
        ):
            options = quality.Options(data_dir="", steps=(step,))
            quality.prepare(name, options, seed=1, cache="")

    def test_the_noise_of_a_client_is_the_papers(self):
        of_flagfile = values_of(quality.BLOGS_FLAGFILE.read_text().splitlines())
        noise = float(steps_lib.NOISE.partition("=")[2])
        self.assertAlmostEqual(noise / int(of_flagfile["cohort_size"]), 7 / 6500)


class StudyTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.data = pathlib.Path(self.create_tempdir().full_path)
        for number in range(12):
            self.write(f"blog-authorship/posts-{number:02d}-of-16.jsonl.xz", number)
        self.write("ubuntu-irc/messages.csv.xz", 100)
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.ran = []

    def write(self, name, content):
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([content]))

    def prepare(self, name="xu_quality", **options):
        return quality.prepare(
            name,
            quality.Options(data_dir=str(self.data), **options),
            seed=5,
            cache=str(self.scratch / "cache"),
        )

    def test_too_few_bloggers(self):
        for number in range(10):
            path = self.data / f"blog-authorship/posts-{number:02d}-of-16.jsonl.xz"
            lines = [
                json.dumps({"user": f"{number} {user}", "text": "it is what it is."})
                for user in range(30)
            ]
            path.write_bytes(lzma.compress("\n".join(lines).encode()))
        made = self.prepare(steps=("dp_ftrl",))
        # Some 200 of 300 judge, and a round has 100 clients.
        with self.assertRaisesRegex(
            ValueError,
            r"the population, of which \d\d clients train, .* for 'DP-FTRL': "
            "a round picks 100 clients .*cohort_size.*Begin a new study",
        ):
            made.check_clients()

    def pretend(self, path, given, cache, label, program):
        """Leaves what a finished run leaves."""
        del cache, label
        self.ran.append((path.name, program, list(given)))
        (path / "simulator").mkdir(parents=True, exist_ok=True)
        record = run_record.new("t", given, {}, _KEY) | {
            "status": "complete",
            "finished": "2026-01-01 00:00:00 +0000",
        }
        record["schema_version"] = 4  # without a seal
        (path / "run.json").write_text(json.dumps(record))
        number = len(self.ran)
        begun = any(flag.startswith("--initial_model=") for flag in given)
        shared = {"ids": 0, "sentences": 3, "writers": 2} if begun else None
        facts = {"initial_text": {"shared": shared}} if begun else {}
        (path / run_record.FACTS_FILE).write_text(json.dumps(facts))
        rows = {"round": [1, 2], "held_out_loss": [9.0, number], "rho": [0.5, 1.0]}
        clips = [0.2, 0.7] if "--adaptive_clip" in given else [1.0, 1.0]
        rows |= {"clip_norm": clips, "tracked_norm": clips}
        rows |= {
            f"held_out_{name}": [0.1, number / 100]
            for name in metric_names.LABELS
            if name != "loss"
        }
        metrics = tables.write(pd.DataFrame(rows))
        (path / "simulator" / "metrics.csv").write_text(metrics)
        rows = [
            dict.fromkeys(metric_names.LABELS, number / 8)
            | {"baseline": "interpolated bigram", "loss": 4.0}
        ]
        text = tables.write(pd.DataFrame(rows))
        (path / "simulator" / training_runs.BASELINES).write_text(text)
        # The first repeat guarantees the least.
        guarantee = {
            "rho": 2.0,
            "epsilon": 24.68 / number,
            "delta": 1e-10,
            "is_upper_bound": number > 2,
        }
        statement = {
            "parameters": {"noise multiplier z": 7 / 65},
            "guarantees": [guarantee] if "--mechanism=dp_ftrl" in given else [],
        }
        (path / "privacy.json").write_text(json.dumps(statement))
        if program == "training.evaluate_keyboard":
            scores = [
                {"model": model, "metric": metric, "value": value}
                for model, less in (
                    ("fedavg_repeat_1", 0.125),
                    ("interpolated trigram", 0),
                    ("Kneser-Ney trigram", 0.0625),
                    *[("the best possible", 0.25)] * (path.parent.name == "synthetic"),
                )
                for metric, value in (
                    ("loss", number / 2 - less),
                    ("one_suggestion", 0.25),
                )
            ]
            text = tables.write(pd.DataFrame(scores))
            (path / "simulator" / "scores.csv").write_text(text)

    def run_study(self, made, name="study"):
        directory = run_directory.RunDirectory.create(
            self.scratch / name, program="t", flags=(), facts={}, noise_key=_KEY
        )
        self.enter_context(
            mock.patch.object(training_runs, "num_clients", return_value=11_945)
        )
        with directory, mock.patch.object(training_runs, "train", self.pretend):
            for found in study.run(made, directory):
                files = made.files(found, directory.path)
        return files

    def test_a_repeat(self):
        made = self.prepare(steps=("central", "fedavg_pretrained"), num_repeats=2)
        files = self.run_study(made)
        names = ["chat", "central", "fedavg_pretrained", "judged"]
        expected = [f"{n}_repeat_{r}" for r in (1, 2) for n in names]
        self.assertEqual([name for name, _, _ in self.ran], expected)
        chat, central, federated, judged = (given for _, _, given in self.ran[4:])
        self.assertIn("--seed=6", chat)
        [begun] = [f for f in federated if f.startswith("--initial_model=")]
        self.assertEndsWith(begun, "study/chat_repeat_2/model")
        # The private text's run comes first: it says who is held out.
        self.assertRegex(
            judged[0], "^--model=.*central_repeat_2,.*fedavg_.*_2,.*chat_repeat_2$"
        )
        texts = {f for f in chat + central if f.startswith("--population=")}
        self.assertLen(texts, 2)
        self.assertIn("--num_held_out_clients=200", central)
        page = files[study.PAGE].decode()
        # Repeats differ in their judges, and what is compared has the same of each.
        loss = r"3\.000 ± 12\.706 \| 0\.000 ± 0\.000 \| 0\.062 ± 0\.000"
        self.assertRegex(page, rf"\| interpolated trigram \| 2 \| {loss} \| 25")
        loss = r"2\.875 ± 12\.706 \| -0\.125 ± 0\.000 \| -0\.062 ± 0\.000"
        self.assertRegex(page, rf"\| fedavg \| 2 \| {loss} \| 25")
        judged = tables.parse(files["judged.csv"].decode())
        self.assertEqual(judged["repeat"].tolist(), [0, 0, 0, 1, 1, 1])
        runs = tables.parse(files["runs.csv"].decode())
        self.assertEqual(set(runs["setting"]), {"fedavg_pretrained"})
        self.assertTrue(files["learning.png"].startswith(b"\x89PNG"))

    def test_each_way_of_training_begins_from_scratch_and_with_the_chat(self):
        begun = {s.name: s for s in steps_lib.STEPS if s.begins_with == "chat"}
        ways = ("central", "fedavg", "dp_ftrl", "dp_ftrl_adaptive", "dp_fedavg")
        self.assertCountEqual(begun, [f"{way}_pretrained" for way in ways])
        scratch = {s.name: s for s in steps_lib.STEPS if s.name in ways}
        for way in ways:
            pretrained = begun[f"{way}_pretrained"]
            self.assertEqual(
                (pretrained.program, pretrained.flags),
                (scratch[way].program, scratch[way].flags),
            )

    def test_central_training_that_begins_with_the_chat(self):
        steps = ("central", "central_pretrained")
        files = self.run_study(self.prepare(steps=steps, num_repeats=1))
        (_, _, chat), (_, program, scratch), (_, same, pretrained), _ = self.ran
        self.assertEqual(program, same)
        [model] = [f for f in pretrained if f.startswith("--initial_model=")]
        self.assertEndsWith(model, "study/chat_repeat_1/model")
        added = {model, "--initial_bias=zero"}
        self.assertCountEqual(pretrained, [*scratch, *added])
        self.assertNoCommonElements(
            *[[f for f in given if "population=" in f] for given in (chat, pretrained)]
        )
        # Steps of central training are no rounds.
        self.assertEmpty(tables.parse(files["runs.csv"].decode()))

    def test_what_is_guaranteed_stands_beside(self):
        steps = ("dp_ftrl", "fedavg")
        made = self.prepare(steps=steps, num_repeats=2)
        page = self.run_study(dataclasses.replace(made, settings=made.settings[:2]))[
            study.PAGE
        ].decode()
        self.assertRegex(
            page, r"\| DP-FTRL \|.*\| 0\.108 \| 12\.4 \(delta 1e-10, an estimate\)"
        )
        self.assertRegex(page, r"\| FedAvg \|.*\| none \| none \|")
        self.assertIn("next to nothing", page)

    def files_again(self, made, name="study"):
        return made.files(None, self.scratch / name)

    def lines_of(self, axes):
        return {line.get_label(): list(line.get_ydata()) for line in axes.lines}

    def test_rounds_that_pretraining_saves(self):
        steps = ("dp_ftrl", "dp_ftrl_pretrained", "fedavg_pretrained")
        made = self.prepare(steps=steps, num_repeats=2)
        files = self.run_study(made)
        saved = tables.parse(files["rounds_saved.csv"].decode())
        # Losses are 9 and then the number of the run: the later run is worse.
        expected = {"setting": "dp_ftrl", "rounds": 2, "rho": 1.0}
        for repeat, row in enumerate(saved.to_dict("records")):
            self.assertEqual({**row, **expected, "repeat": repeat}, {**row})
        self.assertEqual(saved["pretrained_rounds"].isna().tolist(), [True, True])
        rounds = pd.DataFrame(
            {
                "setting": ["a"] * 3 + ["a_pretrained"] * 3,
                "repeat": 0,
                "round": [1, 2, 3] * 2,
                "held_out_loss": [9.0, 8.0, 7.0, 7.5, 6.5, 6.0],
                "rho": [1.0, 2.0, 3.0] * 2,
            }
        )
        [row] = xu_2023_quality_report.rounds_saved(rounds).to_dict("records")
        self.assertEqual((row["loss"], row["rounds"], row["rho"]), (7.0, 3, 3.0))
        self.assertEqual((row["pretrained_rounds"], row["pretrained_rho"]), (2, 2.0))
        page = files[study.PAGE].decode()
        self.assertIn("| DP-FTRL | 1 | 3.000 | 2 | 1 | never |  |", page)

    @parameterized.parameters(
        (
            "xu_quality",
            "two other shards|share 0 ids, and a dozen words|row with 3 of",
            "synthetic",
        ),
        (quality.CHOICE, "of ten others", "chat|average|central"),
        (quality.SYNTHETIC, "rates are those of the study", "chat|blogger.*judge"),
    )
    def test_notes_are_of_the_study(self, name, said, not_said):
        options = {"steps": ("clients_6_server_4",)} if name == quality.CHOICE else {}
        made = self.prepare(name, num_repeats=1, **options)
        page = self.run_study(made, name)[study.PAGE].decode()
        notes = page[page.rindex("\n\n* ") :]
        for part in said.split("|"):
            self.assertIn(part, notes)
        self.assertNotRegex(notes, not_said)
        self.assertNotIn("z = 2", page)

    def test_smart_compose_is_compared_at_one_picked_rate(self):
        self.run_study(self.prepare(steps=("fedavg",), num_repeats=1))
        judged = self.ran[-1][2]
        self.assertIn("--compose_picked_rate=0.15", judged)

    def test_the_rates_are_those_that_were_best(self):
        results = training_runs.ROOT / "results" / quality.CHOICE
        runs = pd.concat(map(tables.read, sorted(results.rglob("runs.csv"))))
        last = runs.groupby("setting").last()["held_out_loss"]
        fixed = last[last.index.str.match("clients_|clip_2_")]
        given = values_of(quality.BLOGS_FLAGFILE.read_text().splitlines())
        self.assertEqual(given["clip_norm"], "1")
        self.assertEqual(
            fixed.idxmin(),
            f"clients_{given['client_learning_rate']}"
            f"_server_{given['server_learning_rate']}",
        )
        # The best of all without a clip is behind, so FedAvg has it too.
        unclipped = last[last.index.str.startswith("fedavg_clients_")]
        self.assertGreater(unclipped.min(), fixed.min())

    def test_an_adaptive_clip_norm_is_drawn(self):
        made = self.prepare(steps=("dp_ftrl", "dp_ftrl_adaptive"), num_repeats=1)
        files = self.run_study(made)
        self.assertTrue(files["clip.png"].startswith(b"\x89PNG"))
        drawn = []
        with mock.patch.object(plots, "png", lambda figure: drawn.append(figure)):
            self.files_again(made)
        learning, (above, below) = drawn[0].axes, drawn[1].axes
        self.assertEqual(
            self.lines_of(below),
            {
                "DP-FTRL, adaptive clip": [0.2, 0.7],
                "DP-FTRL, adaptive clip: estimated median": [0.2, 0.7],
                "fixed, 1": [1.0, 1.0],
            },
        )
        # Beside each other, as in the paper's Figure 3.
        labels = ("DP-FTRL", "DP-FTRL, adaptive clip")
        self.assertCountEqual(self.lines_of(above), labels)
        # The models that have to be beaten: of both runs' baselines the mean.
        for axes, height in zip(learning, (4.0, 1.5 / 8), strict=True):
            lines = self.lines_of(axes)
            self.assertCountEqual(lines, (*labels, "interpolated bigram"))
            self.assertEqual(lines["interpolated bigram"], [height, height])
        alone = self.run_study(
            self.prepare(steps=("dp_ftrl",), num_repeats=1), "another"
        )
        self.assertNotIn("clip.png", alone)

    def test_central_training_alone(self):
        files = self.run_study(self.prepare(steps=("central",), num_repeats=1))
        # Without rounds there are none to draw.
        self.assertEmpty(tables.parse(files["runs.csv"].decode()))
        self.assertNotIn("learning.png", files)

    def test_the_plateau_has_three_times_the_rounds_and_a_plot_of_its_own(self):
        steps = ("fedavg", "fedavg_plateau")
        files = self.run_study(self.prepare(steps=steps, num_repeats=1))
        self.assertIn("plateau.png", files)
        once, longer = (values_of(given) for _, _, given in self.ran[:2])
        of_flagfile = values_of(quality.BLOGS_FLAGFILE.read_text().splitlines())
        for name in ("num_rounds", "max_participation"):
            self.assertEqual(int(longer.pop(name)), 3 * int(of_flagfile[name]))
            self.assertNotIn(name, once)
        self.assertEqual(longer, once)
        with mock.patch.object(training_runs, "plot", return_value=b"") as plot:
            self.run_study(self.prepare(steps=steps, num_repeats=1), "again")
        named = [{s.name for s in call.args[1]} for call in plot.call_args_list]
        self.assertNotIn("fedavg_plateau", named[-2])
        self.assertEqual(named[-1], {*steps})
        files = self.run_study(self.prepare(steps=("fedavg",)), "fewer")
        self.assertNotIn("plateau.png", files)

    def test_rounds_that_are_given_are_those_of_all_and_three_times_those(self):
        for name, flagfile in (
            ("xu_quality", quality.BLOGS_FLAGFILE),
            (quality.SYNTHETIC, quality.SYNTHETIC_FLAGFILE),
        ):
            most = values_of(flagfile.read_text().splitlines())["max_participation"]
            for step in self.prepare(name, num_rounds=7).federated:
                times = 3 if step.name == "fedavg_plateau" else 1
                given = values_of(step.flags)
                self.assertEqual(given["num_rounds"], str(times * 7), step.name)
                self.assertEqual(given["max_participation"], str(times * int(most)))

    def test_a_servers_rate_that_is_given_is_that_of_federated_training(self):
        steps = ("central", "fedavg")
        self.run_study(self.prepare(steps=steps, num_repeats=1))
        made = self.prepare(steps=steps, num_repeats=1, server_learning_rate=1.5)
        page = self.run_study(made, "another")[study.PAGE].decode()
        (_, _, central), (_, _, usual) = self.ran[:2]
        (_, _, same), (_, _, given) = self.ran[3:5]
        self.assertEqual(central, same)
        own = values_of(given)
        self.assertEqual(own.pop("server_learning_rate"), "1.5")
        self.assertEqual(own, values_of(usual))
        self.assertIn("server's rate of federated training is 1.5 here", page)

    def test_on_a_known_language_there_is_regret(self):
        made = quality.prepare(
            quality.SYNTHETIC,
            quality.Options(steps=("central", "fedavg")),
            seed=5,
            cache="",
        )
        made = dataclasses.replace(made, num_repeats=2)
        files = self.run_study(made, "synthetic")
        # Nothing is pretrained: there is no public text of another source.
        names = [name for name, _, _ in self.ran]
        self.assertEqual(
            names,
            [
                f"{n}_repeat_{i}"
                for i in (1, 2)
                for n in ("central", "fedavg", "judged")
            ],
        )
        self.assertIn("--population=synthetic", self.ran[0][2])
        judged = tables.parse(files["judged.csv"].decode())
        # Above the law's loss on the judges of the same repeat, 1.25 and then 2.75.
        losses = [1.375, 1.5, 1.4375, 1.25, 2.875, 3.0, 2.9375, 2.75]
        self.assertEqual(judged["loss"].tolist(), losses)
        self.assertEqual(judged["regret"].tolist(), [0.125, 0.25, 0.1875, 0.0] * 2)
        page = files[study.PAGE].decode()
        self.assertIn("| repeats | regret | loss |", page)
        self.assertRegex(page, r"\| FedAvg \| 2 \| 0\.125 ± 0\.000 \| 2\.125 ± 9")

    def test_text_is_needed(self):
        with self.assertRaisesRegex(ValueError, "data_dir is not given.*bloggers"):
            quality.prepare("xu_quality", quality.Options(), seed=1, cache="")
        with self.assertRaisesRegex(ValueError, "num_rounds=7: .* of its own"):
            self.prepare(quality.CHOICE, num_rounds=7)
        with self.assertRaisesRegex(ValueError, "server_learning_rate=2.0: .*rates of"):
            self.prepare(quality.CHOICE, server_learning_rate=2.0)

    def test_programs_know_their_flags(self):
        made = self.prepare()
        federated = [
            *made.federated,
            *steps_lib.choices(),
        ]
        for given, options in (
            (made.central, pretrain_options.PretrainOptions),
            (made.chat, pretrain_options.PretrainOptions),
            *(
                (
                    [
                        *quality.BLOGS_FLAGFILE.read_text().split("\n"),
                        *made.flags,
                        *s.flags,
                    ],
                    training_options.TrainingOptions,
                )
                for s in federated
            ),
        ):
            parts = [f[2:].split("=") for f in given if f.startswith("--")]
            names = {part[0] for part in parts} - {"flagfile"}
            known = {f.flag for f in fields.fields_of(options).values()}
            known |= {
                f.flag
                for f in fields.fields_of(population_options.PopulationOptions).values()
            }
            self.assertContainsSubset(
                {n.removeprefix("no") for n in names},
                {*known, *(n.removeprefix("no") for n in known)},
            )

    def test_choosing_has_bloggers_of_its_own(self):
        made = {name: self.prepare(name) for name in ("xu_quality", quality.CHOICE)}
        populations = {
            name: next(f for f in one.flags if f.startswith("--population="))
            for name, one in made.items()
        }
        parts = [
            pathlib.Path(f.partition("=")[2]).read_bytes() for f in populations.values()
        ]
        self.assertEqual(parts, [bytes(range(10)), bytes([10, 11])])
        self.assertLen(made[quality.CHOICE].settings, 22)
        some = self.prepare(quality.CHOICE, steps=("clients_3_server_8",))
        [setting] = some.settings
        self.assertEqual(setting, steps_lib.choices()[6])

    def test_no_two_settings_are_drawn_alike(self):
        for settings in (steps_lib.STEPS, steps_lib.choices()):
            drawn = [(setting.color, setting.line) for setting in settings]
            self.assertLen(set(drawn), len(drawn))

    def test_bloggers_last_for_the_rounds(self):
        # What a run would refuse: more participations than its bloggers have.
        of_flagfile = quality.BLOGS_FLAGFILE.read_text().splitlines()
        main = [(step, 11_945) for step in self.prepare().federated]
        # Of ten shards 11,945 train, of two 2,248.
        for step, num_clients in [*main, *((s, 2_248) for s in steps_lib.choices())]:
            given = values_of([*of_flagfile, *step.flags])
            with self.subTest(step.name):
                timers.Timers(
                    num_clients=num_clients,
                    cohort_size=int(given["cohort_size"]),
                    num_rounds=int(given["num_rounds"]),
                    min_separation=int(given["min_separation"]),
                    max_participation=int(given["max_participation"]),
                )

    def test_what_is_judged_is_an_average_but_where_rates_are_chosen(self):
        for step in steps_lib.STEPS:
            given = [f for f in step.flags if f.startswith("--model_average=")]
            if step.name == "chat":
                self.assertEmpty(given)
                continue
            # Of rounds, and of steps: of an equal part of the whole training.
            expected = {_TRAIN: 20 / 400, _PRETRAIN: 500 / 11_700}[step.program]
            total = {_TRAIN: 400, _PRETRAIN: 11_700}[step.program]
            share = 1 / ((1 - float(given[0].partition("=")[2])) * total)
            self.assertAlmostEqual(share, expected, places=3)
        texts = [quality.BLOGS_FLAGFILE.read_text()]
        texts += [flag for step in steps_lib.choices() for flag in step.flags]
        self.assertNotIn("--model_average=", "\n".join(texts))
        for name, is_said in (("xu_quality", True), (quality.CHOICE, False)):
            files = self.run_study(self.prepare(name, num_repeats=1), name)
            page = files[study.PAGE].decode()
            self.assertEqual("exponential moving average" in page, is_said)

    def test_missing_data(self):
        (self.data / "blog-authorship/posts-07-of-16.jsonl.xz").unlink()
        with self.assertRaisesRegex(ValueError, r"has no posts-07-\* of .* 00 to 09"):
            self.prepare()
        for path in self.data.rglob("posts-1*"):
            path.unlink()
        with self.assertRaisesRegex(
            ValueError, "has no posts-10-, posts-11-.* needs the shards 10 to 11"
        ):
            self.prepare(quality.CHOICE)


if __name__ == "__main__":
    absltest.main()
