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


def _bytes(*splits: str) -> pre_tokenizers.PreTokenizer:
    """Each cuts what the ones before it left."""
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), behavior="isolated") for split in splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _default() -> pre_tokenizers.PreTokenizer:
    """llama.cpp's own, of no model: GPT-2's with runs of punctuation, and digits by three, cut out."""
    words = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
    return _bytes(r"[\p{P}$+<=>^~|]+", words, r"\p{N}+", r"[0-9][0-9][0-9]")


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _llama3() -> pre_tokenizers.PreTokenizer:
    return _bytes(rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}")


def _qwen2() -> pre_tokenizers.PreTokenizer:
    return _bytes(rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}")


PRE_TOKENIZERS = {
    "default": _default,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
}
"""How text is split before bytes are merged, by ``tokenizer.ggml.pre``."""

_KNOWN_BY = {
    (50256, "<|endoftext|>"): "gpt-2",
    (128000, "<|begin_of_text|>"): "llama-bpe",
    (151643, "<|endoftext|>"): "qwen2",
}
"""Vocabularies by an id and its token, for older files, which do not say how text is split."""


def byte_bpe(file: GGUFFile, vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """The tokenizer without its special tokens."""
    split = _split_of(file, vocabulary)
    merges = [tuple(merge.split(" ", 1)) for merge in file.items("tokenizer.ggml.merges", str)]
    with blamed(f"the vocabulary and merges of {file.path} do not fit", "convert it again"):
        model = models.BPE(vocab=vocabulary.ids(), merges=merges, ignore_merges=split is _llama3)
    backend = tokenizers.Tokenizer(model)
    if split is _qwen2:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = split()
    backend.decoder = decoders.ByteLevel()
    return backend


def adds_bos(file: GGUFFile, vocabulary: Vocabulary) -> bool:
    """Where the file does not say: Llama 3 begins its texts, the others do not."""
    return _split_of(file, vocabulary) is _llama3


def _split_of(file: GGUFFile, vocabulary: Vocabulary) -> Callable[[], pre_tokenizers.PreTokenizer]:
    pre = file.get("tokenizer.ggml.pre", None, kind=str) or _known(vocabulary)
    if pre is None:
        raise LoadError(
            f"{file.path} has no tokenizer.ggml.pre, which says how text is split, and its vocabulary is none that is "
            f"known by its tokens; expected one of {', '.join(PRE_TOKENIZERS)}, so write it with gguf-new-metadata "
            "--pre-tokenizer or convert the model again"
        )
    if pre not in PRE_TOKENIZERS:
        raise LoadError(
            f"{file.path} splits text the way {pre!r}, which is not supported; expected one of "
            f"{', '.join(PRE_TOKENIZERS)}"
        )
    return PRE_TOKENIZERS[pre]


def _known(vocabulary: Vocabulary) -> str | None:
    for (place, token), pre in _KNOWN_BY.items():
        if place < len(vocabulary.tokens) and vocabulary.tokens[place] == token:
            return pre
    return None
