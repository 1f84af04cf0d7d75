"""What a trained model stands beside in every report, judged at the same places.

None of it has a guarantee: n-grams are counted without noise, and other models have
whatever their own training gave them.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from simulation import client_text, population_options, sentence_tokenizers
from simulation import vocabulary as vocabulary_lib
from simulation.readers import synthetic_sentences
from training import (
    best_possible,
    evaluation,
    examples,
    held_out,
    metric_names,
    ngrams,
    windows,
)

# In the simulator's part of a run directory.
FILE = "baselines.csv"
# Every tenth client is told by the counts of the others.
_HELD_BACK_OF = 10


@dataclasses.dataclass(frozen=True)
class Baseline:
    """What is known of something that a model is compared with.

    Attributes:
        name: In tables and plots.
        made_of: Whose text it is made of, and how.
        metrics: See `evaluation.metrics_of_sums`.
    """

    name: str
    made_of: str
    metrics: Mapping[str, float]

    def __str__(self) -> str:
        """Returns a line for the log."""
        text = metric_names.text(self.metrics)
        # What a law gives is no count of the places that happen to be judged.
        is_law = self.name == metric_names.BEST_POSSIBLE
        where = "By the law of the language" if is_law else "On the same places"
        return f"{where}, {self.name}: {text}."


def ngrams_of(
    text: client_text.ClientText,
    clients: held_out.Clients,
    limits: examples.ClientLimits,
    num_tokens: int,
) -> dict[str, ngrams.Model]:
    """Returns the n-grams of the training clients' text, by name.

    Args:
        text: All clients' sentences.
        clients: Who trains.
        limits: How much of a client's text is used.
        num_tokens: Size of the vocabulary with its special tokens.
    """
    training, held_back = (
        windows.of_clients(text, some, limits, num_tokens)
        for some in (
            clients.training,
            clients.training[_HELD_BACK_OF - 1 :: _HELD_BACK_OF],
        )
    )
    models = ngrams.interpolated(training, held_back)
    return dict(zip(metric_names.NGRAMS, models, strict=True))


def of_ngrams(
    models: Mapping[str, ngrams.Model],
    judges: windows.Windows,
    made_of: str,
    source: str = "",
) -> list[Baseline]:
    """Returns what n-grams reach.

    Args:
        models: By name.
        judges: The places of the clients who judge.
        made_of: Whose text was counted.
        source: Goes into the names, where it is not the training clients' text.
    """
    return [
        Baseline(f"{name}{source}", made_of, ngrams.metrics(model, judges))
        for name, model in models.items()
    ]


def counted(
    text: client_text.ClientText,
    clients: held_out.Clients,
    limits: examples.ClientLimits,
    num_tokens: int,
) -> list[Baseline]:
    """Returns what n-grams of the training clients' text reach on the others.

    Args:
        text: All clients' sentences.
        clients: Who trains and who judges.
        limits: How much of a client's text is used.
        num_tokens: Size of the vocabulary with its special tokens.
    """
    models = ngrams_of(text, clients, limits, num_tokens)
    judges = windows.of_clients(text, clients.held_out, limits, num_tokens)
    made_of = f"counted on the {len(clients.training):,} training clients, no noise"
    return of_ngrams(models, judges, made_of)


def of_language(
    population: population_options.PopulationOptions,
    language: population_options.LanguageOptions,
    vocabulary: vocabulary_lib.Vocabulary,
    max_words: int,
) -> list[Baseline]:
    """Returns what no model can beat, where the law of the text is known.

    Args:
        population: The population of the clients.
        language: What they write, if they are synthetic.
        vocabulary: Gives words their token ids.
        max_words: The first words of a sentence that are used.
    """
    if not population.is_synthetic:
        return []
    tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
    law = synthetic_sentences.SyntheticLanguage.english(
        language, population.seed, tokenizer
    )
    return [of_law(best_possible.best_possible(law, vocabulary, max_words))]


def of_law(best: best_possible.BestPossible) -> Baseline:
    """Returns what no model can beat."""
    made_of = "computed from the law of the language"
    if not best.is_reached:
        made_of += "; a bound, as words outside the vocabulary have followers"
    return Baseline(metric_names.BEST_POSSIBLE, made_of, best.metrics)


def table(baselines: Sequence[Baseline]) -> pd.DataFrame:
    """Returns a row a baseline, as `baselines.csv` has them."""
    rows = [
        {"baseline": b.name, "made_of": b.made_of}
        | {name: b.metrics[name] for name in evaluation.METRICS}
        for b in baselines
    ]
    return pd.DataFrame(rows)
