"""The code of the documentation runs."""

import importlib
import re
import shlex
from pathlib import Path

import jax
import pytest
import yaml
from programs import quick_generate

from specdec_jax.cli import COMMANDS as COMMANDS_OF_OURS
from specdec_jax.cli import main
from specdec_jax.cli.options import parse

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
def test_python_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
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
        else:  # a script: it installs, which a test must not, and then runs a command that has tests of its own
            assert (ROOT / program).is_file(), line


FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def commands_of(page: Path) -> list[str]:
    """All commands of ours, in blocks of any language, in indented ones, and inside other programs' commands."""
    text = page.read_text(encoding="utf-8")
    lines = [line for line in FENCED.sub("", text).split("\n") if line.startswith("    ")]
    for language, block in FENCED.findall(text):
        if language == "yaml":
            lines += strings(yaml.safe_load(block))
        elif language in ("sh", "bash"):
            lines += block.replace("\\\n", " ").split("\n")
    return [found[1] for line in lines if (found := re.match(r"[^#]*?((?<!\S)(?:scripts/|specdec )[a-z].*)", line))]


def strings(value: object) -> list[str]:
    """All strings in a tree of dictionaries and lists."""
    if isinstance(value, dict):
        value = list(value.values())
    return [text for part in value for text in strings(part)] if isinstance(value, list) else [str(value)]


TYPED = [(page.name, command) for page in [*PAGES, ROOT / "README.md"] for command in commands_of(page)]


@pytest.mark.parametrize(("page", "command"), TYPED, ids=[f"{page}-{n}" for n, (page, _) in enumerate(TYPED)])
def test_commands_have_the_options_that_they_are_given(page, command):
    """Those too that need a cluster, and so are not run."""
    typed = command.replace("$JOB_COMPLETION_INDEX", "1")
    typed = typed.removesuffix("'")  # of another program's command around it
    program, *options = shlex.split(typed, comments=True)
    if program != "specdec":
        assert (ROOT / program).is_file()
    name = program.removeprefix("scripts/") if program != "specdec" else options.pop(0)
    assert program != "specdec" or name in COMMANDS_OF_OURS
    if name in COMMANDS_OF_OURS and options != ["--help"]:
        parse(importlib.import_module(f"specdec_jax.cli.{name}").Options, name, options)


def test_the_documentation_of_clusters_has_commands():
    assert sum(page == "pods.md" for page, _ in TYPED) == 5


def test_a_signal_to_a_container_reaches_the_job():
    """A shell that is the first process of a container hands no SIGTERM on, so it has to become the command."""
    blocks = [yaml.safe_load(block) for language, block in PODS if language == "yaml"]
    shells = [found for block in blocks for found in containers(block) if found.get("command", [])[:2] == ["sh", "-c"]]
    assert shells
    for found in shells:
        assert found["args"][0].startswith("exec specdec ")


PODS = FENCED.findall((ROOT / "docs" / "pods.md").read_text(encoding="utf-8"))


def containers(value: object) -> list[dict]:
    """All containers in a tree of dictionaries and lists."""
    if isinstance(value, dict):
        own = value.get("containers", [])
        return own + [found for part in value.values() for found in containers(part)]
    return [found for part in value for found in containers(part)] if isinstance(value, list) else []


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
