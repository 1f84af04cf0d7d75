"""Options: dataclasses whose fields know their range, unit and help.

A program takes options as flags, a notebook as plain values. A frozen dataclass defines
an option's name, default, range and meaning once.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WalkOptions:
        num_steps: int = option(10, "Steps of a walk.", least=1, most=1000)
        length: float | None = option(
            None, "Length of a step.", above=0, most=2, unit="m"
        )

        def __post_init__(self):
            check(self)

`federated_hh.options.option_flags` makes flags of such a class. Importing this module,
or one that has options, registers none.
"""

import dataclasses
import enum
import functools
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

# The default of an option that has to be given.
REQUIRED = dataclasses.MISSING

_METADATA = "option"
# Mark of an option whose value a program chooses for the population, if not given.
CHOSEN: Mapping[str, Any] = types.MappingProxyType({"chosen": True})


@dataclasses.dataclass(frozen=True)
class _Limits:
    """The arguments of `option`, kept with a field."""

    help: str
    least: float | None
    most: float | None
    above: float | None
    below: float | None
    or_infinite: bool
    unit: str
    why: str
    choices: tuple[str, ...]
    flag: str | None
    group: str | None
    is_valid: Callable[[str], bool] | None
    form: str

    @property
    def is_bounded(self) -> bool:
        """Whether there is one bound below and one above."""
        return (self.least is None) != (self.above is None) and (
            (self.most is None) != (self.below is None)
        )

    def interval(self) -> str:
        """Returns the range in the notation of intervals, with its unit."""
        least, most = _shown(self.least), _shown(self.most)
        low = f"({_shown(self.above)}" if self.least is None else f"[{least}"
        high = f"{_shown(self.below)})" if self.most is None else f"{most}]"
        unit = f" {self.unit}" if self.unit else ""
        infinite = ", or inf" if self.or_infinite else ""
        return f"in {low}, {high}{unit}{infinite}"

    def has(self, value: float) -> bool:
        """Returns whether a number is in the range; nan is in none."""
        if value == math.inf:
            return self.or_infinite
        is_above = (
            value >= self.least
            if self.least is not None
            else (self.above is not None and value > self.above)
        )
        is_below = (
            value <= self.most
            if self.most is not None
            else (self.below is not None and value < self.below)
        )
        return is_above and is_below


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    or_infinite: bool = False,
    unit: str = "",
    why: str = "",
    choices: Sequence[str] = (),
    flag: str | None = None,
    group: str | None = None,
    marks: Mapping[str, Any] | None = None,
    is_valid: Callable[[str], bool] | None = None,
    form: str = "a text",
) -> Any:
    """Returns a dataclass's field that is an option.

    Its type is `int`, `float`, `str`, `bool`, an enumeration with texts as values,
    `tuple[str, ...]`, or one of these or `None`. A number has a range, and absurd
    values are refused at once.

    Args:
        default: Value if it is not given; `REQUIRED` if it has to be given.
        help: Meaning, in a sentence.
        least: The smallest allowed number.
        most: The largest one.
        above: Exclusive lower bound.
        below: Exclusive upper bound.
        or_infinite: Whether infinity is allowed, whatever `most` says.
        unit: The unit of the number, such as "hours".
        why: Reason for the range, for the message.
        choices: The texts that are allowed; all where there are none.
        flag: The flag's name, where it is not the field's.
        group: The option's subject, where it is not the class's own:
            a heading of --help.
        marks: More metadata of the field, by name.
        is_valid: Whether a text is allowed; any is where it is None.
        form: Form of a text, such as "a number or 1/n^2".
    """
    choices = tuple(choices)
    limits = _Limits(
        *(help, least, most, above, below, or_infinite, unit, why, choices, flag),
        *(group, is_valid, form),
    )
    return dataclasses.field(
        default=default, metadata={**(marks or {}), _METADATA: limits}
    )


# Arguments that a new bound replaces.
_REPLACED = {"least": "above", "above": "least", "most": "below", "below": "most"}
_SAME: Any = object()


