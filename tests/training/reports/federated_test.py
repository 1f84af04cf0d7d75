"""Tests of what the report of a training run advises, and of what it needs before."""

import subprocess
import sys

import pandas as pd
from absl.testing import absltest

from training.baselines import baselines
from training.models import metric_names
from training.reports import federated as training_report


class AdviceTest(absltest.TestCase):
    def test_where_counting_words_is_better(self):
        others = [
            baselines.Baseline(name, "text", {"one_suggestion": rate})
            for name, rate in (
                (metric_names.UNIGRAM, 0.05),
                (metric_names.BIGRAM, 0.14),
                (metric_names.TRIGRAM, 0.155),
                (metric_names.KNESER_NEY, 0.16),
                (metric_names.BEST_POSSIBLE, 0.9),
                ("another model", 0.8),
            )
        ]
        for rate, better in (
            (0.01, metric_names.NGRAMS),
            (0.15, (metric_names.TRIGRAM, metric_names.KNESER_NEY)),
            (0.157, (metric_names.KNESER_NEY,)),
            (0.2, ()),
        ):
            last = pd.Series({"held_out_one_suggestion": rate})
            told = training_report.advice(last, others)
            named = (
                f"Baselines that are better: {', '.join(better)}. " if better else ""
            )
            self.assertStartsWith(told, named)
            self.assertEqual(bool(told), bool(better))


class ImportTest(absltest.TestCase):
    def test_rounds_go_on_without_matplotlib(self):
        program = (
            "import sys, training.run_training; "
            "from federated_hh.rounds import experiment;"
            "from training.federated import dp_ftrl, held_out, preparation;"
            "from training.reports import federated;"
            "sys.exit('matplotlib' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", program], check=True)


if __name__ == "__main__":
    absltest.main()
