"""Opens text files, compressed or not, line by line and with progress."""

import codecs
import contextlib
import io
import os
import re
from collections.abc import Iterator
from typing import Any

from simulation import population_options, progress

COMPRESSIONS = (".gz", ".xz", ".zst")
# A record of this size is no record: the file has other line ends, or is not text.
MAX_LINE_CHARACTERS = 1 << 26

UNDECODABLE = "bytes that the encoding (--encoding) does not have"

_LINES_BETWEEN_REPORTS = 1 << 12
_SURROGATE = re.compile("[\ud800-\udfff]")


def has_undecodable(text: str) -> bool:
    """Returns whether text has bytes that its encoding does not explain."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def split_compression(path: str) -> tuple[str, str]:
    """Returns a path without its compression suffix, and that suffix or ""."""
    for suffix in COMPRESSIONS:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)], suffix
    return path, ""


def _decompressed(raw: io.BufferedReader, suffix: str) -> Any:
    if suffix == ".gz":
        import gzip

        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        import lzma

        return lzma.LZMAFile(raw)
    if suffix == ".zst":
        import pyarrow as pa

        # Unlike the zstandard package it notices a file that was cut off.
        return io.BufferedReader(pa.CompressedInputStream(raw, "zstd"), 1 << 20)
    return raw


@contextlib.contextmanager
def open_text(path: str, encoding: str, show_progress: bool = False) -> Iterator:
    """Opens a file for reading its lines.

    Bytes that cannot be decoded become lone surrogates: see `has_undecodable`.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        encoding: Of the text; a byte order mark of UTF-8 is skipped.
        show_progress: Whether to show how much of the file has been read.

    Yields:
        An iterator of lines with their line ends, as split at line feeds.

    Raises:
        PopulationError: If the file cannot be opened, decompressed or read.
    """
    with contextlib.ExitStack() as stack:
        try:
            raw = stack.enter_context(open(path, "rb"))
            text = io.TextIOWrapper(
                _decompressed(raw, split_compression(path)[1]),
                "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding,
                errors="surrogateescape",
                newline="\n",
            )
        except OSError as error:
            raise population_options.PopulationError(
                f"{path} cannot be read: {error}"
            ) from None
        except LookupError:
            raise population_options.PopulationError(
                f"encoding is {encoding!r}; it has to be a text encoding that Python "
                "knows, "
                "such as utf-8 or iso-8859-1."
            ) from None
        stack.callback(text.close)
        lines = _lines(path, text)
        if show_progress:
            description = f"Reading {os.path.basename(path)}"
            bar = progress.Progress(description, os.path.getsize(path), "B")
            lines = _reporting(lines, raw, stack.enter_context(bar))
        yield lines


def _lines(path: str, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while True:
        try:
            line = text.readline(MAX_LINE_CHARACTERS)
        # EOFError: the compressed data is cut off. LZMAError and zlib.error have no
        # common base class with the others but Exception.
        except Exception as error:
            raise population_options.PopulationError(
                f"{path}: reading stopped after line {number}: "
                f"{error or type(error).__name__}"
            ) from error
        if not line:
            return
        number += 1
        if len(line) == MAX_LINE_CHARACTERS and not line.endswith("\n"):
            raise population_options.PopulationError(
                f"{path}:{number}: the line is longer than {MAX_LINE_CHARACTERS} "
                "characters; is this a text file with one record a line?"
            )
        yield line


def _reporting(
    lines: Iterator[str], raw: io.BufferedReader, bar: progress.Progress
) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number % _LINES_BETWEEN_REPORTS == 0:
            bar.set(raw.tell())
        yield line
    bar.set(raw.tell())
