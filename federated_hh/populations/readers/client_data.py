"""Makes a population of any `tff.simulation.datasets.ClientData`."""

import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from federated_hh.files import progress, verified_files
from federated_hh.populations.columns import client_words, column_writer
from federated_hh.populations.languages import tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import building, fields, word_table

_TEXTS_AT_ONCE = 1 << 12

if TYPE_CHECKING:
    import tensorflow_federated as tff


def texts(element: Any, text_feature: str, client_id: str) -> Iterator[str]:
    """Yields the strings of an element of a client's dataset.

    Args:
        element: A scalar string, a batch of them, or a mapping with either.
        text_feature: The feature to read if it is a mapping.
        client_id: For messages.

    Raises:
        PopulationError: If there is no string, or it is not UTF-8.
    """
    if isinstance(element, dict):
        if text_feature not in element:
            raise verified_files.PopulationError(
                f"text_feature is {text_feature!r}; the elements have "
                f"{', '.join(map(str, element))}."
            )
        element = element[text_feature]
    # A scalar string, or a batch of them.
    for value in np.asarray(element, object).reshape(-1).tolist():
        if not isinstance(value, bytes):
            raise verified_files.PopulationError(
                f"client {client_id!r} has an element of type {type(value).__name__}; "
                "it has to be a string, or a mapping with a string feature."
            )
        try:
            yield value.decode("utf-8")
        except UnicodeDecodeError:
            raise verified_files.PopulationError(
                f"client {client_id!r} has text that is not UTF-8: {value[:40]!r}."
            ) from None


def from_client_data(
    client_data: "tff.simulation.datasets.ClientData",
    directory: str | os.PathLike[str],
    text_feature: str = "text",
    tokenizer: tokenizers.Tokenizer | str = tokenizers.DEFAULT,
    options: population_options.PopulationOptions | None = None,
) -> client_words.ClientWords:
    """Writes and opens the population of the clients of a `ClientData`.

    Args:
        client_data: Clients whose datasets have strings as elements, or mappings with a
            string feature, batched or not.
        directory: Directory to create; it must not exist.
        text_feature: The feature to read if elements are mappings.
        tokenizer: Cuts text into words; a name or a tokenizer.
        options: Options and filters of words: those of `WordOptions`, `alphabet`,
            `out_of_alphabet`, `known_words`, `only_words` and `empty_clients` are used,
            the rest is not. None for the defaults.

    Returns:
        The population, its clients in the order of `client_data.client_ids`.

    Raises:
        PopulationError: If an element has no UTF-8 string, or no client has a
            word.
        FileExistsError: If `directory` exists.
    """
    options = options or population_options.PopulationOptions()
    if isinstance(tokenizer, str):
        tokenizer = tokenizers.get_tokenizer(tokenizer, options)
    table = word_table.WordTable(
        alphabet=options.alphabet_with(tokenizer),
        known_words=word_table.read_dictionary(options.known_words, options.language),
        refuse=options.out_of_alphabet == "refuse",
        keep=options.out_of_alphabet == "keep",
        only_words=word_table.read_dictionary(options.only_words, options.language),
        language=options.language,
    )
    client_ids = client_data.client_ids
    bar = progress.Progress("Reading client data", len(client_ids), "clients")
    with column_writer.new_population(directory) as writer, bar:
        builder = building.PopulationBuilder(writer, table, tokenizer)
        for number, client_id in enumerate(client_ids, 1):
            builder.add_client(client_id)  # known even if it has no data
            dataset = client_data.create_tf_dataset_for_client(client_id)
            written = itertools.chain.from_iterable(
                texts(element, text_feature, client_id)
                for element in dataset.as_numpy_iterator()
            )
            while batch := list(itertools.islice(written, _TEXTS_AT_ONCE)):
                size = len(batch)
                builder.add(fields.Rows([number] * size, [client_id] * size, batch))
            bar.set(number)
        metadata = builder.finish(options.empty_clients)
        metadata["alphabet"] = options.alphabet_with(tokenizer)
        metadata["source"] = {"kind": "client_data", "tokenizer": tokenizer.name}
        writer.finish(metadata.pop("client_ids"), metadata)
    return client_words.ClientWords.open(directory)
