"""Rounds of DP-FTRL, one by one, for `training`: the cost of each."""

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks import resource_usage

if TYPE_CHECKING:
    import pandas as pd

    from training.federated import dp_ftrl

NUM_CLIENTS = 20_000
SEED = 1
# Of the plan: more than are measured.
_PLANNED_ROUNDS = 10_000


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A CIFG language model.

    Attributes:
        num_words: Words of its vocabulary.
        num_units: Its memory cells.
        size: Size of embeddings and projection.
    """

    num_words: int
    num_units: int
    size: int


def _build(
    directory: str, cohort: int, sizes: Sizes, words_per_client: float
) -> "dp_ftrl.DpFtrl":
    """Returns DP-FTRL on synthetic sentences, prepared in a directory."""
    from federated_hh.populations import client_sentences, vocabulary
    from federated_hh.populations.languages import sentence_tokenizers
    from federated_hh.populations.options import population_options
    from federated_hh.privacy.dp_ftrl import plan as training_plan
    from federated_hh.privacy.dp_ftrl import update_noise
    from federated_hh.rounds import timers
    from training.federated import client_update, dp_ftrl
    from training.models import model
    from training.text import examples

    words = vocabulary.Vocabulary.of_language(sizes.num_words)
    text = client_sentences.prepare(
        population_options.PopulationOptions(
            num_clients=NUM_CLIENTS, mean_words_per_client=words_per_client
        ),
        words,
        sentence_tokenizers.get_sentence_tokenizer("keyboard"),
        directory,
    )
    language_model = model.cifg_language_model(
        words.num_tokens,
        num_units=sizes.num_units,
        projection_size=sizes.size,
        embedding_size=sizes.size,
    )
    rounds = client_update.FederatedRounds(
        language_model,
        examples.MappedText(text, examples.ClientLimits()),
        client_update.LocalTraining(0.5),
    )
    plan = training_plan.plan_of(
        timers.Timers(
            num_clients=NUM_CLIENTS, cohort_size=cohort, num_rounds=_PLANNED_ROUNDS
        ),
        update_noise.TreeNoise(
            num_rounds=_PLANNED_ROUNDS, clip_norm=0.3, noise_multiplier=1.0
        ),
    )
    return dp_ftrl.DpFtrl(rounds, plan, language_model.initial_weights(SEED))


def _run(algorithm: "dp_ftrl.DpFtrl", num_rounds: int) -> Iterator[dict[str, Any]]:
    """Yields each round's clients, its words, and the cost of its two sides.

    The first one, in which the computation is built, is left out. As in a run, large
    arrays of the noise are spilled to disk.
    """
    import numpy as np

    from federated_hh.files import freed_memory
    from federated_hh.randomness import noise_keys
    from federated_hh.rounds import steps
    from federated_hh.run_directory import files as run_files

    text = algorithm.rounds.mapped.text
    splits = text.sentence_splits[text.client_splits]
    with tempfile.TemporaryDirectory() as spilled, freed_memory.quick_collections():
        by_hand = steps.Steps(
            algorithm,
            seed=SEED,
            noise_key=noise_keys.NoiseKey.of_seed(SEED),
            spill_folder=run_files.RunFiles(pathlib.Path(spilled)),
        )
        progress = by_hand.begin()
        for number in range(num_rounds + 1):
            drawn = by_hand.draw(progress)
            with resource_usage.Usage() as usage:
                query = algorithm.next_query(progress.state)
                assert query is not None
                sums = by_hand.ask(progress, query, drawn.cohort)
                clients_done = time.perf_counter()
                progress = by_hand.update(progress, query, drawn, sums).progress
                freed_memory.return_freed()
                server_seconds = time.perf_counter() - clients_done
            if not number:
                continue
            words = np.sum(splits[drawn.cohort + 1] - splits[drawn.cohort])
            yield {
                "round": number,
                "clients": len(drawn.cohort),
                "words": int(words),
                "client_seconds": usage.wall_seconds - server_seconds,
                "server_seconds": server_seconds,
                "cpu_seconds": usage.cpu_seconds,
                "peak_gib": usage.peak_bytes / 2**30,
                "peak_own_gib": usage.peak_own_bytes / 2**30,
            }


def measure(
    directory: str,
    cohort: int,
    num_rounds: int,
    sizes: Sizes,
    words_per_client: float,
) -> "pd.DataFrame":
    """Returns a table: a row a round, in a worker of their own.

    Args:
        directory: Directory for the clients' text.
        cohort: Clients of a round.
        num_rounds: Rounds that are measured, after one that builds the computation.
        sizes: The model.
        words_per_client: Mean number of words of a client.
    """
    import pandas as pd

    from federated_hh.files import freed_memory
    from federated_hh.runtime import runtime

    freed_memory.return_large_at_once()  # as training.run_training does
    algorithm = _build(directory, cohort, sizes, words_per_client)
    with runtime.tff_worker():
        return pd.DataFrame(_run(algorithm, num_rounds))
