r"""Command line of the privacy accounting.

Examples: one for each mechanism, what runs cost together, all numbers of the papers.

  scripts/run privacy.run_accounting --mechanism=dp_ftrl --noise_multiplier=7 \
      --num_rounds=930 --min_separation=212 --max_participation=4 --delta=1e-10
  scripts/run privacy.run_accounting --mechanism=blt --noise_multiplier=4 \
      --num_rounds=930 --min_separation=212 --max_participation=4 --delta=1e-10
  scripts/run privacy.run_accounting --mechanism=tree_against_blt --delta=1e-10 \
      --noise_multiplier=7 --num_rounds=930 --min_separation=212 --max_participation=4
  scripts/run privacy.run_accounting --mechanism=tree_against_blt --table=xu_2023 \
      --delta=1e-10
  scripts/run privacy.run_accounting --mechanism=shuffle --delta=1e-10 \
      --randomizer=subset_selection --local_epsilon=10 --domain_size=1000001 \
      --num_reports=30000000
  scripts/run privacy.run_accounting --mechanism=triehh --population=100000 \
      --epsilon=2 --delta=1e-10 --max_length=10
  scripts/run privacy.run_accounting --mechanism=triehh --population=100000 \
      --epsilon=2 --delta=1e-10 --max_length=10 --detectable --plot=found.png
  scripts/run privacy.run_accounting --mechanism=ldp_triehh --detectable \
      --population=4727 --local_epsilon=10 --max_depth=12 --kept_prefixes=300
  scripts/run privacy.run_accounting --mechanism=k_anonymity --local_epsilon=10 \
      --alphabet_size=100 --kept_prefixes=10000 --num_reports=30000000 --alpha=0.95
  scripts/run privacy.run_accounting --mechanism=cohort_size --epsilon=1 \
      --randomizer=asymmetric_one_hot --local_epsilon=3 --delta=1e-6
  scripts/run privacy.run_accounting --compose=runs/words,runs/model --delta=1e-6
  scripts/run privacy.run_accounting --paper_tables

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

from privacy import accounting_answers, correlated_answers, triehh_answers

_MECHANISM = flags.DEFINE_enum(
    "mechanism", None, list(accounting_answers.ANSWERS), "What to account for."
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
_FORMAT = flags.DEFINE_enum("format", "text", ["text", "json", "csv"], "Of the output.")

# The default None tells a flag that is not set, so that a mechanism can insist.
flags.DEFINE_float("noise_multiplier", None, "z, the noise's deviation over the clip.")
flags.DEFINE_integer("num_rounds", None, "T, rounds of training.")
flags.DEFINE_integer(
    "max_participation",
    None,
    "MaxP, rounds a device takes part in at most; what MinS allows if not set.",
)
flags.DEFINE_integer(
    "min_separation", None, "MinS, rounds strictly between two of a device."
)
flags.DEFINE_integer(
    "restart_first", None, "First round after which the noise starts anew."
)
flags.DEFINE_integer("restart_period", None, "Rounds between restarts.")
flags.DEFINE_integer("buffers", None, "d, vectors that BLT remembers; 2 if not set.")
flags.DEFINE_string(
    "forgotten", None, "Of a given BLT: what each buffer loses a round, with commas."
)
flags.DEFINE_string("weights", None, "Of a given BLT: of each buffer, with commas.")
flags.DEFINE_enum(
    "table",
    None,
    correlated_answers.TABLES,
    "Compare tree and BLT for all runs of a paper.",
)
flags.DEFINE_float(
    "count_stddev", None, "sigma_b, noise on the count of unclipped devices, if any."
)
flags.DEFINE_integer("group_size", None, "Devices of a user, for a user's guarantee.")
flags.DEFINE_float("delta", None, "Delta, between 0 and 1.")
flags.DEFINE_float("epsilon", None, "Wanted central epsilon.")
flags.DEFINE_enum(
    "randomizer", None, accounting_answers.RANDOMIZERS, "Local randomizer of a report."
)
flags.DEFINE_float(
    "local_epsilon",
    None,
    "Local epsilon of a report (of symmetric_one_hot: for deletion).",
)
flags.DEFINE_integer("num_reports", None, "Reports that are shuffled or summed.")
flags.DEFINE_integer(
    "domain_size", None, "Items of a report, the 'no item' symbol included."
)
flags.DEFINE_float("honest_fraction", None, "Share of honest reports; 1 if not set.")
flags.DEFINE_integer("population", None, "n, users of a TrieHH run.")
flags.DEFINE_integer(
    "max_length", None, "L, symbols of the longest word, its end included."
)
flags.DEFINE_integer("threshold", None, "theta, for the guarantee of given parameters.")
flags.DEFINE_integer("cohort_size", None, "m, for the guarantee of given parameters.")
flags.DEFINE_enum(
    "parameters",
    None,
    triehh_answers.PARAMETERS,
    "How threshold and cohort size are found for --epsilon: those that find the rarest "
    "words (tight, if not set), or those of Zhu et al. 2020 (corollary1).",
)
flags.DEFINE_float(
    "discovery_rate", None, "How surely a word is to be found; 0.9 if not set."
)
flags.DEFINE_bool(
    "redraws_each_round", None, "Whether users draw a new word in every round."
)
flags.DEFINE_integer("alphabet_size", None, "|X|, symbols of LDP TrieHH.")
flags.DEFINE_integer("kept_prefixes", None, "eta_max, prefixes that a level keeps.")
flags.DEFINE_bool(
    "detectable",
    None,
    "Print how frequent a word has to be for TrieHH or LDP TrieHH to find it.",
)
flags.DEFINE_string(
    "plot", None, "With --detectable: write a plot over n to this file (.png, .pdf)."
)
flags.DEFINE_integer(
    "word_length",
    None,
    "With --detectable: characters of the word; 6, and the longest, if not set.",
)
flags.DEFINE_integer(
    "contribution_bound", None, "B, reports of a client; 60 if not set."
)
flags.DEFINE_integer("max_depth", None, "D, levels of LDP TrieHH; 15 if not set.")
flags.DEFINE_integer("num_passes", None, "Passes of LDP TrieHH; 1 if not set.")
flags.DEFINE_float(
    "min_standard_errors",
    None,
    "Standard errors that a released word's estimate has at least; 3 if not set.",
)
flags.DEFINE_float(
    "reported_share",
    None,
    "How likely a client that holds a word reports on it; 1 if not set.",
)
flags.DEFINE_integer(
    "competing_prefixes",
    None,
    "Prefixes that have more votes than the word at every level; 0 if not set.",
)
flags.DEFINE_float("alpha", None, "alpha of approximate k-anonymity, such as 0.95.")


def main(argv: Sequence[str]):
    """Answers the question that the flags ask, on standard output."""
    try:
        if len(argv) > 1:
            raise ValueError(f"unexpected argument {argv[1]!r}: all options are flags")
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
    values = {
        name: flags.FLAGS[name].value
        for name in accounting_answers.ARGUMENTS
        if flags.FLAGS[name].value is not None
    }
    if _PAPER_TABLES.value:
        if _MECHANISM.value is not None or _COMPOSE.value is not None or values:
            raise ValueError("--paper_tables takes no other flag but --format")
        from privacy import paper_tables

        return [dataclasses.asdict(row) for row in paper_tables.all_rows()]
    answers, mechanism = accounting_answers.ANSWERS, _MECHANISM.value
    if _COMPOSE.value is not None:
        from privacy import run_totals

        if mechanism is not None or set(values) != {"delta"}:
            raise ValueError("--compose takes --delta, and no other flag but --format")
        return run_totals.compose(_COMPOSE.value, values["delta"])
    if mechanism is None:
        raise ValueError(
            f"say --mechanism= one of {', '.join(answers)}, --compose or --paper_tables"
        )
    return accounting_answers.call(answers[mechanism], mechanism, values)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _fail(error: Exception | str) -> NoReturn:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def _parse_flags(arguments: Sequence[str]) -> list[str]:
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        _fail(error)


if __name__ == "__main__":
    app.run(main, flags_parser=_parse_flags)
