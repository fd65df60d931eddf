"""``specdec check`` on tiny models: what it prints and when, and that it says no."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick
from rich.console import Console

from specdec_jax import FinishReason, draft_model
from specdec_jax.cli import check, drafting, main
from specdec_jax.cli.check import Finding, Options
from specdec_jax.testing import history_model, random_logits
from specdec_jax.testing.contracts import broken
from specdec_jax.testing.equality import Answer, Pair
from specdec_jax.testing.next_tokens import Cell, NextTokens

pytestmark = pytest.mark.usefixtures("quick_programs")

SMALL = ["--capacity", "32", "--draft-length", "2", "--max-new-tokens", "6", "--draws", "64", "--batch", "32"]


@pytest.fixture
def line(tiny, other, write_lines, monkeypatch):
    monkeypatch.setattr(jax, "jit", quick)
    path = write_lines({"prompt": "a b c a b"}, {"prompt": "d e"})
    return ["check", "--target", str(tiny), "--draft", str(other("drafts", seed=4)), "--prompt-file", str(path), *SMALL]


@pytest.mark.heavy
def test_an_exact_pair(line, capsys):
    assert main(line) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert found["holds"]
    assert "with probability 0.8" in " ".join(out.split())
    names = [one["check"] for one in found["checks"]]
    assert len(names) == len(set(names)) == 11
    draws = found["checks"][-1]["figures"]
    assert draws["draws"] == sum(cell["count"] for cell in draws["cells"]) == 64
    assert 0 < draws["smallest_bias"] < 1
    for one in found["checks"]:
        if "drafted" in one["figures"]:
            assert 0 <= one["figures"]["accepted"] <= one["figures"]["drafted"]
            assert one["idle"] == (one["figures"]["accepted"] == 0)
        if "rows" in one["figures"]:
            assert (one["figures"]["rows"], one["figures"]["differences"]) == (2, [])


@pytest.mark.heavy
def test_a_drafter_that_lies(line, capsys, monkeypatch):
    make = drafting.make

    def lying(*args, **how):
        made = make(*args, **how)
        honest = made.drafter
        assert honest is not None

        def propose(*given):
            proposal, state = honest.propose(*given)
            assert proposal.q is not None
            q = jnp.where(proposal.q > 0, jnp.sqrt(proposal.q), 0)
            return proposal._replace(q=q / q.sum(-1, keepdims=True)), state

        return made._replace(drafter=honest._replace(propose=propose))

    monkeypatch.setattr(drafting, "make", lying)
    monkeypatch.setattr(check, "_equalities", lambda *args: iter(()))  # costly, and not what it lies about
    monkeypatch.setattr(check, "next_tokens", lambda *args, **how: NextTokens([], [], 64, 0.5, 2, 0.1, 9, 4))
    assert main(line) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not found["holds"]
    assert [one["holds"] for one in found["checks"]] == [True, False, True]
    assert "q is, bit for bit, what draw was given" in found["checks"][1]["what"]


OK, NO = Finding("this", True, "as it should be", {}), Finding("that", False, "not [B, K] but [red]", {"error": 1})


def test_a_drafter_that_was_never_right_is_not_called_tested(line, capsys, monkeypatch):
    idle = Finding("it", True, "6 of 6 rows equal", {"drafted": 7, "accepted": 0})
    monkeypatch.setattr(check, "findings", lambda *args: iter([OK, idle]))
    assert main(line) == 0
    out = capsys.readouterr().out
    assert [one["idle"] for one in json.loads(out.splitlines()[-1])["checks"]] == [False, True]
    assert "--  it" in out
    assert "No guess was kept, so this says nothing of the drafter" in " ".join(out.split())


@pytest.mark.parametrize(("found", "status"), [([OK], 0), ([OK, NO], 1), ([NO, OK], 1)])
def test_one_thing_that_does_not_hold_is_enough(found, status, line, capsys, monkeypatch):
    monkeypatch.setattr(check, "findings", lambda *args: iter(found))
    assert main(line) == status
    out = capsys.readouterr().out
    report = json.loads(out.splitlines()[-1])
    assert report["holds"] == (status == 0)
    assert [one["holds"] for one in report["checks"]] == [one is OK for one in found]
    assert out.count("ok  this") == 1
    assert out.count("NO  that") == len(found) - 1 + (found == [NO])
    assert ("not [B, K] but [red]" in out) == (NO in found)


def test_each_result_is_printed_as_soon_as_it_is_known(line, capsys, monkeypatch):
    seen = []

    def slow(*args):
        for finding in (OK, NO):
            yield finding
            seen.append(capsys.readouterr().out)

    monkeypatch.setattr(check, "findings", slow)
    main(line)
    assert "ok  this" in seen[0]
    assert "NO  that" in seen[1]


def test_a_drafter_that_guesses_nothing_has_no_contract_to_keep():
    def silent(tolerance):
        raise ValueError("the drafter made no guess")

    assert check._contract("it", silent, (), 0.5) == Finding("it", False, "the drafter made no guess", {})


def test_a_broken_contract():
    def bad(tolerance):
        broken("rows do not mix", f"they do, by more than {tolerance}")

    found = check._contract("rows", bad, (), 0.5)
    assert found == Finding("rows", False, "rows do not mix, but they do, by more than 0.5", {})
    assert check._contract("rows", lambda tolerance: None, (), 0.5).holds


def equalities(monkeypatch, answer) -> list[Finding]:
    """Of two rows, each answered by ``answer(row, tokens, how)``; tokens are the same in all ways to answer it."""
    model, params = history_model(8), random_logits(0, 97, 8)
    plain = np.random.default_rng(0).integers(0, 8, (2, 4)).tolist()

    def answers(pair, prompts, lengths, **how):
        return [answer(row, list(tokens), how | {"drafter": pair.drafter}) for row, tokens in enumerate(plain)]

    monkeypatch.setattr(check, "answers", answers)
    pair = Pair(model, params, draft_model(model), params)
    options = Options(draft="a model", capacity=32, max_new_tokens=4)
    return list(check._equalities(pair, [[1, 2], [3]], options, Console(quiet=True)))


@pytest.mark.heavy
def test_rows_that_differ(monkeypatch):
    """One token of a row alone under the coupled rule is another, and by no tie."""

    def answer(row, tokens, how):
        if (row, how["rule"], how["batch"]) == (1, "coupled", 1):
            tokens[2] = (tokens[2] + 1) % 8
        return Answer(tokens, FinishReason.LENGTH)

    found = equalities(monkeypatch, answer)
    assert [one.check for one in found if not one.holds] == ["coupled, with the drafter, each row alone"]
    (wrong,) = (one for one in found if not one.holds)
    assert "1 of 2 rows equal plain decoding, 7 tokens compared; row 1 differs at token 2: NOT a tie" in wrong.what
    assert wrong.figures["differences"][0]["is_tie"] is False


def test_rows_that_are_cut_off(monkeypatch):
    def answer(row, tokens, how):
        cut = (row, how["rule"], how["batch"]) == (1, "greedy", 1)
        return Answer(tokens[:3], FinishReason.NAN) if cut else Answer(tokens, FinishReason.LENGTH)

    (wrong,) = (one for one in equalities(monkeypatch, answer) if not one.holds)
    assert wrong.what == (
        "1 of 2 rows equal plain decoding, 7 tokens compared; row 1 ended after 3 tokens (NAN) instead of 4 (LENGTH); "
        "0 of 0 guesses kept"
    )
    assert json.loads(json.dumps(wrong.figures, allow_nan=False))["endings"][0]["row"] == 1


def test_answers_without_tokens_are_not_equal(monkeypatch):
    found = equalities(monkeypatch, lambda row, tokens, how: Answer([], FinishReason.NAN))
    assert not any(one.holds for one in found)
    assert "there was nothing to compare" in found[0].what


NO_PAIR = Pair(history_model(8), None, None, None)


@pytest.mark.parametrize(("p_value", "holds"), [(2e-4, True), (0.5e-4, False)])
def test_next_tokens_that_come_too_often(p_value, holds, monkeypatch):
    cells = [Cell((3,), False, 0.75), Cell((), True, 0.25)]
    monkeypatch.setattr(check, "next_tokens", lambda *_, **how: NextTokens(cells, [60, 4], 64, p_value, 2, 0.21, 9, 4))
    finding = check._next_tokens(NO_PAIR, [1, 2], Options(), None)
    assert finding.holds is holds
    assert "64 draws of 3 tokens after the shortest prompt, of 2, in 2 cells" in finding.what
    assert "lost 0.21 of probability to the others, that would have shown with probability 0.8" in finding.what
    assert "what moves within one, such as a remainder, does not show" in finding.what
    assert "[3] 60 of 48.0 expected; [] and then another 4 of 16.0 expected" in finding.what
    assert finding.figures["p_value"] == p_value


def test_rows_that_end_while_next_tokens_are_drawn(monkeypatch):
    def ended(*_, **how):
        raise ValueError("2 of 8 rows ended")

    monkeypatch.setattr(check, "next_tokens", ended)
    finding = check._next_tokens(NO_PAIR, [1], Options(), None)
    assert (finding.holds, finding.what) == (False, "2 of 8 rows ended")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--draws", "0"), "draws is 0; expected >= 1"),
        (("--batch", "0"), "batch is 0; expected >= 1"),
        (("--max-new-tokens", "0"), "max_new_tokens is 0; expected >= 1"),
        (("--draft", "none"), "draft is none; expected a drafter to check"),
    ],
)
def test_bad_options(options, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["check", *options])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert message in " ".join(err.replace("│", " ").split())


def test_prompts_that_do_not_fit(line, capsys):
    assert main([*line, "--capacity", "7"]) == 2
    assert "specdec check: " in capsys.readouterr().err


def test_the_shortest_prompt_leaves_too_little_room(line, write_lines, capsys, monkeypatch):
    monkeypatch.setattr(check, "findings", lambda *args: iter(()))
    path = write_lines({"prompt": "a b c d e"}, {"prompt": "a b c d e f"}, name="long.jsonl")
    line[line.index("--prompt-file") + 1] = str(path)
    long = line.index("--capacity") + 1
    for room, status in ((9, 2), (30, 0)):
        line[long] = str(room)
        assert main(line) == status
    assert "the shortest prompt has 7 tokens, after which a row has room for 2; expected" in capsys.readouterr().err
