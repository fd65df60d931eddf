"""What is measured in generation is what happened there."""

import json

import jax
import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams, constant, draft_model, feature_head, generate, models
from specdec_jax.cli import drafting
from specdec_jax.models.feature_head import init_head_params
from specdec_jax.state import metrics
from specdec_jax.training import HeadConfig, evaluate
from specdec_jax.training.evaluate import Drafting, Question, in_generation, predicted_speedup
from specdec_jax.training.pupils import head_config
from specdec_jax.training.report import card, curves
from specdec_jax.training.teacher import head_rows

CONFIG = GenerateConfig(capacity=32, draft_length=3, rule="coupled", prefill_chunk=8)
QUESTIONS = [Question("sums", [1, 5, 0, 2]), Question("sums", [1, 6, 7, 0, 2]), Question("tales", [1, 9, 0, 2])]


@pytest.fixture(scope="module")
def found(tiny_target):
    """The target drafts for itself, so all is kept."""
    drafting = Drafting(tiny_target.model, draft_model(tiny_target.model), tiny_target.params)
    return in_generation(tiny_target, drafting, QUESTIONS, temperature=1.0, config=CONFIG, max_new_tokens=12)


@pytest.mark.heavy
def test_a_perfect_drafter(found):
    assert found["acceptance_rate"] > 0.7  # what is drafted past an end or a limit is not kept
    assert found["accepted_at"][0] >= found["accepted_at"][2] > 0.5
    assert found["by_category"].keys() == {"sums", "tales"}
    assert 2 < found["block_efficiency"] <= 4
    assert found["speedup"] == pytest.approx(found["tokens_per_second"] / found["plain_tokens_per_second"])
    assert found["questions"] == 3


@pytest.mark.heavy
def test_a_card_and_curves(found, tmp_path):
    log = [
        {"step": 10, "loss": 3.0, "alpha": [0.2, 0.1], "tokens": 100},
        {"step": 10, "held_out": {"loss": [2.0, 2.5], "alpha": [0.3, 0.2], "block_efficiency": 1.36}},
        {"step": 20, "loss": 2.0, "alpha": [0.3, 0.2], "tokens": 90},
        {"step": 20, "held_out": {"loss": [1.5, 2.0], "alpha": [0.4, 0.3], "block_efficiency": 1.52}},
    ]
    for name in ("curves.svg", "curves.png"):
        curves(log, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    text = card(
        {
            "name": "mine",
            "kind": "feature head",
            "model": "tiny",
            "target": "my models/tiny",
            "directory": "runs/mine/drafter",
            "held_out": {"step": 20, **log[-1]["held_out"]},
            "held_out_before": log[1]["held_out"],
            "from_target": True,
            "cost": {"draft_step": 0.05, "verify": 1.3},
            "predicted_speedup": 1.02,
            "predicted_speedup_before": 0.91,
            "tokens": 190,
            "source": "the target's answers to its own questions",
            "settings": {"loss": {"name": "hybrid"}},
            "measured": [found],
        }
    )
    assert "acceptance 0.400, 0.300 for the guesses in turn, which makes 1.52 tokens a round" in text
    assert "Before training: acceptance 0.300, 0.200 for the guesses in turn, which makes 1.36 tokens a round" in text
    assert "predicts 1.02 times plain decoding. Before training: 0.91. That is of drawing at temperature 1" in text
    assert "    specdec generate \"Dear reader,\" --target 'my models/tiny' --draft runs/mine/drafter\n" in text
    assert f"block efficiency {found['block_efficiency']:.2f}" in text
    assert "| tales |" in text
    assert '"name": "hybrid"' in text


def test_ratios_of_nothing_are_none_and_not_nan(tiny_target, monkeypatch):
    """As where no row had a pair to guess from."""
    nothing = metrics(1, 1, 0, 0, [0, 0, 0], [0, 0, 0])
    monkeypatch.setattr(evaluate, "summary", lambda stats, lengths: nothing)
    drafting = Drafting(tiny_target.model, draft_model(tiny_target.model), tiny_target.params)
    found = in_generation(tiny_target, drafting, QUESTIONS[:1], temperature=1.0, config=CONFIG, max_new_tokens=1)
    assert found["accepted_at"] == [None] * 3
    json.dumps(found, allow_nan=False)
    held_out = {"step": 1, "alpha": [0.4], "block_efficiency": 1.4}
    record = dict.fromkeys(("name", "kind", "model", "target", "directory", "source"), "mine")
    assert "| sums | " in card(
        {**record, "held_out": held_out, "from_target": True, "tokens": 1, "settings": {}, "measured": [found]}
    )


def test_a_head_is_timed_by_the_passes_that_it_makes(tiny_target, tmp_path):
    """One over what the last round added, which makes the first guess too, and one for each guess after that."""
    settings, ids, K = HeadConfig(draft_vocab_size=20), np.arange(5, 25, dtype=np.int32), CONFIG.draft_length
    config = head_config(tiny_target, settings, (0, 2))
    params = init_head_params(config, jax.random.key(0), ids, head_rows(tiny_target.params))
    models.save_head(tmp_path / "head", config, params, ids, storage="float32")
    head, params = models.head_for(models.load_head(tmp_path / "head"), tiny_target)
    widths: list[int] = []

    def counted(params, features, tokens, *where):
        jax.debug.callback(lambda: widths.append(tokens.shape[1]))
        return head.apply(params, features, tokens, *where)

    made = drafting.make(str(tmp_path / "head"), tiny_target)
    out = generate(
        made.target.model,
        tiny_target.params,
        feature_head(head._replace(apply=counted)),
        params,
        np.array([[1, 5, 0, 2]], np.int32),
        [4],
        key=jax.random.key(1),
        sampling=SamplingParams(temperature=1.0),
        config=CONFIG,
        max_new_tokens=24,
        controller=constant(),
    )
    jax.block_until_ready(out)
    jax.effects_barrier()
    rounds = int(out.stats.rounds[0])
    assert rounds > 6
    # The first round finds its prompt read, and near the end of the answer fewer guesses have room.
    assert widths.count(K + 1) in (rounds - 1, rounds)
    assert (K - 1) * (rounds - K) <= widths.count(1) <= (K - 1) * rounds
    assert [(tokens, times) for _, tokens, times in made.passes(K)] == [(K + 1, 1), (1, K - 1)]
    assert [(tokens, times) for _, tokens, times in made.passes(1)] == [(2, 1)]


def test_a_predicted_speedup():
    """Of a round of three guesses: 1 + .5 + .5 * .4 + .5 * .4 * .4 tokens at the price of 1.5 steps."""
    assert predicted_speedup([0.5, 0.4], 3, {"draft_step": 0.1, "verify": 1.2}) == pytest.approx(1.78 / 1.5)
    assert predicted_speedup([0.5, 0.4], 1, {"draft_step": 0.1, "verify": 1.4}) == pytest.approx(1.0)
