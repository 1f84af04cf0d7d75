"""A client's training in several ways, for `training`: the cost of each.

The same sentences, the same model, plain SGD from the same weights for each client:
the project's client computation in TFF's worker and in this program's TensorFlow; a
client as one would write it in plain TensorFlow, with padded batches, a tape, no clip
and no sum; and, where it is installed, a round in pfl-research: the same batches and
model in torch, a sum, no clip. The floor is the model's matrix products alone. All have
one thread for an operation, and TensorFlow's are measured with oneDNN's kernels and
without.
"""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import training_with_pfl

if TYPE_CHECKING:
    import numpy as np

    from training.models import model
    from training.text import examples

# Learning rate of every client's SGD.
RATE = 0.5
_SEED = 1


@dataclasses.dataclass(frozen=True)
class Workload:
    """Clients of a round, and their model.

    Attributes:
        name: Name in the table.
        clients: Clients of a round.
        sentences: Number of a client's sentences.
        words: The least and the most words of a sentence, drawn uniformly.
        num_words: Words of the vocabulary.
        num_units: Units of the model.
    """

    name: str
    clients: int
    sentences: int
    words: tuple[int, int]
    num_words: int = 10_000
    num_units: int = 670

    def smaller(self, divisor: int) -> "Workload":
        """Returns it with clients, vocabulary and units divided by a number."""
        return dataclasses.replace(
            self,
            clients=max(1, self.clients // divisor),
            num_words=max(10, self.num_words // divisor),
            num_units=max(2, self.num_units // divisor),
        )


# Of 16 sentences a batch: ten full batches, and one batch of some 211 words or 91.
WORKLOADS = (
    Workload("10 full batches", 10, 160, (20, 20)),
    Workload("211 words", 10, 16, (6, 20)),
    Workload("211 words, 100 clients a round", 100, 16, (6, 20)),
    Workload("small model", 100, 16, (3, 8), 2_000, 256),
)


def _clients(workload: Workload, num_tokens: int) -> list:
    import numpy as np

    random = np.random.default_rng(_SEED)
    least, most = workload.words
    return [
        [
            random.integers(4, num_tokens, random.integers(least, most + 1)).tolist()
            for _ in range(workload.sentences)
        ]
        for _ in range(workload.clients)
    ]


def padded(
    sentences: Sequence[Sequence[int]], limits: "examples.ClientLimits"
) -> "np.ndarray":
    """Returns sentences with their beginnings and ends, as rows of one length.

    Args:
        sentences: Token ids.
        limits: Limit of the words of a sentence.

    Returns:
        int32 [sentences, max_words + 2], padded at the end.
    """
    import numpy as np

    from federated_hh.populations import vocabulary

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
    """Returns a function that trains clients one by one, as one would write it.

    Args:
        language_model: The model.
        weights: Its weights, from which every client begins.
        clients: The sentences of each: token ids.
        limits: The batches' size, and the limit of the words of a sentence.

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


@dataclasses.dataclass(frozen=True)
class _Task:
    """The clients of a workload, and the model that they train.

    Attributes:
        language_model: The model.
        clients: The sentences of each: token ids.
        limits: The batches' size, and the limit of the words of a sentence.
        scratch: Directory for the clients' text.
    """

    language_model: "model.LanguageModel"
    clients: Sequence[Sequence[Sequence[int]]]
    limits: "examples.ClientLimits"
    scratch: str

    def weights(self) -> Mapping[str, "np.ndarray"]:
        """Returns the weights from which every client begins."""
        return self.language_model.initial_weights(_SEED)


def task_of(workload: Workload, scratch: str) -> _Task:
    """Returns the clients and the model of a workload."""
    from federated_hh.populations import vocabulary
    from training.models import model
    from training.text import examples

    num_tokens = workload.num_words + len(vocabulary.SPECIAL_TOKENS)
    return _Task(
        model.cifg_language_model(num_tokens, num_units=workload.num_units),
        _clients(workload, num_tokens),
        # No longer than the longest sentence, to whose length the others' are padded.
        examples.ClientLimits(max_words=workload.words[1]),
        scratch,
    )


# A context with a function that trains all clients of a task once.
_Trained = contextlib.AbstractContextManager[Callable[[], object]]


@contextlib.contextmanager
def ours(task: _Task, is_in_process: bool = False) -> Iterator[Callable[[], object]]:
    """Yields a function that trains a task's clients in a round of this project."""
    import numpy as np
    import tensorflow_federated as tff

    from federated_hh.populations.columns import client_text
    from federated_hh.runtime import runtime
    from federated_hh.runtime.engines import in_process
    from training.federated import client_update
    from training.text import examples

    text = client_text.ClientText.from_rows(
        tempfile.mkdtemp(dir=task.scratch) + "/text",
        [(str(number), sentences) for number, sentences in enumerate(task.clients)],
    )
    rounds = client_update.FederatedRounds(
        task.language_model,
        examples.MappedText(text, task.limits),
        client_update.LocalTraining(RATE),
    )
    everyone = np.arange(len(task.clients))
    train = functools.partial(rounds.train, task.weights(), everyone, 0.3, 0.3)
    if is_in_process:
        context = in_process.Context(None, None)
        with tff.framework.get_context_stack().install(context):
            yield train
    else:
        with runtime.tff_worker():
            yield train


def _plain(task: _Task) -> _Trained:
    trained = plain(task.language_model, task.weights(), task.clients, task.limits)
    return contextlib.nullcontext(trained)


def _with_pfl(task: _Task) -> _Trained:
    return contextlib.nullcontext(
        training_with_pfl.rounds(
            task.weights(),
            task.clients,
            functools.partial(padded, limits=task.limits),
            task.limits.batch_size,
            RATE,
            num_threads=1,
        )
    )


def _products(task: _Task) -> _Trained:
    """Returns a function that multiplies matrices as a client's training has to.

    Of the outputs of each layer, the gradients of its inputs, and those of its weights;
    the steps of a batch at once.
    """
    import numpy as np
    import tensorflow as tf

    weights = task.weights()
    layers = [
        weights[name].shape
        for name in ("input_kernel", "recurrent_kernel", "projection")
    ]
    layers.append(weights["output_embedding"].shape[::-1])
    random = np.random.default_rng(_SEED)

    @functools.cache
    def matrix(*shape: int) -> tf.Tensor:
        return tf.constant(random.normal(size=shape).astype(np.float32))

    def train() -> None:
        for sentences in task.clients:
            for first in range(0, len(sentences), task.limits.batch_size):
                batch = sentences[first : first + task.limits.batch_size]
                places = sum(len(sentence) + 1 for sentence in batch)
                for entering, leaving in layers:
                    rows, to_rows = matrix(places, entering), matrix(places, leaving)
                    kernel = matrix(entering, leaving)
                    tf.matmul(rows, kernel)
                    tf.matmul(to_rows, kernel, transpose_b=True)
                    tf.matmul(rows, to_rows, transpose_a=True)

    return contextlib.nullcontext(train)


class Way(NamedTuple):
    """A way to train clients.

    Attributes:
        name: Name in the table.
        of: Given a task, returns a context with a function that trains its clients.
        with_onednn: Whether TensorFlow uses oneDNN's kernels.
    """

    name: str
    of: Callable[[_Task], _Trained]
    with_onednn: bool = False


PFL = "pfl-research"


def ways() -> list[Way]:
    """Returns the ways that can be measured here, in the order of the table."""
    in_process = functools.partial(ours, is_in_process=True)
    found = [
        Way("ours", ours),
        Way("ours, oneDNN", ours, with_onednn=True),
        Way("ours, in process", in_process),
        Way("ours, in process, oneDNN", in_process, with_onednn=True),
        Way("plain TensorFlow", _plain),
        Way("plain TensorFlow, oneDNN", _plain, with_onednn=True),
    ]
    if not training_with_pfl.missing():
        found.append(Way(PFL, _with_pfl))
    return [
        *found,
        Way("the matrix products alone", _products),
        Way("the matrix products alone, oneDNN", _products, with_onednn=True),
    ]
