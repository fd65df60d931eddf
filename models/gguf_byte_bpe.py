"""Byte-level BPE in a GGUF file, the ``gpt2`` kind: GPT-2, SmolLM, Qwen, Llama 3."""

from collections.abc import Callable

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from .errors import LoadError, blamed
from .gguf_file import GGUFFile
from .gguf_vocabulary import Vocabulary

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _bytes(split: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _llama3() -> pre_tokenizers.PreTokenizer:
    return _bytes(rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}")


def _qwen2() -> pre_tokenizers.PreTokenizer:
    return _bytes(rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}")


PRE_TOKENIZERS = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
}
"""How text is split before bytes are merged, by ``tokenizer.ggml.pre``."""


def byte_bpe(file: GGUFFile, vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """The tokenizer without its special tokens."""
    split = _split_of(file)
    merges = [tuple(merge.split(" ", 1)) for merge in file.items("tokenizer.ggml.merges", str)]
    with blamed(f"the vocabulary and merges of {file.path} do not fit", "convert it again"):
        model = models.BPE(vocab=vocabulary.ids(), merges=merges, ignore_merges=split is _llama3)
    backend = tokenizers.Tokenizer(model)
    if split is _qwen2:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = split()
    backend.decoder = decoders.ByteLevel()
    return backend


def adds_bos(file: GGUFFile) -> bool:
    """Where the file does not say: Llama 3 begins its texts, the others do not."""
    return _split_of(file) is _llama3


def _split_of(file: GGUFFile) -> Callable[[], pre_tokenizers.PreTokenizer]:
    pre = file.get("tokenizer.ggml.pre", "default", kind=str)
    if pre not in PRE_TOKENIZERS:
        raise LoadError(
            f"{file.path} splits text the way {pre!r}, which is not supported; expected one of "
            f"{', '.join(PRE_TOKENIZERS)}"
        )
    return PRE_TOKENIZERS[pre]
