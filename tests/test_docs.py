"""The code of the documentation runs."""

import re
import shlex
from pathlib import Path

import jax
import pytest
from programs import quick_generate

from specdec_jax.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
COMMANDS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
]


def python_of(page: Path) -> str:
    """All blocks of a page, in a file of the same lines, so that a fault is shown where it stands."""
    inside, lines = False, []
    for line in page.read_text(encoding="utf-8").split("\n"):
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line.strip() == "```python" if fence else inside
    return "\n".join(lines)


@pytest.mark.heavy
@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES if python_of(page).strip()])
def test_python_runs(page, monkeypatch, capsys):
    if "models.load(" not in python_of(page):  # where there are real weights, the program is worth optimising
        quick_generate(monkeypatch)
    # As a reader has them: the tests are stricter.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(python_of(page), str(page), "exec"), {"__name__": "docs"})
    assert capsys.readouterr().out


@pytest.mark.heavy
@pytest.mark.parametrize(("page", "block"), COMMANDS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(COMMANDS)])
def test_commands_run(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in block.strip().split("\n"):
        program, *arguments = shlex.split(line, comments=True)
        if program == "specdec":
            assert main(arguments) == 0, line
        else:
            assert (ROOT / program).is_file(), line


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
