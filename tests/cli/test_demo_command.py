"""``specdec demo`` on a tiny model."""

import pytest

from specdec_jax.cli import demo, main

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.mark.heavy
def test_it_compares_and_says_that_the_text_is_the_same(tiny, write_lines, capsys):
    path = write_lines(*({"prompt": text, "category": "toy"} for text in ("a b c", "d e", "f")))
    assert main(["demo", "--target", str(tiny), "--prompt-file", str(path), "--max-new-tokens", "20"]) == 0
    out = capsys.readouterr().out
    assert "3 of 3 answers are token for token the same with and without." in out
    assert "2 of 2 answers are token for token the same with and without." in out
    for metric in ("rounds", "drafted", "accepted", "acceptance_rate", "block_efficiency", "accepted_at", "speedup"):
        assert metric in out


@pytest.mark.heavy
def test_it_fails_where_a_drafter_changes_an_answer(tiny, write_lines, monkeypatch, capsys):
    asked = demo.one_at_a_time

    def changed(ask, requests):
        for timed in asked(ask, requests):
            drafted = timed.answer.counts.drafted > 0
            ids = [*timed.answer.token_ids[:-1], timed.answer.token_ids[-1] + drafted]
            yield timed._replace(answer=timed.answer._replace(token_ids=ids))

    monkeypatch.setattr(demo, "one_at_a_time", changed)
    path = write_lines({"prompt": "a"})
    assert main(["demo", "--target", str(tiny), "--prompt-file", str(path), "--max-new-tokens", "4"]) == 1
    assert "OTHER TEXT" in capsys.readouterr().out


def test_a_bad_prompt_is_an_error(tiny, write_lines, capsys):
    path = write_lines({"prompt": ""})
    assert main(["demo", "--target", str(tiny), "--prompt-file", str(path)]) == 2
    err = capsys.readouterr().err
    assert f"{path}:1: prompt is empty" in err
    assert f"{path} has no prompt that can be answered" in err


@pytest.mark.heavy
def test_a_bad_prompt_keeps_no_other_from_its_answer(tiny, write_lines, capsys):
    path = write_lines({"prompt": ""}, {"prompt": "a"})
    assert main(["demo", "--target", str(tiny), "--prompt-file", str(path), "--max-new-tokens", "4"]) == 1
    shown = capsys.readouterr()
    assert f"{path}:1: prompt is empty" in shown.err
    assert "1 of 1 answers are token for token the same with and without." in shown.out


@pytest.mark.parametrize(
    ("line", "message"),
    [("--draft none", "draft is none; expected a drafter"), ("--temperature -1", "temperature is -1.0; expected")],
)
def test_bad_options(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", *line.split()])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
