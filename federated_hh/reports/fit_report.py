"""The report of a fitted population: the data, the law, and its flagfile."""

import dataclasses
import pathlib
import shlex

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.options import fields
from federated_hh.populations import population_numbers
from federated_hh.populations.columns import client_words
from federated_hh.populations.fit import fitted_law
from federated_hh.populations.fit import options as fit_options
from federated_hh.populations.languages import languages
from federated_hh.populations.options import population_options
from federated_hh.reports import page, plots
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record

_WORDS_FILE = "words.tsv"
_LENGTHS_FILE = "words_per_client.txt"
_FLAGFILE = "population.flagfile"
_PARAMETERS = {
    "mean_words": "words of a client, mean",
    "words_sigma": "words of a client, sigma of the log-normal law",
    "discount": "a client's own law, discount d",
    "concentration": "a client's own law, concentration a",
    "common_discount": "the common law, discount d0",
    "common_concentration": "the common law, concentration a0",
}

# Where the law is far from the data: so many standard errors, and such a part.
_FAR_ERRORS, _FAR = 5, 0.1


def rows_of(
    population: client_words.ClientWords, max_clients: int, rng: np.random.Generator
) -> population_numbers.Rows:
    """Returns the words of clients that have some.

    Args:
        population: The clients.
        max_clients: The most clients; of more, so many are drawn.
        rng: Draws them.
    """
    have = np.flatnonzero(np.diff(population.row_splits))
    if len(have) > max_clients:
        have = np.sort(rng.choice(have, max_clients, replace=False))
    rows = population.rows(have)
    splits = np.concatenate(([0], np.cumsum(rows.row_lengths)))
    return population_numbers.Rows(rows.word_ids, rows.counts, splits)


def _advice(misses: pd.DataFrame) -> str:
    """Returns a note on the numbers in which the law differs from the data."""
    if misses.empty:
        return ""
    rows = [
        f"{row['number']} {row['data']:.3g} where the law has {row['law']:.3g}"
        for _, row in misses.iterrows()
    ]
    return (
        f"The law is not like the data in {len(rows)} of its numbers (more than "
        f"{_FAR:.0%} and {_FAR_ERRORS} standard errors off): {'; '.join(rows)}. What a "
        "simulation says of words that these are about is to be read with that."
    )


