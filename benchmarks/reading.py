"""Measures reading users' text: ours, pandas, and a loop in plain Python.

    scripts/run benchmarks.reading

Each way is a process of its own, and the ways take turns. Processor seconds include
Python's start and imports; ratios are of the same turn. Ours prepares a population: it
also filters, numbers and sorts the words, and writes them to disk. pandas reads the
file with `read_csv`, cuts with the same tokenizer, and counts each user's words in
memory, as plain Python does, which cuts with `str.split`.
"""

import collections
import csv
import dataclasses
import os
import pathlib
import statistics
import string
import subprocess
import sys
import time

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option

_WORDS_A_POST = 16.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Size of the file, and number of turns."""

    results_dir: str = harness.results_dir("benchmark_reading")
    num_rows: int = option(400_000, "Posts; 42 MB by default.", least=1, most=10**9)
    num_users: int = option(50_000, "Their authors.", least=1, most=10**9)
    num_repeats: int = option(3, "Turns.", least=1, most=1000)
    file: str | None = option(
        None, "CSV file with columns user and text, in place of synthetic posts."
    )


def write_posts(path: pathlib.Path, num_rows: int, num_users: int) -> None:
    """Writes posts of English words with capitals, punctuation and quotes."""
    import numpy as np

    from federated_hh.populations.languages import languages

    rng = np.random.default_rng(1)
    listed = languages.words()
    chances = np.array(list(listed.values()))
    lengths = 1 + rng.poisson(_WORDS_A_POST, num_rows)
    drawn = rng.choice(list(listed), lengths.sum(), p=chances / chances.sum())
    words = drawn.astype(object)
    marks = rng.random(len(words))
    words[marks < 0.05] += ","
    for place in np.flatnonzero((marks >= 0.05) & (marks < 0.1)):
        words[place] = f"{words[place].capitalize()}."
    for place in np.flatnonzero((marks >= 0.1) & (marks < 0.102)):
        words[place] = f'"{words[place]}"'
    shares = rng.lognormal(size=num_users)
    users = rng.choice(num_users, num_rows, p=shares / shares.sum())
    ends = np.cumsum(lengths)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["user", "text"])
        for user, start, end in zip(users, ends - lengths, ends, strict=True):
            writer.writerow([f"user{user}", " ".join(words[start:end])])


def plain_python(path: str) -> int:
    """Returns the number of users' distinct words, read by the obvious loop."""
    users: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tokens = row["text"].lower().split()
            words = (token.strip(string.punctuation) for token in tokens)
            users[row["user"]].update(word for word in words if word)
    return sum(map(len, users.values()))


def with_pandas(path: str) -> int:
    """Returns that number by `pandas.read_csv` and our tokenizer."""
    import pandas as pd

    from federated_hh.populations.languages import tokenizers

    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    texts = table["text"].map(tokenizers.get_tokenizer("words").words)
    words = texts.groupby(table["user"]).agg(
        lambda lists: len(set().union(*lists)),
    )
    return int(words.sum())


def ours(path: str) -> int:
    """Returns that number of a population that is prepared."""
    from federated_hh.populations import population
    from federated_hh.populations.options import population_options

    options = population_options.PopulationOptions(source=path, max_bad_rows=1000)
    return population.prepare(options, f"{path}.{os.getpid()}").num_entries


_OF_PARQUET = "ours, Parquet"
_WAYS = {
    "ours": ours,
    _OF_PARQUET: ours,
    "pandas": with_pandas,
    "plain Python": plain_python,
}


def _turn(way: str, path: pathlib.Path) -> dict[str, float]:
    """Returns the costs of a way in a process of its own."""
    program = (
        "import sys; from benchmarks import reading; "
        "print(*reading.costs(sys.argv[1], sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, way, str(path)],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    names = ("words_of_users", "cpu_seconds", "peak_megabytes")
    return dict(zip(names, map(float, done.stdout.split()), strict=True))


def costs(way: str, path: str) -> tuple[int, float, float]:
    """Returns a way's number, and the seconds and megabytes of this process."""
    number = _WAYS[way](path)
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM:"))
    return number, time.process_time(), int(peak.split()[1]) / 1000


def measure(options: Options, run: harness.Run) -> None:
    """Measures the ways of reading, turn by turn."""
    import pandas as pd
    from pyarrow import csv as pa_csv
    from pyarrow import parquet as pa_parquet

    path = pathlib.Path(run.scratch) / "posts.csv"
    if options.file:
        path.symlink_to(pathlib.Path(options.file).absolute())
    else:
        write_posts(path, options.num_rows, options.num_users)
    parquet = path.with_suffix(".parquet")
    lines = pa_csv.ParseOptions(newlines_in_values=True)
    pa_parquet.write_table(pa_csv.read_csv(path, parse_options=lines), parquet)
    run.about["data"] = f"{path.stat().st_size / 1e6:.1f} MB of CSV"
    turns = [
        {way: _turn(way, parquet if way == _OF_PARQUET else path) for way in _WAYS}
        for _ in range(options.num_repeats)
    ]
    rows = []
    for way in _WAYS:
        found = pd.DataFrame([turn[way] for turn in turns])
        ratios = [
            turn["ours"]["cpu_seconds"] / turn[way]["cpu_seconds"] for turn in turns
        ]
        rows.append(
            {
                "way": way,
                "cpu_seconds": found["cpu_seconds"].median(),
                "ours_of_it": statistics.median(ratios),
                "ours_of_it_least": min(ratios),
                "ours_of_it_most": max(ratios),
                "peak_megabytes": found["peak_megabytes"].max(),
                "words_of_users": int(found["words_of_users"].iloc[0]),
            }
        )
    run.show("cost", pd.DataFrame(rows))


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
