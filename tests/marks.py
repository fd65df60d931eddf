"""Which cases of a test run at once, and which with the heavy tests."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def at_once(cases: Iterable[Any], chosen: Sequence[Any]) -> list[Any]:
    """All cases, for `parametrize`; those that are not ``chosen`` run with the heavy tests."""
    cases = list(cases)
    assert all(case in cases for case in chosen), f"{chosen} are not all among {cases}"
    return [case if case in chosen else _heavy(case) for case in cases]


def _heavy(case: Any):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.heavy)
