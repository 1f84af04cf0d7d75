"""A run's report: one HTML page without other files, and the files that it shows.

What is added to a section is shown on the page and written into the run directory,
once and in one place: with the released results if the section is `covered` by the
run's guarantee, else into the simulator's part.

    report = page.Page(directory, "Histogram")
    words = report.section("Words", covered=True)
    words.text("In the order of their *estimates*.")
    words.table("heavy_hitters.csv", found)
    words.plot("levels.png", figure)
    report.statement(statement)
    report.how_it_was_made()
    report.write()

`default_page` makes such a page for an algorithm without a custom one.
"""

import dataclasses
import functools
import pathlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import jinja2
import pandas as pd

from federated_hh.files import installation, tables
from federated_hh.reports import page_blocks, plots
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A run's result, its cost in privacy, and the next step.

    Attributes:
        found: The result, or its quality, in a sentence or two.
        privacy: The line "Privacy: ...", with the guarantee or the reason of none;
            empty for a run without private data.
        meaning: The guarantee's meaning in a sentence.
        report: The path of the page.
        advice: Reason of a poor result, and a remedy; empty for a good one.
        next_command: The next command; empty where nothing follows.
        further: Further lines below the result.
    """

    found: str
    privacy: str
    report: str
    meaning: str = ""
    advice: str = ""
    next_command: str = ""
    further: Sequence[str] = ()

    def __str__(self) -> str:
        named = {"Report": self.report, "Next": self.next_command}
        lines = [self.found, *self.further, self.advice, self.privacy, self.meaning]
        lines = [line for line in lines if line]
        lines += [f"{name}: {text}" for name, text in named.items() if text]
        return tables.visible("\n".join(lines))


if TYPE_CHECKING:  # imported with the first figure
    from matplotlib import figure as figure_lib

_NUM_PANELS = 5  # of one picture
_DETAILS = "Details: all guarantees, adjacencies, assumptions, accounting, parameters"
# What a run directory holds of itself, in either part.
_OWN_FILES = {"run.json", "flags.txt", "facts.json", "metrics.csv", "report.html"}
_OWN_FILES |= {"checkpoint.jsonl", "checkpoint_metrics.jsonl"}
_OWN_FILES |= {"README.txt", "summary.json"}
SUMMARY_FILE = "summary.json"
KEYS = ("repeat", "round")  # columns that say which round a row of metrics is of
# Seconds are measured: a resumed run's pictures would not have the same bytes.
NOT_DRAWN = (*KEYS, "seconds")


class Section(page_blocks.Section):
    """A part of a run's page; `Page.section` makes it. Its methods return it."""

    def __init__(self, page: "Page", title: str, covered: bool):
        super().__init__(title, covered)
        self._page = page

    def file(self, name: str, contents: pd.DataFrame | Mapping[str, Any]) -> Self:
        """Writes a file that the page does not show.

        Args:
            name: The name of the file.
            contents: A table, written as CSV, or a mapping, written as JSON.

        Raises:
            ValueError: If the name is taken.
        """
        self._page.add_file(name, contents, covered=self.covered)
        return self

    def table(
        self,
        name: str,
        table: pd.DataFrame,
        caption: str = "",
        *,
        shown: pd.DataFrame | None = None,
        released: pd.DataFrame | None = None,
    ) -> Self:
        """Writes a table as CSV and shows it.

        Args:
            name: The name of the file.
            table: Its contents.
            caption: Above the table on the page.
            shown: The part that the page shows; None for all.
            released: The part that the guarantee covers, in a section that is not
                covered as a whole; released under the same name. None for nothing.

        Raises:
            ValueError: If the name is taken.
        """
        self.file(name, table)
        if released is not None:
            self._page.add_file(name, released, covered=True)
        return self.show(table if shown is None else shown, caption)

    def plot(self, name: str, figure: "figure_lib.Figure") -> Self:
        """Writes a figure as PNG and shows it; a sentence stands for a poor one.

        Args:
            name: The name of the file.
            figure: From `federated_hh.reports.plots`. The titles of its plots stand in
                the picture's place where it cannot be seen.

        Raises:
            ValueError: If the name is taken.
        """
        if shown := self._draw(figure):
            self._page.add_file(name, shown.png, covered=self.covered)
        return self

    def metrics(self, metrics: pd.DataFrame, stem: str = "metrics") -> Self:
        """Shows the numeric metrics of all rounds as curves over the rounds.

        Args:
            metrics: A row a round, with columns `round` and, of more than one
                repeat, `repeat`. Metrics that never change stand in a line.
            stem: The pictures are `<stem>.png`, `<stem>_2.png` and so on.

        Raises:
            ValueError: If there is no column `round`.
        """
        if "round" not in metrics:
            raise ValueError(f"metrics has no column round, only {list(metrics)}")
        known = metrics.drop(columns=[*NOT_DRAWN], errors="ignore")
        known = known.select_dtypes("number").dropna(axis="columns", how="all")
        told, names = plots.told_and_drawn(metrics, list(known))
        if told:
            self.text(told)
        for number, first in enumerate(range(0, len(names), _NUM_PANELS), start=1):
            figure = plots.over_rounds(metrics, names[first : first + _NUM_PANELS])
            self.plot(f"{stem}{'' if number == 1 else f'_{number}'}.png", figure)
        return self


