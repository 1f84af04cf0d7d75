"""The files that TensorBoard reads: one folder a repeat, so one curve a repeat.

All repeats have the same tags, `released/<name>` and `simulator/<name>`; TensorBoard
draws the folders' points of a tag in one chart. A point's step is its round.
"""

import pathlib
from typing import Any

import tensorflow as tf

from federated_hh.run_directory.files import RoundMetrics, RunDirectoryError

_PLACE = ("repeat", "round")  # of a point: no curves of their own


class EventFiles:
    """Writes the metrics of rounds; `close` it when done.

    Args:
        path: The folder that TensorBoard is to be given, made with the first point.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._repeat = -1  # that the writer is of
        self._writer: Any = None

    def add(self, step: int, metrics: RoundMetrics) -> None:
        """Writes a round's metrics, each as a point of its repeat's curve.

        Args:
            step: The round.
            metrics: The metrics of the round; `repeat` among the released ones says
                which curves are meant, those of repeat 0 where it is missing.

        Raises:
            RunDirectoryError: If the file cannot be written.
        """
        repeat = int(metrics.released.get("repeat", 0))
        folder = self._path / f"repeat_{repeat}"
        parts = {"released": metrics.released, "simulator": metrics.simulator}
        try:
            if self._writer is None or repeat != self._repeat:
                self.close()
                self._writer = tf.summary.create_file_writer(str(folder))
                self._repeat = repeat
            with self._writer.as_default(step=step):
                for part, values in parts.items():
                    for name, value in values.items():
                        if name not in _PLACE:
                            tf.summary.scalar(f"{part}/{name}", value)
            self._writer.flush()
        except tf.errors.OpError as error:
            raise RunDirectoryError(
                f"{folder} cannot be written: {error.message}. Mend that and continue "
                "with --resume"
            ) from error

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
