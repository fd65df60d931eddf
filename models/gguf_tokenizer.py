"""The tokenizer inside a GGUF file."""

from collections.abc import Callable
from typing import NamedTuple

import tokenizers
from tokenizers import AddedToken, decoders, processors

from . import gguf_byte_bpe
from .errors import LoadError
from .gguf_file import GGUFFile
from .gguf_sentencepiece import sentencepiece
from .gguf_vocabulary import ENDS, Kind, Vocabulary, read_vocabulary
from .tokenizer import Tokenizer

# More ends of some families, by architecture; elsewhere the token may be there for other ends, as in SmolLM2.
_MORE_ENDS: dict[str, tuple[str, ...]] = dict.fromkeys(("qwen2", "qwen3", "gpt2"), ("<|endoftext|>",))
_MORE_ENDS["phi3"] = ("<|endoftext|>", "<|assistant|>")  # those of Phi-3-mini-4k-instruct's generation_config.json


class _Way(NamedTuple):
    """What differs between kinds of tokenizers."""

    build: Callable[[GGUFFile, Vocabulary], tokenizers.Tokenizer]
    adds_bos: Callable[[GGUFFile, Vocabulary], bool]
    """Whether texts begin with the begin token where the file does not say."""


KINDS = {"gpt2": _Way(gguf_byte_bpe.byte_bpe, gguf_byte_bpe.adds_bos), "llama": _Way(sentencepiece, lambda *_: True)}
"""By ``tokenizer.ggml.model``: byte-level BPE and SentencePiece."""


def tokenizer_from_gguf(file: GGUFFile) -> Tokenizer | None:
    """None where the file has no vocabulary.

    Raises:
        LoadError: for another kind of tokenizer or another way to split text; the message lists those that work.
    """
    kind = file.get("tokenizer.ggml.model", "none", kind=str)
    if kind == "none":
        return None
    if kind not in KINDS:
        raise LoadError(
            f"{file.path} has a tokenizer of the kind {kind!r}, which is not supported; expected one of "
            f"{', '.join(KINDS)}, so load a Hugging Face directory with a tokenizer.json instead"
        )
    way = KINDS[kind]
    vocabulary = read_vocabulary(file)
    adds_bos = file.get("tokenizer.ggml.add_bos_token", way.adds_bos(file, vocabulary), kind=bool)
    backend = way.build(file, vocabulary)
    if (unsaid := vocabulary.name_taken_off()) is not None:
        backend.decoder = decoders.Sequence([decoders.Replace(unsaid, ""), backend.decoder])
    backend.add_tokens(_added(vocabulary, strips=kind == "llama" and _is_phi3(file)))
    special = {name: _special(file, name, vocabulary) for name in ("bos", "eos", "eot", "eom")}
    bos, eos = special["bos"], special["eos"]
    around = [
        bos if adds_bos else None,
        eos if file.get("tokenizer.ggml.add_eos_token", False, kind=bool) else None,
    ]
    if around != [None, None]:
        backend.post_processor = _around(vocabulary, *around)
    ends = [special[name] for name in ("eos", "eot", "eom")]
    texts = ENDS + _MORE_ENDS.get(file.get("general.architecture", "", kind=str), ())
    ends += [i for i, token in enumerate(vocabulary.tokens) if token in texts and vocabulary.kinds[i] == Kind.CONTROL]
    return Tokenizer(
        backend,
        eos_ids=[i for i in ends if i is not None],
        bos_id=bos,
        chat_template=file.get("tokenizer.chat_template", None, kind=str),
        template_names={
            f"{name}_token": vocabulary.tokens[i] for name, i in (("bos", bos), ("eos", eos)) if i is not None
        },
    )


def _added(vocabulary: Vocabulary, *, strips: bool) -> list[AddedToken]:
    """Tokens that are found in a text before it is cut up, control tokens and what the model's makers wished."""
    return [
        AddedToken(
            token, special=kind != Kind.USER_DEFINED, normalized=False, rstrip=strips and token not in _KEEP_SPACE
        )
        for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True)
        if kind in (Kind.UNKNOWN, Kind.CONTROL, Kind.USER_DEFINED)
    ]


_KEEP_SPACE = ("<unk>", "<s>", "<|endoftext|>")


def _is_phi3(file: GGUFFile) -> bool:
    """Its special tokens swallow the space after them, which no GGUF key says."""
    return file.get("general.architecture", "", kind=str) == "phi3"


def _special(file: GGUFFile, name: str, vocabulary: Vocabulary) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    found = file.get(key, None)
    if found is not None and (type(found) is not int or not 0 <= found < len(vocabulary.tokens)):
        raise LoadError(
            f"{key} of {file.path} is {found!r}; expected the id of one of its {len(vocabulary.tokens)} tokens, so "
            "convert it again"
        )
    return found


def _around(vocabulary: Vocabulary, bos: int | None, eos: int | None) -> processors.TemplateProcessing:
    """Named, for a template would take the token's own text apart."""
    ends = {name: i for name, i in (("bos", bos), ("eos", eos)) if i is not None}
    return processors.TemplateProcessing(
        single=[part for part in ("bos", "$A", "eos") if part == "$A" or part in ends],
        special_tokens=[{"id": name, "ids": [i], "tokens": [vocabulary.tokens[i]]} for name, i in ends.items()],
    )
