"""Baselines of a trained model in every report, evaluated at the same positions.

Baselines have no guarantee here: n-grams are counted without noise, and other models
have only their own training's guarantee.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import synthetic_sentences
from training.baselines import best_possible, kneser_ney, language_law, ngrams
from training.federated import held_out
from training.models import evaluation, metric_names
from training.text import examples, windows

# In the simulator's part of a run directory.
FILE = "baselines.csv"
# Every tenth client is predicted by the counts of the others.
_HELD_BACK_OF = 10


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A baseline that a model is compared with.

    Attributes:
        name: Its name in tables and plots.
        made_of: Its text and construction, in words.
        metrics: See `evaluation.metrics_of_sums`.
        is_expected: Whether these are expectations instead of counts at the evaluated
            positions.
    """

    name: str
    made_of: str
    metrics: Mapping[str, float]
    is_expected: bool = False

    def __str__(self) -> str:
        """Returns a line for the log."""
        text = metric_names.text(self.metrics)
        expected = " (expected)" if self.is_expected else ""
        return f"Baseline, {self.name}{expected}: {text}."


def ngrams_of(
    text: client_text.ClientText,
    clients: held_out.Clients,
    limits: examples.ClientLimits,
    num_tokens: int,
) -> dict[str, ngrams.Model]:
    """Returns the n-grams of the training clients' text, by name.

    Of simulated clients, they count the text of the people who train, each sentence
    once: it would be on both sides of the tenth of clients that weighs the n-grams.

    Args:
        text: All clients' sentences.
        clients: The training clients.
        limits: Limits on a client's text.
        num_tokens: Size of the vocabulary with its special tokens.
    """
    people = text.people_of(clients.training)
    if text.people is not text:
        limits = dataclasses.replace(limits, max_sentences=text.num_sentences)
    training, held_back = (
        windows.of_clients(text.people, some, limits, num_tokens)
        for some in (people, people[_HELD_BACK_OF - 1 :: _HELD_BACK_OF])
    )
    return kneser_ney.by_name(ngrams.interpolated(training, held_back))


def of_ngrams(
    models: Mapping[str, ngrams.Model],
    held_out_text: windows.Windows,
    made_of: str,
    source: str = "",
) -> list[Baseline]:
    """Returns the scores of n-grams.

    Args:
        models: Models by name.
        held_out_text: The positions of the held-out clients.
        made_of: The counted text, in words.
        source: Goes into the names, where it is not the training clients' text.
    """
    return [
        Baseline(f"{name}{source}", made_of, ngrams.metrics(model, held_out_text))
        for name, model in models.items()
    ]


def counted(
    text: client_text.ClientText,
    clients: held_out.Clients,
    limits: examples.ClientLimits,
    num_tokens: int,
) -> list[Baseline]:
    """Returns the held-out scores of n-grams of the training clients' text.

    Args:
        text: All clients' sentences.
        clients: Training and held-out clients.
        limits: Limits on a client's text.
        num_tokens: Size of the vocabulary with its special tokens.
    """
    models = ngrams_of(text, clients, limits, num_tokens)
    held_out_text = windows.of_clients(text, clients.held_out, limits, num_tokens)
    people = len(text.people_of(clients.training))
    who = "training clients" if text.people is text else "people who train, all text"
    made_of = f"counted on the {people:,} {who}, no noise"
    return of_ngrams(models, held_out_text, made_of)


def language_of(
    population: population_options.PopulationOptions,
    language: population_options.LanguageOptions,
) -> synthetic_sentences.SyntheticLanguage | None:
    """Returns the language of a population's text; None if its law is unknown.

    Args:
        population: The population of the clients.
        language: The language of synthetic clients.
    """
    if not population.is_synthetic:
        return None
    tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard", population)
    return synthetic_sentences.SyntheticLanguage.of_words(
        language, population.seed, tokenizer, population.language
    )


def of_language(
    language: synthetic_sentences.SyntheticLanguage | None,
    vocabulary: vocabulary_lib.Vocabulary,
    held_out_text: windows.Windows,
    max_words: int,
) -> list[Baseline]:
    """Returns the best possible scores, if the law of the text is known.

    Args:
        language: Language, from `language_of`.
        vocabulary: Gives words their token ids.
        held_out_text: The positions of the held-out clients.
        max_words: The first words of a sentence that are used.
    """
    if language is None:
        return []
    name = metric_names.BEST_POSSIBLE
    expected = best_possible.best_possible(language, vocabulary, max_words)
    law = language_law.LanguageLaw.of(language, vocabulary)
    if law is None:
        made_of = (
            "computed from the law of the language; a bound, as words outside the "
            "vocabulary have followers"
        )
        return [Baseline(name, made_of, expected, is_expected=True)]
    made_of = (
        "the law of the language, which on average, over all its sentences, has a loss "
        f"of {expected['loss']:.4f}, its entropy"
    )
    at_places = best_possible.at_places(law, held_out_text, max_words)
    return [Baseline(name, made_of, at_places)]


def table(baselines: Sequence[Baseline]) -> pd.DataFrame:
    """Returns a row a baseline, as `baselines.csv` has them."""
    rows = [
        {"baseline": b.name, "made_of": b.made_of}
        | {name: b.metrics[name] for name in evaluation.METRICS}
        for b in baselines
    ]
    return pd.DataFrame(rows)
