"""How long the start of ``specdec generate`` takes, in processes of their own."""

import pytest

from specdec_jax.cli import UserError, startup

ASKED = {"target_weights": "float", "draft_weights": "float", "capacity": 64, "draft_length": 2}


@pytest.mark.heavy
def test_programs_that_were_kept_are_not_compiled_again(tiny, monkeypatch):
    """With every program kept, however fast it compiled, and no other cache than the one that is made for it."""
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    found = startup.measure(str(tiny), str(tiny), **ASKED)
    cold, warm = found["cold"], found["warm"]
    assert min(*cold, *warm) > 0
    assert warm.compile_seconds < 0.7 * cold.compile_seconds
    assert cold.answer_seconds < 0.5 * cold.compile_seconds


def test_what_a_process_says_last_is_told(tmp_path):
    with pytest.raises(
        UserError, match=r"cannot be measured \(.*nowhere does not exist.*\); leave it out with --no-st"
    ):
        startup.measure(str(tmp_path / "nowhere"), "ngram", **ASKED)