def option_of(
    options_class: type, name: str, default: Any = _SAME, help: str = "", **changes: Any
) -> Any:
    """Returns a dataclass's field that is an option of another dataclass.

    It has the other's range, unit, choices, form and flag; not its topic in --help, nor
    its marks.

    Args:
        options_class: The other dataclass.
        name: The field's name there.
        default: Another default; the same one where it is left out.
        help: Another meaning, in a sentence; the same one where it is empty.
        **changes: Other arguments of `option`. A new bound replaces the old one and the
            reason for the range.

    Raises:
        ValueError: If there is no such field.
    """
    fields = {each.name: each for each in dataclasses.fields(options_class)}
    if name not in fields:
        raise ValueError(f"name is {name!r}; it has to be one of {sorted(fields)}")
    field = fields[name]
    taken = dict(vars(field.metadata[_METADATA]))
    del taken["group"]
    for bound in _REPLACED.keys() & changes.keys():
        taken |= {_REPLACED[bound]: None, "why": ""}
    taken["help"] = help or taken["help"]
    default = field.default if default is _SAME else default
    return option(default, **(taken | changes))


@dataclasses.dataclass(frozen=True)
class OptionField:
    """An option of a class.

    Attributes:
        name: The field's.
        flag: The flag's.
        kind: `int`, `float`, `str`, `bool`, `tuple` or an enumeration.
        is_optional: True if None is allowed.
        default: `REQUIRED` where it has to be given.
        help: Meaning, in a sentence.
        choices: The texts that are allowed; all where there are none.
        marks: The field's metadata.
    """

    name: str
    flag: str
    kind: type
    is_optional: bool
    default: Any
    help: str
    choices: tuple[str, ...]
    marks: Mapping[str, Any] = dataclasses.field(hash=False)

    @property
    def group(self) -> str | None:
        """Topic of the option in --help; None for the topic of its class."""
        return self.marks[_METADATA].group

    @property
    def range(self) -> str:
        """Description of allowed values, such as "an integer in [1, 10] (why)"."""
        limits = self.marks[_METADATA]
        reason = f" ({limits.why})" if limits.why else ""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is int:
            return f"an integer {limits.interval()}{reason}"
        if self.kind is float:
            return f"a number {limits.interval()}{reason}"
        texts: dict[Any, str] = {bool: "True or False", tuple: "a list of texts"}
        return texts.get(self.kind, limits.form)

    def accept(self, value: Any) -> Any:
        """Returns a value in its stored form, such as Python's numbers for NumPy's.

        Raises:
            ValueError: If it is not allowed. The message has the allowed values, but
                neither the field's name nor the value.
        """
        if value is None and self.is_optional:
            return None
        try:
            return self._of_kind(value)
        except (TypeError, ValueError):
            raise ValueError(f"has to be {self.range}") from None

    def _of_kind(self, value: Any) -> Any:
        if issubclass(self.kind, enum.Enum):
            return self.kind(value)
        if self.kind is tuple:
            if isinstance(value, str) or not all(isinstance(v, str) for v in value):
                raise TypeError
            return tuple(value)
        if self.kind not in (int, float):
            if not isinstance(value, self.kind):
                raise TypeError
            if self.choices and value not in self.choices:
                raise ValueError
            is_valid = self.marks[_METADATA].is_valid
            if is_valid is not None and not is_valid(value):
                raise ValueError
            return value
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError
        if self.kind is int:
            value = operator.index(value)
        if not self.marks[_METADATA].has(value):
            raise ValueError
        return value if self.kind is int else float(value)


def fields_of(options_class: type) -> Mapping[str, OptionField]:
    """Returns the options of a dataclass by name.

    Raises:
        TypeError: If a field is not made by `option`, has a type that no option has, or
            is a number without a range.
    """
    return _fields_of(typing.cast(Hashable, options_class))


@functools.cache
def _fields_of(options_class: Any) -> Mapping[str, OptionField]:
    hints = typing.get_type_hints(options_class)
    found = {}
    for field in dataclasses.fields(options_class):
        if _METADATA not in field.metadata:
            raise TypeError(
                f"{options_class.__name__}.{field.name} is not an option; declare it "
                "with fields.option"
            )
        limits = field.metadata[_METADATA]
        kind, is_optional = _kind(hints[field.name])
        if kind in (int, float) and not limits.is_bounded:
            raise TypeError(
                f"{options_class.__name__}.{field.name} is an option without a range: "
                "it needs least or above, and most or below"
            )
        choices = limits.choices
        if issubclass(kind, enum.Enum):
            choices = tuple(member.value for member in kind)
        found[field.name] = OptionField(
            field.name,
            limits.flag or field.name,
            kind,
            is_optional,
            field.default,
            limits.help,
            choices,
            field.metadata,
        )
    return types.MappingProxyType(found)


