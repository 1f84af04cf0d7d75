"""The report of central training."""

from collections.abc import Sequence

from federated_hh.privacy import statement as statement_lib
from federated_hh.reports import page
from federated_hh.run_directory import directory as run_directory
from training.baselines import baselines as baselines_lib
from training.federated import model_average
from training.reports import federated as training_report
from training.text import text_record


def write(
    directory: run_directory.RunDirectory,
    statement: statement_lib.PrivacyStatement,
    baselines: Sequence[baselines_lib.Baseline],
    record: text_record.TextRecord,
    *,
    batch_size: int,
    average: model_average.ModelAverage | None = None,
    may_know_held_out: bool = False,
    custom_model: str | None = None,
    begins: str = "",
) -> page.Summary:
    """Writes the statement that nothing is guaranteed, the plots, and `report.html`.

    Args:
        directory: The run directory, with its metrics.
        statement: The statement of the run.
        baselines: The model's baselines.
        record: The text that it was trained on.
        batch_size: Sentences of a step.
        average: The average of models that it is; None for the last one.
        may_know_held_out: See `training_report.write`.
        custom_model: See `training_report.write`.
        begins: See `training_report.write`.

    Returns:
        The run's summary.
    """
    metrics = directory.metrics()
    last = metrics.iloc[-1]
    report = page.Page(directory, "Central training")
    report.summary(
        training_report.how_good(last, baselines),
        next_command=training_report.next_command(begins, custom_model),
    )
    model = report.section("Scores on held-out clients", covered=False)
    model.text(
        f"After {last['steps']:,} steps of {batch_size:,} sentences each, "
        f"{last['epochs']:.3g} epochs. The plots are over rounds of "
        f"{metrics['steps'].iloc[0]:,} steps."
    )
    if average is not None:
        model.text(
            "The model is the exponential moving average of all steps' models, with "
            f"decay {average.decay:g}."
        )
    if may_know_held_out:
        model.text(training_report.MAY_KNOW_HELD_OUT)
    training_report.add_held_out(model, metrics, baselines)
    text = report.section("Training text", covered=False)
    texts = ", before that ".join(
        f"`{one.source}` (fingerprint of the prepared text `{one.population[:16]}`): "
        f"{one.num_sentences:,} sentences of {one.num_clients:,} clients"
        for one in reversed(record.texts)
    )
    before = (
        "" if record.is_whole else "The initial model has no record of all its text. "
    )
    text.text(
        f"{texts}. {before}The exported model has the text's n-grams and hashes of the "
        f"clients' ids and of all runs of {text_record.NUM_WORDS} known words "
        f"({len(record.windows):,} distinct). A private run that starts from it checks "
        "its own clients' text against them."
    )
    report.statement(statement)
    report.how_it_was_made()
    return report.write()
