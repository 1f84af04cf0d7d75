"""Flags made of the options of a dataclass: see `federated_hh.options.fields`."""

import io
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from absl import flags

from federated_hh.options import fields as fields_lib

# So that flags belong to the module that asks for them.
flags.disclaim_key_flags()

# Python's messages for invalid numbers, and plain ones.
_KINDS = {
    "invalid literal for int": "a whole number",
    "could not convert string to float": "a number",
}

# A topic of flags that programs share.
RUN = "The run"
# For --help: the flags' options by topic, and the most important flags.
_TOPICS: dict[str, list[fields_lib.OptionField]] = {}
_FIRST: list[str] = []

Options = TypeVar("Options")


class OptionFlags(Generic[Options]):
    """The flags of a dataclass of options."""

    def __init__(
        self,
        options_class: type[Options],
        fields: Collection[fields_lib.OptionField],
        defaults: Mapping[str, Any],
    ):
        """Registers a flag for each field; `define` is how to call it."""
        self._class, self._fields = options_class, fields
        for field in fields:
            _define(field, defaults.get(field.name, field.default), flags.FLAGS)

    def read(self) -> Options:
        """Returns the options that the flags give.

        Raises:
            ValueError: If they do not go together, or one is missing.
        """
        return _read(self._class, self._fields, flags.FLAGS)

    def parse(self, arguments: Sequence[str]) -> list[str]:
        """Parses a command line as `parse`, and checks these options by it.

        Args:
            arguments: The program and its arguments, as in `sys.argv`.
        """
        rest = parse(arguments)
        try:
            self.read()
        except ValueError as error:
            _end(
                each.with_flags()
                if isinstance(each, fields_lib.OptionError)
                else str(each)
                for each in getattr(error, "errors", [error])
            )
        return rest


