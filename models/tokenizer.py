"""Text to token ids and back, however the tokenizer was stored."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import tokenizers

from .chat import ChatTemplate, Message

_INCOMPLETE = "\ufffd"  # what the bytes of half a character decode to
_LONG, _LONGEST_CHARACTER = 16, 4  # tokens that make no character, and bytes of one in UTF-8


class Tokenizer:
    """A tokenizer, its end tokens and its chat template."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_ids: Iterable[int],
        bos_id: int | None = None,
        chat_template: str | None = None,
        template_names: dict[str, Any] | None = None,
    ):
        self.backend = backend
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(eos_ids))
        """Tokens of which any ends a text; the model's own end token first."""
        self.bos_id = bos_id
        self.chat_template = None if chat_template is None else ChatTemplate(chat_template)
        self.template_names: dict[str, Any] = template_names or {}
        """Special tokens by the names that templates and tokenizer_config.json give them."""
        self._byte_ids = _byte_ids(backend)
        self._bytes = {token_id: byte for byte, token_id in enumerate(self._byte_ids)}
        backend.no_truncation()
        backend.no_padding()

    @functools.cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts the begin token in front."""
        return self.bos_id is not None and self.encode("")[:1] == [self.bos_id]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids. The text of a special token counts as that token, as in transformers; what is `lost` is left out.

        ``add_special_tokens`` adds what this tokenizer puts around a text, which is at most a begin token for most.
        """
        return self.backend.encode(text, add_special_tokens=add_special_tokens).ids

    def lost(self, text: str) -> str:
        """The characters of a text that `encode` has no tokens for and drops, each once.

        They are spelt in bytes of which the vocabulary lacks some: SmolLM2 lacks a few control characters, and F1 and
        F2, with which the planes 4 to 11 of Unicode begin, where no character is assigned yet.
        """
        if self._no_token.isdisjoint(text.encode()):  # the quick way for long texts
            return ""
        return "".join(dict.fromkeys(c for c in text if not self._no_token.isdisjoint(c.encode())))

    @functools.cached_property
    def _no_token(self) -> frozenset[int]:
        """Bytes that no token spells, of a vocabulary that spells everything in bytes."""
        if "ByteLevel" not in repr(self.backend.decoder) or getattr(self.backend.model, "unk_token", None) is not None:
            return frozenset()
        return frozenset(byte for spelt, byte in _BYTE_LEVEL.items() if self.backend.token_to_id(spelt) is None)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids. Bytes that make no character become U+FFFD, and cost no other character."""
        if self._byte_ids:
            ids = self._whole_characters(ids)
        return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def _whole_characters(self, ids: Sequence[int]) -> list[int]:
        """The ids with U+FFFD, spelt in bytes too, for bytes that make no character.

        For the library gives up on all neighbours of such a byte, so that a character given out already would be
        taken back by a byte that follows it.
        """
        found: list[int] = []
        for spelt, run in itertools.groupby(ids, self._bytes.__contains__):
            if spelt:
                text = bytes(self._bytes[token_id] for token_id in run).decode("utf-8", "replace")
                found.extend(self._byte_ids[byte] for byte in text.encode())
            else:
                found.extend(run)
        return found

    def stream(self, *, skip_special_tokens: bool = True) -> "TextStream":
        """A decoder for ids that arrive bit by bit."""
        return TextStream(self, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **variables: Any,
    ) -> str:
        """The text of a conversation; with ``add_generation_prompt`` it ends where the assistant is to speak.

        ``now`` is the date for templates that write it, by default that of the clock. ``variables`` are what else this
        template asks for, such as ``enable_thinking=False`` for Qwen3's, and go before special tokens of their names.

        Raises:
            ValueError: there is no template, or it refuses these messages.
        """
        if self.chat_template is None:
            raise ValueError("this model brings no chat template; give it plain text, or use a chat model")
        return self.chat_template.render(
            messages, add_generation_prompt=add_generation_prompt, now=now, **{**self.template_names, **variables}
        )

    def encode_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Token ids of what `apply_chat_template` makes. The template writes the begin token itself: none is added."""
        text = self.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False)

    def token_of(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it, None for an id without one."""
        return self.backend.id_to_token(token_id)

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to a text, in UTF-8, where it may be a part of a character; special tokens by their names.

        It is what the token adds after itself, for some tokenizers write no space before the first token of a text.
        """
        once, twice = (self.backend.decode([token_id] * n, skip_special_tokens=False) for n in (1, 2))
        text = twice[len(once) :]
        if _INCOMPLETE not in text:
            return text.encode()
        if token_id in self._bytes:
            return bytes([self._bytes[token_id]])
        spelling = self.token_of(token_id) or ""
        is_bytes = all(character in _BYTE_LEVEL for character in spelling)
        return bytes(_BYTE_LEVEL[character] for character in spelling) if is_bytes else text.encode()

    def vocab(self) -> list[str | None]:
        """The token of every id, so that two vocabularies can be compared id by id."""
        tokens: list[str | None] = [None] * self.vocab_size
        for token, token_id in self.backend.get_vocab(with_added_tokens=True).items():
            tokens[token_id] = token
        return tokens

    def holes(self) -> list[int]:
        """Ids below the largest that have no token, ascending."""
        return [token_id for token_id, token in enumerate(self.vocab()) if token is None]


def _byte_level() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: itself, or the next that has none (GPT-2)."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    itself = {ord(character) for character in alphabet if ord(character) < 256}
    others = [byte for byte in range(256) if byte not in itself]
    return dict(zip(alphabet, [*sorted(itself), *others], strict=True))


_BYTE_LEVEL = _byte_level()


def _byte_ids(backend: tokenizers.Tokenizer) -> list[int]:
    """The tokens of the bytes 0 to 255 where characters outside the vocabulary are spelt in bytes, else nothing."""
    if "ByteFallback" not in repr(backend.decoder):
        return []
    ids = [backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    return [token_id for token_id in ids if token_id is not None] if None not in ids else []


class TextStream:
    """Decodes as ids arrive and never gives out half a character.

    The pieces of `push` and `flush`, joined, are what `Tokenizer.decode` makes of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True):
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._context: list[int] = []  # given out already; decoders look at the token before
        self._pending: list[int] = []

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids complete; empty as long as a character is not whole."""
        pieces = []
        for token_id in ids:
            self._pending.append(token_id)
            text = self._new_text()
            if text and not text.endswith(_INCOMPLETE):
                pieces.append(text)
                self._context, self._pending = self._pending, []
            elif len(self._pending) >= _LONG:
                pieces.append(self._first_half())
        return "".join(pieces)

    def _first_half(self) -> str:
        """The text of half of what is pending, where nothing to come can change it; else nothing.

        Bytes that make no character would otherwise be decoded again with each that follows them.
        """
        half = len(self._pending) // 2
        before, first, whole = (self._decode(self._context + self._pending[:end]) for end in (0, half, None))
        # So much comes after it that every character which begins in it has ended.
        if not whole.startswith(first) or len(whole) - len(first) < _LONGEST_CHARACTER:
            return ""
        self._context, self._pending = self._pending[:half], self._pending[half:]
        return first[len(before) :]

    def flush(self) -> str:
        """What is left when no more ids come."""
        text = self._new_text()
        self._context, self._pending = self._pending, []
        return text

    def _new_text(self) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + self._pending)[len(before) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)
