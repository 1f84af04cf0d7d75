"""The options of a set union; `federated_hh.run_set_union` has the flags."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from federated_hh.heavy_hitters.triehh.options import TrieHHOptions
from federated_hh.options.fields import OptionError, check, option, option_of
from federated_hh.privacy import rounding

if TYPE_CHECKING:  # imports NumPy
    from federated_hh.privacy.sets import weighted_gaussian

# With which a word is to be found.
_PROBABILITIES = (0.5, 0.9)
_AS_GIVEN = "as given"
_privacy_option = functools.partial(option, group="Privacy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetUnionOptions:
    """The options of a set union: a guarantee, and how its budget is used.

    Raises:
        OptionError: If an option is not allowed.
    """

    epsilon: float = _privacy_option(
        1.0,
        "Epsilon of a run: with --delta it gives the noise and the threshold.",
        above=0,
        most=50,
        why="a larger one is no protection, and not proved of integer noise",
    )
    delta: str = option_of(TrieHHOptions, "delta")
    contribution_bound: int = _privacy_option(
        100,
        "The most words that a client sends in a pass. Of more it draws this many at "
        "random. Each of its t words has the weight 1/sqrt(t).",
        least=1,
        most=100_000,
        why="a client that sends more makes every threshold higher",
    )
    num_passes: int = _privacy_option(
        1,
        "Number of passes over all clients. In a later one they leave out the words "
        "that earlier ones released, and other words get their weight.",
        least=1,
        most=100,
        why="each has a part of the privacy budget",
    )
    pass_growth: float = _privacy_option(
        3.0,
        "Each pass's share of the budget (of zCDP), over that of the pass before.",
        least=0.01,
        most=100,
        why="else a pass would have next to no budget",
    )
    weights: str = _privacy_option(
        "uniform",
        "Weights of a client's words: 'uniform', or 'adaptive', which after each pass "
        "takes weight from words that need none or cannot be found. Noisy sums of all "
        "passes then add up.",
        choices=("uniform", "adaptive"),
    )
    num_repeats: int = option_of(
        TrieHHOptions,
        "num_repeats",
        help="Number of repeats, each with its own draws and noise. The privacy "
        "statement covers one repeat and all together.",
    )
    max_k: int = option_of(TrieHHOptions, "max_k", 10_000)

    def __post_init__(self):
        if isinstance(self.delta, float):
            object.__setattr__(self, "delta", repr(self.delta))
        check(self)
        if self.num_passes == 1 and self.pass_growth != type(self).pass_growth:
            raise OptionError(self, "{pass_growth=} needs {num_passes} above 1")
        if self.weights == "adaptive" and not 2 <= self.num_passes <= 16:
            raise OptionError(
                self, "{weights=} needs from 2 to 16 passes: {num_passes=}"
            )

    def delta_for(self, num_clients: int) -> float:
        """Returns delta for a number of clients, at least 1.

        Raises:
            OptionError: If it is none, as 1/n^2 of one client.
        """
        delta = rounding.delta_of(self.delta, num_clients)
        if delta is None or delta >= 1:
            raise OptionError(
                self,
                f"{{delta=}}: {num_clients:,} clients make it 1 or more; give a number",
            )
        return delta

    def passes_for(self, num_clients: int) -> "weighted_gaussian.WeightedGaussian":
        """Returns the noise and the thresholds of the guarantee.

        Args:
            num_clients: The number of clients of the population, at least 1.

        Raises:
            OptionError: If nothing can be released, or nothing is proved.
        """
        from federated_hh.privacy.sets import adaptive_gaussian, weighted_gaussian

        kind = adaptive_gaussian.kind_of(self.weights)
        delta = self.delta_for(num_clients)
        shares = [self.pass_growth**number for number in range(self.num_passes)]
        try:
            passes = weighted_gaussian.solve(
                self.epsilon, delta, self.contribution_bound, shares, kind
            )
        except ValueError as error:
            shared = ", {num_passes=}, {pass_growth=}" if self.num_passes > 1 else ""
            raise OptionError(
                self, f"{{epsilon=}}, {{delta=}}{shared}: {{why}}", why=error
            ) from None
        needed = passes.holders_needed(0.5, 1)
        if needed > num_clients:
            raise OptionError(
                self,
                "{epsilon=} and {delta=}: nothing can be released. A word needs "
                f"{needed:,} holders, even if they have no other word, and the "
                f"population has {num_clients:,} clients; give a larger {{epsilon}} or "
                "{delta}, or more clients",
            )
        return passes

    def what_is_found(self, num_clients: int) -> list[dict[str, Any]]:
        """Returns the words that a run can find, and settings that find more.

        Args:
            num_clients: The number of clients of the population.

        Returns:
            A row for each setting, number of words that a holder sends, and
            probability: setting, words_sent, probability, holders, share of clients.
        """
        doubled = dataclasses.replace(self, epsilon=min(2 * self.epsilon, 50.0))
        settings = [
            (_AS_GIVEN, self, num_clients),
            ("10 times the clients", self, 10 * num_clients),
            (f"--epsilon={doubled.epsilon:g}", doubled, num_clients),
        ]
        found = []
        for name, options, clients in settings:
            passes = options.passes_for(clients)
            for words in sorted({1, self.contribution_bound}):
                for probability in _PROBABILITIES:
                    holders = passes.holders_needed(probability, words)
                    is_possible = holders <= clients
                    found.append(
                        {
                            "setting": name,
                            "words_sent": words,
                            "probability": probability,
                            "holders": holders if is_possible else None,
                            "share": holders / clients if is_possible else None,
                        }
                    )
        return found


def sentences(table: Sequence[dict[str, Any]]) -> str:
    """Returns the words that can be found, in a sentence or two.

    Args:
        table: Table, from `what_is_found`.
    """
    most = max(row["words_sent"] for row in table)
    likely = max(_PROBABILITIES)
    parts = []
    for words in sorted({1, most}, reverse=True):
        (row,) = (
            row
            for row in table
            if (row["setting"], row["words_sent"], row["probability"])
            == (_AS_GIVEN, words, likely)
        )
        among = "alone" if words == 1 else f"among {words:,} words each"
        parts.append(
            f"{row['holders']:,} clients send it {among} ({_percent(row['share'])})"
            if row["holders"] is not None
            else f"more than all clients send it {among}"
        )
    return (
        f"A word is found with probability {likely:g} if {', or if '.join(parts)}. "
        "Nobody's words are released unless some client sends them."
    )


def advice(
    table: Sequence[dict[str, Any]], better_passes: int | None, *, is_all: bool
) -> str:
    """Returns the change of settings that would find the most words.

    Args:
        table: Table, from `what_is_found`.
        better_passes: Number of passes that would find more; None if unknown.
        is_all: Whether every word of the clients was found.
    """
    if is_all:
        return "Every word of the clients was found."
    own, *others = (
        row
        for row in table
        if row["probability"] == max(_PROBABILITIES)
        and row["words_sent"] == max(each["words_sent"] for each in table)
    )
    helps = "; ".join(
        f"{_percent(row['share'])} with {row['setting']}"
        for row in others
        if row["share"] is not None
    )
    text = f"Share of the clients that a word needs now: {_percent(own['share'])}"
    text += f"; {helps}." if helps else "."
    if better_passes is None:
        return text
    more = f"--num_passes={better_passes}, at the same epsilon"
    return f"Most helpful change: {more}. {text}"


def _percent(share: float | None) -> str:
    return "more than all" if share is None else f"{100 * share:.3g}%"
