"""The check of a real model's next tokens: its cells, its power, and that it finds a biased rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams, draft_model
from specdec_jax.testing import history_logits, history_model, markov_model, random_logits, reference
from specdec_jax.testing.equality import Pair
from specdec_jax.testing.next_tokens import count, likely_cells, next_tokens
from specdec_jax.verify import RULES, block

V = 8
TARGET, PARAMS = history_model(V), random_logits(0, 97, V)
WEAK = (PARAMS + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
PAIR = Pair(TARGET, PARAMS, draft_model(TARGET), WEAK)
PROMPT = [1, 0, 2]
CONFIG = GenerateConfig(capacity=16, draft_length=3, rule="block", prefill_chunk=4)
WARM = SamplingParams(temperature=0.8)


def after(tokens) -> np.ndarray:
    return reference.distribution(history_logits(PARAMS, tokens), temperature=0.8)


def test_cells_divide_all_that_can_follow():
    cells = likely_cells(TARGET, PARAMS, PROMPT, WARM, depth=3, width=2)
    assert sum(cell.probability for cell in cells) == pytest.approx(1, abs=1e-6)
    assert sum(not cell.rest for cell in cells) == 2**3
    for cell in cells:
        chance, tokens = 1.0, list(PROMPT)
        for token in cell.tokens:
            chance *= after(tokens)[token]
            tokens.append(token)
        if cell.rest:
            chance *= 1 - np.sort(after(tokens))[-2:].sum()
        assert cell.probability == pytest.approx(chance, rel=1e-4, abs=1e-7)
    every = np.indices((V,) * 3).reshape(3, -1).T
    counts = count(cells, every)
    assert sum(counts) == V**3
    assert counts[: 2**3] == [1] * 8


@pytest.mark.heavy
def test_an_exact_rule_passes():
    found = next_tokens(PAIR, PROMPT, key=jax.random.key(0), sampling=WARM, config=CONFIG, draws=4000, batch=1000)
    assert found.holds, found.p_value
    assert sum(found.counts) == found.draws == 4000
    assert 0 < found.smallest < 0.1


@pytest.mark.heavy
def test_a_biased_rule_is_found(monkeypatch):
    """One that accepts a quarter of what it should refuse."""
    eager = block.rule._replace(
        verify=lambda keys, proposal, p: _judge(keys, proposal, p, lambda h: jnp.where(h > 0, h + 0.25 * (1 - h), 0))
    )
    monkeypatch.setitem(RULES, "block", eager)
    config = GenerateConfig(capacity=17, draft_length=3, rule="block", prefill_chunk=4)
    found = next_tokens(PAIR, PROMPT, key=jax.random.key(0), sampling=WARM, config=config, draws=4000, batch=1000)
    assert not found.holds


def _judge(keys, proposal, p, change):
    u = block.uniforms(keys, proposal.tokens.shape[1])
    accepted = block.num_accepted(u, change(block.thresholds(proposal, p)))
    return block.Verdict(accepted, block.draw_next(keys, block.next_weights(proposal, p, accepted)))


@pytest.mark.heavy
def test_a_certain_target():
    """Whatever else came would be counted, and refused."""
    sure = np.full((V, V), -np.inf, np.float32)
    sure[np.arange(V), (np.arange(V) + 1) % V] = 0
    model = markov_model(V)
    pair = Pair(model, sure, draft_model(model), random_logits(1, V, V))
    found = next_tokens(pair, [0], key=jax.random.key(0), sampling=WARM, config=CONFIG, draws=64, batch=64)
    assert found.holds
    assert found.smallest == pytest.approx(1 - 0.2 ** (1 / 64))
    assert sorted(count(found.cells, np.array([[1, 2, 3], [1, 2, 4], [1, 0, 0], [5, 0, 0]])), reverse=True) == [1] * 4


@pytest.mark.heavy
def test_a_sharp_target_is_not_refused_for_one_rare_token():
    """Each key draws a rare token about once in twenty; the key here does."""
    rare = 0.05 / 1024 / 3
    sharp = np.full((V, V), np.log(rare / (V - 1)), np.float32)
    sharp[np.arange(V), (np.arange(V) + 1) % V] = np.log(1 - rare)
    model = markov_model(V)
    pair = Pair(model, sharp, draft_model(model), sharp)
    how = {"sampling": SamplingParams(), "config": CONFIG, "draws": 1024, "batch": 1024}
    found = next_tokens(pair, [0], key=jax.random.key(17), **how)
    assert sum(found.counts) - max(found.counts) == 1
    assert found.holds
    assert 0.03 < found.p_value < 0.07


def drawn(pair, prompt, **changes):
    how = {"key": jax.random.key(0), "sampling": WARM, "config": CONFIG, "draws": 8, "batch": 8} | changes
    return next_tokens(pair, prompt, **how)


@pytest.mark.parametrize("target", [TARGET, TARGET._replace(max_positions=15)], ids=["capacity", "positions"])
def test_a_prompt_that_leaves_too_little_room(target):
    prompt = [1] * (14 if target.max_positions is None else 13)
    with pytest.raises(ValueError, match=rf"the prompt has {len(prompt)} tokens, .* room for 2; expected room for 3"):
        drawn(PAIR._replace(target=target), prompt)


def test_rows_that_end_are_not_counted_as_padding():
    """After a 7, which comes often, the target is broken."""
    model, params = markov_model(V), np.zeros((V, V), np.float32)
    params[:, 7], params[7] = 2, np.nan
    with pytest.raises(ValueError, match="of 8 rows ended before they had 3 tokens, for NAN; expected a target whose"):
        drawn(Pair(model, params, None, None), [0])
