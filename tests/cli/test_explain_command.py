"""``specdec explain`` on numbers and on tiny models."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.cli import explain, main
from specdec_jax.viz.duel import constant_rounds

pytestmark = pytest.mark.usefixtures("quick_recordings")

NUMBERS = ["--p", ".5,.3,.2", "--q", ".2,.5,.3"]
FIGURES = {
    "distributions",
    "areas",
    "accepted",
    "residual",
    "stacked",
    "edge-same",
    "edge-lacking",
    "edge-sure",
    "same-draws",
    "at-least",
}


def test_two_distributions(tmp_path, capsys):
    page, folder = tmp_path / "page.html", tmp_path / "figures"
    line = [*NUMBERS, "--words", "cat,dog,<b>", "--output", str(page), "--figures", str(folder), "--draft-length", "2"]
    assert main(["explain", *line]) == 0
    text = page.read_text(encoding="utf-8")
    assert "cat" in text
    assert "&lt;b&gt;" in text
    assert "<bdi><b></bdi>" not in text
    assert re.search(r'id="alpha">0\.7000<', text)
    assert {path.name for path in folder.iterdir()} == {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")}
    assert f"{page}: 10 figures" in capsys.readouterr().out


@pytest.mark.heavy
def test_many_rounds_are_judged_a_few_at_a_time_and_are_the_same(monkeypatch):
    """There may be 65,535, each of whole distributions."""
    p, q, sizes, found = jnp.asarray([0.5, 0.3, 0.2]), jnp.asarray([0.2, 0.5, 0.3]), [], []

    def rounds_of(keys):
        sizes.append(len(keys))
        return constant_rounds(p, q, 2, len(keys), keys)

    for at_once in (32, 8):
        monkeypatch.setattr(explain, "_AT_ONCE", at_once)
        found.append(explain._judged(rounds_of, explain.Options("a", rounds=19))[1])
    assert sizes == [19, 8, 8, 8]
    for whole, parts in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(whole, parts)
        assert len(whole) == 19


@pytest.mark.heavy
def test_two_models_after_a_prompt(tiny, other, tmp_path):
    page = tmp_path / "page.html"
    models = ["--target", str(tiny), "--draft", str(other("drafts", seed=4)), "--rounds", "4"]
    assert main(["explain", "a b", *models, "--output", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Target tiny, draft drafts, after a b." in re.sub("<[^>]*>", "", text)
    over, under = (re.findall(rf'id="{name}">([\d.]+)<', text) for name in ("over", "under"))
    assert over == under
    assert 0 < float(*over) < 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--p .5,.5 --q .2,.5,.3", "p has 2 numbers, q 3 and words 2 names; expected as many of each"),
        ("--p .5,.5 --q .5,.5 --words a", "words 1 names; expected"),
        (
            "--p .5,.4 --q .5,.5",
            "p is .5,.4, which sums to 0.9; expected at least two numbers, none below 0, with sum 1",
        ),
        ("--p 1.5,-.5 --q .5,.5", "p is 1.5,-.5, which sums to 1; expected"),
        ("--p 1 --q 1", "expected at least two numbers"),
        ("--p .5,half --q .5,.5", "p is .5,half; expected numbers such as .5,.3,.2, with commas"),
        ("--p nan,.5 --q .5,.5", "which sums to nan; expected"),
    ],
)
def test_numbers_that_are_no_distributions(line, message, tmp_path, capsys):
    assert main(["explain", *line.split(), "--output", str(tmp_path / "page.html")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "got nothing; expected a prompt, or --p and --q"),
        ("--p .5,.5", "got --p; expected a prompt, or --p and --q"),
        ("word --q .5,.5", "got a prompt and --q; expected"),
        ("word --words a,b", "got a prompt and --words; expected"),
        ("word --draft-length 0", "draft_length is 0; expected an integer from 1"),
        ("word --rounds 0", "rounds is 0; expected an integer from 1"),
        (
            "--p .5,.5 --q .5,.5 --words \udcff,b",
            "words is '\\udcff,b', which holds bytes that are no text; expected UTF-8",
        ),
        ("\udcff", "prompt is '\\udcff', which holds bytes that are no text; expected UTF-8"),
        ("word --temperature -1", "temperature is -1.0; expected"),
        ("word --target nosuch --draft none", "draft is none; expected a drafter, such as"),
        (
            "--p .5,.5 --q .5,.5 --temperature .1 --top-k 2 --target nosuch --chat --draft ngram",
            "got --p and --q, and --target and --draft and --chat and --temperature and --top-k; expected that with a",
        ),
    ],
)
def test_bad_options(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["explain", *line.split()])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_page_that_cannot_be_written(tmp_path, capsys):
    assert main(["explain", *NUMBERS, "--output", str(tmp_path / "none" / "page.html")]) == 2
    assert "page.html; expected a file in a folder that exists" in capsys.readouterr().err


def test_figures_that_cannot_be_written(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "x", file / "x" / "y"):
        assert main(["explain", *NUMBERS, "--output", str(tmp_path / "page.html"), "--figures", str(folder)]) == 2
        assert f"cannot write into {folder}: {file} is no folder; expected one, or" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["", "page.html", "old"])
def test_what_may_not_be_written_to_is_said_before_the_work(closed, tmp_path, monkeypatch, capsys):
    page, figures = tmp_path / "page.html", tmp_path / "old" / "new"
    page.touch()
    (tmp_path / "old").mkdir()
    # Root may write anywhere, and tests may be root's.
    monkeypatch.setattr("specdec_jax.cli.options.os.access", lambda path, mode: path != tmp_path / closed)
    if not closed:
        page.unlink()
    assert main(["explain", *NUMBERS, "--output", str(page), "--figures", str(figures)]) == 2
    what = f"into {figures}: {tmp_path / closed}" if closed == "old" else str(page)
    assert f"cannot write {what}" in capsys.readouterr().err
    assert not figures.exists()


@pytest.mark.heavy
def test_a_draft_that_guesses_nothing(tiny, tmp_path, capsys):
    line = ["a", "--target", str(tiny), "--draft", "ngram", "--output", str(tmp_path / "page.html"), "--rounds", "4"]
    assert main(["explain", *line]) == 2
    assert "ngram guesses nothing after" in capsys.readouterr().err
