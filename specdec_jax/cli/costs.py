"""Measured costs in the user's cache folder: ``specdec tune`` writes them, the other commands find them.

A record holds for one pair of models, one batch and capacity, one kind of device, and the versions that it was measured
with; anything else is another record.
"""

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

import jax

from ..control import Costs
from ..models import dtype_of
from ..state import GenerateConfig
from . import UserError, cache_folder
from .drafting import Drafting


def key(drafting: Drafting, config: GenerateConfig, batch: int) -> dict[str, Any]:
    """All that costs depend on, ready for JSON. (Acceptance rules differ by next to nothing.)"""
    return {
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "target": drafting.target.name,
        "target_parameters": sum(leaf.size for leaf in jax.tree.leaves(drafting.target.params)),
        "draft": drafting.name,
        "draft_parameters": sum(leaf.size for leaf in jax.tree.leaves(drafting.params)),
        "dtype": str(dtype_of(drafting.target.params)),
        "batch": batch,
        "capacity": config.capacity,
        "widths": list(config.widths),
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "specdec-jax")},
    }


def path_of(key: dict[str, Any]) -> Path:
    """Where a record of this key lies, if there is one."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "costs" / f"{digest[:20]}.json"


def save(key: dict[str, Any], costs: Costs) -> Path:
    """Keep a measurement; whoever reads at the same time sees the old record or the new one."""
    path = path_of(key)
    record = {"key": key, "draft_step": costs.draft_step, "verify": list(costs.verify)}
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; expected a folder that can be written to") from error
    return path


def find(drafting: Drafting, config: GenerateConfig, batch: int) -> Costs | None:
    """What was measured for these, or None where nothing was, or nothing is drafted."""
    if drafting.drafter is None:
        return None
    wanted = key(drafting, config, batch)
    path = path_of(wanted)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, str(error)) from error
    try:
        record = json.loads(text)
        if record["key"] != wanted:
            raise ValueError("it was measured for something else")
        costs = Costs(float(record["draft_step"]), [float(cost) for cost in record["verify"]])
        costs.checked(config.widths)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _bad(path, f"{type(error).__name__}: {error}") from error
    return costs


def _bad(path: Path, why: str) -> UserError:
    return UserError(f"{path} is no record of costs ({why}); delete it, or measure again with specdec tune")
