"""Rows that cannot be read: counted, listed, and too many of them an error."""

import re
from typing import Any

from absl import logging

from federated_hh.files import verified_files
from federated_hh.populations.readers import opening

# Rows of a kind that are told one by one; of others there is a count.
_SHOWN_OF_A_KIND = 3
# Values in a reason, which rows of a kind do not share.
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"|[0-9]+")
_SHOWN_KINDS = 10
_MAX_REASON = 200  # characters: a reason may quote a value of any length


class BadRows:
    """The bad rows of all files of a population."""

    def __init__(self, limit: int, num_files: int = 1, encoding: str = "utf-8"):
        """Starts with none.

        Args:
            limit: Largest number of bad rows in all files, at least 0.
            num_files: Number of files; if there are several, each row says which it is
                in.
            encoding: Encoding of the files, for advice.
        """
        self._limit = limit
        self._num_files = num_files
        self._encoding = encoding
        self._path = ""
        self._listed: list[dict[str, Any]] = []
        self._kinds: dict[str, list[dict[str, Any]]] = {}

    def start_file(self, path: str) -> None:
        """Says which file the next bad rows are in."""
        self._path = path

    def add(self, line: int, reason: str) -> None:
        """Notes a bad row.

        Args:
            line: Number of its first line, from 1.
            reason: The row's fault.

        Raises:
            PopulationError: If there are now more than allowed.
        """
        if len(reason) > _MAX_REASON:
            reason = f"{reason[:_MAX_REASON]}..."
        row: dict[str, Any] = {"line": line, "reason": reason}
        if self._num_files > 1:
            row["file"] = self._path
        self._listed.append(row)
        kind = self._kinds.setdefault(_VALUES.sub("", reason), [])
        kind.append(row)
        if len(kind) <= _SHOWN_OF_A_KIND:
            logging.warning("%s:%d: row left out: %s", self._path, line, reason)
        if len(self._listed) > self._limit:
            whole = self._path
            if self._num_files > 1:
                whole = f"the population of {self._num_files} files"
            raise verified_files.PopulationError(
                f"{whole} has more than {self._limit} bad rows "
                f"(--max_bad_rows={self._limit}): {self.summary()}. Fix the file or "
                "the options for reading it, or raise --max_bad_rows."
            )

    def summary(self) -> str:
        """Returns the first bad rows of each kind and their number, as text."""
        texts = []
        for rows in [*self._kinds.values()][:_SHOWN_KINDS]:
            shown = rows[:_SHOWN_OF_A_KIND]
            places = [
                f"{row['file']}:{row['line']}"
                if "file" in row
                else f"line {row['line']}"
                for row in shown
            ]
            rest = f" and {len(rows) - len(shown):,} more" if rows[len(shown) :] else ""
            if rest and len({row["reason"] for row in rows}) == 1:
                texts.append(f"{', '.join(places)}{rest}: {shown[0]['reason']}")
            else:
                reasons = (row["reason"] for row in shown)
                texts += map(": ".join, zip(places, reasons, strict=True))
                texts[-1] += f"{rest} of this kind" if rest else ""
            if shown[0]["reason"] == opening.UNDECODABLE:
                path = shown[0].get("file", self._path)
                found = opening.likely_encoding(path, self._encoding)
                texts += [found[1]] if found else []
        return "; ".join(texts) + ("; ..." if len(self._kinds) > _SHOWN_KINDS else "")

    def log_rest(self) -> None:
        """Logs the number of the rows that were not told one by one."""
        if any(len(rows) > _SHOWN_OF_A_KIND for rows in self._kinds.values()):
            logging.warning("Rows left out: %s.", self.summary())

    def report(self) -> dict[str, Any]:
        """Returns the number of bad rows and the list of them, as JSON values."""
        return {"count": len(self._listed), "rows": list(self._listed)}
