"""The code of the README runs."""

import re
from pathlib import Path

import pytest

from specdec_jax import models

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_there_is_code():
    assert len(BLOCKS) == 2


@pytest.mark.heavy
@pytest.mark.parametrize("block", BLOCKS)
def test_code_runs(block, tiny, monkeypatch, capsys):
    load = models.load
    monkeypatch.setattr(models, "load", lambda name: load(tiny))
    exec(block, {"__name__": "readme"})
    assert capsys.readouterr().out


def test_commands_exist():
    for line in re.findall(r"^    (scripts/\w+)", TEXT, flags=re.MULTILINE):
        assert (Path(__file__).parents[2] / line).exists()
