"""The card of a drafter says what each of its numbers is of."""

import pytest

from specdec_jax.models import find_head
from specdec_jax.training import kept
from specdec_jax.training.report import card

HELD_OUT = {"step": 4, "alpha": [0.4, 0.3], "block_efficiency": 1.52}
RECORD = {
    "name": "mine",
    "kind": "feature head",
    "model": "tiny",
    "target": "models/my tiny",
    "directory": "mine/drafter",
    "held_out": HELD_OUT,
    "held_out_before": HELD_OUT | {"alpha": [0.2, 0.1]},
    "from_target": True,
    "temperatures": [0.0, 1.0],
    "tokens": 1900,
    "source": "the target's answers to its own questions",
    "settings": {"loss": {"name": "hybrid"}},
    "cost": {"draft_step": 0.064, "verify": 1.59},
    "predicted_speedup": 0.91,
    "predicted_speedup_before": 0.83,
}


def measured(temperature: float, speedup: float) -> dict:
    worth = {"block_efficiency": 1.44, "acceptance_rate": 0.11}
    counts = {"questions": 8, "max_new_tokens": 128, "draft_length": 4, "by_category": {"math": worth}}
    return {"temperature": temperature, "speedup": speedup, **worth, **counts}


MEASURED = {
    "measured": [measured(0.0, 0.71), measured(1.0, 0.72)],
    "measured_before": [measured(0.0, 0.69), measured(1.0, 0.73)],
}


@pytest.mark.parametrize(
    ("temperatures", "written"),
    [([0.0, 1.0], "wrote at temperature 0 and 1:"), ([0.7], "wrote at temperature 0.7:"), (None, "wrote:")],
)
def test_what_a_prediction_is_of(temperatures, written):
    """Acceptance at temperature 1, on text that was written at others."""
    record = {name: value for name, value in RECORD.items() if name != "temperatures"}
    found = card(record if temperatures is None else record | {"temperatures": temperatures})
    assert "predicts 0.91 times plain decoding. Before training: 0.83. That is of drawing at temperature 1" in found
    assert written in found
    assert "| predicted" not in found, "there is nothing to lay beside it"


def test_predicted_speeds_stand_beside_the_measured_ones():
    lines = card(RECORD | MEASURED).splitlines()
    at = lines.index(
        "| times plain decoding | predicted from held-out text | measured greedily | measured at temperature 1.0 |"
    )
    assert lines[at + 2 : at + 5] == ["| before training | 0.83 | 0.69 | 0.73 |", "| after | 0.91 | 0.71 | 0.72 |", ""]
    alone = card(RECORD | {"measured": MEASURED["measured"]}).splitlines()
    assert "| after | 0.91 | 0.71 | 0.72 |" in alone
    assert not any(line.startswith("| before") for line in alone)


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "int8", None])
def test_what_held_out_figures_are_of(stored):
    """Of the parameters as they are trained; the drafter that is written may hold them shorter."""
    found = card(RECORD if stored is None else RECORD | {"stored": stored})
    assert "which makes 1.52 tokens a round if they are kept independently of each other." in found
    said = f"These are of its parameters in float32, as they are trained; they are stored in {stored}."
    assert (said in found) == (stored in ("bfloat16", "int8"))


def test_of_a_files_text_nothing_is_predicted():
    record = {name: value for name, value in RECORD.items() if not name.startswith("predicted")} | MEASURED
    found = card(record | {"from_target": False})
    assert "no speed-up is predicted from them" in found
    assert "checking all of them 1.59 steps." in found
    assert "predicted from held-out" not in found


def test_the_card_of_the_shipped_head_is_that_of_its_record():
    """Notes may follow it."""
    place = find_head("smollm2-135m-head")
    assert place is not None
    made = card(kept.read_record(place))
    assert (place / kept.CARD).read_text(encoding="utf-8").startswith(made)
    assert '    specdec generate "Dear reader," --target smollm2-135m --draft smollm2-135m-head\n' in made
