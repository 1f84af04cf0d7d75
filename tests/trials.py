"""Trials of programs under kills, damage, signals, full disks and failing custom code.

    python -m tests.trials --kind=kills,damage --trials=100 --seed=1

Prints a table (kind, tried, clean, not clean) and writes a line for each trial that was
not clean to a CSV. `--first=N --trials=1` repeats a trial alone. Kills, signals, full
disks: the resumed run has the files of an uninterrupted one, no client was asked twice,
and no process or temporary file is left. All others: one line and exit code, or the
right answer.
"""

import argparse
import csv
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import pandas as pd
import psutil

from federated_hh.populations import population
from federated_hh.populations.options import population_options
from federated_hh.privacy.accounting import run_totals
from federated_hh.reports import compared
from federated_hh.run_directory import files as run_files
from tests import damage, forked_programs, run_directories
from tests.federated_hh.statistics import cases as statistics_cases

_TIMEOUT_SECONDS = 300.0
_SECONDS_TO_GO = 60.0  # for the processes of a program that was killed
_MARK = "FEDERATED_HH_TRIAL"
_WORDS = ("--num_clients=3000", "--mean_words_per_client=10")
_NEXT_WORDS = (
    *("--num_clients=40", "--vocabulary_size=100", "--num_units=4", "--max_words=5"),
    *("--embedding_size=2", "--num_held_out_clients=8"),
)
_TRAINING = (
    *("training.run_training", *_NEXT_WORDS, "--cohort_size=5", "--num_rounds=6"),
    *("--noise_multiplier=0.5", "--allow_useless_noise", "--allow_unknown_words"),
    *("--clip_norm=0.5", "--min_separation=1", "--max_participation=4"),
    *("--over_selection=1.5", "--drop_out=0.1", "--num_blocks=2"),
)
_STATISTICS = (
    *("federated_hh.run_statistics", *_WORDS, "--num_tokens=30", "--context_words=30"),
    *("--epsilon=2", "--ngram_words=2", "--cohorts=everybody"),
)
_TRIEHH = (
    *("federated_hh.run_triehh", "--num_clients=4000", "--epsilon=8", "--delta=1e-3"),
    *("--max_length=4", "--num_repeats=2", "--max_k=7"),
)
# Commands of small runs; {model} is the run of `training`.
COMMANDS = {
    "triehh": _TRIEHH,
    "ldp_triehh": (
        *("federated_hh.run_ldp_triehh", "--num_clients=8000", "--cohort_size=900"),
        *("--mean_words_per_client=40", "--max_depth=3", "--max_prefixes=40"),
        *("--contribution_bound=20", "--num_passes=2", "--counting_clients=2000"),
    ),
    "algorithm": (
        *("federated_hh.run_algorithm", "--num_clients=4000", "--cohort_size=500"),
        "--algorithm=examples.median_length:MedianLength",
    ),
    "statistics": _STATISTICS,
    "training_masked": (
        *(*_TRAINING, "--secure_sum=masked", "--update_encoding=rotated"),
        *(
            "--cohort_size=30",
            "--dropout_rate=0.1",
            "--num_clients=100",
            "--nodiurnal",
            "--timer_hours=0",
        ),
    ),
    "training": (*_TRAINING, "--evaluate_every=3", "--checkpoint_every=2"),
    "pretrain": (
        *("training.pretrain", *_NEXT_WORDS, "--num_steps=20", "--batch_size=8"),
        *("--checkpoint_every=4", "--evaluate_every=8"),
    ),
    "fit_population": (
        *("federated_hh.fit_population", "--num_clients=300", "--num_simulations=2"),
        "--mean_words_per_client=30",
    ),
    "evaluate_keyboard": (
        *("training.evaluate_keyboard", "--model={model}", "--num_resamples=100"),
        "--num_clients=40",
    ),
    "study": (
        *("scripts.reproduce", "--study=oov_table1", "--scale=1e-4"),
        *("--num_repeats=1", "--max_depth=2", "--max_prefixes=20"),
        *("--contribution_bound=5", "--vocabulary_size=1000"),
        *("--mean_words_per_client=100", "--results_dir={output}-results"),
    ),
    "ray": (*_TRIEHH, "--engine=ray", "--num_workers=1"),
}
# Those whose runs are damaged, of all kinds.
_DAMAGED = ("triehh", "ldp_triehh", "algorithm", "statistics", "training", "pretrain")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)
# Custom code under test: the base class of each flag, and the command that uses it.
_CUSTOM_WORDS = ("federated_hh.run_algorithm", *_WORDS, "--words=the,of,and")
_CUSTOM = {
    "algorithm": (
        "from examples.histogram import Histogram as Base",
        (*_CUSTOM_WORDS, "--algorithm=failing_code:Own"),
        (
            *("import", "__init__", "of", "describe", "initialize", "items", "learn"),
            *("results", "next_query", "update", "worker"),
        ),
    ),
    "randomizer": (
        "from federated_hh.randomizers.k_ary import KAryRandomizedResponse as Base",
        (
            *_CUSTOM_WORDS,
            "--algorithm=examples.histogram:Histogram",
            "--randomizer=failing_code:Own",
        ),
        (
            *("import", "__init__", "guarantee", "own_probability", "tally"),
            *("other_probability", "_randomize", "estimate", "bits_per_report"),
        ),
    ),
    "model": (
        "Base = object",
        tuple(
            word
            for word in (*_TRAINING, "--model=failing_code:make", "--initial_bias=zero")
            if not word.startswith(("--num_units", "--embedding_size"))
        ),
        ("import", "make"),
    ),
}
_FAILING_CODE = """
import os

{base}


def fail(name, value=None):
    if os.environ.get("FAIL") == name:
        open(os.environ["FAILED"], "w").close()
        how = os.environ["HOW"]
        if how.startswith("return "):
            return eval(how.removeprefix("return "))
        exec(how)
    return value


def failing(name, original):
    if isinstance(original, property):
        return property(failing(name, original.fget))
    if isinstance(original, classmethod):
        return classmethod(failing(name, original.__func__))

    def called(*args, **kwargs):
        return fail(name, original(*args, **kwargs))

    return called


class Strange(BaseException):
    def __str__(self):
        raise RuntimeError("no text")


class Own(Base):
    pass


for name in {names}:
    for owner in Base.__mro__:
        if name in vars(owner):
            setattr(Own, name, failing(name, vars(owner)[name]))
            break


def make(num_tokens, sequence_length):
    import tensorflow as tf

    layers = tf.keras.layers
    return fail("make", tf.keras.Sequential([
        layers.InputLayer([sequence_length], dtype=tf.int32),
        layers.Embedding(num_tokens, 2),
        layers.GRU(4, return_sequences=True),
        layers.Dense(num_tokens),
    ]))


fail("import")
"""
_FAILURES = (
    *(f"raise {name}('boom')" for name in ("ValueError", "KeyError", "RuntimeError")),
    *(f"raise {name}('boom')" for name in ("OSError", "MemoryError", "TypeError")),
    *(f"raise {name}('boom')" for name in ("AttributeError", "AssertionError")),
    *(f"raise {name}('boom')" for name in ("StopIteration", "RecursionError")),
    *(f"raise {name}('boom')" for name in ("NotImplementedError", "GeneratorExit")),
    *("raise SystemExit", "raise SystemExit(0)", "raise SystemExit('boom')"),
    *("raise ValueError('one\\ntwo')", "raise Strange", "1 / 0", "raise Exception"),
    *("b'\\xff'.decode()", "import no_such_package", "open('/no/such')"),
    *("return None", "return 'x'", "return -1", "return float('nan')", "return []"),
    *("return {}", "return {'x': 1}", "return object()", "return 10**30"),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """A trial's result.

    Attributes:
        case: Description of the trial.
        problem: Reason why it is not clean; "" if it is.
        how: The end, in a word: refused, right, resumed.
    """

    case: str
    problem: str
    how: str = ""


class House:
    """Finished runs that trials begin with, made when they are first asked for.

    Attributes:
        folder: Folder of all files.
        names: Programs to end and runs to damage, of `COMMANDS`.
        seconds: Duration of each program's last uninterrupted run.
    """

    def __init__(self, folder: pathlib.Path, names: Sequence[str] = tuple(COMMANDS)):
        self.folder = folder
        self.names = names
        self.seconds: dict[str, float] = {}
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.environment = {"TMPDIR": str(self.temporary), _MARK: str(folder)}
        self._count = itertools.count()

    def new(self, name: str) -> pathlib.Path:
        """Returns the path of a new folder, which does not exist yet."""
        paths = (self.folder / f"{name}-{number}" for number in self._count)
        return next(path for path in paths if not path.exists())

    def command(self, name: str, output: pathlib.Path, seed: int = 1) -> list[str]:
        """Returns module and flags of a program."""
        words = COMMANDS[name]
        if "{model}" in " ".join(words):
            words = tuple(
                w.replace("{model}", str(self.run("training"))) for w in words
            )
        words = tuple(word.replace("{output}", str(output)) for word in words)
        return [*words, f"--seed={seed}", f"--output_dir={output}", self.cache]

    @property
    def cache(self) -> str:
        """The flag of the population cache."""
        return f"--population_cache={self.folder / 'cache'}"

    def start(self, words: list[str], **environment: str) -> forked_programs.Program:
        """Starts a program."""
        # The process that forks is not shared: programs have its mark and its folder
        # of temporary files, and other tests would have them, too.
        with mock.patch.dict(os.environ, self.environment):
            return forked_programs.Program(
                *words,
                environment={**self.environment, **environment},
                directory=self.folder,
                imports=f"{forked_programs.TENSORFLOW}# {self.folder}",
            )

    def finish(self, words: list[str], **environment: str):
        """Runs a program to its end."""
        return self.start(words, **environment).wait(_TIMEOUT_SECONDS)

    def run(self, name: str, seed: int = 1) -> pathlib.Path:
        """Returns the directory of an uninterrupted run."""
        path = self.folder / f"{name}-seed-{seed}"
        seconds = path.with_suffix(".seconds")  # a folder is used again
        if not seconds.exists():
            for _ in range(1 if seed > 1 else 2):  # the second one has a warm cache
                shutil.rmtree(path, ignore_errors=True)
                begun = time.monotonic()
                done = self.finish(self.command(name, path, seed))
                if done.returncode:
                    raise RuntimeError(f"{name} fails by itself: {done.stderr[-2000:]}")
                took = time.monotonic() - begun
            seconds.write_text(str(took))
        self.seconds[name] = float(seconds.read_text())
        return path

    def interrupted(self, name: str) -> pathlib.Path:
        """Returns the directory of a run that was killed after a checkpoint."""
        path = self.folder / f"{name}-interrupted"
        checkpoint = path / "simulator" / "checkpoint.jsonl"
        if not checkpoint.exists():
            self.start(self.command(name, path)).kill_once(checkpoint.exists)
        return path

    def resume(self, name: str, path: pathlib.Path):
        """Resumes a run, or begins it where none had begun."""
        module = COMMANDS[name][0]
        done = self.finish([module, "--resume", f"--output_dir={path}", self.cache])
        if done.returncode == 2 and "holds no run" in done.stderr:
            done = self.finish(self.command(name, path))
        return done


def fault(done: subprocess.CompletedProcess[str], codes: tuple[int, ...]) -> str:
    """Returns what is wrong with a program's end; "" if nothing."""
    lines = done.stderr.splitlines()
    if any(line.startswith("Traceback (most recent") for line in lines):
        return f"traceback: {lines[-1][:300]}"
    if done.returncode not in codes:
        return f"exit code {done.returncode}: {' / '.join(lines[-3:])[:400]}"
    if done.returncode in (1, 2, 3) and not any(
        line.startswith("error: ") for line in lines[-3:]
    ):
        return f"exit code {done.returncode} without a line: {lines[-2:]}"
    return ""


def differences(whole: pathlib.Path, other: pathlib.Path) -> str:
    """Returns the files that differ between two runs; of a study, its results."""
    results = [pathlib.Path(f"{path}-results") for path in (whole, other)]
    if results[0].exists():
        found = sorted(
            str(file.relative_to(whole))
            for file in (*whole.rglob("*.npz"), *whole.rglob("rounds.jsonl"))
            if _contents(file) != _contents(other / file.relative_to(whole))
        )
        found += [
            table.name
            for table in results[0].glob("*.csv")
            if _untimed(table) != _untimed(results[1] / table.name)
        ]
    else:
        found = run_directories.differing(whole, other)
    return f"files differ: {', '.join(found)}" if found else ""


def _contents(file: pathlib.Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _untimed(table: pathlib.Path) -> str | None:
    """Returns a table's text without measured seconds."""
    if not table.exists():
        return None
    found = pd.read_csv(table)
    return found[[name for name in found if "seconds" not in name]].to_csv()


def _asked(path: pathlib.Path) -> dict[str, list[str]]:
    """Returns the whole lines of the records of rounds, by file."""
    return {
        file.relative_to(path).as_posix(): [
            line
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]
        for file in path.rglob("rounds.jsonl")
    }


def asked_twice(before: dict[str, list[str]], path: pathlib.Path) -> str:
    """Returns whether a resumed run asked otherwise than before it was ended."""
    after = _asked(path)
    for file, lines in before.items():
        now = after.get(file, [])
        rounds = [(line["repeat"], line["number"]) for line in map(json.loads, now)]
        if now[: len(lines)] != lines or len(set(rounds)) != len(rounds):
            return f"{file}: clients were asked twice"
    return ""


def processes_left(below: list[psutil.Process]) -> str:
    """Returns the processes of an ended program that are left; "" if none."""
    deadline = time.monotonic() + _SECONDS_TO_GO
    while left := [process for process in below if _is_alive(process)]:
        if time.monotonic() > deadline:
            return f"processes left: {[' '.join(p.cmdline())[:80] for p in left]}"
        time.sleep(0.1)
    return ""


def files_left(house: House, before: set[str]) -> str:
    """Returns the temporary files that were not there before; "" if none."""
    if left := {*os.listdir(house.temporary), *_ray_folders()} - before:
        return f"temporary files left: {sorted(left)}"
    return ""


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _ray_folders() -> set[str]:
    """Returns Ray's folders in which no process works."""
    folders = {str(path) for path in pathlib.Path("/tmp").glob("ray_*")}
    lines = [
        " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])
    ]
    return {path for path in folders if not any(path in line for line in lines)}


def _ended(
    house: House,
    name: str,
    rng: random.Random,
    end: Callable[[forked_programs.Program], None],
    codes: tuple[int, ...],
) -> str:
    """Ends a program at a random moment, resumes it, and checks all that is left."""
    whole = house.run(name)
    path = house.new(name)
    if rng.random() < 0.3:  # the preparation is ended, too
        shutil.rmtree(house.folder / "cache", ignore_errors=True)
    temporary = {*os.listdir(house.temporary), *_ray_folders()}
    program = house.start(house.command(name, path))
    time.sleep(rng.uniform(0, house.seconds[name]))
    below = []
    if program.poll() is None:
        try:
            below = psutil.Process(program.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            pass
        else:
            end(program)
    before = _asked(path)
    done = program.wait(_TIMEOUT_SECONDS)
    problem = fault(done, codes) or processes_left(below)
    if done.returncode >= 0:  # of a killed one, the next program removes them
        problem = problem or files_left(house, temporary)
    if done.returncode:
        resumed = house.resume(name, path)
        is_done = "is complete; there is nothing to resume" in resumed.stderr
        problem = problem or ("" if is_done else fault(resumed, (0,)))
        problem = problem and f"{problem} (ended with {done.returncode})"
        problem = problem or files_left(house, temporary)
    problem = problem or asked_twice(before, path) or differences(whole, path)
    if not problem:
        shutil.rmtree(path)
        shutil.rmtree(f"{path}-results", ignore_errors=True)
    return problem


def kills(house: House, rng: random.Random, number: int) -> Result:
    """Kills a program at a random moment, and resumes it."""
    name = house.names[number % len(house.names)]
    end = forked_programs.Program.kill
    return Result(name, _ended(house, name, rng, end, (0, -signal.SIGKILL)))


def signals(house: House, rng: random.Random, number: int) -> Result:
    """Sends a program a signal at a random moment, and resumes it."""
    name = house.names[number % len(house.names)]
    sent = rng.choice(_SIGNALS)

    def end(program: forked_programs.Program) -> None:
        os.kill(program.pid, sent)

    # Before the program takes signals, they end it as any other.
    codes = (0, 128 + sent, -sent)
    return Result(f"{name} {sent.name}", _ended(house, name, rng, end, codes))


def full_disk(house: House, rng: random.Random, number: int) -> Result:
    """Lets a program's files grow no more from a random moment on, and resumes it."""
    name = house.names[number % len(house.names)]
    room = rng.choice((4_000, 10_000, 40_000))

    def end(program: forked_programs.Program) -> None:
        # What it says goes to a file as well.
        most = len(program.errors()) + room
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (most, most))

    return Result(f"{name} {room} B", _ended(house, name, rng, end, (0, 1, 2)))


def _damage(rng: random.Random, file: pathlib.Path, other: pathlib.Path) -> str:
    """Damages a file; returns how."""
    how = rng.choice(("flipped", "half", "emptied", "deleted", "other's"))
    contents = bytearray(file.read_bytes())
    if (how == "other's" and not other.is_file()) or not contents:
        how = "deleted"
    if how == "deleted":
        file.unlink()
        return how
    if how == "flipped":
        contents[rng.randrange(len(contents))] ^= 1 << rng.randrange(8)
    elif how == "half":
        del contents[len(contents) // 2 :]
    elif how == "emptied":
        contents.clear()
    else:
        contents = bytearray(other.read_bytes())
    file.write_bytes(contents)
    return how


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _suggestions(path: pathlib.Path):
    from training.keyboard import model

    return model.read(path).suggest("see you", 3)


def _initial(path: pathlib.Path):
    from training.federated import initial_model

    return initial_model.read(path).fingerprint


def _compared(path: pathlib.Path):
    run = compared.Compared.read(str(path), "a")
    return repr((run.found, run.statement, run.flags))


# Readers of finished runs that are functions.
_READERS: dict[str, Callable[[pathlib.Path], object]] = {
    "compare": _compared,
    "compose": lambda path: repr(run_totals.read_run(str(path))),
    "suggest": _suggestions,
    "initial_model": _initial,
}
_REFUSED = (ValueError, run_files.RunDirectoryError)


def _read(reader: Callable[[], object]) -> tuple[object, str]:
    """Returns a reader's answer, or None and its refusal, and what is wrong with it."""
    try:
        return reader(), ""
    except (*_REFUSED, OSError) as error:
        lines = str(error).splitlines()
        return None, "" if len(lines) == 1 else f"{len(lines)} lines: {error}"
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def damaged_runs(house: House, rng: random.Random, number: int) -> Result:
    """Damages a file of a finished run, for its readers."""
    names = [name for name in house.names if name in _DAMAGED]
    name = names[number % len(names)]
    readers = [*_READERS] if name in ("training", "pretrain") else [*_READERS][:2]
    reader = rng.choice(readers)
    run = house.run(name)
    read = functools.partial(_READERS[reader], run)
    expected = _answer(house, reader, name)
    file = rng.choice(_files(run))
    other = house.run(name, 2) / file.relative_to(run)
    contents = file.read_bytes()
    how = _damage(rng, file, other)
    case = f"{reader} {name}/{file.relative_to(run)} {how}"
    try:
        found, problem = _read(read)
    finally:
        file.write_bytes(contents)
    if found is not None and found != expected:
        problem = f"another answer: {str(found)[:200]}"
    return Result(case, problem, "refused" if found is None else "right")


@functools.cache
def _answer(house: House, reader: str, name: str) -> object:
    return _READERS[reader](house.run(name))


def damaged_models(house: House, rng: random.Random, number: int) -> Result:
    """Damages a file of an exported model that was copied without its run."""
    name = ("training", "pretrain")[number % 2]
    reader = rng.choice(("suggest", "initial_model"))
    whole = house.run(name) / "model"
    path = house.new("model")
    shutil.copytree(whole, path)
    expected = _READERS[reader](whole)
    file = rng.choice(_files(path))
    other = house.run(name, 2) / "model" / file.relative_to(path)
    how = _damage(rng, file, other)
    case = f"{reader} {name} {file.relative_to(path)} {how}"
    found, problem = _read(functools.partial(_READERS[reader], path))
    if found is not None and found != expected:
        problem = f"another answer: {str(found)[:200]}"
    if not problem:
        shutil.rmtree(path)
    return Result(case, problem, "refused" if found is None else "right")


def damaged_populations(house: House, rng: random.Random, number: int) -> Result:
    """Damages a file of a prepared population, or of word lists before it is made."""
    del number
    folder = house.folder / "words"

    def read(clients: int = 50, name: str = "one") -> object:
        options = population_options.PopulationOptions(num_clients=clients)
        words = population.prepare(options, folder / name)
        columns = [words.column_path(name) for name in ("entries", "row_splits")]
        rows = [pathlib.Path(column).read_bytes() for column in columns]
        return words.fingerprint, words.words.to_pylist(), rows

    expected = read()
    read(60, "two")
    (prepared,) = (folder / "one").glob("synthetic-*")
    (other,) = (folder / "two").glob("synthetic-*")
    file = rng.choice(_files(folder / "one"))
    contents = file.read_bytes()
    how = _damage(rng, file, other / file.name)
    case = f"{file.relative_to(folder)} {how}"
    if not file.is_relative_to(prepared):
        shutil.rmtree(prepared)  # word lists are read as it is prepared
    try:
        found, problem = _read(read)
    finally:
        if file.parent.exists():
            file.write_bytes(contents)
    if found is not None and found != expected:
        problem = f"another answer: {str(found)[:200]}"
    return Result(case, problem, "refused" if found is None else "right")


def damaged_resumes(house: House, rng: random.Random, number: int) -> Result:
    """Damages a file of an interrupted run, which is then resumed."""
    names = [name for name in house.names if name in _DAMAGED]
    name = names[number % len(names)]
    whole, interrupted = house.run(name), house.interrupted(name)
    path = house.new(f"{name}-damaged")
    shutil.copytree(interrupted, path)
    file = rng.choice(_files(path))
    how = _damage(rng, file, house.run(name, 2) / file.relative_to(path))
    case = f"{name}/{file.relative_to(path)} {how}"
    done = house.finish(
        [COMMANDS[name][0], "--resume", f"--output_dir={path}", house.cache]
    )
    problem = fault(done, (0, 1, 2))
    if not problem and done.returncode == 0:
        problem = differences(whole, path)
    if not problem:
        shutil.rmtree(path)
    return Result(case, problem, f"exit code {done.returncode}")


def _damaged_programs(
    house: House,
) -> Iterator[tuple[str, pathlib.Path, list[str]]]:
    """Yields (name, file or folder, words): programs that read what is damaged."""
    run = house.run("triehh")
    other = house.run("triehh", 2)
    model = house.run("training")
    page = f"--output={house.folder / 'compared.html'}"
    yield "compare", run, ["federated_hh.compare", str(run), str(other), page]
    both = f"--compose={run},{other}"
    yield "compose", run, ["federated_hh.run_accounting", both, "--delta=1e-3"]
    words = ["training.predict_next_word", f"--model={model}", "see you"]
    yield "predict", model, words
    output = f"--output_dir={house.new('out')}"
    words = ["training.evaluate_keyboard", f"--model={model}", output, house.cache]
    yield "keyboard", model, [*words, "--num_resamples=100", "--num_clients=40"]
    inputs = house.folder / "inputs"
    policy, recipe = inputs / "policy.json", inputs / "recipe.json"
    table = inputs / "survey.csv"
    words = ["federated_hh.run_statistics", f"--table={table}", house.cache]
    if not recipe.exists():
        inputs.mkdir()
        rows = [f"u{i};{20 + i % 50};{('Oslo', 'Rome')[i % 2]}" for i in range(400)]
        table.write_text("user;age;city\n" + "\n".join(rows) + "\n")
        policy.write_text(house.finish([*words, "--print_policy"]).stdout)
        question = json.loads(statistics_cases.figure_4()) | {
            "AnalysisIdentifier": "org.example.insights.device-table",
            "query": "select city from DeviceTable",
            "cohorts": [],
            "dataTypeContent": {
                "city": {"dataType": "TextType", "values": ["Oslo", "Rome"]}
            },
        }
        del question["privacyBudget"]
        recipe.write_text(json.dumps(question))
    words += [f"--recipe={recipe}", f"--output_dir={house.new('out')}"]
    yield "recipe", recipe, [*words, "--epsilon=4"]
    yield "policy", policy, [*words, f"--policy={policy}"]


def damaged_inputs(house: House, rng: random.Random, number: int) -> Result:
    """Damages bytes or JSON of what whole programs read: runs, models, recipes."""
    programs = [*_damaged_programs(house)]
    name, folder, words = programs[number % len(programs)]
    files = _files(folder) if folder.is_dir() else [folder]
    hostile = [file for file in files if file.suffix in (".json", ".jsonl")]
    contents: bytes
    if rng.random() < 0.5:
        file = rng.choice(hostile)
        contents = file.read_bytes()
        _, pointer, given, text = rng.choice([*damage.of_file(file)])
        file.write_text(text)
        how = f"{given[:9]} at {pointer}"
    else:
        file = rng.choice(files)
        contents = file.read_bytes()
        run = house.run("triehh", 2) if name[0] == "c" else house.run("training", 2)
        how = _damage(rng, file, run / os.path.relpath(file, folder))
    case = f"{name} {os.path.relpath(file, house.folder)} {how}"
    try:
        done = house.finish(words)
    finally:
        file.write_bytes(contents)
    problem = fault(done, (0, 2))
    # Another recipe or policy may be a right one.
    if not problem and done.returncode == 0 and name not in ("recipe", "policy"):
        expected = _stdout(house, name)
        # Paths are a trial's own.
        if re.sub(r"/\S+", "", done.stdout) != expected:
            problem = f"another answer: {done.stdout[-200:]}"
    return Result(case, problem, f"exit code {done.returncode}")


@functools.cache
def _stdout(house: House, name: str) -> str:
    """Returns a program's answer about what is whole, without paths."""
    programs = {name: words for name, _, words in _damaged_programs(house)}
    return re.sub(r"/\S+", "", house.finish(programs[name]).stdout)


def custom_code(house: House, rng: random.Random, number: int) -> Result:
    """Fails in a function of custom code, in one way of many."""
    flag = [*_CUSTOM][number % len(_CUSTOM)]
    base, words, names = _CUSTOM[flag]
    name, how = rng.choice(names), rng.choice(_FAILURES)
    code = _FAILING_CODE.replace("{base}", base).replace("{names}", repr(names))
    (house.folder / "failing_code.py").write_text(code)
    path = house.new("custom")
    failed = house.folder / "failed"
    failed.unlink(missing_ok=True)
    words = [*words, f"--output_dir={path}", house.cache]
    done = house.finish(words, FAIL=name, HOW=how, FAILED=str(failed))
    begun = (path / "run.json").exists()
    codes: tuple[int, ...] = (0,)
    if failed.exists():
        codes = (1,) if begun else (2,)
        if how.startswith("return"):
            codes = (0, *codes)
    problem = fault(done, codes)
    if not problem:
        shutil.rmtree(path, ignore_errors=True)
    return Result(f"{flag}.{name}: {how}", problem, f"exit code {done.returncode}")


KINDS = {
    "kills": kills,
    "signals": signals,
    "full_disk": full_disk,
    "damaged_runs": damaged_runs,
    "damaged_models": damaged_models,
    "damaged_populations": damaged_populations,
    "damaged_resumes": damaged_resumes,
    "damaged_inputs": damaged_inputs,
    "custom_code": custom_code,
}


def tried(
    house: House, kind: str, count: int, seed: int = 1, first: int = 0
) -> Iterator[tuple[int, Result]]:
    """Yields trials of a kind with their numbers, which seed them."""
    for number in range(first, first + count):
        rng = random.Random(f"{seed} {kind} {number}")
        try:
            yield number, KINDS[kind](house, rng, number)
        except subprocess.TimeoutExpired as error:
            yield number, Result(" ".join(map(str, error.cmd)), "hangs")


def main() -> None:
    """Tries, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", default=",".join(KINDS), help="kinds, with commas")
    parser.add_argument("--trials", type=int, default=20, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--programs", default=",".join(COMMANDS), help="to end, or of damaged runs"
    )
    parser.add_argument("--folder", help="of all runs; it is kept")
    parser.add_argument("--csv", default="trials.csv", help="of trials not clean")
    given = parser.parse_args()
    kinds = given.kind.split(",")
    programs = given.programs.split(",")
    for flag, values, allowed in (
        ("--kind", kinds, KINDS),
        ("--programs", programs, COMMANDS),
    ):
        if wrong := set(values) - set(allowed):
            parser.error(f"{flag} has {sorted(wrong)}; allowed: {', '.join(allowed)}")
    made = given.folder or tempfile.mkdtemp(prefix="trials_")
    house = House(pathlib.Path(made).absolute(), programs)
    rows = []
    with open(given.csv, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", "number", "seed", "case", "problem"])
        for kind in kinds:
            count, bad = 0, 0
            for number, result in tried(
                house, kind, given.trials, given.seed, given.first
            ):
                count += 1
                bad += bool(result.problem)
                end = result.problem or result.how or "clean"
                print(f"{kind} {number}: {result.case}: {end}", flush=True)
                if result.problem:
                    row = [kind, number, given.seed, result.case, result.problem]
                    writer.writerow(row)
                    file.flush()
            rows.append((kind, count, count - bad, bad))
    print(f"{'kind':20} {'tried':>6} {'clean':>6} {'not clean':>9}")
    for kind, count, clean, bad in rows:
        print(f"{kind:20} {count:6} {clean:6} {bad:9}")
    if not given.folder:
        shutil.rmtree(made, ignore_errors=True)
    sys.exit(any(row[3] for row in rows))


if __name__ == "__main__":
    main()
