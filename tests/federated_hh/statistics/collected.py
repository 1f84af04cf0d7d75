"""An aggregator that keeps what it gets, for tests."""

import numpy as np

from federated_hh.privacy.local import device_reports_plan
from federated_hh.statistics.devices import aggregation


class Collected(aggregation.Aggregator):
    """Keeps all reports, for the tests to see."""

    name = "collected"

    def begin(self, num_cells, minimum_cohort, stream):
        del minimum_cohort, stream
        self.reports = np.zeros((0, num_cells), bool)
        self.minimum = 0

    def add(self, reports, minimum_cohort):
        self.reports = np.concatenate([self.reports, reports])
        self.minimum = max(self.minimum, minimum_cohort)

    def close(self):
        counts = np.count_nonzero(self.reports, axis=0).astype(np.int64)
        return device_reports_plan.Batch(counts, len(self.reports), self.minimum)
