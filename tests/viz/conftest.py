"""Pages in the system's Chromium, and a recorded generation to show in them."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from hostile import PROMPT, TOKENS, K
from programs import quick_record

from specdec_jax import GenerateConfig, draft_model
from specdec_jax.control import Costs, adaptive, constant
from specdec_jax.testing import history_model, random_logits
from specdec_jax.trace import Moment, record

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, where there is one and playwright can drive it."""
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("needs Chromium (apt-get install chromium) and playwright, to look at pages as people do")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield running
        running.close()


@pytest.fixture
def look(browser, tmp_path) -> Iterator:
    """Opens a page from a file. By the end of the test it has asked for nothing else and complained of nothing."""
    complaints: list[str] = []
    contexts = []

    def open_(text: str, *, width: int = 1280, dark: bool = False, script: bool = True):
        path: Path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}") or dialog.dismiss())
        page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [text for text in complaints if not text.startswith("data:")] == []


@pytest.fixture(scope="session")
def moments() -> list[Moment]:
    """60 tokens of a toy, in rounds of K guesses."""
    return _recorded(controller=constant())


@pytest.fixture(scope="session")
def sparse_moments() -> list[Moment]:
    """The same where a guess is so dear that most rounds make none."""
    return _recorded(controller=adaptive(), costs=Costs(0.65, [1.0, 1.04]).checked((1, K + 1)))


def _recorded(**control) -> list[Moment]:
    V = len(TOKENS)
    target = history_model(V)
    params = random_logits(0, 97, V)
    weak = (params + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        quick_record(patch)
        rounds = record(
            target,
            params,
            draft_model(target),
            weak,
            np.array([PROMPT]),
            [len(PROMPT)],
            key=jax.random.key(3),
            config=GenerateConfig(capacity=80, draft_length=K, rule="block"),
            max_new_tokens=60,
            **control,
        )
        return list(rounds)
