"""Tokenizers from GGUF metadata and from a directory give transformers' ids; streams never give half a character."""

import inspect
import json

import jax.numpy as jnp
import numpy as np
import pytest
from gguf_files import write_gguf, write_metadata
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import Qwen2Converter, TikTokenConverter

from specdec_jax.models import load, save_checkpoint
from specdec_jax.models.gguf_file import GGUFFile
from specdec_jax.models.gguf_tokenizer import tokenizer_from_gguf

TEXTS = [
    "The quick brown fox can't, won't and shouldn't've jumped; THEY'LL SEE.",
    "1 22 333 4444 1234567890 3.14159 0x1F 10,000.00 ½ ² ٣٤",
    "def f(x):\n    if x > 0:\n\t\treturn x ** 2  # squared\n\n\n    return None\r\n",
    "  leading,   inner    and trailing spaces   ",
    "\n\n\t\t \n mixed \t whitespace \u00a0 \u3000 runs\n",
    "你好\uff0c世界。こんにちは 안녕하세요 Привет שלום مرحبا",
    "emoji 😀 👩‍👩‍👧‍👦 🏳️‍🌈 flags 🇨🇭 and caf\u00e9 against cafe\u0301",
    "<|im_start|>user\nspecial tokens<|im_end|> inside<|endoftext|>text <|im_end",
    "",
]


def qwen2_split() -> str:
    """transformers' own pattern, cut out of its source."""
    source = inspect.getsource(Qwen2Converter)
    return source[source.index('r"""') + 4 :].split('"""')[0]


def with_pattern(pattern: str):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


LLAMA3_SPLIT = inspect.signature(TikTokenConverter).parameters["pattern"].default
SPLITS = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "llama-bpe": lambda: with_pattern(LLAMA3_SPLIT),
    "qwen2": lambda: with_pattern(qwen2_split()),
}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def trained(pre: str) -> Tokenizer:
    """A small tokenizer that splits text this way, trained on the very texts, so that splits matter."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = SPLITS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIALS, initial_alphabet=alphabet)
    words = [text.replace("<|im_end|>", " ").replace("<|im_start|>", " ") for text in TEXTS]
    tokenizer.train_from_iterator([*words, *words], trainer)
    return tokenizer


def vocabulary(tokenizer: Tokenizer, pre: str, **more) -> dict:
    """The GGUF metadata of a tokenizer."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIALS else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
    } | {f"tokenizer.{key}": value for key, value in more.items()}


@pytest.fixture
def from_gguf(oracle, tmp_path):
    def read(metadata: dict):
        write_gguf(tmp_path / "model.gguf", oracle(), metadata=metadata)
        return GGUFFile(tmp_path / "model.gguf")

    return read


@pytest.mark.parametrize("pre", SPLITS)
def test_ids(pre, from_gguf):
    want = trained(pre)
    got = tokenizer_from_gguf(from_gguf(vocabulary(want, pre)))
    assert got is not None
    ids = [got.encode(text, add_special_tokens=False) for text in TEXTS]
    assert ids == [want.encode(text).ids for text in TEXTS]
    assert got.adds_bos == (pre == "llama-bpe"), "Llama 3 begins with its begin token even if the file says nothing"
    for text in TEXTS:
        assert got.decode(got.encode(text, add_special_tokens=False), skip_special_tokens=False) == (
            want.normalizer.normalize_str(text) if want.normalizer else text
        )
    assert got.vocab() == [want.id_to_token(i) for i in range(want.get_vocab_size())]
    assert got.token_of(2) == "<|im_end|>"
    assert got.token_of(10**6) is None


@pytest.mark.parametrize(
    ("architecture", "ends"), [("qwen2", (2, 0)), ("qwen3", (2, 0)), ("phi3", (2, 0, 3)), ("llama", (2,))]
)
def test_the_end_of_a_text_ends_it_where_the_family_says_so(architecture, ends, tmp_path):
    """Qwen's files name one end token, and its directories two; in SmolLM2's the other is the unknown token."""
    metadata = vocabulary(trained("gpt-2"), "gpt-2", **{"ggml.eos_token_id": 2})
    metadata["tokenizer.ggml.tokens"][3] = "<|assistant|>"
    metadata["tokenizer.ggml.token_type"][3] = 3
    write_metadata(tmp_path / "model.gguf", metadata, architecture)
    got = tokenizer_from_gguf(GGUFFile(tmp_path / "model.gguf"))
    assert got is not None
    assert got.eos_ids == ends


