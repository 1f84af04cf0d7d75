"""A training run's model, clients and computation, from its options."""

import dataclasses
from typing import Any

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import model_updates
from federated_hh.rounds import masked_sums
from federated_hh.runtime import compiled
from training.federated import (
    client_update,
    dp_ftrl,
    held_out,
    initial_model,
    model_average,
    server_optimizers,
)
from training.federated import options as training_options
from training.models import model, model_options
from training.text import examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A training run before its first round.

    Attributes:
        clients: Training and held-out clients.
        network: The model.
        beginning: The weights to begin with, and what is public about them.
        limits: Limits on a client's text.
        rounds: The clients' side.
    """

    clients: held_out.Clients
    network: model.LanguageModel
    beginning: initial_model.Beginning
    limits: examples.ClientLimits
    rounds: client_update.FederatedRounds

    def algorithm(
        self,
        plan: plan_lib.Plan[Any, Any, model_updates.UpdateMechanism],
        optimizer: server_optimizers.ServerOptimizer,
        average: model_average.ModelAverage | None = None,
    ) -> dp_ftrl.DpFtrl:
        """Returns the algorithm; see `dp_ftrl.DpFtrl`.

        Args:
            plan: For as many clients as train.
            optimizer: The server's optimizer.
            average: The average of the rounds' models; None for the last one.
        """
        return dp_ftrl.DpFtrl(
            self.rounds,
            plan,
            self.beginning.weights,
            clients=self.clients.training,
            optimizer=optimizer,
            average=average,
        )


def network_of(
    options: model_options.ModelOptions, num_tokens: int, seed: int
) -> model.LanguageModel:
    """Returns the model of a run: the CIFG-LSTM, or a custom one.

    Args:
        options: The options of the model.
        num_tokens: Size of the vocabulary with its special tokens.
        seed: The seed of the first weights of a custom model.

    Raises:
        ValueError: See `custom_model.language_model`; or if the gradient of
            `--precision` is not the one that XLA compiles.
    """
    if options.precision != model.FLOAT32 and compiled.is_on():
        raise ValueError(
            f"--precision={options.precision} cannot be combined with --xla, which "
            "compiles TensorFlow's gradient; leave one of them out"
        )
    return options.custom_network(num_tokens, seed) or model.cifg_language_model(
        num_tokens,
        num_units=options.num_units,
        projection_size=options.embedding_size,
        embedding_size=options.embedding_size,
        tied=options.tied_embeddings,
        precision=options.precision,
    )


def prepare(
    options: training_options.TrainingOptions,
    vocabulary: vocabulary_lib.Vocabulary,
    text: client_text.ClientText,
    seed: int,
    network: model.LanguageModel | None = None,
    masking: masked_sums.MaskedSums | None = None,
) -> Prepared:
    """Prepares a training run.

    Args:
        options: Options of the model, the clients' work, and the held-out clients.
        vocabulary: The text's vocabulary.
        text: The text of all clients.
        seed: Seed of the held-out clients and the first weights.
        network: The model from `network_of`, if it exists already.
        masking: Masks of updates; None for sums in the clear.

    Raises:
        ValueError: If there are too few clients, or the initial model does not fit.
    """
    network = network or network_of(options, vocabulary.num_tokens, seed)
    limits = examples.ClientLimits(
        options.max_sentences, options.max_words, options.batch_size
    )
    return Prepared(
        clients=held_out.Clients.of(text, options.num_held_out_clients, seed),
        network=network,
        beginning=initial_model.beginning(
            network.initial_weights(seed),
            vocabulary,
            options.initial_model,
            has_public_bias=options.initial_bias == "public",
        ),
        limits=limits,
        rounds=client_update.FederatedRounds(
            network,
            examples.MappedText(text, limits),
            client_update.LocalTraining(
                options.client_learning_rate, options.client_epochs
            ),
            options.num_blocks,
            masking,
        ),
    )
