# ruff: noqa: RUF001  (characters that look like others are the point)
"""Texts of every Unicode plane, with all that makes text hard to cut and join; the same ones for the same seed."""

import random
import unicodedata

HARD = [
    "",
    "plain words, one after another.",
    " one space before",
    "two  between,   three   and trailing  ",
    "   ",
    "\n\n\ttabs\tand\r\nlines\n",
    "\x00\x01\x07\x1b[0m\x7f\x85\u200b\u2028\u2029\ufeff control characters",
    "emoji 😀 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 1️⃣ flags 🇨🇭🇺🇳 end",
    "combining e\u0301\u0328 n\u0303 a\u030a\u0323 \u0301alone Z\u0351\u036b\u0343\u036a\u0302\u036b",
    "שָׁלוֹם עולם مرحبا بالعالم \u202eright to left\u202c",
    "你好，世界。こんにちは 안녕하세요 Привет नमस्ते ไทย",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈𐌰𐌿 𠜎𠜱 \U000e0001\U0010ffff",
    "the replacement character \ufffd itself, and \ufffd\ufffd",
    "▁ a real lower block ▁▁ and <0x0A> spelt out",
]


def every_plane(seed: int = 0, per_plane: int = 40) -> list[str]:
    """Code points of planes 0 to 16 without surrogates: a text of each plane, and texts that mix all of them."""
    rng = random.Random(seed)

    def point(plane: int) -> str:
        while True:
            code = plane * 0x10000 + rng.randrange(0x10000)
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    planes = ["".join(point(plane) for _ in range(per_plane)) for plane in range(17)]
    mixed = [" ".join(point(rng.randrange(17)) + rng.choice("aé 你\n") for _ in range(per_plane)) for _ in range(4)]
    return [*HARD, *planes, *mixed]


def composed(texts: list[str]) -> list[str]:
    """As a tokenizer that normalises to NFC gives them back."""
    return [unicodedata.normalize("NFC", text) for text in texts]
