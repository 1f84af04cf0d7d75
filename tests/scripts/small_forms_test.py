"""Runs the documents' commands, each as it stands but for its size and its text."""

import gzip
import itertools
import json
import lzma
import pathlib
import re
import shlex
import shutil
import signal
import sqlite3

import pyarrow as pa
from absl.testing import absltest, parameterized
from pyarrow import parquet

from tests import forked_programs
from tests.federated_hh.reports import browser
from tests.scripts import documented_commands

_ROOT = documented_commands.ROOT
_MODEL = (
    *("--vocabulary_size=300", "--num_units=6", "--embedding_size=4"),
    *("--num_held_out_clients=4", "--max_words=8"),
)
_CLIENTS = ("--num_clients=3000", "--mean_words_per_client=20")
_FEW_CLIENTS = ("--num_clients=40", "--context_words=30")
# What makes each program's run small; what a command says besides stays.
_SMALLER = {
    "federated_hh.run_triehh": (
        *("--num_repeats=1", "--delta=1e-2", "--max_length=3", "--max_k=9"),
    ),
    "federated_hh.run_ldp_triehh": (
        *("--max_depth=3", "--max_prefixes=20", "--contribution_bound=2"),
        "--cohort_size=20",
    ),
    "federated_hh.run_opt_prefix_tree": ("--num_rounds=3", "--max_depth=3"),
    "federated_hh.run_set_union": ("--epsilon=8", "--delta=1e-3", "--max_k=9"),
    "federated_hh.run_statistics": (
        *("--num_clients=1500", "--mean_words_per_client=10", "--num_tokens=20"),
        *("--context_words=20", "--ngram_words=2"),
    ),
    "federated_hh.run_algorithm": ("--num_clients=2000", "--cohort_size=200"),
    "federated_hh.fit_population": ("--num_simulations=2",),
    "training.pretrain": (*_MODEL, "--num_epochs=1", "--batch_size=4"),
    "training.run_training": (
        *(*_MODEL, "--cohort_size=5", "--num_rounds=2", "--num_blocks=1"),
        *("--min_separation=0", "--max_participation=2", "--evaluate_every=1"),
        "--allow_useless_noise",
    ),
    "training.evaluate_keyboard": ("--num_resamples=100",),
}
# Of an accounting whose plot has a point for many populations.
_SMALLER_PLOT = ("--population=300", "--epsilon=4", "--delta=1e-2", "--max_length=2")
# Where no text is given.
_SMALLER_SYNTHETIC = {
    "federated_hh.run_triehh": _CLIENTS,
    "federated_hh.run_ldp_triehh": _CLIENTS,
    "federated_hh.run_opt_prefix_tree": _CLIENTS,
    "federated_hh.run_set_union": _CLIENTS,
    "training.run_training": _FEW_CLIENTS,
}
_SENTENCE = "you see the time like we do not what it is for me and all of them"


def _write_texts(folder: pathlib.Path) -> None:
    """Writes every file that the documents' commands name."""
    documented_commands.save_files(str(folder))
    users = [f"u{number}" for number in range(60)]
    texts = [_SENTENCE[number % 7 :] + f" zorb{number % 3}" for number in range(60)]
    pairs = list(zip(users, texts, strict=True))
    plain = "user,text\n" + "".join(f"{user},{text}\n" for user, text in pairs)
    lines = "".join(json.dumps({"user": u, "text": t}) + "\n" for u, t in pairs)
    tweets = "".join(f'"0","1","x","NO_QUERY","{u}","{t}"\n' for u, t in pairs)
    others = "".join(
        json.dumps({"user": f"v{u}", "text": " ".join(t.split()[::-1])}) + "\n"
        for u, t in pairs
    )
    page = (_ROOT / "docs/guide/custom_question.md").read_text()
    question = page.partition("```json\n")[2].partition("```")[0]
    cities = ["Oslo", "New York", ""]
    survey = "".join(f"u{i},{15 + i % 60},{cities[i % 3]}\n" for i in range(300))
    words = "\n".join(_SENTENCE.split()) + "\n"
    contents = {
        "posts.csv": plain,
        "posts-1.csv": plain,
        "posts-2.csv": plain.replace(",u", ",v"),
        "2023/a.csv": plain,
        "2024/jan.csv": plain,
        "2024/feb.csv": plain,
        "messages.csv.xz": plain,
        "ubuntu-irc/messages.csv.xz": plain,
        "posts.jsonl": lines,
        "blogs.jsonl.xz": others,
        "training.1600000.processed.noemoticon.csv": tweets,
        "survey.csv": f"user,age,city\n{survey}",
        "question.json": question,
        "dictionary.txt": words,
        "known.txt": words,
        "deny.txt": "the\nand\n",
        "counts.txt.gz": "".join(f"{u}\tthe\t3\n{u}\tand\t2\n" for u in users),
    }
    openers = {".xz": lzma.open, ".gz": gzip.open}
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with openers.get(path.suffix, open)(path, "wt") as file:
            file.write(text)
    table = pa.table({"author": users, "body": texts})
    parquet.write_table(table, folder / "posts.parquet")


