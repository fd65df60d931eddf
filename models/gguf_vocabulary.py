"""The tokens of a GGUF file and what each of them is for."""

from enum import IntEnum
from typing import NamedTuple

from .errors import LoadError
from .gguf_file import GGUFFile


class Kind(IntEnum):
    """Token types of GGUF, which are those of SentencePiece."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Vocabulary(NamedTuple):
    """Tokens by id. What a converter filled the vocabulary up with is left off: those ids are padding."""

    tokens: list[str]
    kinds: list[int]

    def ids(self) -> dict[str, int]:
        """The id of each token. What a converter put where its source has none, as ``[PAD7]``, is no token."""
        return {
            token: i
            for i, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind != Kind.UNUSED or token != f"[PAD{i}]"
        }


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """Raises LoadError where there are no tokens, or not one type for each."""
    tokens = file.items("tokenizer.ggml.tokens", str)
    kinds = file.items("tokenizer.ggml.token_type", int, [int(Kind.NORMAL)] * len(tokens))
    if len(kinds) != len(tokens):
        raise LoadError(
            f"{file.path} has {len(tokens)} tokens and {len(kinds)} token types; expected one type for each, so "
            "convert it again"
        )
    count = len(tokens)
    while count and kinds[count - 1] == Kind.UNUSED:
        count -= 1
    if not count:
        raise LoadError(f"{file.path} has no token that stands for text; expected a vocabulary, so convert it again")
    return Vocabulary(tokens[:count], kinds[:count])
