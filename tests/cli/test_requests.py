"""From prompts to requests, for which nothing is compiled."""

import json

import pytest
import tokenizers

from specdec_jax import GenerateConfig, SamplingParams, models
from specdec_jax.batch import Refused, Request
from specdec_jax.cli.generate import Options
from specdec_jax.cli.prompts import Prompt, from_arguments
from specdec_jax.cli.requests import prepare, reader, template_variables


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


def test_ids_without_a_token_are_no_prompt(other):
    """N-grams would guess them again."""
    folder = other("holed")
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    del raw["model"]["vocab"]["c"]
    path.write_text(json.dumps(raw))
    read = reader(
        models.load(folder), config=GenerateConfig(capacity=64), sampling=SamplingParams(), max_new_tokens=8, chat=False
    )
    good, bad = (read(0, Prompt(where="here", token_ids=ids)) for ids in ([5, 7], [5, 6]))
    assert isinstance(good, Request)
    assert isinstance(bad, Refused)
    assert bad.why == "the target's vocabulary has no token 6; expected ids of tokens alone"


@pytest.mark.parametrize(("given", "text"), [("{}", "b c"), ('{"thinking": true}', "a b c")])
def test_what_a_chat_template_asks_for(given, text, other):
    template = "{% if thinking %}a {% endif %}{% for m in messages %}{{ m.content + ' ' }}{% endfor %}"
    target = models.load(other("asking", template=template))
    read = reader(
        target,
        config=GenerateConfig(capacity=64),
        sampling=SamplingParams(),
        max_new_tokens=8,
        chat=True,
        system="b",
        variables=template_variables(given),
    )
    made = read(0, from_arguments(["c"])[0])
    assert isinstance(made, Request)
    assert target.tokenizer is not None
    assert made.token_ids == target.tokenizer.encode(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"template_json": "{", "chat": True},
            r"template_json is not JSON .*; expected an object such as {\"enable_thinking\": false}",
        ),
        ({"template_json": "[1]", "chat": True}, "template_json is a JSON list; expected an object"),
        ({"template_json": '{"now": 1}', "chat": True}, "template_json has 'now', which is given by the command"),
        ({"system": "Be brief."}, "system is given, but chat is not; expected --chat beside it"),
        ({"template_json": "{}"}, "template_json is given, but chat is not; expected --chat beside it"),
        ({"system": "\udcff", "chat": True}, "holds bytes that are no text"),
    ],
)
def test_templates_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Options(prompts=("a",), **options)
