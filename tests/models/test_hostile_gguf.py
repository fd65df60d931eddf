"""A GGUF file may claim anything: what cannot be is refused at once, and takes no memory first."""

import random
import struct
import tracemalloc

import numpy as np
import pytest
from gguf_files import write_gguf, write_metadata
from vocabularies import sentencepiece_metadata

from specdec_jax import models
from specdec_jax.models import LoadError
from specdec_jax.models.gguf_file import GGUFFile
from specdec_jax.models.gguf_tokenizer import tokenizer_from_gguf

HUGE = 2**60
U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
F32_TENSOR, Q4_1_TENSOR = 0, 3
MEBIBYTE = 1 << 20


def text(value: str | bytes, size: int | None = None) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if size is None else size) + raw


def field(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(key: str, kind: int, length: int, value: bytes = b"") -> bytes:
    return field(key, ARRAY, struct.pack("<IQ", kind, length) + value)


def tensor(name: str, shape: tuple[int, ...], kind: int = F32_TENSOR, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(*parts: bytes, tensors: int = 0, fields: int = 0, data: int = 64) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + b"".join(parts)
    return head + bytes(-len(head) % 32 + data)


ONE = tensor("a", (4,))
BAD = {
    "a count of tensors": (gguf(tensors=HUGE), f"it claims {HUGE} tensors; expected at most 65536"),
    "a count of metadata": (gguf(fields=HUGE), f"it claims {HUGE} metadata entries"),
    "tensors that do not fit": (gguf(tensors=60000), "it claims 60000 tensors at byte 24, but has 96 bytes"),
    "metadata that do not fit": (gguf(fields=60000), "it claims 60000 metadata entries at byte 24"),
    "a long key": (gguf(text("", HUGE), fields=1), f"the text at byte 32 claims {HUGE} bytes; expected at most 65535"),
    "a long text": (gguf(field("k", STRING, text("", HUGE)), fields=1), f"a text of 'k' takes {HUGE} bytes"),
    "a long list": (gguf(array("k", U8, HUGE), fields=1), f"it claims {HUGE} items of 'k'; expected at most 2097152"),
    "a list past the end": (gguf(array("k", U64, 1000), fields=1), "the value of 'k' takes 8000 bytes"),
    "a list of lists": (gguf(array("k", ARRAY, 1), fields=1), "the metadata 'k' are of the unknown kind 9"),
    "an unknown kind": (gguf(field("k", 77, b""), fields=1), "the metadata 'k' are of the unknown kind 77"),
    "a key twice": (gguf(field("k", U8, b"1") * 2, fields=2), "the metadata 'k' stand in it twice"),
    "a key that is no text": (gguf(text(b"\xff\xfe"), b"123456", fields=1), "the text at byte 32 is not UTF-8"),
    "an alignment": (
        gguf(field("general.alignment", U32, struct.pack("<I", 3)), fields=1),
        "general.alignment is 3, not a power of two",
    ),
    "an alignment of zero": (gguf(field("general.alignment", U32, bytes(4)), fields=1), "general.alignment is 0"),
    "a shape": (gguf(tensor("a", (HUGE, HUGE)), tensors=1), "the tensor 'a' ends at byte"),
    "a shape that wraps round": (gguf(tensor("a", (2**32, 2**32)), tensors=1), "the tensor 'a' ends at byte"),
    "an empty shape": (gguf(tensor("a", (4, 0)), tensors=1), "the tensor 'a' has the shape [4, 0]"),
    "a negative size": (gguf(tensor("a", (2**64 - 4,)), tensors=1), "the tensor 'a' ends at byte"),
    "no dimensions": (gguf(tensor("a", ()), bytes(8), tensors=1), "has 0 dimensions; expected 1 to 4"),
    "many dimensions": (gguf(tensor("a", (1,) * 9), tensors=1), "has 9 dimensions; expected 1 to 4"),
    "half a block": (gguf(tensor("a", (33,), Q4_1_TENSOR), tensors=1), "are not whole blocks of 32"),
    "an unknown type": (gguf(tensor("a", (4,), 999), tensors=1), "the tensor 'a' is of the unknown type 999"),
    "an offset past the end": (gguf(tensor("a", (4,), offset=HUGE), tensors=1), "but the file has"),
    "an end past the end": (gguf(tensor("a", (17,)), tensors=1), "the tensor 'a' ends at byte"),
    "an odd offset": (gguf(tensor("a", (4,), offset=5), tensors=1), "no multiple of 32"),
    "the same place": (gguf(ONE, tensor("b", (4,)), tensors=2), "the tensor 'b' overlaps the one before it"),
    "an overlap": (
        gguf(tensor("a", (12,)), tensor("b", (4,), offset=32), tensors=2),
        "the tensor 'b' overlaps the one before it",
    ),
    "a name twice": (gguf(ONE, tensor("a", (4,), offset=32), tensors=2), "the tensor 'a' stands in it twice"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_headers(data, message, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(LoadError) as caught:
        models.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message in str(caught.value)
    assert "cannot read" in str(caught.value)
    assert "download or convert it again" in str(caught.value)
    assert peak < MEBIBYTE


def test_a_sound_header(tmp_path):
    """So that what the others are refused for is what they say."""
    path = tmp_path / "model.gguf"
    path.write_bytes(
        gguf(field("k", U32, b"\x05\0\0\0"), tensor("../b", (2, 4)), ONE[:-8] + b" " + bytes(7), tensors=2, fields=1)
    )
    file = GGUFFile(path)
    assert file.get("k") == 5
    assert {name: file.shape(name) for name in file.tensors} == {"../b": (4, 2), "a": (4,)}
    np.testing.assert_array_equal(file.read("../b"), np.zeros((4, 2), np.float32))


def test_a_long_list_is_not_decoded_before_it_is_asked_for(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(array("k", U8, 2 * MEBIBYTE, bytes(2 * MEBIBYTE)), fields=1))
    tracemalloc.start()
    file = GGUFFile(path)
    assert tracemalloc.get_traced_memory()[1] < MEBIBYTE
    tracemalloc.stop()
    assert len(file.get("k")) == 2 * MEBIBYTE


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.block_count": 10**9}, "llama.block_count of .* is 1000000000, but it has only 30 tensors"),
        (
            {"llama.embedding_length": 2**31},
            "embedding_length of .* is 2147483648, but no side of its tensors is longer",
        ),
        ({"llama.attention.key_length": 2**31}, "key_length of .* is 2147483648, but no side of its tensors is longer"),
        ({"llama.context_length": 2**32 - 1}, "context_length of .* is 4294967295, but positions go up to 2147483647"),
        ({"llama.rope.freq_base": "four"}, "makes no sense"),
        ({"llama.rope.freq_base": 0.0}, "rope_theta is 0.0; expected a number > 0"),
        ({"llama.attention.head_count": 0}, "makes no sense"),
        ({"general.architecture": ["llama"]}, r"architecture of .* is the list \['llama'\]; expected .* kind str"),
        ({"split.count": "two"}, "split.count of .* is the str 'two'; expected a value of the kind int"),
        ({"tokenizer.ggml.model": 4}, "tokenizer.ggml.model of .* is the int 4; expected a value of the kind str"),
        ({"tokenizer.chat_template": "{% for %}"} | sentencepiece_metadata("llama"), "template does not parse"),
        ({"tokenizer.chat_template": "(" * 9999} | sentencepiece_metadata("llama"), "97 wide"),
        ({"tokenizer.chat_template": "{{" + "(" * 9999} | sentencepiece_metadata("llama"), "RecursionError|not parse"),
    ],
)
def test_metadata(metadata, message, oracle, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(), metadata=metadata)
    with pytest.raises(LoadError, match=message):
        models.load(path)


def test_rotary_factors_are_held_against_the_head_before_they_are_read(oracle, tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(), tensors={"rope_freqs.weight": np.ones(4096, np.float32)})
    monkeypatch.setattr(GGUFFile, "read", lambda *_: pytest.fail("read a tensor"))
    with pytest.raises(LoadError, match=r"rope_freqs.weight of .* is \[4096\]; expected \[\d+\], one for each rotary"):
        models.load(path)


def test_a_merge_that_makes_no_token(oracle, tmp_path):
    """The library behind it panics, which is no Exception."""
    path = tmp_path / "model.gguf"
    kind = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.token_type": [1, 1]}
    tokens = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.merges": ["a b"]}
    write_gguf(path, oracle(), metadata=kind | tokens)
    with pytest.raises(LoadError, match=r"the vocabulary and merges of .* do not fit"):
        models.load(path)


def test_damage_anywhere_is_survived(tmp_path):
    """Bytes that changed are read as something else, or refused, and nothing else ever happens."""
    path, rng = tmp_path / "model.gguf", random.Random(0)
    write_metadata(path, sentencepiece_metadata("llama"))
    sound = path.read_bytes()
    refused = 0
    for _ in range(150):
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.choice([rng.randrange(200), rng.randrange(len(data))])] = rng.randrange(256)
        path.write_bytes(data if rng.random() < 0.8 else data[: rng.randrange(len(data))])
        try:
            tokenizer_from_gguf(GGUFFile(path))
        except LoadError:
            refused += 1
    assert refused > 30
