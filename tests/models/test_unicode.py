"""Text of every Unicode plane survives every kind of tokenizer, whole and as a stream of ids."""

import random

import pytest
import tokenizers
from test_tokenizer import SPLITS, trained, vocabulary
from tokenizers import decoders, pre_tokenizers
from unicode_texts import composed, every_plane
from vocabularies import SENTENCEPIECE, sentencepiece_metadata, tokenizer_of

from specdec_jax import models
from specdec_jax.models import Tokenizer
from specdec_jax.models.gguf_file import GGUFFile
from specdec_jax.models.gguf_tokenizer import tokenizer_from_gguf

TEXTS = every_plane()
KINDS = (*SPLITS, *SENTENCEPIECE, "metaspace")


def metaspace(tokenizer: Tokenizer) -> Tokenizer:
    """The same vocabulary as Hugging Face writes newer Llama tokenizers: spaces belong to the pre-tokenizer."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.normalizer = None  # pyright: ignore[reportAttributeAccessIssue]
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend, eos_ids=())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizers") / "model.gguf"
    all_ = {pre: tokenizer_of(vocabulary(trained(pre), pre), path) for pre in SPLITS}
    all_ |= {name: tokenizer_of(sentencepiece_metadata(name), path) for name in SENTENCEPIECE}
    return all_ | {"metaspace": metaspace(all_["llama"])}


def texts_for(kind: str) -> list[str]:
    """What comes back: Qwen normalises to NFC, and SentencePiece has no sign of its own for a real U+2581.

    Metaspace puts no space before one, and takes it off all the same.
    """
    if kind == "metaspace":
        return [text.lstrip(" ") for text in TEXTS if "▁" not in text]
    if kind == "qwen2":
        return composed(TEXTS)
    return TEXTS if kind in SPLITS else [text for text in TEXTS if "▁" not in text]


def streamed(tokenizer: Tokenizer, ids: list[int], *, skip: bool = True) -> tuple[list[str], str]:
    stream = tokenizer.stream(skip_special_tokens=skip)
    return [stream.push([token_id]) for token_id in ids], stream.flush()


@pytest.mark.parametrize("kind", KINDS)
def test_round_trips(kind, made):
    for text in texts_for(kind):
        assert made[kind].decode(made[kind].encode(text, add_special_tokens=False)) == text
        assert made[kind].lost(text) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_text(kind, made):
    for text in texts_for(kind):
        pieces, rest = streamed(made[kind], made[kind].encode(text, add_special_tokens=False))
        assert "".join(pieces) + rest == text
        if "\ufffd" not in text:
            assert not any("\ufffd" in piece for piece in pieces)
            assert rest == ""


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_any_ids(kind, skip, made):
    """Halves of characters, stray bytes and special tokens in any order."""
    tokenizer, rng = made[kind], random.Random(0)
    for _ in range(40):
        ids = [rng.randrange(min(tokenizer.vocab_size, 450)) for _ in range(30)]
        pieces, rest = streamed(tokenizer, ids, skip=skip)
        assert "".join(pieces) + rest == tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_comes_with_its_last_byte(kind, made):
    """Not later, although a byte that follows could belong to it."""
    tokenizer = made[kind]
    ids = tokenizer.encode("a" + "\U00012345" * 3, add_special_tokens=False)
    pieces, _ = streamed(tokenizer, ids)
    assert [piece for piece in pieces if piece][-3:] == ["\U00012345"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_make_no_character_are_given_out(kind, made):
    """They could be decoded again and again with each that follows; a half character at the end still waits."""
    tokenizer = made[kind]
    rare = tokenizer.encode("a\U00012345", add_special_tokens=False)
    ids = [*[rare[-2]] * 100, *rare]
    pieces, rest = streamed(tokenizer, ids)
    assert "".join(pieces) + rest == tokenizer.decode(ids)
    assert pieces[-1].endswith("\U00012345")
    assert "".join(pieces[:50]).count("\ufffd") > 30


def test_stray_bytes_cost_no_other_character(made):
    """sentencepiece does so too; the tokenizers library alone would spoil the character before them."""
    tokenizer = made["llama"]
    euro = [tokenizer.backend.token_to_id(f"<0x{byte:02X}>") for byte in "€".encode()]
    assert tokenizer.decode([*euro, euro[0]]) == "€\ufffd"
    assert tokenizer.decode([euro[1], *euro, *euro[:2]]) == "\ufffd€\ufffd"


@pytest.mark.heavy
def test_smollm2():
    """But for the 21 bytes that its vocabulary lacks: those of some control characters and of planes 4 to 11."""
    tokenizer = tokenizer_from_gguf(GGUFFile(models.resolve("smollm2-135m").path))
    assert tokenizer is not None
    lacking = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
    for hard in TEXTS:
        lost = [character for character in hard if lacking & set(character.encode())]
        assert tokenizer.lost(hard) == "".join(dict.fromkeys(lost))
        text = "".join(character for character in hard if not lacking & set(character.encode()))
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        pieces, rest = streamed(tokenizer, ids)
        assert "".join(pieces) + rest == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_the_tokens_are_those_of_the_text(kind, made):
    for text in texts_for(kind):
        ids = made[kind].encode(text, add_special_tokens=False)
        joined = b"".join(map(made[kind].bytes_of, ids)).decode()
        # Some vocabularies write a space before the first word too.
        assert joined in (text, f" {text}")


def test_a_special_token_has_the_bytes_of_its_name(made):
    tokenizer = made["smollm"]
    assert tokenizer.bytes_of(tokenizer.eos_ids[0]) == b"<|endoftext|>"
