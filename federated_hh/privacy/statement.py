"""The privacy statement of a run: guarantees, their units, grounds and assumptions.

A statement carries the points that Ponomareva et al. 2023 (section 5.3) ask for, in
the order in which Xu et al. 2023 (appendix A) report them. It cannot be made with a
point left out, and it renders to JSON (to be read by programs, full precision) and
to Markdown (to be read by people).
"""

import dataclasses
import functools
import importlib.metadata
import json
import math
import numbers
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.options import checks
from federated_hh.privacy import rounding
from federated_hh.privacy.guarantee import Adjacency, Guarantee, Unit
from federated_hh.privacy.realised import Realised

SCHEMA_VERSION = 3

# The same division for every program: see `federated_hh.run_directory.directory`.
SIMULATOR_KNOWLEDGE = (
    "The simulator's knowledge: the folder simulator/ of the run directory (exact "
    "counts, ground truth, scores, checkpoints, the data's fingerprint, cohorts), and "
    "the page report.html and the program's messages, which show some of it. All other "
    "files but the key in secret/ are covered."
)

# Fields that JSON has only where they are not so: earlier releases did not know them.
LATER_FIELDS = {"is_comparison": False, "num_repeats": 1, "voting": None}

# Of a secure sum, where no protocol computes it.
SUMMED_IN_THE_CLEAR = "the simulation computes it in the clear"

# Units by how much is protected.
_ORDER = (Unit.CLIENT, Unit.ITEM)

# From here on who sees a release is sure of a guess, up to 2 in 10^9.
_NO_PROTECTION = 20.0

# The other run of a comparison, for one line.
_AGAINST = {
    Adjacency.EMPTIED: "a run without the client's data",
    Adjacency.ZERO_OUT: "a run with the client's contributions zeroed",
    Adjacency.REPLACE_CLIENT: "a run with other data of the client",
    Adjacency.REPLACE_ONE_ITEM: "a run with another item",
}

_PACKAGES = ("numpy", "scipy", "dp-accounting", "tensorflow-federated")


def software_versions() -> dict[str, str]:
    """Lists the versions of Python and of the packages that numbers come from.

    Returns:
        Package name to version; packages that are not installed are left out. None
        of them is imported.
    """
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = _package_version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


