"""What it costs to read users' own text, against an obvious loop in plain Python.

    scripts/run scripts.benchmark_reading

Writes a file of posts, as CSV and as Parquet, and has it made into a population by
turns: by `simulation.population.prepare`, which groups, filters, numbers, orders and
writes the words, and by a loop with the csv module, `str.split` and a counter a user,
which keeps them in memory. Each turn is a process of its own; its processor time and
peak memory are those of the whole process, the start of Python and imports included.
What else the machine does changes all of them alike: compare those of one run.
"""

import collections
import csv
import dataclasses
import json
import os
import pathlib
import statistics
import string
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import app

from options import option_flags
from options.fields import check, option
from scripts import benchmark_results


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is read."""

    num_rows: int = option(400_000, "Posts; 42 MB by default.", least=1, most=10**9)
    num_users: int = option(50_000, "Who write them.", least=1, most=10**9)
    num_repeats: int = option(3, "Turns.", least=1, most=1000)
    file: str | None = option(
        None, "A CSV file of your own with columns user and text, in their place."
    )
    results_dir: str = option("results/benchmark_reading", "Where the table goes.")
    turn: str | None = option(None, "Set by the benchmark for its processes.")

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)

_WORDS_A_POST = 16.0
_TURNS = ("plain Python, csv", "ours, csv", "ours, parquet")


def write_posts(path: pathlib.Path) -> None:
    """Writes posts of English words with capitals, punctuation and quotes."""
    from simulation.readers import word_list

    rng = np.random.default_rng(1)
    english = word_list.english()
    words = np.array(list(english))
    chances = np.array(list(english.values()))
    lengths = 1 + rng.poisson(_WORDS_A_POST, _FLAGS.read().num_rows)
    drawn = rng.choice(words, lengths.sum(), p=chances / chances.sum()).tolist()
    marks = rng.random(len(drawn))
    for place in np.flatnonzero(marks < 0.05).tolist():
        drawn[place] += ","
    for place in np.flatnonzero((marks >= 0.05) & (marks < 0.1)).tolist():
        drawn[place] = f"{drawn[place].capitalize()}."
    for place in np.flatnonzero((marks >= 0.1) & (marks < 0.102)).tolist():
        drawn[place] = f'"{drawn[place]}"'
    shares = rng.lognormal(size=_FLAGS.read().num_users)
    users = rng.choice(
        _FLAGS.read().num_users, _FLAGS.read().num_rows, p=shares / shares.sum()
    )
    ends = np.cumsum(lengths).tolist()
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["user", "text"])
        start = 0
        for user, end in zip(users.tolist(), ends, strict=True):
            writer.writerow([f"user{user}", " ".join(drawn[start:end])])
            start = end


def write_parquet(source: pathlib.Path, path: pathlib.Path) -> None:
    """Writes the rows of a CSV file as Parquet."""
    from pyarrow import csv as pa_csv
    from pyarrow import parquet

    options = pa_csv.ParseOptions(newlines_in_values=True)
    parquet.write_table(pa_csv.read_csv(source, parse_options=options), path)


def plain_python(path: str) -> int:
    """Reads a CSV file by the obvious loop; returns how many words users have."""
    users: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        names = next(rows)
        user, text = names.index("user"), names.index("text")
        for row in rows:
            tokens = row[text].lower().split()
            words = (token.strip(string.punctuation) for token in tokens)
            users[row[user]].update(word for word in words if word)
    return sum(map(len, users.values()))


def ours(path: str) -> int:
    """Prepares a population; returns how many words users have."""
    from simulation import population, population_options

    options = population_options.PopulationOptions(source=path, max_bad_rows=1000)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as cache:
        return population.prepare(options, cache).num_entries


def run_turn(turn: str, path: pathlib.Path) -> dict[str, float]:
    """Runs a turn in a process of its own; returns what it reports."""
    command = [sys.executable, "-m", "scripts.benchmark_reading"]
    done = subprocess.run(
        [*command, f"--turn={turn}", f"--file={path}", "--verbosity=-1"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def summary(done: dict[str, list[dict[str, float]]]):
    """Returns a row a way of reading, from what its turns report."""
    import pandas as pd

    rows = []
    for turn, reports in done.items():
        ratios = [
            report["seconds"] / plain["seconds"]
            for report, plain in zip(reports, done[_TURNS[0]], strict=True)
        ]
        rows.append(
            {
                "way": turn,
                "cpu_seconds": statistics.median(r["seconds"] for r in reports),
                **benchmark_results.spread("of_plain_python", ratios),
                "peak_megabytes": max(r["megabytes"] for r in reports),
                "words_of_users": reports[0]["pairs"],
            }
        )
    return pd.DataFrame(rows)


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    options = _FLAGS.read()
    if options.turn and options.file:
        read = plain_python if options.turn == _TURNS[0] else ours
        pairs = read(options.file)
        seconds = time.process_time()
        status = pathlib.Path("/proc/self/status").read_text().splitlines()
        peak = next(line for line in status if line.startswith("VmHWM:"))
        megabytes = int(peak.split()[1]) / 1000
        found = {"pairs": pairs, "seconds": seconds, "megabytes": megabytes}
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(prefix="benchmark_reading_") as scratch:
        kinds = ("csv", "parquet")
        paths = {kind: pathlib.Path(scratch) / f"posts.{kind}" for kind in kinds}
        if options.file:
            paths["csv"] = pathlib.Path(options.file).absolute()
        else:
            write_posts(paths["csv"])
        write_parquet(paths["csv"], paths["parquet"])
        data = f"{paths['csv'].stat().st_size / 1e6:.1f} MB of CSV"
        if not options.file:
            data += (
                f", {options.num_rows:,} synthetic posts by {options.num_users:,} users"
            )
        print(data, flush=True)
        done: dict[str, list[dict[str, float]]] = {turn: [] for turn in _TURNS}
        for _ in range(options.num_repeats):
            for turn in _TURNS:
                done[turn].append(run_turn(turn, paths[turn.rsplit(" ", 1)[1]]))
    table = summary(done)
    print(table.to_string(index=False))
    benchmark_results.write(
        options.results_dir,
        "scripts.benchmark_reading",
        table,
        data=data,
        load_average=os.getloadavg(),
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
