"""Prompts from arguments and files: every form, and an error for every fault."""

import re

import pytest

from specdec_jax.cli import UserError
from specdec_jax.cli.prompts import SHIPPED, Fault, Prompt, distinct, from_arguments, from_file, label_of
from specdec_jax.sampling import SamplingParams


def only(prompts) -> Prompt:
    assert len(prompts) == 1
    assert isinstance(prompts[0], Prompt), prompts[0]
    return prompts[0]


def test_every_field(write_lines):
    messages = [{"role": "user", "content": "hello"}]
    fields = {"messages": messages, "id": 7, "category": "chat", "max_new_tokens": 3, "seed": 5}
    sampling = {"temperature": 0.5, "top_k": 4, "top_p": 0.9, "min_p": 0.1}
    prompt = only(from_file(write_lines(fields | sampling)))
    assert prompt.messages == messages
    assert (prompt.id, prompt.category, prompt.max_new_tokens, prompt.seed) == (7, "chat", 3, 5)
    assert prompt.sampling == sampling


def test_every_sampling_value_can_stand_in_a_line(write_lines):
    values = dict(SamplingParams()._asdict())
    assert only(from_file(write_lines({"prompt": "a"} | values))).sampling == values


def test_token_ids_and_null_fields(write_lines):
    prompt = only(from_file(write_lines({"token_ids": [1, 2], "prompt": None, "temperature": None, "id": "x"})))
    assert prompt.token_ids == [1, 2]
    assert prompt.prompt is None
    assert prompt.sampling == {}


def test_a_text_file_has_one_prompt_a_line(write_lines):
    path = write_lines("first", "", '{"prompt": "text, not JSON"}\r', "line\u2028separator", name="prompts.txt")
    read = from_file(path)
    assert [p.prompt for p in read if isinstance(p, Prompt)] == [
        "first",
        '{"prompt": "text, not JSON"}',
        "line\u2028separator",
    ]
    assert [p.where for p in read] == [f"{path}:{line}" for line in (1, 3, 4)]