# Each reads and parses a file.
_package_version = functools.cache(importlib.metadata.version)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The privacy statement of a run.

    Attributes:
        setting: Whom one has to trust: "central DP", "local DP", "aggregate DP", ...
        protected: Data accesses that are covered.
        adjacency: The definition of neighbouring data sets that comes first; each
            guarantee has its own.
        mechanism: The algorithm, with its source.
        mechanism_output: The covered output; everything computed from it is covered
            too.
        guarantees: Guarantees; empty only together with `no_guarantee_reason`.
        no_guarantee_reason: Why nothing is guaranteed; None where something is.
        parameters: Numbers and texts by name, of everything that the numbers depend on.
        accounting: Computation of the numbers.
        assumptions: Assumptions on the system.
        not_counted: Data and events that the guarantees do not cover.
        verifiability: Ways for others to check the claims.
        realised: The rounds that the numbers are from; None where they are planned,
            from the configuration.
        num_repeats: The number of repeats that guarantees of all of them are about.
        software: Package name to version.
        schema_version: Version of these fields.

    Raises:
        ValueError: A field is missing, empty or out of range; the message names it.
    """

    setting: str
    protected: str
    adjacency: Adjacency
    mechanism: str
    mechanism_output: str
    guarantees: tuple[Guarantee, ...]
    no_guarantee_reason: str | None = None
    parameters: Mapping[str, float | int | str]
    accounting: str
    assumptions: tuple[str, ...]
    not_counted: tuple[str, ...]
    verifiability: str = (
        "The accounting is open source and can be run again from the parameters "
        "below with federated_hh.run_accounting; the run itself is a simulation."
    )
    realised: Realised | None = None
    num_repeats: int = 1
    software: Mapping[str, str] = dataclasses.field(default_factory=software_versions)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self):
        for name in (
            "setting",
            "protected",
            "mechanism",
            "mechanism_output",
            "accounting",
            "verifiability",
        ):
            checks.text_field(self, name)
        checks.kind_field(self, "adjacency", Adjacency)
        checks.texts_field(self, "assumptions")
        checks.texts_field(self, "not_counted")
        self._check_guarantees()
        checks.mapping_field(self, "parameters", (str, numbers.Real))
        checks.mapping_field(self, "software", (str,))
        if self.realised is not None and not isinstance(self.realised, Realised):
            raise ValueError(
                f"realised is {self.realised!r}; it has to be None or a Realised"
            )
        checks.integer(num_repeats=self.num_repeats, least=1)
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version is {self.schema_version!r}; it has to be "
                f"{SCHEMA_VERSION}"
            )

    @property
    def basis(self) -> str:
        """The word for what the numbers are from: "planned" or "realised"."""
        return "planned" if self.realised is None else "realised"

    @property
    def unit(self) -> Unit:
        """The main unit of privacy."""
        return self.adjacency.unit

    @property
    def _adjacencies(self) -> tuple[Adjacency, ...]:
        """All that are named, the statement's own first."""
        of_guarantees = [guarantee.adjacency for guarantee in self.guarantees]
        return tuple(dict.fromkeys([self.adjacency, *of_guarantees]))

    @property
    def definitions(self) -> dict[str, str]:
        """The texts of the units and adjacencies that it names."""
        named = (*self._units, *self._adjacencies)
        return {member.value: member.text for member in named}

    @property
    def _units(self) -> tuple[Unit, ...]:
        return tuple(dict.fromkeys(each.unit for each in self._adjacencies))

    def _check_guarantees(self):
        if isinstance(self.guarantees, Guarantee | str) or not all(
            isinstance(guarantee, Guarantee) for guarantee in self.guarantees
        ):
            raise ValueError(
                f"guarantees is {self.guarantees!r}; it has to be a list of Guarantee"
            )
        object.__setattr__(self, "guarantees", tuple(self.guarantees))
        if self.guarantees and self.no_guarantee_reason is not None:
            raise ValueError(
                "no_guarantee_reason has to be None where guarantees exist"
            )
        if not self.guarantees:
            checks.text_field(
                self, "no_guarantee_reason", " where the list of guarantees is empty"
            )

    @property
    def main_guarantees(self) -> tuple[Guarantee, ...]:
        """The first guarantee of each unit that covers all repeats, clients first.

        Bounds for comparison, and those that are not proved, are none of them.
        """
        covering = [each for each in self._proved if not each.of_one_repeat]
        of_units = [[each for each in covering if each.unit is unit] for unit in _ORDER]
        return tuple(found[0] for found in of_units if found)

    @property
    def further_guarantees(self) -> tuple[Guarantee, ...]:
        """The other proved guarantees: of one repeat, or of other adjacencies."""
        main = self.main_guarantees
        return tuple(each for each in self._proved if each not in main)

    @property
    def comparisons(self) -> tuple[Guarantee, ...]:
        """The bounds for comparison, and those that are not proved."""
        return tuple(each for each in self.guarantees if each not in self._proved)

    @property
    def _proved(self) -> list[Guarantee]:
        return [g for g in self.guarantees if g.is_upper_bound and not g.is_comparison]

    def _front(self) -> list[str]:
        """Returns the main guarantees in words and numbers, a paragraph each."""
        if not self.guarantees:
            return [f"**No guarantee.** {self.no_guarantee_reason}"]
        if not self.main_guarantees:
            return ["**No proved guarantee.**"]
        lines = []
        for shown in self.main_guarantees:
            alone = self._of_one_repeat(shown)
            of = f" for all {self.num_repeats} repeats together" if alone else ""
            poor = " This is no protection." * (shown.epsilon >= _NO_PROTECTION)
            lines.append(f"**{_numbers(shown)}**{of}. {shown.sentence()}{poor}")
            if alone:
                lines.append(f"One repeat alone: {_numbers(alone)}.")
        return lines

    def _of_one_repeat(self, guarantee: Guarantee) -> Guarantee | None:
        """Returns the guarantee of one repeat that a guarantee of all is made of."""
        for found in self._proved:
            if found.of_one_repeat and found.adjacency is guarantee.adjacency:
                return found
        return None

    def in_words(self) -> str:
        """Returns the meaning of the guarantee to quote; "" without one."""
        main = self.main_guarantees
        protecting = [each for each in main if each.epsilon < _NO_PROTECTION]
        return next((each.sentence() for each in (*protecting, *main)), "")

    def guarantee_rows(self) -> list[dict[str, str]]:
        """Returns a `Guarantee.row` for each guarantee, the main ones first."""
        groups = (self.main_guarantees, self.further_guarantees, self.comparisons)
        return [guarantee.row() for group in groups for guarantee in group]

    def headline(self) -> str:
        """Returns the main guarantees in a line: of one repeat, then of all."""
        if not self.guarantees:
            return f"Privacy: none: {self.no_guarantee_reason}"
        shown = self.main_guarantees or self.guarantees[:1]
        alone = [each for of in shown if (each := self._of_one_repeat(of))]
        text = _prices(shown)
        if self.num_repeats > 1 or alone:
            count = f"{self.num_repeats} " if self.num_repeats > 1 else ""
            text += f" for all {count}repeats together"
        if len(alone) == len(shown):
            text = f"{_prices(alone)} for one repeat; {text}"
        notes = ["one-sided"] if all(each.one_sided for each in shown) else []
        notes += ["compared with " + " and ".join(_AGAINST[g.adjacency] for g in shown)]
        notes += [] if shown[0].is_upper_bound else ["not proved"]
        basis = "planned" if self.realised is None else "from the rounds that ran"
        line = f"Privacy: {text} ({', '.join(notes)}; {basis})"
        large = [each for each in shown if each.epsilon >= _NO_PROTECTION]
        if large:
            of = ", or ".join(_price(each) for each in large)
            line += f". An {of} is no protection"
            left = [each.unit.value for each in shown if each not in large]
            line += (
                f": it protects each {left[0]}, not all data of a client"
                if left
                else ""
            )
        return line

    def to_json(self) -> str:
        """Renders the statement as JSON.

        Returns:
            An object with the fields of this class, `basis`, and the `definitions`
            of the names that it has for adjacencies, and for units beside them.
            `num_repeats` and `is_comparison` are left out at their defaults. Floats
            have full precision; infinity is the string "inf".
        """
        fields = {"basis": self.basis, **dataclasses.asdict(self)}
        fields["definitions"] = self.definitions
        for found in (fields, *fields["guarantees"]):
            found["unit"] = found["adjacency"].unit
            for name, default in LATER_FIELDS.items():
                if name in found and found[name] == default:
                    del found[name]
        return json.dumps(_jsonable(fields), indent=2) + "\n"

    def to_markdown(self) -> str:
        """Renders the statement for people.

        Returns:
            Markdown; floats with 4 significant digits, the epsilons, deltas and rhos
            of upper bounds rounded upwards where they are above them by more than a
            relative 1e-12.
        """
        lines = ["# Privacy statement", ""]
        lines += [f"{line}\n" for line in self._front()]
        lines += [f"Basis: {_basis(self.realised)}."]
        for title, found in (
            ("Guarantees", [*self.main_guarantees, *self.further_guarantees]),
            ("Bounds for comparison", self.comparisons),
        ):
            lines += ["", f"## {title}", ""] if found else []
            for guarantee in found:
                lines += _guarantee_lines(guarantee)
        lines += ["", "## DP setting", "", self.setting]
        lines += ["", "## Instantiating the DP definition", ""]
        lines += [
            f"* **Data accesses covered:** {self.protected}",
            f"* **Mechanism:** {self.mechanism}",
            f"* **Mechanism output:** {self.mechanism_output}",
            *[f"* **Unit of privacy:** {_explained(each)}" for each in self._units],
            *[f"* **Adjacency:** {_explained(each)}" for each in self._adjacencies],
        ]
        lines += ["", "## Accounting", "", self.accounting, ""]
        lines += ["Assumptions:", ""]
        lines += [f"* {text}" for text in self.assumptions]
        lines += ["", "Not counted:", ""]
        lines += [f"* {text}" for text in self.not_counted]
        lines += ["", "## Transparency and verifiability", "", self.verifiability, ""]
        lines += ["| parameter | value |", "|---|---|"]
        lines += [
            f"| {_cell(name)} | {_cell(rounding.readable(value))} |"
            for name, value in self.parameters.items()
        ]
        versions = ", ".join(f"{name} {text}" for name, text in self.software.items())
        lines += ["", f"Software: {versions}."]
        lines += [f"Schema version: {self.schema_version}."]
        return "\n".join(lines) + "\n"


