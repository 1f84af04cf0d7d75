"""The memory and disk that a training run needs, so that too large ones are refused.

An estimate, within a factor of about two: it is there to refuse settings that are off
by a lot, such as a model whose size was mistyped, before hours are spent on them.
"""

import dataclasses
import os
import pathlib
import shutil
from typing import TYPE_CHECKING

from federated_hh.files import memory
from federated_hh.runtime.worker import startup
from training.central.options import PretrainOptions
from training.models.model_options import ModelOptions

if TYPE_CHECKING:  # it imports TensorFlow
    from training.models.model import LanguageModel

# TensorFlow and TFF in the program and in its worker, without a model.
_BASE_BYTES = 600 << 20


def cifg_num_parameters(
    num_tokens: int, num_units: int, embedding_size: int, tied: bool = False
) -> int:
    """Returns a CIFG-LSTM's number of parameters; see `model.cifg_language_model`.

    Args:
        num_tokens: Size of the vocabulary with its special tokens.
        num_units: Memory cells.
        embedding_size: The size of the embeddings and of the projection.
        tied: Whether the output embedding is the input's.
    """
    tokens = ((1 if tied else 2) * embedding_size + 1) * num_tokens
    return tokens + (3 * (2 * embedding_size + 1) + embedding_size) * num_units


def parameters_of(
    options: ModelOptions, num_tokens: int, network: "LanguageModel | None"
) -> int:
    """Returns the number of a model's parameters, without making the default one.

    Args:
        options: The options of the model.
        num_tokens: Size of the vocabulary with its special tokens.
        network: A custom model; None for the default one.
    """
    if network is not None:
        return network.num_parameters()
    return cifg_num_parameters(
        num_tokens,
        options.num_units,
        options.embedding_size,
        options.tied_embeddings,
    )


@dataclasses.dataclass(frozen=True)
class Needs:
    """The sizes that memory and disk depend on.

    Attributes:
        num_parameters: The number of parameters of the model.
        num_tokens: Size of the vocabulary with its special tokens.
        num_units: Memory cells.
        batch_tokens: Positions in a client's batch: sentences times words.
        num_blocks: TFF client values of a round.
        tree_rounds: Rounds of the longest noise tree; 0 without one.
        participations: Clients of all rounds together.
        buffers: Vectors in the state of correlated noise; 0 for other noise.
        padded_values: Number of values, with padding, of a rotated update; 0 without
            rotation.
    """

    num_parameters: int
    num_tokens: int
    num_units: int
    batch_tokens: int
    num_blocks: int
    tree_rounds: int
    participations: int
    buffers: int = 0
    padded_values: int = 0

    @property
    def buffer_bytes(self) -> int:
        """The bytes of correlated noise's buffers: opened, and encrypted again."""
        return 2 * 8 * self.buffers * self.num_parameters

    @property
    def waiting_bytes(self) -> int:
        """The most bytes of the noise's state that wait on disk for the next round.

        A tree has an integer and a float a level and parameter, correlated noise an
        integer a buffer and parameter. See `federated_hh.rounds.steps`.
        """
        numbers = 2 * self.tree_rounds.bit_length() + self.buffers
        return 8 * numbers * self.num_parameters

    def disk_bytes(self, checkpoints_kept: int) -> int:
        """The most bytes of a run on disk.

        Args:
            checkpoints_kept: Number of checkpoints kept; one more exists while it is
                written.
        """
        # Weights, two moments and an average; and the participations.
        state = 16 * self.num_parameters + 8 * self.participations
        checkpoint = self.waiting_bytes + state
        return self.waiting_bytes + (checkpoints_kept + 1) * checkpoint

    @property
    def total_bytes(self) -> int:
        """The bytes of the program and of the worker."""
        # Weights, two moments and an average, before and after; sums and noise as
        # 64-bit numbers.
        server = 32 * self.num_parameters + 48 * self.num_parameters
        server += self.buffer_bytes
        server += 3 * 8 * self.participations
        # A client's weights, gradients and update, its integers, and their sum.
        block = 40 * self.num_parameters
        # Scores and their gradients; gates and cells of each place.
        block += self.batch_tokens * (12 * self.num_tokens + 40 * self.num_units)
        # Rotated values, their fractions, and the integers of tries and blocks.
        block += 48 * self.padded_values
        server += 32 * self.padded_values
        # More blocks wait.
        num_blocks = min(self.num_blocks, startup.calls_at_once())
        return _BASE_BYTES + server + num_blocks * block

    def check_disk(
        self, directory: str | os.PathLike[str], checkpoints_kept: int
    ) -> None:
        """Raises `ValueError` where less is free than a new run there needs.

        Args:
            directory: The run directory, which need not be there yet.
            checkpoints_kept: Number of checkpoints that stay.
        """
        path = pathlib.Path(directory).absolute()
        there = next(place for place in (path, *path.parents) if place.exists())
        needed, free = self.disk_bytes(checkpoints_kept), shutil.disk_usage(there).free
        if needed > free:
            raise ValueError(
                f"a model of {self.num_parameters:,} parameters leaves up to "
                f"{memory.readable(self.waiting_bytes)} of noise on disk between "
                f"rounds, and as much in each of up to {checkpoints_kept + 1} "
                f"checkpoints: {memory.readable(needed)}; {memory.readable(free)} are "
                f"free in {there}. Choose another --output_dir, free some space, or "
                "lower --num_units, "
                "--embedding_size, the vocabulary's size, --num_rounds or --bands."
            )

    def check(self) -> None:
        """Raises `ValueError` where the machine has less memory available."""
        available = memory.available_bytes()
        if available is None or self.total_bytes <= available:
            return
        raise ValueError(
            f"a model of {self.num_parameters:,} parameters, with batches of "
            f"{self.batch_tokens:,} words, {memory.readable(self.buffer_bytes)} of the "
            f"noise's buffers and a list of {self.participations:,} participations "
            f"needs about {memory.readable(self.total_bytes)} of memory; "
            f"{memory.readable(available)} are available. "
            "Lower --num_units, --embedding_size, the vocabulary's size, --batch_size, "
            "--max_words, --num_blocks, --num_rounds, --bands or --cohort_size."
        )


def check_central(
    options: PretrainOptions, num_tokens: int, num_parameters: int
) -> None:
    """Raises `ValueError` where a central training needs more memory than there is.

    Args:
        options: The options of the training.
        num_tokens: Size of the vocabulary with its special tokens.
        num_parameters: Number of parameters, from `parameters_of`.
    """
    places = options.batch_size * (options.max_words + 1)
    # Weights and two moments, before and after, gradients, and a checkpoint of them.
    needed = _BASE_BYTES + 60 * num_parameters
    needed += places * (12 * num_tokens + 40 * options.num_units)
    available = memory.available_bytes()
    if available is not None and needed > available:
        raise ValueError(
            f"a model of {num_parameters:,} parameters, with batches of {places:,} "
            f"words, needs about {memory.readable(needed)} of memory; "
            f"{memory.readable(available)} are available. Lower --num_units, "
            "--embedding_size, the vocabulary's size, --batch_size or --max_words."
        )