def test_a_byte_order_mark_is_no_part_of_the_prompt(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n')
    assert only(from_file(path)).prompt == "a"


BAD_LINES = [
    ("not json", "not JSON .*; expected one object such as"),
    ('{"prompt": "cut', "not JSON"),
    ("[1, 2]", r"the line is \[1, 2\]; expected one object"),
    ("[" * 100_000, "not JSON"),
    ({"prompt": "a", "promt": 1}, "unknown field 'promt'; expected only prompt, messages"),
    ({"id": 1}, "got no prompt; expected exactly one of prompt, messages, token_ids"),
    ({"prompt": "a", "messages": []}, "got prompt and messages; expected exactly one"),
    ({"prompt": ""}, "prompt is empty"),
    ({"prompt": 3}, "prompt is 3; expected a string"),
    ('{"prompt": "\\ud800"}', "lone surrogate at character 0"),
    ({"messages": []}, r"messages is \[\]; expected a list such as"),
    ({"messages": ["hi"]}, r'messages\[0\] is "hi"; expected an object with role and content'),
    ({"messages": [{"role": "user"}]}, r"messages\[0\] is .*; expected an object with role and content"),
    ({"messages": [{"role": "user", "content": 1}]}, r"messages\[0\].content is 1; expected a string"),
    ({"token_ids": []}, r"token_ids is \[\]; expected a list of token ids, at least one"),
    ({"token_ids": [1, -1]}, r"token_ids\[1\] is -1; expected an integer from 0"),
    ({"token_ids": [1.5]}, r"token_ids\[0\] is 1.5; expected an integer"),
    ({"token_ids": [True]}, r"token_ids\[0\] is true; expected an integer"),
    ({"prompt": "a", "id": [1]}, r"id is \[1\]; expected an integer"),
    ({"prompt": "a", "temperature": "hot"}, 'temperature is "hot"; expected a number'),
    ({"prompt": "a", "temperature": 10**400}, r"temperature is 10{56}\.\.\.; expected a number that a float can hold"),
    ({"prompt": "a", "top_k": 2.5}, "top_k is 2.5; expected an integer from 0"),
    ({"prompt": "a", "top_k": 10**12}, "top_k is 1000000000000; expected an integer from 0 to 2147483647"),
    ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens is 0; expected an integer from 1"),
    ({"prompt": "a", "seed": -1}, "seed is -1; expected an integer from 0"),
    ({"prompt": "a" * 200, "id": "b" * 200, "seed": "c" * 200}, r'seed is "c{56}\.\.\.; expected'),
    ('{"prompt": "a", "seed": 1, "prompt": "b"}', r'"prompt" comes twice in one object; expected each field once'),
    ('{"messages": [{"role": "user", "content": "a", "role": "system"}]}', r'"role" comes twice'),
]


@pytest.mark.parametrize(("line", "match"), BAD_LINES)
def test_a_bad_line_is_a_fault_with_its_number_and_the_others_are_read(write_lines, line, match):
    path = write_lines({"prompt": "one"}, line, {"prompt": "three"})
    first, fault, third = from_file(path)
    assert isinstance(fault, Fault)
    assert fault.where == f"{path}:2"
    assert re.search(match, fault.why), fault.why
    assert isinstance(first, Prompt)
    assert isinstance(third, Prompt)


def test_a_line_that_is_not_utf8_is_a_fault(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"one\n\xff\xfe\nthree\n")
    _, fault, _ = from_file(path)
    assert isinstance(fault, Fault)
    assert re.search("not UTF-8 .*; save the file as UTF-8", fault.why)


def test_an_empty_argument_is_a_fault():
    prompt, fault = from_arguments(["a", ""])
    assert isinstance(prompt, Prompt)
    assert isinstance(fault, Fault)
    assert fault.where == "prompt 2"
    assert "prompt is empty" in fault.why


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the prompts in .*none.txt: No such file.*; expected a text file"):
        from_file(tmp_path / "none.txt")


def test_the_shipped_prompts_are_sound():
    prompts = from_file(SHIPPED)
    assert len(prompts) >= 6
    assert all(isinstance(prompt, Prompt) and prompt.messages and prompt.category for prompt in prompts)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"id": 7, "promt": "a"}, 7),
        ({"id": "x", "prompt": "a", "seed": -1}, "x"),
        ({"id": [1], "prompt": "a"}, None),
        ({"promt": "a"}, None),
        ('{"id": 7, "prompt": "cut', None),
    ],
)
def test_a_fault_keeps_the_id_that_can_be_read(write_lines, line, found):
    (fault,) = from_file(write_lines(line))
    assert isinstance(fault, Fault)
    assert label_of(fault, 5) == fault.id == found


def test_a_prompt_without_an_id_has_its_place():
    assert [label_of(prompt, place) for place, prompt in enumerate(from_arguments(["a", "b"]))] == [0, 1]


@pytest.mark.parametrize(
    "lines",
    [
        [{"prompt": "a", "id": "x"}, {"prompt": "b"}, {"prompt": "c", "id": "x"}],
        [{"prompt": "a", "id": "x"}, {"prompt": "b"}, {"promt": "c", "id": "x"}],
        [{"prompt": "a", "id": 2}, {"prompt": "b"}, {"prompt": "c"}],
    ],
)
def test_of_two_with_one_id_the_later_is_refused(write_lines, lines):
    prompts = from_file(write_lines(*lines))
    *others, fault = distinct(prompts)
    assert others == prompts[:2]
    assert isinstance(fault, Fault)
    assert fault.where == prompts[2].where
    assert fault.id is None
    assert re.match(r"the id (\"x\"|2) is that of .*jsonl:1 too; expected each once", fault.why)


def test_ids_that_only_look_alike_and_broken_lines_are_no_twins(write_lines):
    prompts = from_file(write_lines({"prompt": "a", "id": 1}, {"prompt": "a", "id": "1"}, "no JSON", "no JSON"))
    assert list(distinct(prompts)) == prompts