class Page:
    """The report of a run, under construction; nothing is written before `write`.

    Args:
        directory: The directory of the run.
        title: The page's heading.
    """

    def __init__(self, directory: run_directory.RunDirectory, title: str):
        self._directory = directory
        self._title = title
        self._sections: list[Section] = []
        self._writes: dict[tuple[bool, str], Callable[[], None]] = {}
        self._summary: dict[str, str] = {}
        self._further: list[str] = []
        self._privacy = ""
        self._meaning = ""

    def summary(
        self,
        found: str,
        *,
        advice: str = "",
        next_command: str = "",
        privacy: str = "",
    ) -> None:
        """Sets the summary on top of the page and at the program's end.

        Args:
            found: The result, or its quality.
            advice: Reason of a poor result, and a remedy.
            next_command: The next command, a module and its flags; `{run}` is the
                run's directory.
            privacy: A line that says why the page has no statement; left out where it
                has one.
        """
        if next_command:
            run = shlex.quote(str(self._directory.path))
            next_command = next_command.replace("{run}", run)
            program, _, rest = next_command.partition(" ")
            next_command = f"{installation.command(program)} {rest}"
        self._privacy = self._privacy or privacy
        self._summary = {
            "found": found,
            "advice": advice,
            "next_command": next_command,
        }

    def add_to_summary(self, line: str) -> None:
        """Adds a line, unless it is empty, below the summary's result."""
        self._further += [line] if line else []

    def section(self, title: str, *, covered: bool) -> Section:
        """Begins a section, below all others.

        Args:
            title: Its heading.
            covered: Whether the run's guarantee covers all that it will hold.
        """
        self._sections.append(Section(self, title, covered))
        return self._sections[-1]

    def statement(
        self,
        statement: run_directory.Statement,
        title: str = "Privacy",
        stem: str = "privacy",
    ) -> Section:
        """Shows a privacy statement in a new section, and writes it.

        Args:
            statement: A `federated_hh.privacy.statement.PrivacyStatement`.
            title: The section's heading.
            stem: The files are `<stem>.json` and `<stem>.md`.

        Returns:
            The section, which the guarantee covers.
        """
        self._write_later(
            f"{stem}.json",
            functools.partial(self._directory.write_statement, statement, stem),
            covered=True,
        )
        if not self._privacy:
            self._privacy = statement.headline()
            self._meaning = statement.in_words()
        # The section has its own title, and the page is one level above.
        body = statement.to_markdown().partition("\n")[2]
        front, mark, details = body.replace("\n## ", "\n### ").partition("\n### ")
        rows = statement.guarantee_rows()
        shown = [page_blocks.guarantees(rows)] if rows else []
        section = self.section(title, covered=True).text(front)
        return section.fold(_DETAILS, mark + details, *shown)

    def how_it_was_made(self) -> Section:
        """Shows code, packages, flags, the key's digest, and how to run it again."""
        run = self._directory.run
        packages = ", ".join(f"{name} {v}" for name, v in run["packages"].items())
        key = (
            f"a secret key, SHA-256 `{run['noise_key']['sha256']}`"
            if run["noise_key"]["is_secret"]
            else "a key that follows from --seed, as the data are synthetic"
        )
        return self.section("Reproduction", covered=True).fold(
            "Code, packages, flags and the command that repeats the run",
            f"Code {run['version']}, Python {run['python']}; {packages}. Noise: from "
            f"{key}.\n\n```\n{run_record.flagfile(run['flags'])}```\n\n"
            f"{self._again()}",
        )

    def _again(self) -> str:
        """Returns the command that repeats the run, where a command line made it."""
        path, run = self._directory.path, self._directory.run
        if not (installation.HOME / f"{run['program'].replace('.', '/')}.py").exists():
            return ""
        words = [f"--flagfile={path / run_record.FLAGS_FILE}"]
        if run["noise_key"]["is_secret"]:
            words.append(f"--noise_key_file={path / run_record.KEY_FILE}")
        program = installation.command(run["program"])
        command = " ".join([program, *map(shlex.quote, words)])
        return f"The same run again, bit for bit:\n\n```\n{command}\n```\n"

    def add_file(
        self,
        name: str,
        contents: bytes | pd.DataFrame | Mapping[str, Any],
        *,
        covered: bool,
    ) -> None:
        """Has `write` write a file; see `Section.file`.

        Args:
            name: The name of the file.
            contents: Written as they are, as CSV or as JSON.
            covered: Whether the run's guarantee covers them.

        Raises:
            ValueError: If the name is taken.
        """
        files = self._directory.released if covered else self._directory.simulator
        if isinstance(contents, bytes):
            write = functools.partial(files.write_bytes, name, contents)
        elif isinstance(contents, pd.DataFrame):
            write = functools.partial(files.write_table, name, contents)
        else:
            write = functools.partial(files.write_json, name, dict(contents))
        self._write_later(name, write, covered)

    def _write_later(self, name: str, write: Callable[[], None], covered: bool) -> None:
        if name in _OWN_FILES:
            raise ValueError(f"{name!r} is a file of the run directory's own")
        if (covered, name) in self._writes:
            part = "released" if covered else "simulator's"
            raise ValueError(f"{name!r} is already a name of a {part} file of the page")
        self._writes[covered, name] = write

    def write(self) -> Summary:
        """Writes all files, and last of all `report.html`.

        Returns:
            The run's summary.

        Raises:
            RunDirectoryError: If a file cannot be written.
        """
        for write in self._writes.values():
            write()
        summary = Summary(
            **{"found": "", **self._summary},
            further=self._further,
            privacy=self._privacy,
            meaning=self._meaning,
            report=str(self._directory.path / run_directory.REPORT_FILE),
        )
        # What was found is ground truth in part. Paths stay out: a run may be moved.
        kept = {name: getattr(summary, name) for name in ("found", "privacy", "advice")}
        self._directory.simulator.write_json(SUMMARY_FILE, kept)
        subtitle = f"Run of {self._directory.run['started']}"
        shown = html(self._title, subtitle, self._sections, summary)
        self._directory.write_report(shown)
        return summary


def html(
    title: str,
    subtitle: str,
    sections: Sequence[page_blocks.Section],
    summary: Summary | None = None,
) -> str:
    """Returns a page that needs no other file.

    Args:
        title: Its heading.
        subtitle: Below it.
        sections: Its sections from top to bottom.
        summary: The box above them.
    """
    shown = _template().render(
        title=title,
        subtitle=subtitle,
        summary=summary,
        first_rows=page_blocks.FIRST_ROWS,
        has_long=any(page_blocks.has_long_table(each.blocks) for each in sections),
        sections=sections,
    )
    return tables.visible(shown)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["unbroken"] = page_blocks.unbroken
    return environment.get_template("page.html")
