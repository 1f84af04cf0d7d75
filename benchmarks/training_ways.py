"""One client's training in several ways, for `training`: the cost of each.

The same sentences, the same model, plain SGD from the same weights for each client:
the project's client computation in TFF's worker, the same where TensorFlow finds the
gradient (as it does for a user's own Keras model), and a client as one would write it
in plain TensorFlow: padded batches, a tape, no clip, no sum. Where pfl-research is
installed, also a round in it: the same batches and model in torch, a sum, no clip; an
operation on all cores, and on one, which takes less processor time. Plain TensorFlow is
measured with one thread as well, and it and the project's with oneDNN's kernels, which
pip's TensorFlow uses by default: in processes of their own, as TensorFlow settles both
once for a process.
"""

import concurrent.futures
import contextlib
import dataclasses
import enum
import functools
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import harness, resource_usage, training_with_pfl
from federated_hh.runtime.worker import startup

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from training.models import model
    from training.text import examples

# Learning rate of every client's SGD.
RATE = 0.5
_SEED = 1


@dataclasses.dataclass(frozen=True)
class Workload:
    """A client's sentences.

    Attributes:
        name: Name in the table.
        sentences: Number of a client's sentences.
        words: The least and the most words of a sentence, drawn uniformly.
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


# A context with a function that trains all clients of a task once.
_Trained = contextlib.AbstractContextManager[Callable[[], object]]


@contextlib.contextmanager
def _ours(task: _Task, **changed: Any) -> Iterator[Callable[[], object]]:
    import numpy as np

    from federated_hh.populations.columns import client_text
    from federated_hh.runtime import runtime
    from training.federated import client_update
    from training.text import examples

    text = client_text.ClientText.from_rows(
        tempfile.mkdtemp(dir=task.scratch) + "/text",
        [(str(number), sentences) for number, sentences in enumerate(task.clients)],
    )
    rounds = client_update.FederatedRounds(
        dataclasses.replace(task.language_model, **changed),
        examples.MappedText(text, task.limits),
        client_update.LocalTraining(RATE),
    )
    everyone = np.arange(len(task.clients))
    with runtime.tff_worker():
        yield functools.partial(rounds.train, task.weights(), everyone, 0.3, 0.3)


def _plain(task: _Task) -> _Trained:
    trained = plain(task.language_model, task.weights(), task.clients, task.limits)
    return contextlib.nullcontext(trained)


def _with_pfl(task: _Task, num_threads: int | None = None) -> _Trained:
    return contextlib.nullcontext(
        training_with_pfl.rounds(
            task.weights(),
            task.clients,
            functools.partial(padded, limits=task.limits),
            task.limits.batch_size,
            RATE,
            num_threads or len(os.sched_getaffinity(0)),
        )
    )


class _Process(enum.Enum):
    """TensorFlow's settings of a measured process.

    TFF's worker has one thread for an operation, whoever starts it.
    """

    THIS = "as it is settled in this one"
    ONE_THREAD = "one thread"
    ONEDNN = "one thread, and oneDNN's kernels"


class _Way(NamedTuple):
    """A way to train clients.

    Attributes:
        name: Name in the table.
        of: Given a task, returns a context with a function that trains its clients.
        process: The kind of process in which it is measured.
    """

    name: str
    of: Callable[[_Task], _Trained]
    process: _Process = _Process.THIS


def _ways() -> list[_Way]:
    """Returns the ways that can be measured here, in the order of the table."""
    ways = [
        _Way("ours", _ours),
        _Way("ours, oneDNN", _ours, _Process.ONEDNN),
        _Way("ours, TensorFlow's gradient", functools.partial(_ours, over_places=None)),
        _Way("plain TensorFlow", _plain),
        _Way("plain TensorFlow, one thread", _plain, _Process.ONE_THREAD),
        _Way("plain TensorFlow, one thread, oneDNN", _plain, _Process.ONEDNN),
    ]
    if not training_with_pfl.missing():
        one = functools.partial(_with_pfl, num_threads=1)
        ways += [_Way("pfl-research", _with_pfl), _Way("pfl-research, one thread", one)]
    return ways


def _settle(process: _Process) -> None:
    """Settles how TensorFlow computes in a process that has not imported it."""
    startup.silence_tensorflow()
    startup.use_onednn(process is _Process.ONEDNN)
    harness.one_thread()


def in_a_process(
    work: Callable[[], Any], begin: Callable[[], object] | None = None
) -> Any:
    """Calls a function of a module in a new process, and returns its result.

    Args:
        work: The function.
        begin: Function that is called there before it.
    """
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=begin
    ) as pool:
        return pool.submit(work).result()


def _in_process(process: _Process, work: Callable[[], Any]) -> Any:
    """Calls a function of this module in a process, and returns its result."""
    if process is _Process.THIS:
        return work()
    return in_a_process(work, functools.partial(_settle, process))


def _task(
    workload: Workload, num_clients: int, num_words: int, num_units: int, scratch: str
) -> _Task:
    from federated_hh.populations import vocabulary
    from training.models import model
    from training.text import examples

    num_tokens = num_words + len(vocabulary.SPECIAL_TOKENS)
    return _Task(
        model.cifg_language_model(num_tokens, num_units=num_units),
        _clients(workload, num_clients, num_tokens),
        examples.ClientLimits(),
        scratch,
    )


def _rows(
    process: _Process,
    num_clients: int,
    num_words: int,
    num_units: int,
    repeats: int,
    scratch: str,
) -> list[dict[str, Any]]:
    """Returns a row for each workload, repeat and way of a process; see `measure`."""
    rows = []
    for workload in WORKLOADS:
        task = _task(workload, num_clients, num_words, num_units, scratch)
        words = sum(len(s) for sentences in task.clients for s in sentences)
        for way in _ways():
            if way.process is not process:
                continue
            with way.of(task) as train:
                train()
                for repeat in range(repeats):
                    with resource_usage.Usage() as usage:
                        train()
                    rows.append(
                        {
                            "workload": workload.name,
                            "way": way.name,
                            "repeat": repeat,
                            "clients": num_clients,
                            "words": words,
                            "cpu_seconds_per_client": usage.cpu_seconds / num_clients,
                            "wall_seconds_per_client": usage.wall_seconds / num_clients,
                            "peak_own_gib": usage.peak_own_bytes / 2**30,
                        }
                    )
    return rows


def measure(
    num_clients: int, num_words: int, num_units: int, repeats: int, scratch: str
) -> "pd.DataFrame":
    """Returns a table: a client's cost, by workload, way and repeat.

    Args:
        num_clients: Clients of a round, at least 1.
        num_words: Words of the vocabulary.
        num_units: Units of the model.
        repeats: Rounds that are measured, after one that builds the computation.
        scratch: Directory for the clients' text.
    """
    import pandas as pd

    rows = []
    for process in _Process:
        work = functools.partial(
            _rows, process, num_clients, num_words, num_units, repeats, scratch
        )
        rows += _in_process(process, work)
    workloads = [workload.name for workload in WORKLOADS]
    ways = [way.name for way in _ways()]
    rows.sort(
        key=lambda row: (workloads.index(row["workload"]), ways.index(row["way"]))
    )
    return pd.DataFrame(rows)


def measure_threads(
    num_clients: int, num_words: int, num_units: int, repeats: int, scratch: str
) -> "pd.DataFrame":
    """Returns a table of `rounds_on_cores`, measured in a process of its own.

    A program that trains has one too. Threads that other ways leave behind in theirs
    take time from a round on two cores.
    """
    work = functools.partial(
        rounds_on_cores, num_clients, num_words, num_units, repeats, scratch
    )
    return _in_process(_Process.ONE_THREAD, work)


def rounds_on_cores(
    num_clients: int, num_words: int, num_units: int, repeats: int, scratch: str
) -> "pd.DataFrame":
    """Returns a table: seconds of a round on one core and on two, turn by turn.

    Args:
        num_clients: Clients of a round.
        num_words: Words of the vocabulary.
        num_units: Units of the model.
        repeats: Rounds on each, with a worker of their own, after one that builds the
            computation.
        scratch: Directory for the clients' text.

    Returns:
        A row a round. Where this process may use one core only, there are no rounds on
        two.
    """
    import pandas as pd

    cores = sorted(os.sched_getaffinity(0))
    task = _task(WORKLOADS[0], num_clients, num_words, num_units, scratch)
    rows = []
    try:
        for repeat in range(repeats):
            for used in range(1, min(2, len(cores)) + 1):
                os.sched_setaffinity(0, cores[:used])
                with _ours(task) as train:
                    train()
                    seconds = harness.seconds(train)
                rows.append({"repeat": repeat, "cores": used, "wall_seconds": seconds})
    finally:
        os.sched_setaffinity(0, cores)
    return pd.DataFrame(rows).assign(clients=num_clients)


def threads_gain(found: "pd.DataFrame") -> dict[str, float]:
    """Returns the ratio of a round's seconds on one core to those on two.

    Args:
        found: Table of `measure_threads`.

    Returns:
        The medians' ratio; and the least and the most of rounds that followed one
        another. Nothing where there were no rounds on two.
    """
    seconds = found.pivot(index="repeat", columns="cores", values="wall_seconds")
    if 2 not in seconds:
        return {}
    medians, pairs = seconds.median(), seconds[1] / seconds[2]
    return {
        "two cores to one": float(medians[1] / medians[2]),
        "two cores to one, least of pairs": float(pairs.min()),
        "two cores to one, most of pairs": float(pairs.max()),
    }
