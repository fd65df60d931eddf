"""Training text from files: every line is used or refused by its number, and the split follows the content."""

import json

import pytest

from specdec_jax.training.samples import DataError, Sample, prompts, read_samples, split, texts, write_samples


def test_what_is_written_is_read(tmp_path, samples):
    path = tmp_path / "samples.jsonl"
    write_samples(path, samples[:10])
    write_samples(path, samples[10:])
    assert read_samples(path, 29) == samples


def test_a_line_that_was_cut_off_is_left_out(tmp_path, samples):
    path = tmp_path / "samples.jsonl"
    write_samples(path, samples[:3])
    path.write_text(path.read_text()[:-9])
    assert read_samples(path, 29) == samples[:2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", ":1 is no sample .TypeError"),
        ("{", ":1 is no sample .JSONDecodeError"),
        ('{"prompt_ids": [], "answer_ids": [3]}', "is no sample .KeyError: 'temperature'"),
        (
            '{"prompt_ids": [29], "answer_ids": [3], "temperature": 1}',
            "has the token id 29; expected integers from 0 to 28",
        ),
        ('{"prompt_ids": "x", "answer_ids": [3], "temperature": 1}', "has the token id 'x'"),
        ('{"prompt_ids": [true], "answer_ids": [3], "temperature": 1}', "has the token id True"),
    ],
)
def test_other_lines_are_refused(line, message, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        read_samples(path, 29)


def test_texts_and_prompts(tmp_path, tiny_target):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"text": "w5 w6"}\n\n{"text": "w7"}\n')
    assert list(texts(path, tiny_target.tokenizer)) == [Sample([], [5, 6, 0]), Sample([], [7, 0])]
    asked = [{"prompt": "w5"}, {"messages": [{"role": "user", "content": "w6"}]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in asked))
    assert list(prompts(path, tiny_target.tokenizer)) == [[1, 5, 0, 2], [1, 6, 0, 2]]


@pytest.mark.parametrize(
    ("read", "line", "message"),
    [
        (texts, '{"prompt": "x"}', ":2 has no text; expected an object with a text"),
        (texts, '{"text": ""}', ":2 has no text"),
        (texts, "7", ":2 holds a int; expected an object"),
        (texts, "{", ":2 is no JSON"),
        (prompts, '{"text": "x"}', ":2 has neither a prompt nor messages"),
        (prompts, '{"messages": 7}', ":2 cannot be put into the chat template"),
    ],
)
def test_a_bad_line_is_named(read, line, message, tmp_path, tiny_target):
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps({"text": "w5", "prompt": "w5"}) + "\n" + line + "\n")
    with pytest.raises(DataError, match=message):
        list(read(path, tiny_target.tokenizer))


def test_the_split_follows_the_content(samples):
    kept, aside = split(samples, 0.3)
    assert len(kept) + len(aside) == len(samples)
    assert 0.1 < len(aside) / len(samples) < 0.5
    again = split([*samples[::-1], Sample([28], [3])], 0.3)
    assert all(sample in again[0] for sample in kept)
    assert all(sample in again[1] for sample in aside)
    question = [Sample([5, 6], [answer]) for answer in range(9)]
    assert [] in split(question, 0.5), "answers to one question stay together"


def test_copies_that_differ_in_blanks_are_on_one_side():
    """As people copy texts; ids tell them apart, so whoever can make text of ids is asked."""

    def text_of(ids):
        return bytes(ids).decode()

    plain = [f"document {i} says so." for i in range(200)]
    both = [Sample([], list(text.encode())) for one in plain for text in (one, f" {one}\n", one.replace(" ", "  "))]
    kept, aside = split(both, 0.2, text_of)
    sides = [{"".join(text_of(sample.answer_ids).split()) for sample in side} for side in (kept, aside)]
    assert 20 < len(sides[1]) < 60
    assert not sides[0] & sides[1]


def test_of_few_samples_one_is_held_out(samples):
    few = [*samples[:3], *samples[:3]]
    kept, aside = split(few, 1e-6)
    assert len(aside) == 2
    assert aside[0] == aside[1], "the same text twice"
    assert split(few[::-1], 1e-6)[1] == aside, "chosen by content"
    assert len(kept) == 4
    assert split([], 0.05) == ([], [])
