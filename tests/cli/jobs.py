"""A job of ``specdec generate`` on the tiny model, and what it left."""

import json
from pathlib import Path

SMALL = ["--capacity", "40", "--draft-length", "3", "--max-new-tokens", "12", "--prefill-chunk", "128", "--batch", "3"]
TEXTS = ["a b c", "d", "e f g h", "a", "b c", "i j", "k l m", "n"]


def answers(path: Path) -> dict[int, dict]:
    """The lines of an output by the number of their prompt, each answered once."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    by_index = {line["index"]: line for line in lines}
    assert len(by_index) == len(lines), "a prompt was answered twice"
    return by_index
