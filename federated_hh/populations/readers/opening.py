"""Opens text files, compressed or not, in blocks of lines and with progress."""

import codecs
import contextlib
import io
import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

from federated_hh.files import progress, verified_files

COMPRESSIONS = (".gz", ".xz", ".zst")
# No record is this large: the file has other line ends, or is not text.
MAX_LINE_CHARACTERS = 1 << 26

UNDECODABLE = "bytes that the encoding (--encoding) does not have"

# Bytes per read; everything read before an error is used.
_CHUNK_BYTES = io.DEFAULT_BUFFER_SIZE
_BLOCK_CHARACTERS = 1 << 22
# Looked through for bytes that an encoding does not have: 64 MiB.
_MOST_CHUNKS = (1 << 26) // _CHUNK_BYTES
# Windows' Latin letters first: ISO-8859-1's others are control characters.
_LIKELY = ("utf-8", "cp1252", "iso-8859-1")


def has_undecodable(text: str) -> bool:
    """Returns whether text has bytes that its encoding does not explain."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate represents such a byte
        return True
    return False


def likely_encoding(path: str, encoding: str) -> tuple[str, str] | None:
    """Returns an encoding that a text file is likely in, and advice to try it.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        encoding: Encoding that was tried.

    Returns:
        None if the file's beginning is in the encoding that was tried, or cannot be
        read.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with open(path, "rb") as raw:
            binary = _decompressed(raw, split_compression(path)[1])
            for _ in range(_MOST_CHUNKS):
                data = binary.read1(_CHUNK_BYTES)
                decoder.decode(data, final=not data)
                if not data:
                    break
        return None
    except UnicodeDecodeError as error:
        data, place = error.object, error.start
    except Exception:  # told where the file is read
        return None
    for name in _LIKELY:
        with contextlib.suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(name)().decode(data)
            break
    start = data.rfind(b"\n", 0, place) + 1
    line, before = data[start:].decode(name, "replace"), data[start:place].decode(name)
    words = re.finditer(r"\w+|\W", line)
    word = next(found[0] for found in words if found.end() > len(before))
    return name, (
        f"try --encoding={name}, which reads the byte 0x{data[place]:02X} in {word!r}, "
        "or, if that is not what it says, the encoding that the file was written in"
    )


def _check_not_wide(data: bytes, encoding: str) -> None:
    """Raises `UnicodeError` where a text of another encoding begins as UTF-16."""
    if encoding.startswith(("utf-16", "utf-32")):
        return
    zeros, names = [data[:64][i::2].count(0) for i in (0, 1)], ("be", "le")
    found = None
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        found, why = "utf-32", "begins with a byte order mark"
    elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        found, why = "utf-16", "begins with a byte order mark"
    elif not min(zeros) and max(zeros) > len(data[:64]) // 4:
        found, why = f"utf-16-{names[zeros[1] > 0]}", "has NUL as every other byte"
    if found:
        first = data[: len(data) // 4 * 4].decode(found, "replace").partition("\n")[0]
        raise UnicodeError(
            f"the file {why}: try --encoding={found}. Its first line is then "
            f"{first.strip()[:200]!r}"
        )


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
def open_text(path: str, encoding: str) -> Iterator[Iterator[str]]:
    """Opens a file for reading its lines.

    Bytes that cannot be decoded become lone surrogates: see `has_undecodable`.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        encoding: The encoding of the text; a byte order mark of UTF-8 is skipped.

    Yields:
        An iterator of lines with their line ends, as split at line feeds.

    Raises:
        PopulationError: If the file cannot be opened, decompressed or read.
    """
    with open_blocks(path, encoding, show_progress=False) as blocks:
        yield itertools.chain.from_iterable(map(lines_of, blocks))


def lines_of(block: str) -> Iterator[str]:
    """Returns the lines of a block with their line ends, as split at line feeds."""
    return io.StringIO(block, newline="\n")


@contextlib.contextmanager
def open_blocks(
    path: str, encoding: str, show_progress: bool = True
) -> Iterator[Iterator[str]]:
    """Opens a file for reading many lines at a time.

    Args:
        path: Path, as in `open_text`.
        encoding: Encoding, as in `open_text`.
        show_progress: Whether to show how much of the file has been read.

    Yields:
        An iterator of blocks of whole lines, of about a million characters each. All
        lines before an unreadable position are yielded before the error.

    Raises:
        PopulationError: As in `open_text`.
    """
    with contextlib.ExitStack() as stack:
        try:
            raw = stack.enter_context(open(path, "rb"))
            binary = _decompressed(raw, split_compression(path)[1])
            io.TextIOWrapper(io.BytesIO(), encoding).close()  # is it of text?
            utf_8 = codecs.lookup(encoding).name == "utf-8"
            decoder = codecs.getincrementaldecoder("utf-8-sig" if utf_8 else encoding)
        except OSError as error:
            raise verified_files.PopulationError(
                f"{path} cannot be read: {error.strerror or error}."
            ) from None
        except LookupError:
            raise verified_files.PopulationError(
                f"encoding is {encoding!r}; it has to be a text encoding that Python "
                "knows, "
                "such as utf-8 or iso-8859-1."
            ) from None
        stack.callback(binary.close)
        name = codecs.lookup(encoding).name
        blocks = _blocks(path, binary, decoder("surrogateescape"), name)
        if show_progress:
            description = f"Reading {os.path.basename(path)}"
            bar = progress.Progress(description, os.path.getsize(path), "B")
            blocks = _reporting(blocks, raw, stack.enter_context(bar))
        yield blocks


def _blocks(
    path: str, binary: Any, decoder: codecs.IncrementalDecoder, encoding: str
) -> Iterator:
    """Yields blocks of whole lines; the last one may lack its line end."""
    number = 0  # of lines handed on
    rest = ""  # of a line that has begun
    ended = False
    while not ended:
        pieces, size, error = [rest], 0, None
        while size < _BLOCK_CHARACTERS and not ended:
            try:
                data = binary.read1(_CHUNK_BYTES)
                if not number and not size:
                    _check_not_wide(data, encoding)
                piece = decoder.decode(data, final=not data)
            # EOFError: the compressed data is cut off. LZMAError and zlib.error have
            # no common base class with the others but Exception.
            except Exception as why:
                error, ended = why, True
                break
            pieces.append(piece)
            size += len(piece)
            ended = not data
        text = "".join(pieces)
        # Only the first line can be longer than a block.
        first = text.find("\n") + 1 or len(text) + 1
        if first > MAX_LINE_CHARACTERS:
            raise verified_files.PopulationError(
                f"{path}:{number + 1}: the line is longer than {MAX_LINE_CHARACTERS} "
                "characters; give a text file with one record per line."
            )
        end = len(text) if ended and not error else text.rfind("\n") + 1
        block, rest = text[:end], text[end:]
        if block:
            yield block
        number += block.count("\n")
        if error:
            raise verified_files.PopulationError(
                f"{path}: reading stopped after line {number}: "
                f"{error or type(error).__name__}"
            ) from error


def _reporting(
    blocks: Iterator[str], raw: io.BufferedReader, bar: progress.Progress
) -> Iterator[str]:
    for block in blocks:
        yield block
        bar.set(raw.tell())
