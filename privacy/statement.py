"""The privacy statement of a run: what is guaranteed, to whom, and on what grounds.

A statement carries the points that Ponomareva et al. 2023 (section 5.3) ask for, in
the order in which Xu et al. 2023 (appendix A) report them. It cannot be made with a
point left out, and it renders to JSON (to be read by programs, full precision) and
to Markdown (to be read by people).
"""

import dataclasses
import decimal
import importlib.metadata
import json
import math
import numbers
import platform
from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1

_BASES = ("planned", "realised")

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
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
    """One (epsilon, delta) with everything needed to read it.

    Attributes:
        epsilon: At least 0; infinity says "none".
        delta: In [0, 1].
        bound: The theorem or method that gave the numbers.
        is_upper_bound: Whether the true epsilon at this delta is proved to be no
            larger. False for an estimate or a lower bound.
        unit: Unit of privacy, such as "user", "device", "item".
        adjacency: Which pairs of data sets are compared.
        assumptions: What has to hold for these numbers, beyond the statement's own
            assumptions; may be empty.
        rho: The zCDP that epsilon was converted from; None where there is none.

    Raises:
        ValueError: A field is missing, empty or out of range; the message names it.
    """

    epsilon: float
    delta: float
    bound: str
    is_upper_bound: bool
    unit: str
    adjacency: str
    assumptions: tuple[str, ...] = ()
    rho: float | None = None

    def __post_init__(self):
        _check_number(self, "epsilon", 0.0, math.inf)
        _check_number(self, "delta", 0.0, 1.0)
        if self.rho is not None:
            _check_number(self, "rho", 0.0, math.inf)
        if not isinstance(self.is_upper_bound, bool):
            raise ValueError(
                f"is_upper_bound must be True or False, got {self.is_upper_bound!r}"
            )
        for name in ("bound", "unit", "adjacency"):
            _check_text(self, name)
        _check_texts(self, "assumptions", may_be_empty=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The privacy statement of a run.

    Attributes:
        setting: Whom one has to trust: "central DP", "local DP", "aggregate DP", ...
        protected: Which data accesses are covered.
        unit: Unit of privacy.
        adjacency: Definition of neighbouring data sets.
        mechanism: The algorithm, with its source.
        mechanism_output: What the guarantee is about; all that is computed from it
            is covered too.
        guarantees: What holds; empty only together with `no_guarantee_reason`.
        no_guarantee_reason: Why nothing is guaranteed; None where something is.
        parameters: Name to number or text, of all that the numbers depend on.
        accounting: How the numbers were computed.
        assumptions: What has to hold in the system for the guarantees.
        not_counted: What is not covered by the guarantees.
        verifiability: How somebody else can check the claims.
        basis: "planned" (from the configuration) or "realised" (from what happened).
        software: Package name to version.
        schema_version: Version of these fields.

    Raises:
        ValueError: A field is missing, empty or out of range; the message names it.
    """

    setting: str
    protected: str
    unit: str
    adjacency: str
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
        "below with privacy.run_accounting; the run itself is a simulation."
    )
    basis: str = "planned"
    software: Mapping[str, str] = dataclasses.field(default_factory=software_versions)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self):
        for name in (
            "setting",
            "protected",
            "unit",
            "adjacency",
            "mechanism",
            "mechanism_output",
            "accounting",
            "verifiability",
            "basis",
        ):
            _check_text(self, name)
        _check_texts(self, "assumptions")
        _check_texts(self, "not_counted")
        self._check_guarantees()
        _check_mapping(self, "parameters", (str, numbers.Real))
        _check_mapping(self, "software", (str,))
        if self.basis not in _BASES:
            raise ValueError(f"basis must be one of {_BASES}, got {self.basis!r}")
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version must be {SCHEMA_VERSION}, got {self.schema_version!r}"
            )

    def _check_guarantees(self):
        if isinstance(self.guarantees, Guarantee | str) or not all(
            isinstance(guarantee, Guarantee) for guarantee in self.guarantees
        ):
            raise ValueError(
                f"guarantees must be a list of Guarantee, got {self.guarantees!r}"
            )
        object.__setattr__(self, "guarantees", tuple(self.guarantees))
        if self.guarantees and self.no_guarantee_reason is not None:
            raise ValueError("no_guarantee_reason must be None where guarantees exist")
        if not self.guarantees:
            _check_text(
                self, "no_guarantee_reason", " where the list of guarantees is empty"
            )

    def to_json(self) -> str:
        """Renders the statement as JSON.

        Returns:
            An object with the fields of this class, floats in full precision and
            infinity as the string "inf".
        """
        return json.dumps(_jsonable(dataclasses.asdict(self)), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "PrivacyStatement":
        """Reads a statement that `to_json` wrote.

        Args:
            text: JSON.

        Returns:
            The statement, equal to the one that was written.

        Raises:
            ValueError: The text is no JSON object, has another schema version, or a
                field is missing, unknown or out of range; the message names it.
        """
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("a privacy statement must be a JSON object")
        version = fields.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version must be {SCHEMA_VERSION} for this release, got "
                f"{version!r}"
            )
        _check_names(cls, fields, "the statement")
        guarantees = fields["guarantees"]
        if not isinstance(guarantees, list):
            raise ValueError(f"guarantees must be a list, got {guarantees!r}")
        for index, guarantee in enumerate(guarantees):
            where = f"guarantees[{index}]"
            if not isinstance(guarantee, dict):
                raise ValueError(f"{where} must be an object, got {guarantee!r}")
            _check_names(Guarantee, guarantee, where)
        fields["guarantees"] = [
            Guarantee(**_with_infinities(guarantee, ("epsilon", "rho")))
            for guarantee in guarantees
        ]
        if isinstance(fields["parameters"], dict):
            parameters = fields["parameters"]
            fields["parameters"] = _with_infinities(parameters, parameters)
        return cls(**fields)

    def to_markdown(self) -> str:
        """Renders the statement for people.

        Returns:
            Markdown; floats with 4 significant digits, the epsilons, deltas and rhos
            of upper bounds rounded upwards.
        """
        lines = ["# Privacy statement", "", f"Basis: {self.basis}."]
        lines += ["", "## Guarantees", ""]
        if self.guarantees:
            for guarantee in self.guarantees:
                lines += _guarantee_lines(guarantee)
        else:
            lines.append(f"**None.** {self.no_guarantee_reason}")
        lines += ["", "## DP setting", "", self.setting]
        lines += ["", "## Instantiating the DP definition", ""]
        lines += [
            f"* **Data accesses covered:** {self.protected}",
            f"* **Mechanism:** {self.mechanism}",
            f"* **Mechanism output:** {self.mechanism_output}",
            f"* **Unit of privacy:** {self.unit}",
            f"* **Adjacency:** {self.adjacency}",
        ]
        lines += ["", "## Accounting", "", self.accounting, ""]
        lines += ["Assumptions:", ""]
        lines += [f"* {text}" for text in self.assumptions]
        lines += ["", "Not counted:", ""]
        lines += [f"* {text}" for text in self.not_counted]
        lines += ["", "## Transparency and verifiability", "", self.verifiability, ""]
        lines += ["| parameter | value |", "|---|---|"]
        lines += [
            f"| {_cell(name)} | {_cell(_readable(value))} |"
            for name, value in self.parameters.items()
        ]
        versions = ", ".join(f"{name} {text}" for name, text in self.software.items())
        lines += ["", f"Software: {versions}."]
        lines += [f"Schema version: {self.schema_version}."]
        return "\n".join(lines) + "\n"


def _guarantee_lines(guarantee: Guarantee) -> list[str]:
    up = guarantee.is_upper_bound
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_HALF_EVEN
    epsilon, delta = (
        _readable(value, rounding) for value in (guarantee.epsilon, guarantee.delta)
    )
    kind = "an upper bound" if up else "not a proved upper bound"
    lines = [f"* **epsilon = {epsilon}, delta = {delta}** ({kind})"]
    if guarantee.rho is not None:
        lines.append(f"  * zCDP: rho = {_readable(guarantee.rho, rounding)}")
    lines += [
        f"  * by: {guarantee.bound}",
        f"  * unit: {guarantee.unit}; adjacency: {guarantee.adjacency}",
    ]
    return lines + [f"  * assuming: {text}" for text in guarantee.assumptions]


def _readable(value: Any, rounding: str = decimal.ROUND_HALF_EVEN) -> str:
    """Formats a number with 4 significant digits; integers and texts in full."""
    if isinstance(value, str | numbers.Integral):
        return str(value)
    if not math.isfinite(value):
        return "inf"
    # From the digits that Python prints, so that 1e-10 does not become 1.001e-10.
    context = decimal.Context(prec=4, rounding=rounding)
    return f"{float(context.create_decimal(repr(float(value)))):.4g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value


def _with_infinities(fields: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {
        name: math.inf if value == "inf" and name in names else value
        for name, value in fields.items()
    }


def _check_names(kind: type, fields: Mapping[str, Any], where: str):
    expected = {field.name for field in dataclasses.fields(kind)}
    for problem, names in (
        ("is missing", expected - fields.keys()),
        ("is unknown", fields.keys() - expected),
    ):
        for name in sorted(names):
            raise ValueError(f"field {name} of {where} {problem}")


def _check_number(owner: Any, name: str, minimum: float, maximum: float):
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} must be in [{minimum:g}, {maximum:g}], got {value!r}")
    object.__setattr__(owner, name, float(value))


def _check_text(owner: Any, name: str, where: str = ""):
    value = getattr(owner, name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{name} must be a text that is not empty{where}, got {value!r}"
        )


def _check_texts(owner: Any, name: str, may_be_empty: bool = False):
    values = getattr(owner, name)
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list of texts, got {values!r}")
    if not (values or may_be_empty):
        raise ValueError(f"{name} must not be empty: name at least one")
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"{name} must hold texts that are not empty, got {value!r}"
            )
    object.__setattr__(owner, name, tuple(values))


def _check_mapping(owner: Any, name: str, kinds: tuple[type, ...]):
    mapping = getattr(owner, name)
    if not isinstance(mapping, Mapping) or not mapping:
        raise ValueError(f"{name} must be a dict that is not empty, got {mapping!r}")
    plain = {}
    for key, value in mapping.items():
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{name} must have texts as names, got {key!r}")
        if not isinstance(value, kinds) or value in ("", "inf"):
            raise ValueError(f"{name}[{key!r}] must not be {value!r}")
        # NumPy's numbers are told apart here, so that JSON takes them.
        if isinstance(value, numbers.Integral):
            value = bool(value) if isinstance(value, bool) else int(value)
        elif isinstance(value, numbers.Real):
            value = float(value)
            if math.isnan(value) or value == -math.inf:
                raise ValueError(f"{name}[{key!r}] must be a number, got {value!r}")
        plain[key] = value
    object.__setattr__(owner, name, plain)
