"""Every public symbol is documented, and the API reference is made of it."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERNAL = {"cache", "cli", "generate", "lm", "loop", "round", "state", "viz"}
"""Parts of which `specdec_jax` itself exports what is public, if anything."""
PARTS = {name for _, name, _ in pkgutil.iter_modules([str(ROOT / "specdec_jax")]) if not name.startswith("_")}
MODULES = ["specdec_jax", *(f"specdec_jax.{part}" for part in sorted(PARTS - INTERNAL))]


def public(name: str) -> dict[str, object]:
    module = importlib.import_module(name)
    return {key: getattr(module, key) for key in module.__all__}


SYMBOLS = {f"{module}.{key}": value for module in MODULES for key, value in public(module).items()}


def test_the_reference_is_of_every_part():
    (line,) = re.findall(r"^parts=.*$", (ROOT / "scripts" / "docs").read_text(), flags=re.MULTILINE)
    told = subprocess.run(
        ["bash", "-c", f'{line}; echo "$parts"'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ["specdec_jax", *sorted(told.stdout.split())] == MODULES


def test_what_the_documentation_imports_is_in_the_reference():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    used = {name for page in pages for name in re.findall(r"^from (specdec_jax[.\w]*) import", page.read_text(), re.M)}
    assert used <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_modules_say_what_they_are_for(name):
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize(
    "name", [name for name, value in SYMBOLS.items() if inspect.isroutine(value) or inspect.isclass(value)]
)
def test_functions_and_classes_are_documented(name):
    value = SYMBOLS[name]
    text = getattr(value, "__doc__", None) or ""
    # dataclass and NamedTuple write one themselves: the signature
    generated = text.startswith((f"{name.rpartition('.')[2]}(", "Alias for field"))
    assert text, f"{name} has no docstring"
    assert not generated, f"{name} has only the docstring that Python makes"


def test_every_method_is_documented():
    lacking = []
    for name, value in SYMBOLS.items():
        if not inspect.isclass(value):
            continue
        for key, member in vars(value).items():
            function = member.fget if isinstance(member, property) else member
            function = getattr(function, "__func__", function)
            own = inspect.isfunction(function) and function.__module__ == value.__module__
            if own and not key.startswith("_") and not function.__doc__ and not dataclasses.is_dataclass(function):
                lacking.append(f"{name}.{key}")
    made_by_flax = {"replace"}
    assert [one for one in lacking if one.rpartition(".")[2] not in made_by_flax] == []


@pytest.mark.heavy
def test_the_reference_is_made(tmp_path):
    import pdoc
    from pdoc import render

    render.configure(docformat="google")
    pdoc.pdoc(*MODULES, output_directory=tmp_path)
    pages = {
        path.relative_to(tmp_path).with_suffix("").as_posix().replace("/", "."): path
        for path in tmp_path.rglob("*.html")
    }
    for module in MODULES:
        text = pages[module].read_text()
        for key, value in public(module).items():
            assert inspect.ismodule(value) or f'id="{key}"' in text, f"{module}.{key}"
