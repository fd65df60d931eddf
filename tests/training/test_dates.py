"""A chat template may write the date: a run's text keeps that of the day on which it was begun."""

import datetime
import json

import pytest
from tiny_teachers import TEMPLATE

from specdec_jax.models import Tokenizer, chat
from specdec_jax.training import data, self_prompt
from specdec_jax.training.samples import DataError, Sample
from specdec_jax.training.settings import TextConfig
from specdec_jax.training.texts import gather


@pytest.fixture
def dated(tiny_target):
    """A target whose template begins with the day of the month."""
    tokenizer = tiny_target.tokenizer
    template = "w{{ strftime_now('%d') }} " + TEMPLATE
    return tiny_target._replace(tokenizer=Tokenizer(tokenizer.backend, eos_ids=[0], chat_template=template))


@pytest.fixture
def clock(monkeypatch):
    class Day(datetime.datetime):
        today_is = 10

        @classmethod
        def now(cls, tz=None):
            return cls(2026, 12, cls.today_is, 23, 59, tzinfo=tz)

    for module in (chat, data):
        monkeypatch.setattr(module, "datetime", Day)
    return Day


def test_prompts_of_a_file_are_of_the_first_day(dated, clock, tmp_path, monkeypatch):
    asked = []

    def answers(target, prompts, **_):
        asked.append([list(prompt) for prompt in prompts])
        return [Sample(prompt, [7, 0], 0.0) for prompt in asked[-1]]

    monkeypatch.setattr(data, "answers", answers)
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "w5"}\n{"prompt": "w6"}\n')
    for clock.today_is, tokens in ((10, 2), (11, 4)):
        settings = TextConfig(file=file, tokens=tokens, rows=2)
        found = gather(dated, settings, tmp_path / "text", seed=0)
        assert [sample.prompt_ids[0] for sample in found] == [10, 10]
    assert asked == [[[10, 1, 5, 0, 2], [10, 1, 6, 0, 2]]]


def test_what_a_target_asks_itself_is_of_the_first_day(dated, clock, tmp_path, monkeypatch):
    begun = []

    def generate(target, rows, *_):
        begun.append(rows[0][0])
        return [[5, 0] for _ in rows]

    monkeypatch.setattr(self_prompt, "_generate", generate)
    for clock.today_is, tokens in ((10, 4), (11, 8)):
        found = gather(dated, TextConfig(tokens=tokens, rows=2), tmp_path / "text", seed=0)
        assert {sample.prompt_ids[0] for sample in found} == {10}
    assert begun == [10] * 4, "questions and answers of both days"


@pytest.mark.parametrize("damage", ["{", "3", '{"begun": "someday"}', '{"begun": 3}'])
def test_a_damaged_note_is_told_of(damage, tiny_target, tmp_path):
    (tmp_path / "made.json").write_text(damage)
    with pytest.raises(DataError, match=r"made.json is damaged \(.*\); expected what a run wrote there"):
        gather(tiny_target, TextConfig(), tmp_path, seed=0)


def test_text_of_before_that_has_no_day(tiny_target, tmp_path, monkeypatch):
    monkeypatch.setattr(self_prompt, "_generate", lambda target, rows, *_: [[5, 0] for _ in rows])
    settings = TextConfig(tokens=4, rows=2)
    first = gather(tiny_target, settings, tmp_path, seed=0)
    made = json.loads((tmp_path / "made.json").read_text())
    del made["begun"]
    (tmp_path / "made.json").write_text(json.dumps(made))
    assert gather(tiny_target, settings, tmp_path, seed=0) == first