def test_end_tokens_and_begin_token(from_gguf):
    backend = trained("gpt-2")
    plain = tokenizer_from_gguf(from_gguf(vocabulary(backend, "gpt-2")))
    assert plain is not None
    assert plain.eos_ids == (0, 2), "<|im_end|> ends a turn, whether the file says so or not"
    assert (plain.bos_id, plain.adds_bos) == (1, False)
    settings = {"ggml.add_bos_token": True, "ggml.eos_token_id": 2, "ggml.eot_token_id": 0}
    chatty = tokenizer_from_gguf(from_gguf(vocabulary(backend, "gpt-2", **settings)))
    assert chatty is not None
    assert chatty.eos_ids == (2, 0)
    assert chatty.adds_bos
    assert chatty.encode("fox") == [1, *plain.encode("fox")]
    assert chatty.encode("fox", add_special_tokens=False) == plain.encode("fox")


def test_unused_ids_are_padding(tmp_path, from_gguf, full_pass, random_tokens):
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b", "ab", *"cdef", "[PAD7]", "g", "[PAD9]", "[PAD10]"],
        "tokenizer.ggml.token_type": [1, 1, 1, 5, 1, 1, 1, 5, 1, 5, 5],
        "tokenizer.ggml.merges": ["a b"],
    }
    tokenizer = tokenizer_from_gguf(from_gguf(metadata))
    assert tokenizer is not None
    assert tokenizer.vocab() == ["a", "b", "ab", *"cdef", None, "g"]
    loaded = load(tmp_path / "model.gguf")
    assert_impossible(full_pass(loaded.model, loaded.params, random_tokens), [7, *range(9, 97)])


def assert_impossible(logits, ids):
    impossible = np.isin(np.arange(logits.shape[-1]), ids)
    assert np.isneginf(logits[:, :, impossible]).all()
    assert np.isfinite(logits[:, :, ~impossible]).all()


def test_ids_without_a_token(tmp_path, oracle, full_pass, random_tokens):
    """They are padding wherever they lie, in a directory, in what is saved of it, and for early exits."""
    oracle().save_pretrained(tmp_path / "theirs")
    words = {f"w{i}": i for i in range(80) if i not in (0, 5, 6, 61)}
    Tokenizer(models.WordLevel(words, unk_token="w1")).save(str(tmp_path / "theirs" / "tokenizer.json"))
    loaded = load(tmp_path / "theirs", dtype=jnp.float32)
    save_checkpoint(tmp_path / "ours", loaded.config, loaded.params, tokenizer=loaded.tokenizer)
    again = load(tmp_path / "ours")
    for model in (loaded.model, loaded.variant(depth=1), again.model):
        assert_impossible(full_pass(model, loaded.params, random_tokens), [0, 5, 6, 61, *range(80, 97)])


def test_no_template(from_gguf):
    tokenizer = tokenizer_from_gguf(from_gguf(vocabulary(trained("gpt-2"), "gpt-2")))
    assert tokenizer is not None
    with pytest.raises(ValueError, match="brings no chat template; give it plain text"):
        tokenizer.encode_chat([{"role": "user", "content": "fox"}])


@pytest.mark.parametrize("size", [1, 3])
def test_stream_never_gives_half_a_character(size, from_gguf):
    tokenizer = tokenizer_from_gguf(from_gguf(vocabulary(trained("gpt-2"), "gpt-2")))
    assert tokenizer is not None
    for text in TEXTS:
        ids = tokenizer.encode(text)
        stream = tokenizer.stream()
        pieces = [stream.push(ids[at : at + size]) for at in range(0, len(ids), size)]
        assert "\ufffd" not in "".join(pieces)
        assert "".join(pieces) == tokenizer.decode(ids)
        assert stream.flush() == ""


def test_flush_gives_what_stays_incomplete(from_gguf):
    tokenizer = tokenizer_from_gguf(from_gguf(vocabulary(trained("gpt-2"), "gpt-2")))
    assert tokenizer is not None
    alphabet = {token: i for i, token in enumerate(tokenizer.vocab())}
    half = [alphabet["a"], alphabet["ð"], alphabet["Ł"]]  # the bytes f0 9f, which begin most emoji
    stream = tokenizer.stream()
    assert stream.push(half) == "a"
    assert stream.flush() == tokenizer.decode(half)[1:]
    assert stream.push([alphabet["b"]]) == "b"
