"""The record of queries and cohorts, written before anybody is asked.

One line per round, appended and on disk before its clients are asked. A resumed run
repeats the same rounds with the same clients and code, or not at all.
"""

import dataclasses
import hashlib
import json
import os

from federated_hh.files import atomic_files, json_files
from federated_hh.privacy import realised
from federated_hh.run_directory import files as run_files

FILE = "rounds.jsonl"
_FAILED = "failed_sums.json"
_ROUND = json_files.object_of(
    {
        "repeat": json_files.SIZE,
        "number": json_files.SIZE,
        "clients": json_files.SIZE,
        "cohort": json_files.SHA256,
        "code": json_files.TEXT,
        "facts": {
            "type": "object",
            "additionalProperties": {"type": ["number", "string", "boolean"]},
        },
    }
)
_COUNTS = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]+:[0-9]+$"},
    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 2**31},
}


class RecordError(run_files.RunDirectoryError):
    """The rounds that were asked are not those that this run would ask."""


class RoundRecord:
    """The rounds of a run, as they are written down.

    Attributes:
        rounds: Those of the run so far, in order.
    """

    def __init__(self, folder: run_files.RunFiles):
        """Reads what an interrupted run wrote.

        Raises:
            RecordError: If it is damaged.
        """
        self.path = folder.path / FILE
        self.rounds: list[realised.Round] = []
        self._ahead: list[realised.Round] = []
        # `_digests[n]` is the digest of the first n rounds.
        self._sha256 = hashlib.sha256()
        self._digests = [self._sha256.hexdigest()]
        if not self.path.exists():
            return
        contents = run_files.read_bytes(self.path)
        whole = contents[: contents.rfind(b"\n") + 1]
        if whole != contents:
            # For an incomplete line, nobody was asked.
            os.truncate(self.path, len(whole))
        try:
            self._ahead = [
                realised.Round(**json_files.parse(line, _ROUND, is_finite=False))
                for line in whole.splitlines()
            ]
        except (ValueError, TypeError) as error:
            raise self._damaged(str(error)) from error

    def digest(self, count: int) -> str:
        """Returns SHA-256 of the first rounds, for the checkpoint."""
        return self._digests[count]

    def take_over(self, count: int, digest: str) -> None:
        """Restores a checkpoint's rounds.

        Args:
            count: Number of its rounds.
            digest: Digest, from `digest`.

        Raises:
            RecordError: If the file has others.
        """
        if len(self._ahead) >= count:
            for found in self._ahead[:count]:
                self._take(found)
            self._ahead = self._ahead[count:]
        if len(self.rounds) != count or self.digest(count) != digest:
            raise self._damaged(f"the checkpoint belongs to {count} other rounds")

    def check_code(self, code: str) -> None:
        """Checks that the resumed run is the original run.

        Clients who are asked again have to send the same reports, and repeated rounds
        must not reuse the noise of a round that other code computed.

        Raises:
            RecordError: If other code, or another plan, data or seed, asked before.
        """
        for found in (*self.rounds[-1:], *self._ahead):
            if found.code != code:
                raise RecordError(
                    f"{self.path}: round {found.number} of repeat {found.repeat + 1} "
                    "was asked with other code, packages, plan, data or seed (hash "
                    f"{found.code}, now {code}). Restore them, or begin a new run"
                )

    def check_done(self) -> None:
        """Checks that all recorded rounds belong to the finished run.

        Raises:
            RecordError: If clients were asked in rounds after its last one.
        """
        if self._ahead:
            raise RecordError(
                f"{self.path} has {len(self._ahead)} rounds after the last round of "
                "the resumed run, so the statement would omit clients who were "
                "asked. Begin a new run"
            )

    def add(self, asked: realised.Round) -> None:
        """Records a round before its clients are asked.

        Raises:
            RecordError: If another cohort is recorded for it, or it cannot be written.
        """
        if self._ahead:
            found = self._ahead.pop(0)
            if found != asked:
                raise RecordError(
                    f"{self.path} has {found}, but this run would ask {asked}: some "
                    "clients could take part twice. Begin a new run"
                )
            asked = found  # its bytes are on file, and the digest is of those
        else:
            try:
                with open(self.path, "ab") as file:
                    file.write(_line(asked))
                    file.flush()
                    os.fsync(file.fileno())
                if not self.rounds:
                    # A new file's name has to be there after a power cut too.
                    atomic_files.sync(self.path.parent)
            except OSError as error:
                raise RecordError(
                    f"{self.path} cannot be written: {error.strerror}. No client was "
                    "asked. Fix this and continue with --resume"
                ) from error
        self._take(asked)

    def _take(self, asked: realised.Round) -> None:
        self._sha256.update(_line(asked))
        self._digests.append(self._sha256.hexdigest())
        self.rounds.append(asked)

    def _damaged(self, why: str) -> RecordError:
        return RecordError(
            f"{self.path} is damaged, so who took part is not certain: {why}. Restore "
            "it, or begin a new run"
        )


class FailedSums:
    """The number of failed attempts at each round: `simulator/failed_sums`.

    Nothing of such a sum was released. The same clients are asked again, with new
    random numbers for every attempt.
    """

    def __init__(self, folder: run_files.RunFiles):
        """Reads what an interrupted run wrote.

        Raises:
            RunDirectoryError: If it is damaged.
        """
        self._folder = folder
        self._failed: dict[str, int] = {}
        if (folder.path / _FAILED).exists():
            self._failed = run_files.read_json(folder.path / _FAILED, _COUNTS)

    def count(self, repeat: int, number: int) -> int:
        """Returns the number of failed attempts at a round.

        Args:
            repeat: Number of the repeat, from 0.
            number: The number of the round, from 1.
        """
        return self._failed.get(f"{repeat}:{number}", 0)

    def add(self, repeat: int, number: int) -> None:
        """Writes down that a round's sum failed; see `count`."""
        self._failed[f"{repeat}:{number}"] = self.count(repeat, number) + 1
        self._folder.write_json(_FAILED, self._failed)


def _line(asked: realised.Round) -> bytes:
    return f"{json.dumps(dataclasses.asdict(asked))}\n".encode()