def check(options: Any) -> None:
    """Checks each option by itself, and stores it in its stored form.

    Call it at the beginning of a class's `__post_init__`.

    Args:
        options: An instance of a dataclass of options.

    Raises:
        OptionError: If one is not allowed; `SeveralError` if several are not.
    """
    errors = []
    for name, field in fields_of(type(options)).items():
        try:
            value = field.accept(getattr(options, name))
        except ValueError as error:
            errors.append(OptionError(options, f"{{{name}=}}: {{why}}", why=error))
            continue
        object.__setattr__(options, name, value)
    raise_all(errors)


class SeveralError(ValueError):
    """Several things that are wrong.

    Attributes:
        errors: Each of them.
        exit_code: The exit code of a program that ends by it.
    """

    exit_code = 2

    def __init__(self, errors: Sequence[ValueError]):
        super().__init__(" ".join(map(str, errors)))
        self.errors = tuple(errors)


def raise_all(errors: Sequence[ValueError]) -> None:
    """Raises all errors together.

    Args:
        errors: Errors to raise; a `SeveralError` among them is taken apart.

    Raises:
        ValueError: The only error, or `SeveralError` with all; nothing without errors.
    """
    single = [one for error in errors for one in getattr(error, "errors", [error])]
    if len(single) > 1:
        raise SeveralError(single)
    if single:
        raise single[0] from None


class OptionError(ValueError):
    """Options that are not allowed, or do not go together.

    The message calls them by their fields' names; where a program shows it, by its
    flags' names.

    Attributes:
        exit_code: The exit code of a program that ends by it: that of wrong flags, as
            absl has it.
    """

    exit_code = 2

    def __init__(self, options: Any, template: str, **values: Any):
        """Makes an error of a message with names of options in it.

        Args:
            options: An instance of a dataclass of options.
            template: As for `str.format`: `{length}` is the option's name, `{length=}`
                its name and value, `{length=0.5}` a recommended value, and any other
                name one of `values`.
            **values: Other values, by names that no option has.
        """
        self._options, self._template, self._values = options, template, values
        super().__init__(template.format_map(_Names(self, False)))

    def with_flags(self) -> str:
        """Returns the message with `--name` of the flags instead of fields' names."""
        return self._template.format_map(_Names(self, True))

    def text_of(self, key: str, as_flag: bool) -> Any:
        """Returns the text for a key of the template."""
        name, equals, value = key.partition("=")
        field = fields_of(type(self._options)).get(name)
        if field is None:
            return self._values[key]
        if as_flag and field.kind is bool and equals:
            value = value or str(getattr(self._options, name))
            return f"--{'no' if value == 'False' else ''}{field.flag}"
        shown = f"--{field.flag}" if as_flag else name
        if not equals:
            return shown
        value = value or getattr(self._options, name)
        if isinstance(value, tuple):
            value = ",".join(map(str, value))
        return f"{shown}={value}"


class _Names(dict):
    """Mapping that `str.format_map` looks up in a template."""

    def __init__(self, error: OptionError, as_flag: bool):
        super().__init__()
        self._error, self._as_flag = error, as_flag

    def __missing__(self, key: str) -> Any:
        return self._error.text_of(key, self._as_flag)


def _kind(hint: Any) -> tuple[type, bool]:
    """Returns the type of an option's values, and whether it may be None."""
    is_optional = isinstance(hint, types.UnionType) and type(None) in hint.__args__
    if is_optional:
        hint = functools.reduce(
            operator.or_, [h for h in hint.__args__ if h is not type(None)]
        )
    if hint == tuple[str, ...]:
        return tuple, is_optional
    if hint in (int, float, str, bool) or (
        isinstance(hint, type) and issubclass(hint, enum.Enum)
    ):
        return hint, is_optional
    raise TypeError(f"{hint} is not the type of an option")


def _shown(bound: float | None) -> str:
    return f"{bound:.15g}" if isinstance(bound, float) else str(bound)
