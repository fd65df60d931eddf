"""A directory as Hugging Face lays it out: config.json, safetensors, tokenizer.json and what lies beside it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors import SafetensorError, safe_open

from .errors import LoadError
from .tokenizer import Tokenizer
from .weights import Tensors

_DTYPES = ("F32", "F16", "BF16")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"cannot read {path} ({error}); expected a JSON object") from error
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds a JSON {type(value).__name__}; expected an object")
    return value


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def tensors_from_directory(directory: Path) -> Tensors:
    """All tensors of model.safetensors, or of the shards that model.safetensors.index.json lists."""
    file_of: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for path in _safetensors(directory):
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118  (an open file is no mapping)
                view = file.get_slice(name)
                if view.get_dtype() not in _DTYPES:
                    raise LoadError(
                        f"tensor {name} of {path} has the type {view.get_dtype()}, which is not supported; expected "
                        f"one of {', '.join(_DTYPES)}"
                    )
                file_of[name], shapes[name] = path, tuple(view.get_shape())

    def read(name: str) -> np.ndarray:
        with _open(file_of[name]) as file:
            return file.get_tensor(name)

    return Tensors(str(directory), shapes, read)


def _safetensors(directory: Path) -> list[Path]:
    whole, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if whole.exists():
        return [whole]
    if index.exists():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict):
            raise LoadError(f"{index} has no weight_map; expected the shard of each tensor")
        paths = [directory / name for name in sorted(set(shards.values()))]
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            raise LoadError(f"{directory} lacks {', '.join(missing)}, which {index.name} lists; download all shards")
        return paths
    pickled = sorted(path.name for pattern in _PICKLED for path in directory.glob(pattern))
    if pickled:
        raise LoadError(
            f"{directory} has its weights in {', '.join(pickled)}, a pickle, which could run any code and is never "
            "opened; expected model.safetensors, so convert it (save_pretrained writes safetensors)"
        )
    raise LoadError(f"{directory} has no weights; expected model.safetensors or {index.name} and its shards")


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise LoadError(
            f"cannot read {path} as safetensors ({error}); it is truncated, damaged or foreign: download it again"
        ) from error


def tokenizer_from_directory(directory: Path, config: dict[str, Any]) -> Tokenizer | None:
    """From tokenizer.json, or None where there is no such file."""
    path = directory / "tokenizer.json"
    if not path.exists():
        return None
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        raise LoadError(f"cannot read {path} as a tokenizer ({error}); download it again") from error
    settings = _optional_json(directory / "tokenizer_config.json")
    names = {key: _content(settings.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    names = {key: token for key, token in names.items() if token is not None}

    ends: list[int] = []
    for source in (_optional_json(directory / "generation_config.json"), config):
        value = source.get("eos_token_id")
        ends += value if isinstance(value, list) else [] if value is None else [value]
    for token in (names.get("eos_token"),):
        found = None if token is None else backend.token_to_id(token)
        ends += [] if found is None else [found]
    bos = names.get("bos_token")
    return Tokenizer(
        backend,
        eos_ids=ends,
        bos_id=config.get("bos_token_id") if bos is None else backend.token_to_id(bos),
        chat_template=_chat_template(directory, settings),
        template_names=names,
    )


def _content(token: Any) -> str | None:
    """A special token is written as its text, or as an object that holds it."""
    return token.get("content") if isinstance(token, dict) else token


def _chat_template(directory: Path, settings: dict[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several templates by name
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template
