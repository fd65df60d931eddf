"""What defines a job, kept beside its results: a run with other settings may not go on with them."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .errors import JobError, reaching
from .files import Place, create_whole, make_folder

_FORMAT = 2
"""To be raised too when a version draws other tokens from the same seed: versions themselves are not compared."""
_BEGUN = "begun"
_UNKNOWN = "0001-01-01"
"""When a job of an earlier format began; it is refused for its format."""


def claim(place: Place, identity: Mapping[str, Any], *, now: datetime | None = None) -> datetime:
    """Make the output this job's, or find that it is already.

    Every process of the job calls it, and the first to write a manifest says what job it is. ``identity`` is all that
    the answers depend on, as JSON; ``now`` is by default what the clock says.

    Returns:
        When the job began, to the second: the ``now`` of its first run. Answers may depend on the date.

    Raises:
        JobError: the output is another job's, which is named by what differs, or its manifest is damaged or missing.
    """
    wanted = json.loads(json.dumps({"format": _FORMAT, **identity}))
    make_folder(place.folder)
    with reaching(place.folder):
        held = [path for path in place.all_results() if path.stat().length]  # first: others write after the manifest
        claimed = place.manifest.exists()
    if not claimed:
        if held:
            raise JobError(
                f"{held[0]} holds results, but {place.manifest} is missing, which says of what job; put it back, or "
                "name another output"
            )
        begun = (datetime.now() if now is None else now).isoformat(timespec="seconds")
        create_whole(place.manifest, json.dumps(wanted | {_BEGUN: begun}, indent=2) + "\n")
    with reaching(place.manifest):
        found, begun = _read(place)
    other = differences(found, wanted)
    if other:
        raise JobError(
            f"{place.manifest} is of another job: {'; '.join(other)}. Expected the same to go on with it, so name "
            "another output, or repeat what it began with"
        )
    return begun


def _read(place: Place) -> tuple[dict[str, Any], datetime]:
    try:
        found = json.loads(place.manifest.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        begun = datetime.fromisoformat(found.pop(_BEGUN) if found.get("format") == _FORMAT else _UNKNOWN)
    except (FileNotFoundError, IsADirectoryError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise JobError(
            f"{place.manifest} is damaged ({error}); expected what a job wrote there, so put it back, or name another "
            "output"
        ) from error
    return found, begun


def differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    """What differs between two JSON values, each by its place."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = dict.fromkeys([*found, *wanted])
        return [
            line for key in keys for line in differences(found.get(key), wanted.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [] if found == wanted else [f"{name} was {found!r} and is now {wanted!r}"]
