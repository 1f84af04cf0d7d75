"""Flags made of the options of a dataclass: see `options.fields`."""

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from absl import flags

from options import fields as fields_lib

# So that flags belong to the module that asks for them.
flags.disclaim_key_flags()

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


def define(
    options_class: type[Options],
    *,
    only: Collection[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> OptionFlags[Options]:
    """Registers a flag for each option of a dataclass, for the module that calls.

    A number out of its range is refused as the command line is parsed.

    Args:
        options_class: A dataclass of options.
        only: Names of the fields that get a flag; None for all. The others keep their
            defaults.
        defaults: Other defaults of this program, by the fields' names.
    """
    fields = fields_lib.fields_of(options_class)
    names = fields if only is None else only
    return OptionFlags(options_class, [fields[n] for n in names], defaults or {})


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


def parse(arguments: Sequence[str]) -> list[str]:
    """Parses a command line, with its errors as one line and exit code 2.

    Args:
        arguments: The program and its arguments, as in `sys.argv`.

    Returns:
        The program and what is left beside flags, for the program's `main`. It is what
        `app.run` takes as its `flags_parser`.
    """
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        message = str(error).removeprefix("flag ")
    except UnicodeError as error:
        message = f"--flagfile: has to be text in UTF-8 ({error})"
    except ValueError as error:  # as of --noresume=1
        message = str(error)
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


class _IntParser(flags.IntegerParser):
    """Parses an integer that is an option."""

    def __init__(self, field: fields_lib.OptionField):
        super().__init__()
        self._field = field
        self.syntactic_help = field.range

    def parse(self, argument):
        """See base class."""
        return self._field.accept(self.convert(argument))


class _FloatParser(flags.FloatParser):
    """Parses a number that is an option."""

    def __init__(self, field: fields_lib.OptionField):
        super().__init__()
        self._field = field
        self.syntactic_help = field.range

    def parse(self, argument):
        """See base class."""
        return self._field.accept(self.convert(argument))


_PARSERS = {int: _IntParser, float: _FloatParser}


def _read(
    options_class: type[Options],
    fields: Collection[fields_lib.OptionField],
    values_of: flags.FlagValues,
) -> Options:
    values = {}
    for field in fields:
        value = values_of[field.flag].value
        # A flag's None is the absence of a default.
        if value is None and not field.is_optional:
            raise ValueError(f"give --{field.flag}: {field.help}")
        values[field.name] = value
    return options_class(**values)


def _define(
    field: fields_lib.OptionField, default: Any, into: flags.FlagValues
) -> None:
    default = None if default is fields_lib.REQUIRED else default
    name = field.flag
    if field.kind in _PARSERS:
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
        flags.DEFINE_string(name, default, field.help, flag_values=into)
