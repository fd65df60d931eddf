"""What a TPU would read of a model in int8: int8."""

from pathlib import Path

import pytest

from scripts import printed_by

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("libtpu", reason="compiling for a TPU needs the extra plan")
    return printed_by(HERE / "int8_for_v5e.py")


@pytest.mark.heavy
def test_converted_weights_are_never_written_out(found):
    """Neither in front of a loop nor inside: what a product reads from memory is int8."""
    assert [line["layers"] for line in found] == ["stacked", "unrolled"]
    for line in found:
        assert line["written"] == [], line
        assert line["arguments"] < 0.52 * line["floats"], line
