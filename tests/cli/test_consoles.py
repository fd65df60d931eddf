"""What a model says reaches files to the last character, and cannot command a terminal."""

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from specdec_jax.cli import consoles

TEXT = "\treturn a[lo:key:2]  # 10:100:5 [bold]\r\n\x1b[2Jend\n"


def test_a_file_gets_the_text_as_it_is(tmp_path):
    path = tmp_path / "answers.txt"
    with path.open("w", encoding="utf-8", newline="") as file:
        consoles.write_text(TEXT, consoles.console(file))
    assert path.read_bytes().decode() == TEXT + "\n"


def test_a_terminal_is_not_obeyed_to():
    file = io.StringIO()
    consoles.write_text(TEXT + "\x7f\x9b", Console(file=file, force_terminal=True))
    assert file.getvalue() == "\treturn a[lo:key:2]  # 10:100:5 [bold]␍\n␛[2Jend\n␡\\x9b\n"


@pytest.mark.parametrize("kind", ["console", "errors"])
def test_colons_are_no_names_of_emoji(kind, capsys):
    made = {"console": consoles.console, "errors": consoles.errors}[kind]()
    made.print("prompts.jsonl:100: the line is not JSON", markup=False)
    assert "prompts.jsonl:100: the line" in "".join(capsys.readouterr())


def test_every_command_uses_them():
    """Another console would turn :100: into a picture."""
    files = Path(consoles.__file__).parent.glob("*.py")
    made = [path.name for path in files if "Console(" in path.read_text(encoding="utf-8")]
    assert sorted(made) == ["consoles.py"]


@pytest.fixture
def nobody_reads(monkeypatch):
    """Standard error is a pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        yield
        broken.flush()  # what others say there meets no error either


@pytest.mark.parametrize("make", [consoles.errors, consoles.progress])
def test_work_goes_on_where_nobody_reads_what_is_said_beside_it(make, nobody_reads):
    console = make()
    console.print("x" * 100_000)
    console.print("again")
    print("others too", file=sys.stderr, flush=True)


def test_work_goes_on_where_the_disk_of_what_is_said_is_full(monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        console = consoles.errors()
        console.print("x" * 100_000)
        console.print("again")
