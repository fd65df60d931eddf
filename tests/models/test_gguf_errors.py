"""Every bad GGUF file is refused with what was got, what was expected and what to do."""

import gguf
import numpy as np
import pytest
from gguf_files import write_gguf
from test_load_errors import refused


@pytest.fixture
def file(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle())
    return path


def test_foreign_file(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 something else entirely")
    refused(path, r"is no GGUF file: it starts with b'PK\x03\x04', expected b'GGUF'")
    path.write_bytes(b"")
    refused(path, "is no GGUF file")


def test_a_file_that_may_not_be_read(file, monkeypatch):
    def forbidden(path, *_, **how):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.open", forbidden)
    refused(file, f"cannot read {file} (Permission denied); expected a GGUF file that may be read")


@pytest.mark.parametrize("kept", [6, 40, 600, 0.5, 0.99])
def test_truncated_gguf(kept, file):
    data = file.read_bytes()
    file.write_bytes(data[: kept if kept > 1 else int(kept * len(data))])
    refused(file, "as GGUF", "download or convert it again")


def test_gguf_of_another_version(file):
    data = bytearray(file.read_bytes())
    data[4] = 9
    file.write_bytes(data)
    refused(file, "version 9", "expected a whole little-endian file of version 2 or 3")


def test_gguf_of_another_byte_order(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(), endianess=gguf.GGUFEndian.BIG)
    refused(path, "is big-endian and this machine little-endian; convert it with gguf-convert-endian")


def test_unsupported_quantisation(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    counts = {f"blk.{index}.counts": np.zeros(4, np.int32) for index in range(3)}
    write_gguf(path, oracle(), tensors=counts)
    refused(
        path, "tensor blk.0.counts of", "has the type I32 (and 2 more such tensors)", "expected one of F32, F16, Q4"
    )


def test_unsupported_gguf_architecture(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(), architecture="mamba")
    refused(path, "has the architecture 'mamba', which is not supported; expected one of llama")


BPE = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a b"]}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.expert_count": 8}, "a mixture of 8 experts, which is not supported"),
        ({"llama.rope.scaling.type": "yarn"}, "the rope scaling 'yarn', which is not supported"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0},
            "the rope scaling 'yarn', which is not",
        ),
        ({"split.count": 3}, "one of 3 parts; expected one whole file, so join them with llama-gguf-split --merge"),
        (
            {"tokenizer.ggml.model": "bert"},
            "a tokenizer of the kind 'bert', which is not supported; expected one of gpt2, llama",
        ),
        (
            BPE | {"tokenizer.ggml.pre": "tekken", "tokenizer.ggml.tokens": ["a"]},
            "splits text the way 'tekken', which is not supported; expected one of default, gpt-2",
        ),
        ({"tokenizer.ggml.model": "gpt2"}, "has no metadata tokenizer.ggml.tokens"),
        (
            BPE | {"tokenizer.ggml.tokens": ["a"]},
            "has no tokenizer.ggml.pre, which says how text is split, and its vocabulary is none that is known by its "
            "tokens; expected one of default, gpt-2",
        ),
        (
            BPE | {"tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": ["a"]},
            "do not fit (Error while initializing BPE: Token `b` out of vocabulary); convert it again",
        ),
    ],
)
def test_gguf_metadata(metadata, message, oracle, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(), metadata=metadata)
    refused(path, message)


def test_wrong_gguf_tensors(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    write_gguf(path, oracle(), drop=("blk.2.ffn_up.weight",), tensors=extra)
    refused(path, "1 missing: model.layers.2.mlp.up_proj.weight", "1 unexpected: blk.0.attn_sinks.weight")


def test_no_embedding(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle(), drop=("token_embd.weight",))
    refused(path, "has no tensor token_embd.weight")


def test_tokenizer_wider_than_the_logits(oracle, tmp_path):
    path = tmp_path / "model.gguf"
    tokens = ["a", "b", "ab", *(f"t{i}" for i in range(95))]
    write_gguf(path, oracle(), metadata=BPE | {"tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens})
    refused(path, "has 98 tokens, but its logits are 97 wide")
