"""Options of a fit of a population; `fit_population` has the flags."""

import dataclasses

from federated_hh.options.fields import check, option

WORD_LISTS = ("english", "own", "own_counts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of a fit of a population.

    Raises:
        OptionError: If an option is not allowed.
    """

    max_clients_fitted: int = option(
        50_000,
        "Clients that are looked at: so many of those with words, drawn at random, or "
        "all if there are no more.",
        least=2,
        most=2**31 - 1,
    )
    num_simulations: int = option(
        8,
        "Populations drawn from the fitted law in each step of the fit. Their errors "
        "widen its standard errors by a factor of sqrt(1 + 1 / num_simulations).",
        least=1,
        most=1000,
    )
    word_list: str = option(
        "english",
        "Words that the flagfile's population types. 'english': those of the English "
        "list that pass the filters. 'own': those of the data, the most frequent "
        "first, and then the English ones. Both have the masses of the fitted common "
        "law. 'own_counts': those of the data, with their frequencies there.",
        choices=WORD_LISTS,
    )

    words_law: str = option(
        "own",
        "Number of words that the flagfile's clients type. 'own': that of a random "
        "client of the data. 'log_normal': by the log-normal law with their mean and "
        "the standard deviation of their logarithm.",
        choices=("own", "log_normal"),
    )

    def __post_init__(self):
        check(self)
