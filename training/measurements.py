"""What was measured of a run, in a file, so that a run that is started again measures nothing twice."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .loop import read_log
from .whole_files import whole_file


class Measurements:
    """By what they were measured of and how: JSON lines with ``of`` and ``found``."""

    def __init__(self, path: Path):
        self._path = path
        self._lines = [line for line in read_log(path) if {"of", "found"} <= line.keys()]

    def get(self, of: Mapping[str, Any], measure: Callable[[], Any]) -> Any:
        """What was found by all the settings ``of``; measured now if it never was.

        Raises:
            OSError: the disk is full; what was measured before stays.
        """
        of = json.loads(json.dumps(of))
        for line in self._lines:
            if line["of"] == of:
                return line["found"]
        line = json.loads(json.dumps({"of": of, "found": measure()}, allow_nan=False))
        self._lines.append(line)
        with whole_file(self._path, "what was measured") as part:
            part.write_text("".join(json.dumps(one) + "\n" for one in self._lines), encoding="utf-8")
        return line["found"]
