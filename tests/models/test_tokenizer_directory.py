"""The tokenizer of a directory, its special tokens and its chat template, as transformers reads them."""

import json
from typing import Any

import pytest
from test_tokenizer import TEXTS, trained, vocabulary
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vocabularies import tokenizer_of

from specdec_jax.models import load


@pytest.fixture
def folder(oracle, tmp_path):
    """A directory with a tokenizer as transformers saves it, which puts a begin token in front."""
    backend = trained("qwen2")
    backend.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    oracle(vocab_size=700, eos_token_id=2, bos_token_id=1).save_pretrained(tmp_path)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        chat_template="{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}",
    )
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_directory(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    got, want = load(folder).tokenizer, AutoTokenizer.from_pretrained(folder)
    assert got is not None
    assert [got.encode(text) for text in TEXTS] == want(TEXTS).input_ids
    assert got.encode("fox", add_special_tokens=False) == want("fox", add_special_tokens=False).input_ids
    assert got.eos_ids == (0, 2)
    assert (got.bos_id, got.adds_bos) == (1, True)
    messages = [{"role": "user", "content": "fox"}]
    assert got.apply_chat_template(messages) == want.apply_chat_template(messages, tokenize=False)
    assert got.encode_chat(messages) == want.apply_chat_template(messages).input_ids
    assert load(folder).model.vocab_size == 700


def test_what_a_template_asks_for(folder):
    """It goes before a special token of its name."""
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{% if enable_thinking is false %}brief{% endif %}")
    got, want = load(folder).tokenizer, AutoTokenizer.from_pretrained(folder)
    assert got is not None
    messages = [{"role": "user", "content": "fox"}]
    several: tuple[dict[str, Any], ...] = (
        {},
        {"enable_thinking": False},
        {"bos_token": "fox", "enable_thinking": False},
    )
    for variables in several:
        text = want.apply_chat_template(messages, tokenize=False, **variables)
        assert got.apply_chat_template(messages, **variables) == text
        assert got.encode_chat(messages, **variables) == want.apply_chat_template(messages, **variables).input_ids


def test_end_tokens_without_a_generation_config(folder):
    (folder / "generation_config.json").unlink()
    tokenizer = load(folder).tokenizer
    assert tokenizer is not None
    assert tokenizer.eos_ids == (2,)


@pytest.mark.parametrize("newer", [False, True])
def test_special_tokens_in_a_file_of_their_own(newer, folder):
    """As older directories have them. Newer ones list all added tokens, and then the file does not count."""
    (folder / "generation_config.json").unlink()
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | ({"added_tokens_decoder": {}} if newer else {})
    path.write_text(json.dumps({key: value for key, value in settings.items() if key != "bos_token"}))
    named = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|endoftext|>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    got, want = load(folder).tokenizer, AutoTokenizer.from_pretrained(folder)
    assert got is not None
    assert got.eos_ids == ((2,) if newer else (2, 0)), "2 is that of config.json"
    assert want.eos_token_id == got.eos_ids[-1]
    assert got.template_names.get("bos_token") == want.bos_token == (None if newer else "<|im_start|>")


def test_template_in_the_tokenizer_config(folder):
    """Where it was before it had a file of its own, alone or as one of several."""
    (folder / "chat_template.jinja").unlink()
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "named"}]
    for template, text in (("alone", "alone"), (several, "named")):
        path.write_text(json.dumps(settings | {"chat_template": template}))
        tokenizer = load(folder).tokenizer
        assert tokenizer is not None
        assert tokenizer.apply_chat_template([]) == text


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "fox"},
    {"role": "assistant", "content": "quick"},
    {"role": "user", "content": " why? "},
]
CHATML = """{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nDefault<|im_end|>\n' }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>' + '\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@pytest.mark.parametrize("messages", [CHAT, CHAT[1:]], ids=["system prompt", "none"])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_a_conversation_is_the_same_from_both_kinds_of_file(messages, add_generation_prompt, folder, tmp_path):
    (folder / "chat_template.jinja").write_text(CHATML)
    theirs = AutoTokenizer.from_pretrained(folder)
    metadata = vocabulary(trained("qwen2"), "qwen2", chat_template=CHATML)
    want = theirs.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)["input_ids"]
    assert want.count(2) == len(messages) + (messages[0]["role"] != "system"), "the turns end with an end token"
    for ours in (load(folder).tokenizer, tokenizer_of(metadata, tmp_path / "model.gguf")):
        assert ours is not None
        assert ours.encode_chat(messages, add_generation_prompt=add_generation_prompt) == want
        text = ours.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)
        assert text.endswith("<|im_start|>assistant\n") == add_generation_prompt
        assert text.startswith("<|im_start|>system\n" + ("Be brief." if messages is CHAT else "Default"))


def test_no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    assert load(folder).tokenizer is None
