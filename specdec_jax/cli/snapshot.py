"""A prompt file as it was when a job began: it is read again while the job runs, and must not have changed."""

import hashlib
from array import array
from collections.abc import Iterator

from ..batch.fingerprint import digest_of
from . import UserError
from .prompts import AnyPath, Fault, Prompt, each_of_lines, form_of, lines_of_file


class Snapshot:
    """Remembers eight bytes a line, not the prompts.

    Iterating yields the prompts, as often as wanted.

    Raises:
        UserError: the file cannot be read; in iterating, at the first line that is another than before.
        PassingError: a store of objects does not answer.
    """

    def __init__(self, path: AnyPath):
        self._path = path
        self._sums = array("Q")
        self.identity = {"form": form_of(path), "digest": digest_of(self._first_time())}
        """What the prompts are, as JSON."""

    def __len__(self) -> int:
        return len(self._sums)

    def __iter__(self) -> Iterator[Prompt | Fault]:
        return each_of_lines(self._path, self._again())

    def _first_time(self) -> Iterator[bytes]:
        for _, line in lines_of_file(self._path):
            self._sums.append(_sum(line))
            yield line + b"\n"

    def _again(self) -> Iterator[tuple[int, bytes]]:
        place = 0
        for place, (number, line) in enumerate(lines_of_file(self._path), 1):
            if place > len(self) or _sum(line) != self._sums[place - 1]:
                raise self._changed(f"line {number}")
            yield number, line
        if place < len(self):
            raise self._changed("the end")

    def _changed(self, what: str) -> UserError:
        return UserError(
            f"{what} of {self._path} is not what it was when this run began; expected a file that stays as it is, so "
            "put it back and start the same command again, or name another output"
        )


def _sum(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest())
