"""Builds the columns of a population's sentences from rows of any origin."""

import array
import contextlib
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from federated_hh.files import atomic_files, memory, progress, verified_files
from federated_hh.populations.columns import client_text, raw_columns
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import (
    bad_rows,
    building,
    fields,
    files,
    grouping,
    unspaced_text,
)
from federated_hh.populations.readers import client_data as reader

if TYPE_CHECKING:
    import tensorflow_federated as tff

_SENTENCES_BETWEEN_MEMORY_CHECKS = 1 << 16
_TOKENS_IN_MEMORY = 1 << 20

# Returns the token ids of a sentence's words, one each.
Encoder = Callable[[list[str]], list[int]]


class SentenceBuilder:
    """Collects rows in any order, then writes each client's sentences together.

    Holds the client ids and 4 bytes a sentence in memory; tokens go to disk.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        encode: Encoder,
        entries_in_memory: int = grouping.ENTRIES_IN_MEMORY,
    ):
        """Starts with no rows.

        Args:
            directory: An existing directory for the columns, and for scratch files
                that are gone when `finish` returns.
            encode: Gives words their token ids.
            entries_in_memory: Number of sentences grouped at a time.
        """
        self._directory = directory
        self._encode = encode
        # Sentences have distinct numbers; grouping these by client keeps their order.
        self._grouper = grouping.Grouper(directory, entries_in_memory)
        self._clients = building.Clients()
        self._lengths = array.array("i")
        self._pending = array.array("i")
        self._scratch = directory / "tokens-in-file-order.tmp"
        self._file = self._scratch.open("wb")

    def add(self, users: Sequence[str], texts: Iterable[list[list[str]]]) -> None:
        """Adds sentences to clients.

        Args:
            users: The client id of each text.
            texts: The sentences of each, in order, as words; sentences without words
                are left out.

        Raises:
            ValueError: If a client id cannot be written as UTF-8.
            PopulationError: If memory runs out.
        """
        clients = np.fromiter(
            map(self._clients.__getitem__, users), np.int32, len(users)
        )
        first = len(self._lengths)
        sentences = np.zeros(len(users), np.int64)
        for place, text in enumerate(texts):
            for words in text:
                if words:
                    self._pending.extend(self._encode(words))
                    self._lengths.append(len(words))
                    sentences[place] += 1
        last = len(self._lengths)
        self._grouper.add(
            np.repeat(clients, sentences), np.arange(first, last, dtype=np.int32)
        )
        if len(self._pending) >= _TOKENS_IN_MEMORY:
            self._spill()
        if first // _SENTENCES_BETWEEN_MEMORY_CHECKS != (
            last // _SENTENCES_BETWEEN_MEMORY_CHECKS
        ):
            memory.check(0, len(self._clients))

    def finish(self, metadata: dict[str, Any], empty_clients: str) -> None:
        """Writes the columns.

        Args:
            metadata: JSON values stored with the sizes.
            empty_clients: "drop" or "keep" clients without sentences.

        Raises:
            PopulationError: If no client has a sentence.
        """
        self._spill()
        self.close()
        names = list(self._clients)
        self._clients.warn_of_split_users()
        if not self._lengths:
            raise verified_files.PopulationError(
                f"the population is empty: no text of its {len(names)} clients has a "
                "sentence with a word."
            )
        lengths = np.frombuffer(self._lengths, np.int32)
        starts = np.append(0, np.cumsum(lengths, dtype=np.int64))
        tokens = np.memmap(self._scratch, np.int32, mode="r")
        writer = client_text.ClientTextWriter(self._directory)
        with contextlib.closing(writer):
            kept: list[str] = []
            low = num_empty = 0
            for rows in self._grouper.rows(len(names)):
                numbers, row_lengths = rows.word_ids, rows.row_lengths
                clients = names[low : low + len(row_lengths)]
                low += len(row_lengths)
                is_kept = row_lengths >= (empty_clients == "drop")
                num_empty += np.count_nonzero(row_lengths == 0)
                kept += itertools.compress(clients, is_kept.tolist())
                writer.append(
                    tokens[raw_columns.ranges(starts[numbers], lengths[numbers])],
                    lengths[numbers],
                    row_lengths[is_kept],
                )
            del tokens
            self._scratch.unlink()
            metadata |= {"empty_clients": empty_clients}
            writer.finish(kept, metadata | {"clients_without_sentences": num_empty})

    def close(self) -> None:
        """Closes the scratch file; also done by `finish`."""
        with atomic_files.naming(self._scratch):
            self._file.close()

    def _spill(self) -> None:
        with atomic_files.naming(self._scratch):
            self._pending.tofile(self._file)
        self._pending = array.array("i")


def open_files(
    options: population_options.PopulationOptions,
) -> tuple[Iterator[fields.Rows], bad_rows.BadRows]:
    """Opens files of text.

    Args:
        options: The files, their format and columns; the options on words are not used.

    Returns:
        Their rows, to be iterated once, and the bad rows, which fill up as the rows are
        read.

    Raises:
        PopulationError: If there is no such text.
    """
    if options.source == population_options.SYNTHETIC:
        raise verified_files.PopulationError(
            "the synthetic population is not a file; give a text file (--population)."
        )
    rows, wanted, bad = files.read_rows(options)
    if wanted.content_flag != "text_column":
        raise verified_files.PopulationError(
            f"{options.source} is read as words (--word_column or word counts), which "
            "have no sentences; give a text column (--text_column)."
        )
    return rows, bad


def build_from_files(
    directory: pathlib.Path,
    options: population_options.PopulationOptions,
    tokenizer: sentence_tokenizers.SentenceTokenizer,
    encode: Encoder,
    metadata: Mapping[str, Any],
) -> None:
    """Writes the columns of the population in files.

    Args:
        directory: An existing directory, empty.
        options: The files, their format and columns.
        tokenizer: Cuts text into sentences of words.
        encode: Gives words their token ids.
        metadata: JSON values kept with the columns.

    Raises:
        PopulationError: If the files cannot be made into a population.
    """
    batches, bad = open_files(options)
    unspaced = unspaced_text.UnspacedText(tokenizer.needs_blanks)
    with contextlib.closing(SentenceBuilder(directory, encode)) as builder:
        for rows in batches:
            unspaced.add(rows.contents)
            builder.add(rows.users, map(tokenizer.split, rows.contents))
        try:
            unspaced.check()
            report = dict(metadata, bad_rows=bad.report())
            builder.finish(report, options.empty_clients)
        except verified_files.PopulationError as error:
            shown = f" Bad rows: {bad.summary()}." if bad.summary() else ""
            raise verified_files.PopulationError(
                f"{options.source}: {error}{shown}"
            ) from None


def from_client_data(
    client_data: "tff.simulation.datasets.ClientData",
    directory: str | os.PathLike[str],
    encode: Encoder,
    tokenizer: sentence_tokenizers.SentenceTokenizer,
    text_feature: str = "text",
) -> client_text.ClientText:
    """Writes and opens the sentences of the clients of a `ClientData`.

    Args:
        client_data: Clients whose datasets have strings as elements, or mappings with
            a string feature, batched or not.
        directory: Directory to create; it must not exist.
        encode: Gives words their token ids.
        tokenizer: Cuts text into sentences of words.
        text_feature: The feature to read if elements are mappings.

    Returns:
        The sentences of all clients, in the order of `client_data.client_ids`.

    Raises:
        PopulationError: If an element has no UTF-8 string, or no client a sentence.
        FileExistsError: If `directory` exists.
    """
    client_ids = client_data.client_ids
    unspaced = unspaced_text.UnspacedText(tokenizer.needs_blanks)
    bar = progress.Progress("Reading client data", len(client_ids), "clients")
    with (
        client_text.new_text(directory) as partial,
        contextlib.closing(SentenceBuilder(partial, encode)) as builder,
        bar,
    ):
        for number, client_id in enumerate(client_ids, 1):
            builder.add([client_id], [[]])  # known even if it has no data
            dataset = client_data.create_tf_dataset_for_client(client_id)
            for element in dataset.as_numpy_iterator():
                for text in reader.texts(element, text_feature, client_id):
                    unspaced.add([text])
                    builder.add([client_id], [tokenizer.split(text)])
            bar.set(number)
        unspaced.check()
        source = {"kind": "client_data", "tokenizer": tokenizer.name}
        builder.finish({"source": source}, "keep")
    return client_text.ClientText.open(directory)
