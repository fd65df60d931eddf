"""The scripts, and what an installation of the project holds."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [*sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file()), ROOT / ".ci" / "run"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_run_and_parsed(script):
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


def test_ci_runs_all_tests_by_the_command_of_the_readme():
    assert 'exec scripts/test -m ""' in (ROOT / ".ci" / "run").read_text()
    assert "scripts/test" in (ROOT / "README.md").read_text()


def test_install_returns_at_once_where_nothing_changed(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").mkdir()
    cksum = subprocess.run(
        "cat pyproject.toml scripts/install | cksum", shell=True, cwd=tmp_path, capture_output=True, text=True
    ).stdout
    (tmp_path / ".venv" / "installed-dev").write_text(f"{tmp_path} {cksum}")
    run = {"cwd": tmp_path, "env": os.environ | {"PYTHON": "false"}, "capture_output": True, "text": True}
    assert subprocess.run([tmp_path / "scripts" / "install", "dev"], **run).returncode == 0
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    done = subprocess.run([tmp_path / "scripts" / "install", "dev"], **run)
    assert done.returncode == 1
    assert "expected Python 3.11 or newer: set PYTHON to one that is" in done.stderr


def sources() -> set[str]:
    """Every module under the name that it is installed by."""
    folders = {"specdec_jax": "specdec_jax", "models": "specdec_jax/models", "training": "specdec_jax/training"}
    return {
        f"{name}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, name in folders.items()
        for path in (ROOT / folder).rglob("*.py")
        if not any((ROOT / folder / parent).is_symlink() for parent in path.relative_to(ROOT / folder).parents)
    }


def test_every_package_is_listed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {str(Path(source).parent).replace("/", ".") for source in sources()}
    assert packages == set(settings["packages"])


@pytest.mark.heavy
def test_a_wheel_holds_all_modules_and_can_be_imported(tmp_path):
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=ignore)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
        names = set(file.namelist())
    assert {name for name in names if name.endswith(".py")} == sources()
    assert "specdec_jax/cli/prompts.jsonl" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)

    look = "import specdec_jax.models as m, specdec_jax.training as t; print(m.__file__, t.__file__, sep='\\n')"
    env = os.environ | {"PYTHONPATH": str(installed)}
    found = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, env=env, capture_output=True, text=True)
    package = installed / "specdec_jax"
    assert found.stdout.split() == [str(package / name / "__init__.py") for name in ("models", "training")]


def test_the_editable_install_imports_them_too(tmp_path):
    look = "import specdec_jax.models, specdec_jax.training; print('both')"
    found = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "both\n", found.stderr
