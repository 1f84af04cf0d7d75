"""Gaussian noise on the sums of rounds: tree-aggregated, or independent.

Built from tensorflow-privacy's parts, run on the coordinator. A state is a value that
holds noise and the place in the random stream, never a sum; its draws are a function of
the seed.
"""

import collections
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_privacy.privacy.dp_query import (
    tree_aggregation,
    tree_aggregation_query,
)

from simulation import seeds

# Tensors, nested in the named tuples of tensorflow-privacy.
NoiseState = Any
Sums = Mapping[str, np.ndarray]


def _specs(sums: Sums) -> collections.OrderedDict[str, tf.TensorSpec]:
    return collections.OrderedDict(
        (name, tf.TensorSpec(array.shape, tf.float32)) for name, array in sums.items()
    )


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    """Runs TensorFlow's functions as they are written, with the same results.

    A tree's state grows with its levels, so that its functions would be traced anew at
    each: a second every time, for what takes milliseconds.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


class _Noise:
    """What both kinds share; see `TreeNoise` and `GaussianNoise`."""

    def __init__(self, template: Sums, seed: int, *purpose: str):
        """Begins a stream of noise.

        Args:
            template: Arrays of the shapes of the sums, by name.
            seed: The run's seed.
            *purpose: What the noise is for: other purposes have other streams.
        """
        self._generator = tree_aggregation.GaussianNoiseGenerator(
            0.0, _specs(template), seed=0
        )
        words = seeds.derive(seed, "noise", *purpose).generate_state(2, np.uint64)
        self._seeds = tf.constant((words >> 2).astype(np.int64))

    def _start(self, stddev: float) -> Any:
        return self._generator.make_state(self._seeds, tf.constant(stddev, tf.float32))

    def flatten(self, state: NoiseState) -> list[np.ndarray]:
        """Returns a state as arrays."""
        return [np.asarray(tensor) for tensor in tf.nest.flatten(state)]

    def unflatten(self, arrays: list[np.ndarray]) -> NoiseState:
        """Returns the state whose `flatten` gave `arrays`."""
        structure = self.initial_state(0.0)
        tensors = [tf.constant(array) for array in arrays]
        return tf.nest.pack_sequence_as(structure, tensors)


class TreeNoise(_Noise):
    """The residuals of tree-aggregated noise, in Honaker's efficient form.

    The noise of a round is that of the prefix sum up to the round less that of the
    prefix sum before it, so that noisy sums of rounds add up to noisy prefix sums
    (Kairouz et al. 2021; Xu et al. 2023, PrivateSum).
    """

    def __init__(self, template: Sums, seed: int, *purpose: str):
        super().__init__(template, seed, *purpose)
        self._query = tree_aggregation_query.TreeResidualSumQuery(
            record_specs=_specs(template),
            noise_generator=self._generator,
            clip_fn=None,  # clients clip
            clip_value=0.0,
            use_efficient=True,
        )

    @_eagerly()
    def initial_state(self, stddev: float) -> NoiseState:
        """Returns the state before the first round.

        Args:
            stddev: Of a node's noise, at least 0.
        """
        state = self._query.initial_global_state()
        noise = state.tree_state._replace(value_generator_state=self._start(stddev))
        state = state._replace(tree_state=noise)
        return self._query.reset_state(None, state)

    @_eagerly()
    def restart(self, state: NoiseState, stddev: float) -> NoiseState:
        """Returns the state with which a new tree starts; `stddev` is of its nodes."""
        state = self._query.reset_l2_clip_gaussian_noise(
            state, clip_norm=state.clip_value, stddev=tf.constant(stddev, tf.float32)
        )
        return self._query.reset_state(None, state)

    @_eagerly()
    def add(
        self, sums: Sums, state: NoiseState
    ) -> tuple[collections.OrderedDict[str, np.ndarray], NoiseState]:
        """Returns the sums of a round with noise, and the next state."""
        sums = collections.OrderedDict(
            (name, tf.constant(array, tf.float32)) for name, array in sums.items()
        )
        noised, state, _ = self._query.get_noised_result(sums, state)
        return _numpy(noised), state


class GaussianNoise(_Noise):
    """Independent noise in each round, with the same interface as `TreeNoise`."""

    @_eagerly()
    def initial_state(self, stddev: float) -> NoiseState:
        """Returns the state before the first round; `stddev` is of a round's noise."""
        return self._start(stddev)

    @_eagerly()
    def restart(self, state: NoiseState, stddev: float) -> NoiseState:
        """Returns the state that goes on with another standard deviation."""
        return self._generator.make_state(state.seeds, tf.constant(stddev, tf.float32))

    @_eagerly()
    def add(
        self, sums: Sums, state: NoiseState
    ) -> tuple[collections.OrderedDict[str, np.ndarray], NoiseState]:
        """Returns the sums of a round with noise, and the next state."""
        noise, state = self._generator.next(state)
        noised = collections.OrderedDict(
            (name, array.astype(np.float32) + noise[name])
            for name, array in sums.items()
        )
        return _numpy(noised), state


def _numpy(tensors) -> collections.OrderedDict[str, np.ndarray]:
    return collections.OrderedDict((k, np.asarray(v)) for k, v in tensors.items())
