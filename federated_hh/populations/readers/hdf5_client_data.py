"""Reads TFF's HDF5 data sets, such as its Shakespeare, as they are.

A file has a group `examples`, with a group for each client; its data sets are features,
with an entry for each example.
"""

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from federated_hh.files import progress, verified_files
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import bad_rows, fields

_GROUP = "examples"


def read(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a file: its clients' examples, and one feature of each.

    Args:
        path: The file.
        options: Not used: HDF5 says by itself how it is encoded.
        wanted: The feature with text or words; the file's clients are the users.
        bad: Collects the examples that cannot be read.

    Yields:
        Rows, of a client each; the number is the example's in the file, from 1.

    Raises:
        PopulationError: If it is not such a file, an impossible column is named, or too
            many examples are bad.
    """
    del options
    wanted.check_own_users(path, "file")
    number = 0
    with fields.reading(path, "HDF5"), h5py.File(path, "r") as file:
        clients = file.get(_GROUP)
        if not isinstance(clients, h5py.Group):
            raise verified_files.PopulationError(
                f"{path} is not a data set of TFF: it has no group {_GROUP!r}."
            )
        bar = progress.Progress(f"Reading {path}", len(clients), "clients")
        with bar:
            for done, (client, features) in enumerate(clients.items(), 1):
                values = _values(path, client, features, wanted)
                yield _rows(number + 1, client, values, wanted, bad)
                number += len(values)
                bar.set(done)


def _values(path: str, client: str, features: Any, wanted: fields.Fields) -> list[Any]:
    """Returns the wanted feature of a client's examples.

    Raises:
        PopulationError: If the client has no such feature.
    """
    name = wanted.content
    names: list[str] = [*features] if isinstance(features, h5py.Group) else []
    if name not in names:
        found = ", ".join(names) or "none"
        raise verified_files.PopulationError(
            f"{path}: client {client!r} has no feature {name!r} "
            f"(--{wanted.content_flag}); its features are: {found}."
        )
    return [*np.atleast_1d(features[name][()])]


def _rows(
    first: int,
    client: str,
    values: list[Any],
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> fields.Rows:
    """Returns the rows of a client's examples; the first has this number."""
    places, texts, wrong = [], [], []
    for place, value in enumerate(values, first):
        tokens: Any = value if isinstance(value, np.ndarray) else [value]
        try:
            texts.append(" ".join(token.decode() for token in tokens))
            places.append(place)
        except AttributeError:
            wrong.append((place, f"feature {wanted.content!r} holds no text"))
        except UnicodeDecodeError:
            wrong.append((place, "the text is not UTF-8"))
    return fields.checked(places, [[client] * len(texts), texts], wanted, bad, wrong)
