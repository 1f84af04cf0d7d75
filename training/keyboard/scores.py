"""How a model does on a keyboard: ratios of sums over judges, with 95% intervals."""

import collections
import dataclasses
from collections.abc import Mapping

import numpy as np

from training.models import metric_names

_CONFIDENCE = 0.95
_SAMPLES_AT_A_TIME = 100
# Numerator and denominator of each metric; see `metric_names.KEYBOARD_LABELS`.
_RATIOS: Mapping[str, tuple[str, str]] = {
    "loss": ("loss", "places"),
    "top1_in_vocabulary": ("top1_in_vocabulary", "word_places"),
    "one_suggestion": ("one_suggestion", "word_places"),
    "three_suggestions": ("three_suggestions", "word_places"),
    "picked_rate": ("picks", "words"),
    "keystrokes_saved": ("keystrokes_saved", "keystrokes"),
    "trigger_rate": ("triggers", "words"),
    "compose_accuracy": ("compose_right", "offers"),
    "compose_picked_rate": ("compose_picks", "offers"),
    "word_modified_before": ("modified_before", "typed"),
    "word_modified_after": ("modified_after", "typed"),
    "word_modified_of_all_before": ("modified_of_all_before", "words"),
    "word_modified_of_all_after": ("modified_of_all_after", "words"),
}
assert list(_RATIOS) == list(metric_names.KEYBOARD_LABELS)


@dataclasses.dataclass(frozen=True)
class Scores:
    """What each judge adds to the metrics of a model.

    Attributes:
        sums: By name: float64 [judges].
    """

    sums: Mapping[str, np.ndarray]

    def metrics(self) -> collections.OrderedDict[str, float]:
        """Returns the metrics over all judges; NaN where there is nothing to judge."""
        totals = {name: values.sum() for name, values in self.sums.items()}
        return collections.OrderedDict(
            (name, float(_ratio(totals[top], totals[bottom])))
            for name, (top, bottom) in _RATIOS.items()
        )

    def intervals(
        self, rng: np.random.Generator, num_resamples: int
    ) -> dict[str, tuple[float, float]]:
        """Returns a 95% interval of each metric, by the bootstrap over judges.

        As many judges are drawn as there are, with replacement, and all that a drawn
        one wrote is counted: what one person writes is alike. The ends are quantiles of
        the resamples' metrics.

        Args:
            rng: Draws the judges.
            num_resamples: How often, at least 1.

        Returns:
            By metric the lower and the upper end; NaN where there is one judge, or a
            metric is NaN.
        """
        names = list(self.sums)
        table = np.stack([self.sums[name] for name in names], axis=1)
        judges = len(table)
        if judges < 2:
            return dict.fromkeys(_RATIOS, (float("nan"), float("nan")))
        share = np.full(judges, 1 / judges)
        parts = []
        for first in range(0, num_resamples, _SAMPLES_AT_A_TIME):
            size = min(_SAMPLES_AT_A_TIME, num_resamples - first)
            parts.append(rng.multinomial(judges, share, size) @ table)
        resampled = dict(zip(names, np.concatenate(parts).T, strict=True))
        tail = (1 - _CONFIDENCE) / 2
        found = {}
        for name, (top, bottom) in _RATIOS.items():
            ratios = _ratio(resampled[top], resampled[bottom])
            known = ratios[~np.isnan(ratios)]
            ends = np.quantile(known, [tail, 1 - tail]) if len(known) else [np.nan] * 2
            found[name] = (float(ends[0]), float(ends[1]))
        return found


def _ratio(top: np.ndarray | float, bottom: np.ndarray | float) -> np.ndarray:
    top, bottom = np.asarray(top, float), np.asarray(bottom, float)
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
