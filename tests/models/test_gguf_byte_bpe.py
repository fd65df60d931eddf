"""How GGUF files say that text is split, and what is known of those that do not say it."""

import pytest
from gguf_files import write_metadata

from specdec_jax.models.gguf_byte_bpe import PRE_TOKENIZERS, adds_bos, byte_bpe
from specdec_jax.models.gguf_file import GGUFFile
from specdec_jax.models.gguf_vocabulary import Vocabulary


def pieces(pre_tokenizer, text: str) -> list[str]:
    return [piece.replace("Ġ", " ").replace("Ċ", "\n") for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("I'll pay $12345!", ["I", "'", "ll", " pay", " ", "$", "123", "45", "!"]),
        ("a<=b ~ 1.5 ^|", ["a", "<=", "b", " ", "~", " ", "1", ".", "5", " ", "^|"]),
        ("x  y\n\nz  ", ["x", " ", " y", "\n", "\n", "z", "  "]),
    ],
)
def test_the_default_is_that_of_llama_cpp(text, want):
    """Punctuation is cut out first, then words, then digits by three."""
    assert pieces(PRE_TOKENIZERS["default"](), text) == want


@pytest.mark.parametrize(
    ("place", "token", "pre"),
    [(50256, "<|endoftext|>", "gpt-2"), (128000, "<|begin_of_text|>", "llama-bpe"), (151643, "<|endoftext|>", "qwen2")],
)
def test_vocabularies_that_are_known_by_a_token(place, token, pre, tmp_path):
    """Files of the time before tokenizer.ggml.pre."""
    write_metadata(tmp_path / "model.gguf", {"tokenizer.ggml.merges": ["a b"]})
    file = GGUFFile(tmp_path / "model.gguf")
    tokens = ["a", "b", "ab", *(f"t{i}" for i in range(3, place)), token]
    vocabulary = Vocabulary(tokens, [1] * len(tokens))
    text = "It's 1234 x"
    assert pieces(byte_bpe(file, vocabulary).pre_tokenizer, text) == pieces(PRE_TOKENIZERS[pre](), text)
    assert adds_bos(file, vocabulary) == (pre == "llama-bpe")
