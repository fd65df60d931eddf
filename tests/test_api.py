"""Every public symbol is documented, and the API reference is made of it."""

import ast
import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERNAL = {"cache", "cli", "generate", "lm", "loop", "round", "state", "viz"}
"""Parts of which others export what is public: `specdec_jax` itself, or modules of theirs."""
PARTS = {name for _, name, _ in pkgutil.iter_modules([str(ROOT / "specdec_jax")]) if not name.startswith("_")}
PAGES = {
    f"viz.{path.stem}"
    for path in (ROOT / "specdec_jax" / "viz").glob("[a-z]*.py")
    if re.search("^__all__ = ", path.read_text(), re.MULTILINE)
}
"""The modules of `viz` are imported one by one, and each says itself what of it is public."""
MODULES = ["specdec_jax", *(f"specdec_jax.{part}" for part in sorted((PARTS - INTERNAL) | PAGES))]


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
    found = re.compile(r"^from (specdec_jax[.\w]*) import (.+)$", re.MULTILINE)
    used = [one for page in pages for one in found.findall(page.read_text())]
    assert used
    for module, names in used:  # of a part, or modules of a part whose modules are imported one by one
        assert {module, *(f"{module}.{name}" for name in names.split(", "))} & set(MODULES), module


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


def values_with_words(folder: Path) -> set[str]:
    """Names that a module below it assigns, with a string after that."""
    found = set()
    for path in [folder.with_suffix(".py")] if folder.with_suffix(".py").exists() else folder.rglob("*.py"):
        body = ast.parse(path.read_text()).body
        for node, after in itertools.pairwise(body):
            words = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if words and isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_values_are_documented(module):
    """Registries, settings and types of functions: by the string after them, where they are defined."""
    values = {
        key
        for key, value in public(module).items()
        if not (inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value))
    }
    folder = ROOT.joinpath(*module.split("."))
    assert values <= values_with_words(folder.resolve() if folder.exists() else folder)


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
