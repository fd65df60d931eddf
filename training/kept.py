"""The drafter that a run keeps: whose it is, and how it is replaced as a whole, with its record and card."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specdec_jax.batch.manifest import differences
from specdec_jax.models.new_directory import check_replaceable, replaced_directory

from .checkpoints import part_of
from .errors import TrainingError
from .report import card

RECORD = "record.json"
"""What a run wrote down about its drafter; by it the directory is known as the run's own."""
CARD = "README.md"


def read_record(place: Path) -> dict[str, Any]:
    """What was written down about the drafter that lies there, None for NaN; nothing if there is none."""
    try:
        text = (place / RECORD).read_text(encoding="utf-8")
        found = json.loads(
            text, parse_constant=lambda _: None
        )  # as earlier versions wrote ratios of nothing to nothing
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def check_own(place: Path, known: Mapping[str, Any]) -> None:
    """Raise a TrainingError for what a run did not make of whose settings these are ``known``.

    A drafter that had not learned anything yet may be of another run, for it is nothing to lose.

    Raises:
        FileExistsError: what is to be made beside it has something in its way.
    """
    check_replaceable(place)
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    record = read_record(place)
    settings, held_out = record.get("settings"), record.get("held_out")
    if isinstance(held_out, dict) and held_out.get("step") == 0:
        return
    if isinstance(settings, dict):
        known = json.loads(json.dumps(known))
        other = differences(part_of(settings, known), known)
    else:
        other = [f"it has no {RECORD} with the settings of a run"]
    if other:
        raise TrainingError(
            f"{place} is not of this run: {'; '.join(other)}. Expected this run's own drafter or no such directory, so "
            "move it away, or name another directory"
        )


def replace(place: Path, record: Mapping[str, Any], write: Callable[[Path], object] | None = None) -> dict[str, Any]:
    """Put what ``write`` writes, the record and the card in the place of what was written so before, all at once.

    Other files that lie there stay, and so does a card that somebody has edited. Without ``write`` all but the record
    and the card stays.

    Returns:
        The record as it was written: with ``files``, the names of what ``write`` wrote.
    """
    record, edited = dict(record), _edited(place)
    with replaced_directory(place, without=read_record(place).get("files", ()) if write else ()) as inside:
        if write is not None:
            write(inside)
            record["files"] = sorted(entry.name for entry in inside.iterdir())
        text = json.dumps(record, indent=2, allow_nan=False)
        (inside / RECORD).write_text(text + "\n", encoding="utf-8")
        if not edited:
            (inside / CARD).write_text(card(record), encoding="utf-8")
    return record


def _edited(place: Path) -> bool:
    try:
        return (place / CARD).read_text(encoding="utf-8") != card(read_record(place))
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):  # no text, or a record of another version: not what is written here
        return True
