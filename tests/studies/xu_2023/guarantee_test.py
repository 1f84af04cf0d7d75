"""Tests of the study of useful and private models; one runs its small form."""

import dataclasses
import json
import lzma
import math
import pathlib

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.options import option_flags
from federated_hh.privacy import plan as plan_lib
from studies import study, training_runs
from studies.xu_2023 import guarantee, guarantee_report
from tests import forked_programs
from training.federated import plans
from training.federated.options import TrainingOptions

_TIMEOUT_SECONDS = 1200
_SMALL = (
    "--num_clients=300",
    "--client_words=20",
    "--cohort_size=10",
    "--small_cohort_size=4",
    "--num_rounds=4",
    "--num_units=4",
    "--embedding_size=4",
    "--vocabulary_size=300",
    "--num_held_out_clients=1",
    "--noise_multiplier=2",
)


def options_of(made, setting):
    """Returns the options of a federated run of the study."""
    flags = (*made.flags, *made.population[setting.text], *setting.flags)
    return option_flags.read_lines(TrainingOptions, flags)


class OptionsTest(parameterized.TestCase):
    def test_the_guarantee_is_the_papers_in_each_row_alike(self):
        made = guarantee.prepare("", guarantee.Options(), seed=1, cache="")
        found = {
            s.name: options_of(made, s)
            for s in made.settings
            if s.name != "synthetic_judged"
        }
        self.assertLen(found, 4)
        rho = {}
        for name, options in found.items():
            # 1,000 of the clients to spare evaluate.
            rule = plans.sampler(options, 1_030_000 - options.num_held_out_clients)
            self.assertEqual((rule.min_separation, rule.max_participation), (152, 3))
            limits = plan_lib.Limits(3, 152)
            rho[name] = plans.mechanism(options).zcdp(limits, 400)
        # The accounting's answer for a million clients.
        self.assertAlmostEqual(rho["synthetic_dp_ftrl"], 0.286, places=3)
        self.assertAlmostEqual(rho["synthetic_blt"], rho["synthetic_dp_ftrl"], 6)
        self.assertEqual(rho["synthetic_fedavg"], math.inf)
        tree, small = found["synthetic_dp_ftrl"], found["synthetic_dp_ftrl_small"]
        self.assertEqual((tree.cohort_size, small.cohort_size), (6500, 500))
        self.assertAlmostEqual(small.noise_multiplier, 0.54, places=2)
        self.assertLess(found["synthetic_blt"].noise_multiplier, tree.noise_multiplier)
        different = {"mechanism", "noise_multiplier", "cohort_size"}
        for options in found.values():
            for name, value in vars(tree).items():
                if name not in different:
                    self.assertEqual(getattr(options, name), value, name)

    @parameterized.parameters(
        ({"rows": ("adam",)}, "rows=adam: has to name some of fedavg, dp_ftrl"),
        ({"rows": ("blt", "blt")}, "rows=blt,blt: .* each once"),
        ({"rows": ()}, "rows.*at least one"),
        ({"pretrained_rows": ("dp_ftrl_small",)}, "pretrained_rows.* of fedavg, dp_f"),
        ({"pretraining_epochs": ("1", "0")}, "pretraining_epochs=1,0: .* above 0"),
        ({"texts": ("tweets",)}, "texts=tweets: .* of synthetic, blogs"),
        ({"texts": ("blogs",)}, "texts=blogs: needs .* give data_dir"),
        ({"num_clients": 5000}, "cohort_size=6500 is more than .* num_clients=5000"),
    )
    def test_bad_options(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            guarantee.Options(**options)

    def test_runs_from_the_chat(self):
        options = guarantee.Options(data_dir="", rows=("fedavg", "dp_ftrl_small"))
        names = [s.name for s in guarantee.settings_of(options)]
        self.assertEqual(
            names,
            [
                *("synthetic_fedavg", "synthetic_dp_ftrl_small", "synthetic_judged"),
                *("chat", "blogs_fedavg", "blogs_fedavg_pretrained"),
                *("blogs_dp_ftrl_small", "blogs_judged"),
            ],
        )
        options = guarantee.Options(
            data_dir="", texts=("blogs",), rows=("blt",), pretraining_epochs=()
        )
        names = [s.name for s in guarantee.settings_of(options)]
        self.assertEqual(names, ["blogs_blt", "blogs_judged"])
        options = dataclasses.replace(options, pretraining_epochs=("0.5", "2"))
        found = {s.name: s for s in guarantee.settings_of(options)}
        half, both = (found[f"blogs_blt_pretrained_{n}"] for n in ("0_5", "2"))
        self.assertEqual(half.begins_with, "chat_0_5")
        self.assertEqual(found["chat_0_5"].flags, ("--num_epochs=0.5",))
        self.assertEqual(both.label, "DP-FTRL, BLT, pretrained, 2 epochs")
        judged = pd.DataFrame(
            {"model": ["chat_2", "Kneser-Ney trigram, text of chat_2"]}
        )
        judged = judged.assign(text="blogs", loss=1.0, one_suggestion=0, picked_rate=0)
        table = guarantee_report.summarize(judged, [*found.values()], {})
        self.assertEqual(
            table["label"].tolist(),
            ["public chat alone, 2 epochs", "Kneser-Ney trigram, text of public chat"],
        )

    def test_only_some_rows_from_the_chat(self):
        options = guarantee.Options(
            data_dir="",
            texts=("blogs",),
            rows=("fedavg", "blt"),
            pretrained_rows=("blt",),
        )
        names = [s.name for s in guarantee.settings_of(options)]
        own = ["blogs_fedavg", "blogs_blt"]
        self.assertEqual(names, ["chat", *own, "blogs_blt_pretrained", "blogs_judged"])
        options = dataclasses.replace(options, rows=("fedavg",))
        names = [s.name for s in guarantee.settings_of(options)]
        self.assertEqual(names, ["blogs_fedavg", "blogs_judged"])


class SmallFormTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def write_data(self):
        said = "are you the one that we have seen in the time of the people there"
        for number in range(10):
            posts = [
                {"user": f"{number} {i}", "text": f"{said}. {said[i:]}. see {i} you."}
                for i in range(9)
            ]
            path = self.scratch / f"blog-authorship/posts-{number:02d}-of-16.jsonl.xz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(
                lzma.compress("".join(f"{json.dumps(one)}\n" for one in posts).encode())
            )
        rows = "".join(f"c{i % 20},it is what it is and {i} more\n" for i in range(200))
        path = self.scratch / "ubuntu-irc/messages.csv.xz"
        path.parent.mkdir()
        path.write_bytes(lzma.compress(f"user,text\n{rows}".encode()))

    def test_killed_and_resumed_to_the_end(self):
        self.write_data()
        output, results = self.scratch / "run", self.scratch / "results"
        given = (f"--output_dir={output}", f"--results_dir={results}")
        cache = f"--population_cache={self.scratch / 'cache'}"
        rows = ("--rows=dp_ftrl", f"--data_dir={self.scratch}")
        command = ("scripts.reproduce", "--study=xu_guarantee", *_SMALL, *rows)
        process = forked_programs.Program(*command, *given, cache)
        begun = output / "blogs_dp_ftrl_repeat_1" / "simulator" / "checkpoint.jsonl"
        process.kill_once(begun.exists, _TIMEOUT_SECONDS)
        before = output / "synthetic_dp_ftrl_repeat_1" / "metrics.csv"
        kept = before.stat().st_mtime_ns
        done = forked_programs.run(
            *("scripts.reproduce", "--resume", f"--output_dir={output}", cache),
            timeout=_TIMEOUT_SECONDS,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(before.stat().st_mtime_ns, kept)
        page = (results / study.PAGE).read_text()
        self.assertIn("A blogger stands for many simulated clients", page)
        self.assertIn("| public chat alone | 1 |", page)
        models = tables.read(results / "models.csv").set_index(["text", "model"])
        runs = tables.read(results / "runs.csv")
        for text, name in (
            ("synthetic", "synthetic_dp_ftrl"),
            ("blogs", "blogs_dp_ftrl"),
            ("blogs", "blogs_dp_ftrl_pretrained"),
        ):
            path = output / study.part_name(name, 0)
            [first, *_] = training_runs.read_privacy(path)["guarantees"]
            row = models.loc[text, name]
            self.assertEqual((row["rho"], row["z"]), (first["rho"], 2))
            last = runs[runs["setting"] == name].iloc[-1]
            self.assertAlmostEqual(row["loss"], last["held_out_loss"], places=5)
            self.assertAlmostEqual(row["epsilon"], last["epsilon"])
        self.assertTrue(pd.isna(models.loc["blogs", "Kneser-Ney trigram"]["rho"]))
        for text in ("synthetic", "blogs"):
            plotted = (results / f"guarantee_{text}.png").read_bytes()
            self.assertTrue(plotted.startswith(b"\x89PNG"))


if __name__ == "__main__":
    absltest.main()
