"""The tokenizer inside a GGUF file."""

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from .errors import LoadError
from .gguf_file import GGUFFile
from .tokenizer import Tokenizer

# Token types of GGUF.
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5

# Texts of control tokens that end an assistant's turn, for files that name only one end token.
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>")

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


PRE_TOKENIZERS = {"default": _gpt2, "gpt-2": _gpt2, "smollm": _smollm, "llama-bpe": _llama3, "qwen2": _qwen2}
"""How text is split before bytes are merged, by ``tokenizer.ggml.pre``."""


def tokenizer_from_gguf(file: GGUFFile) -> Tokenizer | None:
    """Byte-level BPE, the ``gpt2`` kind of tokenizer; None where the file has no vocabulary.

    Raises:
        LoadError: for another kind of tokenizer or another way to split text; the message lists those that work.
    """
    kind = file.get("tokenizer.ggml.model", None)
    if kind in (None, "none"):
        return None
    if kind != "gpt2":
        raise LoadError(
            f"{file.path} has a tokenizer of the kind {kind!r}, which is not supported; expected 'gpt2' (byte-level "
            "BPE), so convert from a Hugging Face directory with a tokenizer.json and load that instead"
        )
    pre = file.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        raise LoadError(
            f"{file.path} splits text the way {pre!r}, which is not supported; expected one of "
            f"{', '.join(PRE_TOKENIZERS)}"
        )
    tokens = file.get("tokenizer.ggml.tokens")
    kinds = file.get("tokenizer.ggml.token_type", [1] * len(tokens))
    merges = [tuple(merge.split(" ", 1)) for merge in file.get("tokenizer.ggml.merges")]
    vocab = {token: i for i, token in enumerate(tokens)}
    try:
        backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    except Exception as error:  # the library raises nothing more exact
        raise LoadError(f"the vocabulary and merges of {file.path} do not fit ({error}); convert it again") from error
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(
        [
            AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]
    )

    def special(name: str) -> int | None:
        return file.get(f"tokenizer.ggml.{name}_token_id", None)

    bos = special("bos")
    if bos is not None and file.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):
        backend.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    ends = [special(name) for name in ("eos", "eot", "eom")]
    ends += [i for i, token in enumerate(tokens) if kinds[i] == _CONTROL and token in _END_OF_TURN]
    names = {f"{name}_token": tokens[special(name)] for name in ("bos", "eos") if special(name) is not None}
    return Tokenizer(
        backend,
        eos_ids=[i for i in ends if i is not None],
        bos_id=bos,
        chat_template=file.get("tokenizer.chat_template", None),
        template_names=names,
    )


def num_tokens(file: GGUFFile) -> int:
    """Ids below this one stand for text; a converter fills the vocabulary up with unused tokens."""
    kinds = file.get("tokenizer.ggml.token_type", [])
    count = len(file.get("tokenizer.ggml.tokens"))
    while count and count <= len(kinds) and kinds[count - 1] == _UNUSED:
        count -= 1
    return count