def _write_database(path: pathlib.Path) -> None:
    """Writes clients as TFF keeps those of Stack Overflow."""
    import tensorflow as tf
    import tensorflow_federated as tff

    def examples_of(client: str) -> tf.data.Dataset:
        start = int(client) % 7
        tokens = [" ".join(_SENTENCE.split()[start : start + 9])] * 3
        others = {"score": [1] * 3, "title": ["a"] * 3}
        return tf.data.Dataset.from_tensor_slices({"tokens": tokens, **others})

    clients = [str(number) for number in range(60)]
    tff.simulation.datasets.save_to_sql_client_data(clients, examples_of, str(path))
    with sqlite3.connect(path) as connection:
        for table in ("examples", "client_metadata"):
            connection.execute(f"UPDATE {table} SET split_name = 'train'")
            connection.execute(
                f"UPDATE {table} SET split_name = 'heldout' WHERE client_id LIKE '5%'"
            )


def _commands(*programs: str) -> list[list[str]]:
    """Returns what the documents show of programs, each once."""
    found = []
    for command in documented_commands.commands()[0]:
        given = [command.program, *command.arguments]
        # The test of a study that writes a flagfile runs what it wrote.
        is_made = len(command.known()) == len(command.arguments)
        # Ray's cluster is started by `ray_engine_test`.
        if command.program not in programs or "--engine=ray" in given:
            continue
        if is_made and given not in found:
            found.append(given)
    return found


def _reads_a_file(arguments: list[str]) -> bool:
    """Returns whether a command is of a user's text."""
    given = [a for a in arguments if a.startswith("--population=")]
    return bool(given) and given != ["--population=synthetic"]


class SmallFormsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        _write_texts(self.scratch)
        shutil.copytree(_ROOT / "configs", self.scratch / "configs")
        self._number = itertools.count()
        self._following = set()
        self._said = {}

    def run_small(
        self,
        program: str,
        *arguments: str,
        output_dir: str = "",
        is_begun_only: bool = False,
    ) -> str:
        """Runs a command in its small form; returns what it says.

        Args:
            program: Its module.
            *arguments: Its flags.
            output_dir: Where it writes, if not in a folder of `runs`.
            is_begun_only: True if it is killed after its first round.
        """
        given = list(arguments)
        if program in _SMALLER and "--resume" not in arguments:
            given += [*_SMALLER[program], "--population_cache=cache"]
            if not any(a.startswith("--population=") for a in arguments):
                given += _SMALLER_SYNTHETIC.get(program, ())
            if "--flagfile=configs/triehh_demo.flagfile" in arguments:
                # Its cohorts are of a million clients.
                given += ["--cohort_size=600", "--threshold=9"]
            if "--recipe=configs/statistics_figure4.json" in arguments:
                # Its devices answer among 19,000 others, and no fewer.
                given += ["--num_clients=20000", "--devices=vectorised"]
            # The same small form is run once; a flag's last value counts.
            key = program, *sorted({a.partition("=")[0]: a for a in given}.values())
            if key in self._said:
                return self._said[key]
            # What follows a command looks where it says that it writes.
            if not any(a.startswith("--output_dir=") for a in arguments):
                folder = "begun" if is_begun_only else "runs"
                place = output_dir or f"{folder}/{next(self._number)}"
                given.append(f"--output_dir={place}")
        else:
            key = program, *given
            if "--detectable" in arguments and any(
                a.startswith("--plot=") for a in arguments
            ):
                given += _SMALLER_PLOT
        killed = ["tests.killed_program", "checkpoint.jsonl"] * is_begun_only
        done = forked_programs.run(*killed, program, *given, directory=self.scratch)
        self.assertEqual(
            done.returncode, -signal.SIGKILL if is_begun_only else 0, done.stderr
        )
        if following := re.search(r"^Next: \S*scripts/run (.*)$", done.stdout, re.M):
            self._following.add(following[1])
        self._said[key] = done.stdout
        return done.stdout

    def check_next_commands(self) -> None:
        """Runs what the runs said to type next, once for each program."""
        by_program = {line.split()[0]: line for line in sorted(self._following)}
        self.assertNotEmpty(by_program)
        runs = [
            f"runs/{path.parent.name}" for path in self.scratch.glob("runs/*/*.json")
        ]
        for program, line in by_program.items():
            others = [run for run in runs if run not in line]
            line = line.replace("ANOTHER_RUN", others[0])
            with self.subTest(line):
                _, *arguments = shlex.split(line)
                if program in _SMALLER:
                    arguments += [*_SMALLER[program], "--population_cache=cache"]
                    arguments += _SMALLER_SYNTHETIC.get(program, ())
                done = forked_programs.run(program, *arguments, directory=self.scratch)
                self.assertEqual(done.returncode, 0, done.stderr)

    def check_pages(self) -> None:
        """Checks that no page of a run is wider than a phone or a screen."""
        if browser.BROWSER is None:
            self.skipTest("no chromium to render the pages in")
        runs = [path.parent for path in self.scratch.glob("runs/*/report.html")]
        compared = self.scratch / "compared.html"
        done = forked_programs.run(
            "federated_hh.compare", *runs[:3], f"--output={compared}"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        # A page of each program.
        pages = {
            json.loads((run / "run.json").read_text())["program"]: run / "report.html"
            for run in runs
        }
        for path in (compared, *pages.values()):
            for width in (400, 1280):
                with self.subTest(f"{path}, {width}"):
                    self.assertEqual(browser.stands_out(path, width), "")

    def check_accounting(self) -> None:
        """Runs the accounting of runs, and with plots: `commands_test` has the rest."""
        shutil.copytree(self.scratch / "runs/first", self.scratch / "runs/model")
        done = forked_programs.run(
            "federated_hh.run_triehh",
            *("--epsilon=8", "--delta=1e-7", "--num_clients=50000", "--max_length=2"),
            *("--mean_words_per_client=5", "--output_dir=runs/words"),
            "--population_cache=cache",
            directory=self.scratch,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        number = 0
        for program, *arguments in _commands("federated_hh.run_accounting"):
            if any(a.startswith(("--compose=", "--plot=")) for a in arguments):
                with self.subTest(" ".join(arguments)):
                    self.assertIn("epsilon", self.run_small(program, *arguments))
                    number += 1
        self.assertGreaterEqual(number, 2)
        self.assertNotEmpty(list(self.scratch.glob("*.png")))

    @parameterized.named_parameters(
        ("triehh", "federated_hh.run_triehh"),
        ("ldp_triehh", "federated_hh.run_ldp_triehh", "federated_hh.fit_population"),
        ("statistics", "federated_hh.run_statistics", "federated_hh.run_algorithm"),
        ("finders", "federated_hh.run_opt_prefix_tree", "federated_hh.run_set_union"),
    )
    def test_words(self, *programs):
        finished = self.scratch / "runs" / "0"
        for program, *arguments in _commands(*programs):
            if "--resume" in arguments:
                shutil.copytree(finished, self.scratch / "DIR")
                record = self.scratch / "DIR" / "run.json"
                ended = json.loads(record.read_text()) | {"status": "running"}
                del ended["finished"]
                record.write_text(json.dumps(ended))
            ends = '"composition"' if "--print_policy" in arguments else "\nReport: "
            with self.subTest(" ".join([program, *arguments])):
                if program == "federated_hh.run_triehh" and _reads_a_file(arguments):
                    # What comes after its text is read, the demo's run has.
                    self.run_small(program, *arguments, is_begun_only=True)
                    continue
                said = self.run_small(program, *arguments)
                self.assertIn(ends, said)
            if "--print_policy" in arguments:
                (self.scratch / "policy.json").write_text(said)
        self.check_next_commands()
        self.check_pages()

    def test_models_and_accounting(self):
        _write_database(self.scratch / "stackoverflow.sqlite")
        demo = "--flagfile=configs/training_demo.flagfile"
        runs = self.scratch / "runs"
        self.run_small("training.run_training", demo, output_dir="runs/first")
        for name in ("training/<date>", "training/<other>", "RUN_DIR/dp_ftrl_repeat_1"):
            shutil.copytree(runs / "first", runs / name)
        shutil.copytree(runs / "RUN_DIR", self.scratch / "RUN_DIR")
        for pretrain in _commands("training.pretrain"):
            self.run_small(*pretrain, output_dir="runs/pretrain/<date>")
        self.check_accounting()
        for program, *arguments in _commands(
            "training.run_training",
            "training.predict_next_word",
            "training.evaluate_keyboard",
        ):
            with self.subTest(" ".join([program, *arguments])):
                # A comparison is made at the end of a run.
                is_whole = any(a.startswith("--compare_with=") for a in arguments)
                if program == "training.run_training" and _reads_a_file(arguments):
                    self.run_small(program, *arguments, is_begun_only=not is_whole)
                    continue
                self.assertRegex(self.run_small(program, *arguments), r"\d")
        self.check_next_commands()
        self.check_pages()


if __name__ == "__main__":
    absltest.main()
