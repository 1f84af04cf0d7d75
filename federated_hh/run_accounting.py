r"""Command line of the privacy accounting.

Examples: one for each mechanism, what runs cost together, all numbers of the papers.

  scripts/run accounting --mechanism=dp_ftrl --noise_multiplier=7 \
      --num_rounds=930 --min_separation=212 --max_participation=4 --delta=1e-10
  scripts/run accounting --mechanism=blt --population=5e6 --cohort_size=6500 \
      --num_rounds=1000 --epsilon=8
  scripts/run accounting --mechanism=blt --population=5e6 --cohort_size=6500 \
      --num_rounds=1000 --epsilon=8 --vary=epsilon,population --plot=noise.png
  scripts/run accounting --mechanism=tree_against_blt --delta=1e-10 \
      --noise_multiplier=7 --num_rounds=930 --min_separation=212 --max_participation=4
  scripts/run accounting --mechanism=tree_against_blt --table=xu_2023 \
      --delta=1e-10
  scripts/run accounting --mechanism=shuffle --delta=1e-10 \
      --randomizer=subset_selection --local_epsilon=10 --domain_size=1000001 \
      --num_reports=30000000
  scripts/run accounting --mechanism=triehh --population=100000 \
      --epsilon=2 --delta=1e-10 --max_length=10
  scripts/run accounting --mechanism=triehh --population=100000 \
      --epsilon=2 --delta=1e-10 --max_length=10 --detectable --plot=found.png
  scripts/run accounting --mechanism=ldp_triehh --detectable \
      --population=4727 --local_epsilon=10 --max_depth=12 --kept_prefixes=300
  scripts/run accounting --mechanism=set_union --population=1000000 --epsilon=1
  scripts/run accounting --mechanism=k_anonymity --local_epsilon=10 \
      --alphabet_size=100 --kept_prefixes=10000 --num_reports=30000000 --alpha=0.95
  scripts/run accounting --mechanism=cohort_size --epsilon=1 \
      --randomizer=asymmetric_one_hot --local_epsilon=3 --delta=1e-6
  scripts/run accounting --compose=runs/words,runs/model --delta=1e-6
  scripts/run accounting --paper_tables

Bad input is answered with one line on standard error and exit status 2.
"""

import csv
import dataclasses
import io
import json
import math
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from absl import app, flags

from federated_hh.options import option_flags
from federated_hh.privacy.accounting import arguments, plots, run_totals, varied
from federated_hh.privacy.accounting.answers import ANSWERS, BESIDE, QUANTITIES

_MECHANISM = flags.DEFINE_enum(
    "mechanism", None, list(ANSWERS), "Mechanism to account for."
)
_PAPER_TABLES = flags.DEFINE_bool(
    "paper_tables", False, "Print every number of the four papers beside ours."
)
_COMPOSE = flags.DEFINE_list(
    "compose",
    None,
    "Run directories, with commas between: print what the runs guarantee together at "
    "--delta, one total for each unit of privacy, or why there is none.",
)
_VARY = flags.DEFINE_list(
    "vary",
    None,
    "One or two flags, as NAME, NAME=LOW:HIGH or NAME=LOW:HIGH:POINTS, with a comma "
    "between, or mechanism for those of training: a table of the answer over them, and "
    "with --plot a drawing.",
)
_FORMAT = flags.DEFINE_enum(
    "format", "text", ["text", "json", "csv"], "Format of the output."
)

_OPTIONS: option_flags.OptionFlags = option_flags.define(
    arguments.options_class(ANSWERS.values())
)
option_flags.first(
    *("mechanism", "population", "cohort_size", "num_rounds", "epsilon", "delta"),
    *("noise_multiplier", "local_epsilon", "vary", "compose"),
)


def main(argv: Sequence[str]):
    """Answers the question that the flags ask, on standard output."""
    del argv
    try:
        rows = _answer()
    except ValueError as error:
        _fail(error)
    except ArithmeticError as error:
        _fail(f"the flags' values, taken together, are too large or small: {error}")
    print(render(rows, _FORMAT.value))


def render(rows: Sequence[dict[str, Any]], form: str) -> str:
    """Renders an answer.

    Args:
        rows: Dictionaries with the same keys in the same order.
        form: "text", "json" or "csv".

    Returns:
        The text, without a line break at the end. JSON has full precision, with
        infinity as the string "inf"; text has 6 significant digits.
    """
    if form == "json":
        plain = [
            {
                key: "inf" if isinstance(value, float) and math.isinf(value) else value
                for key, value in row.items()
            }
            for row in rows
        ]
        return json.dumps(plain, indent=2, allow_nan=False)
    if form == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue().rstrip("\n")
    header = list(rows[0])
    cells = [header, *([_text(row[key]) for key in header] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in cells
    )


def _answer() -> list[dict[str, Any]]:
    # Only what was set is passed on, so that a flag of another mechanism is refused.
    given = dataclasses.asdict(_OPTIONS.read())
    values = {name: value for name, value in given.items() if value is not None}
    if _PAPER_TABLES.value:
        if _MECHANISM.value is not None or _COMPOSE.value is not None or values:
            raise ValueError("--paper_tables takes no other flag but --format")
        from federated_hh.privacy.accounting import paper_tables

        return [dataclasses.asdict(row) for row in paper_tables.all_rows()]
    mechanism = _MECHANISM.value
    if _COMPOSE.value is not None:
        if mechanism is not None or set(values) != {"delta"}:
            raise ValueError("--compose takes --delta, which it needs, and --format")
        return run_totals.compose(_COMPOSE.value, values["delta"])
    if mechanism is None:
        raise ValueError(
            f"give --mechanism ({', '.join(ANSWERS)}), --compose or --paper_tables"
        )
    if _VARY.value is not None:
        path = values.pop("plot", None)
        quantity = QUANTITIES.get(mechanism, "")
        beside = BESIDE.get(mechanism, ()) if path is None else ()
        notes: dict[str, list[str]] = {}
        rows = varied.table(
            *(ANSWERS, mechanism, values, _VARY.value, quantity, notes, beside)
        )
        # On standard error: the table stays one that programs read.
        for basis, labels in notes.items():
            few = labels if len(labels) < 4 else [labels[0], "...", labels[-1]]
            print(f"{'; '.join(few)} ({basis})", file=sys.stderr)
        if path is not None:
            names = {text.partition("=")[0] for text in _VARY.value}
            fixed = [] if "mechanism" in names else [mechanism]
            fixed += [f"{n} {_text(v)}" for n, v in values.items() if n not in names]
            plots.table(path, rows, ", ".join(fixed).replace("_", " "))
        return rows
    return arguments.call(ANSWERS[mechanism], mechanism, values)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _fail(error: Exception | str) -> NoReturn:
    for each in getattr(error, "errors", [error]):
        print(f"error: {' '.join(str(each).split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    app.run(main, flags_parser=option_flags.parse)