def _basis(realised: Realised | None) -> str:
    if realised is None:
        return "planned"
    return (
        f"realised, from {realised.rounds:,} round{'s' * (realised.rounds > 1)} with "
        f"{realised.clients:,} participations"
    )


def _price(guarantee: Guarantee) -> str:
    return (
        f"epsilon of {guarantee.printed(guarantee.epsilon)} per {guarantee.unit.value}"
    )


def _prices(guarantees: Sequence[Guarantee]) -> str:
    """Returns the epsilons and deltas of a unit, or of several, in a line."""
    sides = {each.one_sided for each in guarantees}
    return ", ".join(
        f"epsilon {each.printed(each.epsilon)} at delta {each.printed(each.delta)}"
        + f" per {each.unit.value}"
        + (" one-sided" if each.one_sided and len(sides) > 1 else "")
        for each in guarantees
    )


def _numbers(guarantee: Guarantee) -> str:
    epsilon, delta = map(guarantee.printed, (guarantee.epsilon, guarantee.delta))
    sided = ", one-sided" if guarantee.one_sided else ""
    return f"epsilon = {epsilon}, delta = {delta} per {guarantee.unit.value}{sided}"


def _guarantee_lines(guarantee: Guarantee) -> list[str]:
    shown = guarantee.printed
    kind = "upper bound" if guarantee.is_upper_bound else "not a proved upper bound"
    lines = [f"* {_numbers(guarantee)} ({kind})"]
    if guarantee.of_one_repeat:
        lines.append("  * of one repeat alone")
    if guarantee.one_sided:
        lines.append(
            "  * one-sided: P(output on D in S) <= e^epsilon P(output on D' in S) + "
            "delta, for all S; nothing is claimed the other way"
        )
    if guarantee.rho is not None:
        lines.append(f"  * zCDP: rho = {shown(guarantee.rho)}")
    lines += [
        f"  * theorem: {guarantee.bound}",
        f"  * unit: {guarantee.unit.value}; adjacency: {guarantee.adjacency.value}",
    ]
    return lines + [f"  * assuming: {text}" for text in guarantee.assumptions]


def _explained(member: Unit | Adjacency) -> str:
    return f"{member.value}: {member.text}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, Unit | Adjacency):
        return value.value
    return value
