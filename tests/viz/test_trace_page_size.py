"""A page of 2,000 tokens stays small and opens quickly, whatever happened in its rounds."""

from itertools import islice

import numpy as np
import pytest
from hostile import PROMPT, TOKENS

from specdec_jax.trace import Choice, Follow, Guess, RoundRecord
from specdec_jax.viz import trace_page


def test_two_thousand_tokens_stay_small_and_open_quickly(look, moments):
    many = [moments[i % (len(moments) - 1)] for i in range(2200 * len(moments) // 60)]
    text = trace_page.page(many, PROMPT, TOKENS.__getitem__, target="", draft="", rule="block")
    assert text.count('<span class="t ') > 2000
    assert len(text.encode()) < 3e6
    page = look(text)
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < loaded < 2000, f"{loaded} ms"


@pytest.mark.heavy
def test_two_thousand_tokens_stay_small_whatever_they_are(look, moments):
    """The worst case: each token a round of its own, every guess refused, and all of them different words."""
    draw = np.random.default_rng(0)
    chances = iter(lambda: round(draw.random(), 3), None)
    words = iter(lambda: int(draw.integers(49_152)), None)

    def vain() -> RoundRecord:
        judged = tuple(Guess(next(words), *islice(chances, 4)) for _ in range(16))
        likeliest = tuple(Choice(next(words), *islice(chances, 2)) for _ in range(4))
        return RoundRecord(judged, 0, Follow(next(words), *islice(chances, 2)), (likeliest,))

    worst = [moments[0]._replace(rows=(vain(),)) for _ in range(2000)]
    text = trace_page.page(worst, [0], lambda token: b" word%d" % token, target="", draft="", rule="block")
    assert len(text.encode()) < 2.5e6
    page = look(text)
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < loaded < 2000, f"{loaded} ms"
    assert page.locator("#text s").count() == 16
    page.get_by_role("button", name="Show all refused").press("Enter")
    assert page.locator("#text s").count() == 32_000
