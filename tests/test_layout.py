"""The one-way order of imports (section 2 of the design): what stands left knows nothing of what stands right."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = [
    {"_typing", "_checks"},
    {"sampling", "cache", "lm", "sharding", "theory"},
    {"verify"},
    {"drafters", "control"},
    {"generate", "loop", "round", "state", "_inputs", ""},  # "" is specdec_jax itself, what generate's users export
    {"batch", "trace", "viz", "bench", "plan", "testing"},
    {"cli"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
MAY_IMPORT = {
    "models": {"models", "lm", "cache", "sharding", "_typing", "_checks"},
    "training": RANK.keys() - {"cli"} | {"models", "training"},
    # A benchmark and a command need a model to run; the core below them knows none.
    "bench": {part for part in RANK if part != "cli"} | {"models"},
    "plan": {part for part in RANK if part != "cli"} | {"models"},
    "cli": RANK.keys() | {"models", "training"},
}


def modules() -> dict[str, Path]:
    """Every module by its dotted name below specdec_jax."""
    folders = {"": ROOT / "specdec_jax", "models": ROOT / "models", "training": ROOT / "training"}
    found = {}
    for prefix, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [prefix] * bool(prefix) + list(path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str, path: Path) -> set[str]:
    """The modules below specdec_jax that a module imports, at its top or inside a function."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            whole = [alias.name for alias in node.names]
            found |= {n.removeprefix("specdec_jax").lstrip(".") for n in whole if n.split(".")[0] == "specdec_jax"}
        elif isinstance(node, ast.ImportFrom):
            source = (node.module or "").split(".") if node.module else []
            if node.level:
                source = package[: len(package) - node.level + 1] + source
            elif source[0] == "specdec_jax":
                source = source[1:]
            else:
                continue
            below = [".".join([*source, alias.name]) for alias in node.names]
            found |= {n if n in MODULES else ".".join(source) for n in below}
    return found


def part(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_one_way(name):
    here = part(name)
    assert here in RANK or here in MAY_IMPORT, f"say in LAYERS where {here!r} stands"
    allowed = MAY_IMPORT.get(here) or {p for p in RANK if RANK[p] <= RANK[here]}
    wrong = {other for other in imports(name, MODULES[name]) if part(other) not in allowed}
    assert not wrong, f"specdec_jax.{name} imports {wrong}, which stand to the right of it"


def test_the_parser_sees_imports():
    assert "sampling.draw" in imports("verify.token", MODULES["verify.token"])
    assert "verify.token" in imports("verify", MODULES["verify"])
    assert "lm" in imports("generate", MODULES["generate"])


def test_names_of_test_files_are_unique():
    """Pytest imports them by name alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert {name for name in names if names.count(name) > 1} == set()
