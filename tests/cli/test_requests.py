"""From prompts to requests, for which nothing is compiled."""

import pytest
import tokenizers

from specdec_jax import GenerateConfig, SamplingParams, models
from specdec_jax.cli.prompts import from_arguments
from specdec_jax.cli.requests import prepare


@pytest.mark.parametrize("chat", [False, True])
def test_characters_that_the_vocabulary_cannot_spell(chat, other):
    """They would be dropped: the prompt is refused, and the others are not."""
    folder = other("bytes")
    vocabulary = {"a": 0, "Ġ": 1, "<": 2, ">": 3, **{letter: 4 + index for index, letter in enumerate("userint")}}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    asked, faults = prepare(
        from_arguments(["a a", "aéa é!"]),
        models.load(folder),
        config=GenerateConfig(capacity=64),
        sampling=SamplingParams(),
        max_new_tokens=8,
        chat=chat,
    )
    assert [request.index for request in asked] == [0]
    (fault,) = faults
    assert "the target's vocabulary has no tokens for 'é!'; expected a text without these characters" in fault.why
