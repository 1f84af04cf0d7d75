"""One client's training in several ways, for `benchmark_training`: what each costs.

The same sentences, the same model, plain SGD from the same weights for each client:
the project's client computation in TFF's worker, the same where TensorFlow finds the
gradient (as it does for a user's own Keras model), and a client as one would write it
in plain TensorFlow, in this process: padded batches, a tape, no clip, no sum. Where
pfl-research is installed, also a round in it, in this process: the same batches and
model in torch, a sum, no clip; an operation on all cores, and on one, which takes less
processor time.
"""

import dataclasses
import functools
import os
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from training import examples, model

_Ways = Generator[tuple[str, Callable[[], object]], None, None]

# Of every client's SGD.
RATE = 0.5
_SEED = 1


@dataclasses.dataclass(frozen=True)
class Workload:
    """What a client has.

    Attributes:
        name: In the table.
        sentences: The sentences of a client.
        words: The words of a sentence: the least and the most, drawn uniformly.
    """

    name: str
    sentences: int
    words: tuple[int, int]


# Of 16 sentences a batch: ten full batches; and some 211 words in one.
WORKLOADS = (
    Workload("10 full batches", 160, (20, 20)),
    Workload("211 words", 16, (6, 20)),
)


def _clients(workload: Workload, num_clients: int, num_tokens: int) -> list:
    import numpy as np

    random = np.random.default_rng(_SEED)
    least, most = workload.words
    return [
        [
            random.integers(4, num_tokens, random.integers(least, most + 1)).tolist()
            for _ in range(workload.sentences)
        ]
        for _ in range(num_clients)
    ]


def padded(
    sentences: Sequence[Sequence[int]], limits: "examples.ClientLimits"
) -> "np.ndarray":
    """Returns sentences with their beginnings and ends, as rows of one length.

    Args:
        sentences: Token ids.
        limits: How many words of a sentence are used.

    Returns:
        int32 [sentences, max_words + 2], padded at the end.
    """
    import numpy as np

    from simulation import vocabulary

    length = limits.max_words + 2
    rows = np.full((len(sentences), length), vocabulary.PAD, np.int32)
    for row, sentence in zip(rows, sentences, strict=True):
        tokens = [vocabulary.BOS, *sentence, vocabulary.EOS][:length]
        row[: len(tokens)] = tokens
    return rows


def plain(
    language_model: "model.LanguageModel",
    weights: Mapping[str, "np.ndarray"],
    clients: Sequence[Sequence[Sequence[int]]],
    limits: "examples.ClientLimits",
) -> Callable[[], list]:
    """Returns what trains clients one after the other, as one would write it.

    Args:
        language_model: The model.
        weights: Its weights, from which every client begins.
        clients: The sentences of each: token ids.
        limits: The batches' size, and how many words of a sentence are used.

    Returns:
        A function that returns the last client's weights: TensorFlow's variables.
    """
    import tensorflow as tf

    length = limits.max_words + 1
    variables = [tf.Variable(weight) for weight in weights.values()]

    @tf.function(input_signature=[tf.TensorSpec([None, length], tf.int32)] * 2)
    def step(inputs, targets):
        with tf.GradientTape() as tape:
            logits = language_model.logits(variables, inputs)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
            mask = tf.cast(targets > 0, tf.float32)
            loss = tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)
        for variable, gradient in zip(
            variables, tape.gradient(loss, variables), strict=True
        ):
            variable.assign_sub(RATE * tf.convert_to_tensor(gradient))

    def train() -> list:
        for sentences in clients:
            for variable, weight in zip(variables, weights.values(), strict=True):
                variable.assign(weight)
            for first in range(0, len(sentences), limits.batch_size):
                batch = sentences[first : first + limits.batch_size]
                rows = padded(batch, limits)
                step(rows[:, :-1], rows[:, 1:])
        return variables

    return train


