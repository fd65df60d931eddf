"""What a model may be called: a path, a short name, or its name on the hub."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors import safe_open

from specdec_jax import models
from specdec_jax.models import LoadError
from specdec_jax.models.hub import FILES

NAME = "Someone/tiny-model"


@pytest.fixture(scope="module")
def saved(oracle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    oracle().save_pretrained(folder)
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A huggingface_hub whose ``snapshot_download`` does as told, in a directory where no name is a path."""
    monkeypatch.chdir(tmp_path)
    asked = []

    def install(answer):
        def snapshot_download(name, **options):
            asked.append((name, options))
            if isinstance(answer, Exception):
                raise answer
            return str(answer() if callable(answer) else answer)

        monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
        return asked

    return install


def test_fetched(hub, saved):
    asked = hub(saved)
    loaded = models.load(NAME)
    assert loaded.name == NAME
    assert loaded.model.vocab_size == 97
    assert asked == [(NAME, {"allow_patterns": list(FILES)})], "its own cache, settings and access token apply"


def test_shards_under_names_of_their_own(hub, saved, tmp_path):
    """The index lists them."""
    snapshot = tmp_path / "snapshot"
    shutil.copytree(saved, snapshot)
    (snapshot / "model.safetensors").rename(snapshot / "held-back")
    names = [*safe_open(snapshot / "held-back", "np").keys()]
    index = {"weight_map": dict.fromkeys(names, "weights-of-2024.safetensors")}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))

    def answer():
        if len(asked) == 2:
            (snapshot / "held-back").rename(snapshot / "weights-of-2024.safetensors")
        return snapshot

    asked = hub(answer)
    assert models.load(NAME).model.vocab_size == 97
    assert asked[1] == (NAME, {"allow_patterns": ["weights-of-2024.safetensors"]})


def test_no_code_and_no_other_weights_are_fetched():
    patterns = {Path(name).suffix for name in FILES}
    assert patterns == {".json", ".jinja", ".safetensors", ".model", ".txt"}


def test_a_snapshot_of_links(hub, saved, tmp_path):
    """The cache holds links to files that lie elsewhere under other names."""
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    shutil.copytree(saved, blobs)
    for number, path in enumerate(sorted(blobs.iterdir())):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    hub(snapshot)
    assert models.load(NAME).config.vocab_size == 97


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("404 Client Error"), ValueError("gated")])
def test_unreachable(error, hub):
    hub(error)
    message = rf"no path on this machine, so .* could not be fetched \({type(error).__name__}: {error}\); check"
    with pytest.raises(LoadError, match=message):
        models.load(NAME)


def test_the_real_package_without_a_network(monkeypatch, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        LoadError, match=r"could not be fetched \(LocalEntryNotFoundError: .*check the name, the network"
    ):
        models.load(NAME)


def test_package_is_absent(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        LoadError, match=r"huggingface_hub, which fetches those, is not installed .*'specdec-jax\[hub\]'"
    ):
        models.load(NAME)


def test_a_path_comes_first(hub, saved, tmp_path):
    asked = hub(OSError("never asked"))
    shutil.copytree(saved, tmp_path / NAME)
    assert models.load(NAME).name == "tiny-model"
    assert asked == []


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "folder/none.gguf",
        "folder/model.safetensors",
        "/absolute/path",
        "./folder/none",
        "../none",
        "a/b/c",
        "a/",
        "/a",
        "a b/c",
        "-a/b",
        "../../a",
        "",
        Path("owner/name"),
    ],
)
def test_what_is_no_name(name, hub):
    asked = hub(OSError("never asked"))
    with pytest.raises(LoadError, match=r"does not exist|no config.json"):
        models.load(name)
    assert asked == []


def test_resolve(saved):
    assert models.resolve(saved) == (saved, saved.name)
    path, name = models.resolve("smollm2-135m")
    assert path.suffix == ".gguf"
    assert path.exists()
    assert name == "smollm2-135m"


def test_a_name_too_long_for_a_path():
    with pytest.raises(LoadError, match=r"does not exist and is none of the known names"):
        models.load("x" * 5000)
