"""A generation in the terminal."""

import io

from hostile import PROMPT, TOKENS
from rich.console import Console

from specdec_jax.viz import terminal, trace_page
from specdec_jax.viz.glyphs import Speller


def test_the_rounds_are_given_on_and_the_text_stays(moments):
    file = io.StringIO()
    console = Console(file=file, width=60, height=14, highlight=False, force_terminal=True)
    assert list(terminal.watch(iter(moments), PROMPT, TOKENS.__getitem__, console)) == moments
    out = file.getvalue()
    assert f"round {len(moments)} " in out
    assert "accepted" in out
    assert "\x1b[2J" not in out, "a token cleared the screen"


def test_the_text_has_every_token_and_its_kind(moments):
    records = trace_page.row_of(moments, 0)
    found = terminal.text(trace_page.marks(records, PROMPT, TOKENS.__getitem__))
    tokens = [*PROMPT, *(token for record in records for token in record.tokens)]
    assert found.plain == "".join(map(Speller().push, (TOKENS[token] for token in tokens)))
    assert {span.style for span in found.spans} == {
        terminal.STYLES[kind] for kind in ("prompt", "kept", "corrected", "bonus")
    }


def test_every_kind_has_a_colour(moments, sparse_moments):
    shown = {
        mark.kind
        for seen in (moments, sparse_moments)
        for mark in trace_page.marks(trace_page.row_of(seen, 0), PROMPT, TOKENS.__getitem__)
    }
    ended = trace_page.row_of(moments, 0)[0]._replace(num_accepted=0, follow=None)
    shown |= {mark.kind for mark in trace_page.marks([ended], PROMPT, TOKENS.__getitem__)}
    assert shown == terminal.STYLES.keys()


def test_only_the_present_rounds_refused_tokens_are_shown(moments):
    records = trace_page.row_of(moments, 0)
    marks = trace_page.marks(records, PROMPT, TOKENS.__getitem__)
    number = next(i for i, record in enumerate(records) if record.num_accepted < len(record.guesses))
    struck = [span for span in terminal.text(marks, vain_of=number).spans if span.style == terminal.STYLES["refused"]]
    assert len(struck) == len(records[number].guesses) - records[number].num_accepted