def _ways(language_model, clients, limits, scratch: str) -> _Ways:
    """Yields the name of each way, and a function that trains all clients by it."""
    import numpy as np

    from scripts import training_with_pfl
    from simulation import client_text, runtime
    from training import client_update, examples

    weights = language_model.initial_weights(_SEED)
    text = client_text.ClientText.from_rows(
        tempfile.mkdtemp(dir=scratch) + "/text",
        [(str(number), sentences) for number, sentences in enumerate(clients)],
    )
    for name, way in (
        ("ours", language_model),
        (
            "ours, TensorFlow's gradient",
            dataclasses.replace(language_model, over_places=None),
        ),
    ):
        rounds = client_update.FederatedRounds(
            way,
            examples.MappedText(text, limits),
            client_update.LocalTraining(RATE),
        )
        with runtime.tff_worker():
            everyone = np.arange(len(clients))
            yield name, functools.partial(rounds.train, weights, everyone, 0.3, 0.3)
    yield "plain TensorFlow", plain(language_model, weights, clients, limits)
    if training_with_pfl.missing():
        return
    for name, num_threads in (
        ("pfl-research", len(os.sched_getaffinity(0))),
        ("pfl-research, one thread", 1),
    ):
        yield (
            name,
            training_with_pfl.rounds(
                weights,
                clients,
                functools.partial(padded, limits=limits),
                limits.batch_size,
                RATE,
                num_threads,
            ),
        )


def _model(num_words: int) -> "model.LanguageModel":
    from simulation import vocabulary
    from training import model

    return model.cifg_language_model(num_words + len(vocabulary.SPECIAL_TOKENS))


def measure(
    num_clients: int, num_words: int, repeats: int, scratch: str
) -> "pd.DataFrame":
    """Returns a table: for each workload and way, what a client costs.

    Args:
        num_clients: The number of clients of a round, at least 1.
        num_words: The number of words of the vocabulary.
        repeats: Rounds that are measured, after one that builds the computation.
        scratch: A directory for the clients' text.
    """
    import pandas as pd

    from scripts import resource_usage
    from training import examples

    limits = examples.ClientLimits()
    language_model = _model(num_words)
    rows = []
    for workload in WORKLOADS:
        clients = _clients(workload, num_clients, language_model.num_tokens)
        words = sum(len(s) for sentences in clients for s in sentences)
        for name, train in _ways(language_model, clients, limits, scratch):
            train()
            for repeat in range(repeats):
                with resource_usage.Usage() as usage:
                    train()
                rows.append(
                    {
                        "workload": workload.name,
                        "way": name,
                        "repeat": repeat,
                        "clients": num_clients,
                        "words": words,
                        "cpu_seconds_per_client": usage.cpu_seconds / num_clients,
                        "wall_seconds_per_client": usage.wall_seconds / num_clients,
                        "peak_own_gib": usage.peak_own_bytes / 2**30,
                    }
                )
    return pd.DataFrame(rows)


def threads_gain(num_clients: int, num_words: int, scratch: str) -> float:
    """Returns how much faster a round is on two cores than on one of them.

    Args:
        num_clients: The number of clients of a round.
        num_words: The number of words of the vocabulary.
        scratch: A directory for the clients' text.

    Returns:
        The ratio of wall seconds; nan where this process may use one core only.
    """
    from training import examples

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return float("nan")
    language_model = _model(num_words)
    clients = _clients(WORKLOADS[0], num_clients, language_model.num_tokens)
    seconds = []
    try:
        for used in (cores[:1], cores[:2]):
            os.sched_setaffinity(0, used)
            ways = _ways(language_model, clients, examples.ClientLimits(), scratch)
            _, train = next(ways)
            train()
            start = time.perf_counter()
            train()
            seconds.append(time.perf_counter() - start)
            ways.close()
    finally:
        os.sched_setaffinity(0, cores)
    return seconds[0] / seconds[1]
