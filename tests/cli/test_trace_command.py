"""``specdec trace`` on a tiny model."""

import itertools
import json
import re

import pytest
from rich.console import Console

from specdec_jax import Costs
from specdec_jax.cli import main, trace

pytestmark = pytest.mark.usefixtures("quick_programs", "quick_recordings")


@pytest.mark.heavy
def test_the_page_holds_the_text_that_generate_writes(tiny, tmp_path, capsys):
    page = tmp_path / "page.html"
    line = ["a b c", "--target", str(tiny), "--max-new-tokens", "20", "--seed", "9"]
    assert main(["generate", *line, "--format", "jsonl"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert main(["trace", *line, "--output", str(page), "--figures", str(tmp_path / "figures")]) == 0
    text = page.read_text(encoding="utf-8")
    assert f"{page}: {wanted['stats']['rounds']} rounds" in capsys.readouterr().out
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    told = json.loads(data)
    tokens = [
        token
        for told_round in told["rounds"]
        for token, *_ in [*told_round["guesses"][: told_round["kept"]], *filter(None, [told_round["follow"]])]
    ]
    assert tokens == wanted["token_ids"]
    assert len(tokens) > len(told["rounds"]) > 3
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"acceptance", "tokens-a-round", "time-line"}


def test_plain_decoding_has_a_page_too(tiny, tmp_path):
    page = tmp_path / "page.html"
    line = ["a", "--target", str(tiny), "--draft", "none", "--max-new-tokens", "4", "--output", str(page)]
    assert main(["trace", *line]) == 0
    assert "Acceptance by place" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("rounds", [0, 2])
def test_ctrl_c_leaves_a_page_of_what_was_recorded(rounds, tiny, tmp_path, monkeypatch, capsys):
    recorded = trace.record

    def interrupted(*args, **how):
        yield from itertools.islice(recorded(*args, **how), rounds)
        raise KeyboardInterrupt

    monkeypatch.setattr(trace, "record", interrupted)
    page = tmp_path / "page.html"
    line = ["a", "--target", str(tiny), "--draft", "none", "--max-new-tokens", "9", "--output", str(page)]
    assert main(["trace", *line]) == 130
    assert page.exists() == (rounds > 0)
    if rounds:
        assert "2 rounds, 2 without a guess, then interrupted" in capsys.readouterr().out
        assert "It was not followed to its end." in page.read_text(encoding="utf-8")


@pytest.mark.heavy
@pytest.mark.parametrize("controller", ["adaptive", "constant"])
def test_the_controller_decides_how_many_guesses_there_are(controller, tiny, other, tmp_path, monkeypatch, capsys):
    dear = Costs(10.0, [1.0, 20.0]).checked((1, 5))
    monkeypatch.setattr(trace.costs, "find", lambda *_: dear)
    models = ["--target", str(tiny), "--draft", str(other("drafts", seed=4)), "--output", str(tmp_path / "page.html")]
    assert main(["trace", "a", *models, "--max-new-tokens", "4", "--controller", controller]) == 0
    rounds, plain = map(int, re.findall(r": (\d+) rounds, (\d+) without a guess", capsys.readouterr().out)[0])
    assert (plain == rounds) == (controller == "adaptive")


@pytest.mark.heavy
def test_a_terminal_shows_the_text_as_it_grows(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trace.consoles, "console", lambda: Console(force_terminal=True, width=80, highlight=False))
    line = ["a", "--target", str(tiny), "--max-new-tokens", "4", "--output", str(tmp_path / "page.html")]
    assert main(["trace", *line]) == 0
    shown = capsys.readouterr().out
    assert "round 1 " in shown
    assert "corrected" in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a --max-new-tokens 0", "max_new_tokens is 0; expected an integer from 1"),
        ("a --rule greedy", "rule is greedy, but temperature is 1.0"),
        ("\udcff", "prompt is '\\udcff', which holds bytes that are no text; expected UTF-8"),
        ("", "PROMPT"),
    ],
)
def test_bad_options(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["trace", *line.split()])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_prompt_that_does_not_fit(tiny, tmp_path, capsys):
    line = ["a b c", "--target", str(tiny), "--capacity", "3", "--output", str(tmp_path / "page.html")]
    assert main(["trace", *line]) == 2
    assert "the prompt has 3 tokens, but a row holds 3" in capsys.readouterr().err
