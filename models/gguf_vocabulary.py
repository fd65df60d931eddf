"""The tokens of a GGUF file and what each of them is for."""

import re
from enum import IntEnum
from typing import NamedTuple

from tokenizers import Regex

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


ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "<end_of_utterance>")
"""Tokens that end an assistant's turn or its text, for files that name only one end token."""

_CONTROL = {*ENDS, "<|endoftext|>", "<EOT>", "_<EOT>", "[EOT]"}
"""Tokens that are control tokens to llama.cpp too, whatever type their file says: some converters say another."""


class Vocabulary(NamedTuple):
    """Tokens by id. What a converter filled the vocabulary up with is left off: those ids are padding."""

    tokens: list[str]
    kinds: list[int]

    def ids(self) -> dict[str, int]:
        """The id of each token. What a converter put where its source has none, as ``[PAD7]``, is no token.

        An id whose token comes `again` is the model's all the same. It is listed by a name that no text is cut into,
        for spaces are spelt in other ways before a text is looked up.
        """
        again = self.again()
        return {
            token + again.get(i, ""): i
            for i, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind != Kind.UNUSED or token != f"[PAD{i}]"
        }

    def again(self) -> dict[int, str]:
        """Ids whose token comes again, with what their names have after it; texts are cut into the last of its ids."""
        last = {token: i for i, token in enumerate(self.tokens)}
        return {i: f" [{i}]" for i, token in enumerate(self.tokens) if last[token] != i}

    def name_taken_off(self) -> Regex | None:
        """What the names of such ids have after their token, and nothing else: to be left out of texts."""
        ends = (rf"(?<=\A{re.escape(self.tokens[i])}){re.escape(end)}\z" for i, end in self.again().items())
        found = "|".join(ends)
        return Regex(found) if found else None


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """Raises LoadError where there are no tokens, or not one type for each."""
    tokens = file.items("tokenizer.ggml.tokens", str)
    kinds = file.items("tokenizer.ggml.token_type", int, [int(Kind.NORMAL)] * len(tokens))
    if len(kinds) != len(tokens):
        raise LoadError(
            f"{file.path} has {len(tokens)} tokens and {len(kinds)} token types; expected one type for each, so "
            "convert it again"
        )
    kinds = [int(Kind.CONTROL) if token in _CONTROL else kind for token, kind in zip(tokens, kinds, strict=True)]
    count = len(tokens)
    while count and kinds[count - 1] == Kind.UNUSED:
        count -= 1
    if not count:
        raise LoadError(f"{file.path} has no token that stands for text; expected a vocabulary, so convert it again")
    return Vocabulary(tokens[:count], kinds[:count])