@dataclasses.dataclass(frozen=True)
class FitReport:
    """A fit and its data.

    Attributes:
        population: The data.
        options: The options of its preparation.
        rows: The rows of the clients that were looked at.
        fit: The fit.
    """

    population: client_words.ClientWords
    options: population_options.PopulationOptions
    rows: population_numbers.Rows
    fit: fitted_law.Fit

    def numbers(self, rng: np.random.Generator) -> pd.DataFrame:
        """Returns the numbers of the data and of the law.

        Args:
            rng: Draws clients for the standard errors.

        Returns:
            Columns number, data, standard_error, law and law_spread: the mean of the
            simulated populations, and their standard deviation.
        """
        data = population_numbers.Numbers(self.rows)
        values, errors = data.values(), data.errors(rng)
        simulated = [
            population_numbers.Numbers(rows).values() for rows in self.fit.simulated
        ]
        rows = []
        for name, value in values.items():
            of_law = np.array([found.get(name, np.nan) for found in simulated])
            spread = np.std(of_law, ddof=1) if len(of_law) > 1 else np.nan
            rows.append((name, value, errors[name], of_law.mean(), spread))
        columns = ["number", "data", "standard_error", "law", "law_spread"]
        return pd.DataFrame(rows, columns=columns)

    @staticmethod
    def misses(numbers: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows of `numbers` in which the law is far from the data."""
        far = (numbers["law"] - numbers["data"]).abs()
        errors = np.hypot(numbers["standard_error"], numbers["law_spread"].fillna(0))
        is_far = (far > _FAR_ERRORS * errors) & (far > _FAR * numbers["data"].abs())
        return numbers[is_far]

    def parameters(self, numbers: pd.DataFrame) -> pd.DataFrame:
        """Returns the law's parameters, with standard errors out of `numbers`.

        Returns:
            Columns parameter, value, standard_error, as_it_looks.
        """
        error = numbers.set_index("number")["standard_error"]
        errors = self.fit.errors | {
            "mean_words": error["words of a client, mean"],
            "words_sigma": error["words of a client, sd of the logarithm"],
        }
        looks = {
            "discount": self.fit.own.discount,
            "concentration": self.fit.own.concentration,
            "common_discount": self.fit.common.discount,
            "common_concentration": self.fit.common.concentration,
        }
        rows = [
            (title, getattr(self.fit.law, name), errors[name], looks.get(name, np.nan))
            for name, title in _PARAMETERS.items()
        ]
        columns = ["parameter", "value", "standard_error", "as_it_looks"]
        return pd.DataFrame(rows, columns=columns)

    def simulated_options(
        self, wanted: fit_options.FitOptions, directory: pathlib.Path
    ) -> population_options.PopulationOptions:
        """Returns the options that simulate the law with the data's number of clients.

        Args:
            wanted: The choice of words and of their number.
            directory: The folder of its word lists.

        Raises:
            OptionError: If the law cannot be simulated.
        """
        law, own = self.fit.law, self.options
        words = wanted.word_list
        lengths = None
        if wanted.words_law == "own":
            lengths = str(directory / _LENGTHS_FILE)
        return population_options.PopulationOptions(
            **vars(own.word_options) | {"language": own.language},
            tokenizer=own.tokenizer,
            alphabet=own.alphabet,
            known_words=own.known_words,
            only_words=own.only_words,
            num_clients=int((np.diff(self.population.row_splits) > 0).sum()),
            mean_words_per_client=float(f"{law.mean_words:.6g}"),
            words_per_client_sigma=float(f"{law.words_sigma:.4g}"),
            words_per_client=lengths,
            client_law="pitman_yor",
            client_discount=float(f"{law.discount:.4g}"),
            client_concentration=float(f"{law.concentration:.4g}"),
            common_words=None if words == "english" else str(directory / _WORDS_FILE),
            common_law="frequencies" if words == "own_counts" else "pitman_yor",
            common_discount=float(f"{law.common_discount:.4g}"),
            common_concentration=float(f"{law.common_concentration:.5g}"),
        )

    def own_words(self, with_english: bool) -> str:
        """Returns the words of all clients with their counts, as a list's file.

        Args:
            with_english: Whether those of the English list follow.
        """
        counts = self.population.occurrences()
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
        words = self.population.words.take(order).to_pylist()
        lines = [f"{w}\t{n}\n" for w, n in zip(words, counts[order], strict=True)]
        if with_english:
            known = set(words)
            lines += [f"{w}\n" for w in languages.words() if w not in known]
        return "".join(lines)

    def write(
        self,
        directory: run_directory.RunDirectory,
        wanted: fit_options.FitOptions,
        rng: np.random.Generator,
    ) -> page.Summary:
        """Writes the page, its tables and plots, and the flagfile.

        Args:
            directory: The directory of the run.
            wanted: Choice of the flagfile's words and of their number.
            rng: Draws clients for the standard errors.

        Returns:
            The fit's summary.
        """
        files = directory.simulator
        simulated = self.simulated_options(wanted, files.path.absolute())
        if simulated.common_words:
            words = self.own_words(with_english=wanted.word_list == "own")
            files.write_text(_WORDS_FILE, words)
        if simulated.words_per_client:
            rows = self.rows
            lengths = np.bincount(rows.owners(), rows.counts).astype(np.int64)
            lines = "".join(f"{length}\n" for length in np.sort(lengths))
            files.write_text(_LENGTHS_FILE, lines)
        flagfile = run_record.flagfile(_flags(simulated))
        files.write_text(_FLAGFILE, flagfile)
        report = page.Page(directory, "Word law of a population")
        law = self.fit.law
        numbers = self.numbers(rng)
        report.summary(
            f"{self.rows.num_clients:,} clients with {law.mean_words:.4g} words each "
            f"on average. Own words: Pitman-Yor with discount {law.discount:.3g} and "
            f"concentration {law.concentration:.3g}; shared: {law.common_discount:.3g} "
            f"and {law.common_concentration:.4g}.",
            privacy="Privacy: none: the law and the words come from the raw text",
            advice=_advice(self.misses(numbers)),
            next_command="federated_hh.run_triehh --epsilon=4 "
            f"--flagfile={shlex.quote(str(files.path / _FLAGFILE))}",
        )
        section = report.section("Law", covered=False)
        section.text(
            _LAW.format(shown=self._shown(), lengths=_LENGTHS[wanted.words_law])
        )
        section.table("law.csv", self.parameters(numbers))
        section = report.section("Data and law compared", covered=False)
        section.text(_NUMBERS.format(simulations=len(self.fit.simulated)))
        section.table("numbers.csv", numbers)
        compared = (self.rows, self.fit.simulated[0])
        for name, plot in _PLOTS.items():
            section.plot(f"{name}.png", _draw(*plot, compared))
        section = report.section("Simulation at any size", covered=False)
        section.text(_SIMULATE.format(path=files.path / _FLAGFILE, flagfile=flagfile))
        report.how_it_was_made()
        return report.write()

    def _shown(self) -> str:
        without = self.population.metadata.get("clients_without_words", 0)
        have = int((np.diff(self.population.row_splits) > 0).sum())
        drawn = f", drawn from {have:,}," if have > self.rows.num_clients else ""
        return (
            f"{self.rows.num_clients:,} clients with words{drawn} were looked at; "
            f"{without:,} clients have none, and are no part of the law."
        )


_LENGTHS = {
    "own": "as for one of the data's clients, each as likely",
    "log_normal": "log-normal, rounded up, with the mean and the standard deviation of "
    "the logarithm of the data",
}
_LAW = """\
{shown}

A client that has typed n words, k of them draws from the common law, draws the next one
from the common law with probability (a + d k) / (a + n). Otherwise it repeats the j-th
of these, typed n_j times, with a chance proportional to n_j - d. The common law is one
draw of another such process, with d0 and a0. A client's number of words is {lengths}.

Both processes are fitted by maximum likelihood of the partitions: of a client's words
into distinct ones, and of all (client, distinct word) pairs into words. That is what
the column *as it looks* has. Two draws of the common law may give a client the same
word, which looks like one draw: the values are those with which simulated populations
look as the data do.

Standard errors: of d and a by the spread of the clients' scores (a sandwich, whatever
the clients' law is); of d0 and a0 by the observed information, which takes the pairs
for a sample of the process; of the numbers of words by bootstrap over the clients."""
_NUMBERS = """\
*Law* is the mean of {simulations} populations of as many clients, drawn from the law,
and *law spread* their standard deviation. Standard errors of the data are by bootstrap
over the clients, with the most frequent words and the quarters kept as they are.
Quarters are of the (client, word) pairs, by how many clients hold the word."""
_SIMULATE = """\
`{path}` is the law as flags: give `--flagfile` and a `--num_clients` of your own to any
program that takes a population.

```
{flagfile}```
"""


def _flags(simulated: population_options.PopulationOptions) -> list[str]:
    """Returns the options that are not the defaults, as flags."""
    found = []
    for name, field in fields.fields_of(type(simulated)).items():
        value = getattr(simulated, name)
        if value != field.default or name in ("source", "num_clients"):
            found.append(f"--{field.flag}={value}")
    return found


def _draw(title, x_label, y_label, y_scale, points, rows) -> figure_lib.Figure:
    """Returns a plot of the points of the data's and of the law's rows."""
    figure, axes = plots.single(title, x_label, y_label)
    data, law = map(points, rows)
    axes.plot(*data, label="data", color=plots.BLUE, lw=1.5)
    axes.plot(*law, label="law", color=plots.ORANGE, lw=1.5)
    axes.set_xscale("log")
    axes.set_yscale(y_scale)
    if y_label.startswith("share"):
        plots.in_percent(axes.yaxis)
    plots.legend(axes)
    return figure


def _at_least(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers, and the share of them that are no smaller."""
    values, times = np.unique(numbers, return_counts=True)
    return values, np.cumsum(times[::-1])[::-1] / times.sum()


def _words(rows: population_numbers.Rows):
    return _at_least(np.bincount(rows.owners(), rows.counts, rows.num_clients))


def _distinct(rows: population_numbers.Rows):
    words = np.bincount(rows.owners(), rows.counts, rows.num_clients)
    return _means(words, np.diff(rows.row_splits))


def _holders(rows: population_numbers.Rows):
    holders = -np.sort(-rows.holders())
    holders = holders[holders > 0]
    return np.arange(1, len(holders) + 1), holders / rows.num_clients


def _times(rows: population_numbers.Rows):
    return _means(rows.holders()[rows.word_ids], rows.counts)


def _means(over: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns means of values over classes that are equal in the logarithm."""
    edges = np.unique(np.rint(np.geomspace(1, over.max() + 1, 30)))
    place = np.digitize(over, edges)
    number = np.bincount(place)
    used = number > 0
    x = np.bincount(place, over)[used] / number[used]
    return x, np.bincount(place, values)[used] / number[used]


# Of a plot: title, x, y, the scale of y, and the function that gives its points.
_PLOTS = {
    "words_of_a_client": (
        "Words of a client",
        "words",
        "share of the clients with at least as many",
        "log",
        _words,
    ),
    "distinct_words": (
        "Growth of distinct words",
        "words of a client",
        "distinct ones",
        "log",
        _distinct,
    ),
    "holders": (
        "Clients per word",
        "rank of the word",
        "share of the clients that have it",
        "log",
        _holders,
    ),
    "times": (
        "Uses of a word per holder",
        "clients that have the word",
        "times",
        "linear",
        _times,
    ),
}
