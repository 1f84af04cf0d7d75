"""A central training's model, sentences and held-out clients, from its options."""

import dataclasses
import functools
import pathlib
from typing import Any

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.populations.synthetic import synthetic_sentences
from federated_hh.randomness import identities
from training.baselines import baselines, ngram_files, ngrams
from training.central import central_training
from training.central import options as pretrain_options
from training.federated import (
    held_out,
    initial_model,
    model_average,
    preparation,
    shared_text,
)
from training.models import model
from training.text import examples, text_record, windows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A central training before its first step.

    Attributes:
        text: All clients' sentences.
        vocabulary: Its vocabulary.
        clients: Training and held-out clients.
        network: The model.
        beginning: The weights to begin with, and what is public about them.
        limits: Limits on a client's text.
        before: Training text of the initial model; None where there is
            no such model, or it has no record.
        first_text: The text that the first model and this training share.
        num_sentences: Number of training sentences.
        num_steps: The number of steps of the training.
        algorithm: The training.
    """

    text: client_text.ClientText
    vocabulary: vocabulary_lib.Vocabulary
    clients: held_out.Clients
    network: model.LanguageModel
    beginning: initial_model.Beginning
    limits: examples.ClientLimits
    before: text_record.TextRecord | None
    first_text: shared_text.Finding
    num_sentences: int
    num_steps: int
    algorithm: central_training.CentralTraining

    @functools.cached_property
    def _held_out_text(self) -> windows.Windows:
        return windows.of_clients(
            self.text, self.clients.held_out, self.limits, self.network.num_tokens
        )

    @functools.cached_property
    def _ngrams(self) -> dict[str, ngrams.Model]:
        return baselines.ngrams_of(
            self.text, self.clients, self.limits, self.network.num_tokens
        )

    def baselines(
        self, language: synthetic_sentences.SyntheticLanguage | None
    ) -> list[baselines.Baseline]:
        """Returns the scores of n-grams of the same text, and the best possible.

        Args:
            language: See `baselines.of_language`.
        """
        made_of = f"counted on the {len(self.clients.training):,} training clients"
        counted = baselines.of_ngrams(self._ngrams, self._held_out_text, made_of)
        return counted + baselines.of_language(
            language, self.vocabulary, self._held_out_text, self.limits.max_words
        )

    def evaluation(self, every: int) -> central_training.Evaluation:
        """Returns the observer that evaluates the model.

        Args:
            every: Steps between evaluations.
        """
        length = self.limits.max_words + 1
        return central_training.Evaluation(
            self.network, self._held_out_text, length, every
        )

    def record(self, source: str) -> text_record.TextRecord:
        """Returns the record of the model's text, and of the first model's.

        Args:
            source: The user's name of the text.
        """
        record = text_record.TextRecord.of(
            self.text, self.clients.training, self.limits.max_sentences, source
        )
        return record.after(self.before) if self.beginning.is_of_model else record

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that a resumed run shares with its start, besides flags."""
        return {**self.beginning.facts, **self.first_text.facts}

    def write_text(
        self,
        record: text_record.TextRecord,
        weights: initial_model.Weights,
        path: pathlib.Path,
    ) -> None:
        """Writes a record of the text, for private training, next to the model.

        Args:
            record: The record of the text.
            weights: The weights of the model, as trained.
            path: The exported model.
        """
        record.write(path, initial_model.fingerprint(weights))
        ngram_files.write(self._ngrams, self.vocabulary, path)


def prepare(
    options: pretrain_options.PretrainOptions,
    vocabulary: vocabulary_lib.Vocabulary,
    text: client_text.ClientText,
    seed: int,
    network: model.LanguageModel | None = None,
) -> Prepared:
    """Prepares a central training.

    Args:
        options: Options of the model, the steps, and the held-out clients.
        vocabulary: The text's vocabulary.
        text: The text of all clients.
        seed: Seed of the held-out clients, the first weights, and the order of
            sentences.
        network: The model from `preparation.network_of`, if it exists already.

    Raises:
        ValueError: If there are too few clients, or the initial model does not fit.
    """
    network = network or preparation.network_of(options, vocabulary.num_tokens, seed)
    limits = examples.ClientLimits(
        options.max_sentences, options.max_words, options.batch_size
    )
    clients = held_out.Clients.of(text, options.num_held_out_clients, seed)
    beginning = initial_model.beginning(
        network.initial_weights(seed),
        vocabulary,
        options.initial_model,
        has_public_bias=options.initial_bias == "public",
    )
    sentences = central_training.Sentences(text, clients.training, limits, seed)
    num_steps = options.steps_of(len(sentences))
    return Prepared(
        text=text,
        vocabulary=vocabulary,
        clients=clients,
        network=network,
        beginning=beginning,
        limits=limits,
        before=_text_before(options.initial_model, beginning),
        # Shared text is allowed here, because training clients have no guarantee.
        first_text=shared_text.examine(
            options.initial_model,
            text,
            weights=initial_model.fingerprint(beginning.weights),
            is_synthetic=False,
            is_allowed=True,
        ),
        num_sentences=len(sentences),
        num_steps=num_steps,
        algorithm=central_training.CentralTraining(
            network,
            sentences,
            beginning.weights,
            identity={
                "population": text.fingerprint,
                "limits": identities.settings(limits),
                "num_held_out_clients": len(clients.held_out),
                "num_units": options.num_units,
                **({} if options.model is None else {"model": options.model}),
            },
            num_clients=len(clients.training),
            num_steps=num_steps,
            steps_per_round=options.checkpoint_every,
            learning_rate=options.learning_rate,
            average=model_average.ModelAverage.of(options.model_average),
        ),
    )


def _text_before(
    path: str | None, beginning: initial_model.Beginning
) -> text_record.TextRecord | None:
    """Returns the record of the model at a path; None if either is missing."""
    if path is None:
        return None
    weights = initial_model.fingerprint(beginning.weights)
    return text_record.TextRecord.read(path, weights)