def define(
    options_class: type[Options],
    *,
    only: Collection[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> OptionFlags[Options]:
    """Registers a flag for each option of a dataclass, for the module that calls.

    A number out of its range is refused as the command line is parsed.

    Args:
        options_class: A dataclass of options.
        only: Names of the fields that get a flag; None for all. The others keep their
            defaults.
        defaults: Other defaults of this program, by the fields' names.
        title: Topic of the flags in --help; by default the class's docstring.
    """
    fields = fields_lib.fields_of(options_class)
    chosen = [fields[name] for name in (fields if only is None else only)]
    title = title or _title_of(options_class)
    for field in chosen:
        _TOPICS.setdefault(field.group or title, []).append(field)
    return OptionFlags(options_class, chosen, defaults or {})


def first(*names: str) -> None:
    """Names the program's most important flags, which its help shows first."""
    _FIRST[:] = names


def _title_of(options_class: type) -> str:
    """Returns the subject of a class of options: the first words of its docstring."""
    return (options_class.__doc__ or "").split("\n")[0].split(";")[0].rstrip(".")


def check_all(*checks: Callable[[], Any]) -> None:
    """Runs checks, and reports all errors at once.

    Raises:
        ValueError: An option is invalid; `fields.SeveralError` if several are.
    """
    errors = []
    for each in checks:
        try:
            each()
        except ValueError as error:
            errors.append(error)
    fields_lib.raise_all(errors)


def read_lines(options_class: type[Options], lines: Sequence[str]) -> Options:
    """Returns options that lines such as a flagfile's give, and no program's flags.

    Args:
        options_class: A dataclass of options.
        lines: `--name=value`; the last one of a name counts, and those of other names
            are left out. `--flagfile=...` is read.

    Raises:
        ValueError: If a value is not allowed, or one is missing.
    """
    fields = list(fields_lib.fields_of(options_class).values())
    own = flags.FlagValues()
    for field in fields:
        _define(field, field.default, own)
    try:
        own(["", *lines], known_only=True)
    except flags.Error as error:
        raise ValueError(" ".join(str(error).removeprefix("flag ").split())) from error
    return _read(options_class, fields, own)


def parse(arguments: Sequence[str], *, takes_words: bool = False) -> list[str]:
    """Parses a command line; reports each error in a line, with exit code 2.

    Answers --help and --helpfull, with exit code 0.

    Args:
        arguments: The program and its arguments, as in `sys.argv`.
        takes_words: Whether the program takes arguments that are not flags.

    Returns:
        The program and its arguments without flags, for the program's `main`. It is
        the `flags_parser` of `app.run`.
    """
    _accept_all_letters()
    asked = {argument.lstrip("-") for argument in arguments[1:] if argument[:1] == "-"}
    if asked & {"help", "helpshort", "h", "?", "helpfull"}:
        from federated_hh.options import help_page  # needed by no run

        _show(help_page.text(_TOPICS, _FIRST, "helpfull" in asked))
        sys.exit(0)
    rest, error = _parsed(arguments)
    if not error and (takes_words or len(rest) < 2):
        return rest
    if not error:
        error = f"arguments are --flags; what is {rest[1]!r}?"
    # All errors are reported at once; a flagfile's error is reported alone.
    found = [single for each in _apart(arguments) if (single := _parsed(each)[1])]
    _end(found or [error])


def _accept_all_letters() -> None:
    """Lets a terminal without a letter show its number, in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end(told: Iterable[str]) -> NoReturn:
    """Prints each error in a line, and ends the program."""
    for line in dict.fromkeys(told):
        print(f"error: {line}", file=sys.stderr)
    sys.exit(2)


def _show(text: str) -> None:
    """Prints a text that a reader such as `head` may read only in part."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise Python tries again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _apart(arguments: Sequence[str]) -> list[list[str]]:
    """Splits a command line into command lines of one flag each."""
    given: list[list[str]] = []
    for argument in arguments[1:]:
        if argument.startswith("-") or not given:
            given.append([arguments[0]])
        given[-1].append(argument)
    return given


def _parsed(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Parses a command line; returns arguments that are not flags, and the fault."""
    for given, after in itertools.pairwise([*arguments, ""]):
        name, is_joined, value = given.lstrip("-").partition("=")
        path = pathlib.Path(value if is_joined else after)
        # It would be waited for, or read without an end.
        if name == "flagfile" and path.exists() and not path.is_file():
            return [], f"--flagfile={path} has to be a file, not a pipe or directory"
    try:
        return flags.FLAGS(list(arguments)), ""
    except flags.Error as error:
        message = str(error).removeprefix("flag ")
    except UnicodeError as error:
        message = f"--flagfile: has to be text in UTF-8 ({error})"
    except ValueError as error:  # as of --noresume=1
        message = str(error)
    for kind, wanted in _KINDS.items():
        message = re.sub(f"{kind}.*", f"has to be {wanted}", message)
    return [], " ".join(message.split())


class _OptionParser(flags.ArgumentParser):
    """Parses an option's flag; as a text, unless a subclass converts it."""

    def __init__(self, field: fields_lib.OptionField):
        super().__init__()
        self._field = field
        self.syntactic_help = field.range

    def convert(self, argument):
        """Returns a text's value."""
        return argument

    def parse(self, argument):
        """See base class."""
        return self._field.accept(self.convert(argument))


class _IntParser(_OptionParser, flags.IntegerParser):
    """Parses an integer that is an option, such as 5000000 or 5e6."""

    def convert(self, argument):
        """See base class."""
        try:
            number = float(argument)
        except (TypeError, ValueError, OverflowError):
            return flags.IntegerParser.convert(self, argument)
        # Floats hold no larger integers exactly.
        is_whole = number.is_integer() and abs(number) <= 2**53
        if isinstance(argument, str) and "e" in argument.lower() and is_whole:
            return int(number)
        return flags.IntegerParser.convert(self, argument)


class _FloatParser(_OptionParser, flags.FloatParser):
    """Parses a number that is an option."""

    convert = flags.FloatParser.convert


_PARSERS = {int: _IntParser, float: _FloatParser, str: _OptionParser}


def _read(
    options_class: type[Options],
    fields: Collection[fields_lib.OptionField],
    values_of: flags.FlagValues,
) -> Options:
    values, missing = {}, []
    for field in fields:
        value = values_of[field.flag].value
        # A flag's None is the absence of a default.
        if value is None and not field.is_optional:
            missing.append(ValueError(f"give --{field.flag}: {field.help}"))
        values[field.name] = value
    fields_lib.raise_all(missing)
    return options_class(**values)


def _define(
    field: fields_lib.OptionField, default: Any, into: flags.FlagValues
) -> None:
    default = None if default is fields_lib.REQUIRED else default
    name = field.flag
    if field.kind in _PARSERS and not field.choices:
        parser = _PARSERS[field.kind](field)
        serializer = flags.ArgumentSerializer()
        flags.DEFINE(parser, name, default, field.help, into, serializer)
    elif field.kind is tuple:
        flags.DEFINE_list(name, list(default), field.help, flag_values=into)
    elif field.kind is bool:
        flags.DEFINE_bool(name, default, field.help, flag_values=into)
    elif field.choices:
        value = getattr(default, "value", default)
        flags.DEFINE_enum(name, value, field.choices, field.help, flag_values=into)
    else:
        raise TypeError(
            f"--{name} is of type {field.kind}, for which no kind of flag exists"
        )
