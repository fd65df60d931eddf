"""A directory as Hugging Face lays it out: config.json, safetensors, tokenizer.json and what lies beside it."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors import SafetensorError, safe_open

from .errors import LoadError, blamed
from .tokenizer import Tokenizer
from .weights import Tensors, row_blocks

_DTYPES = ("F32", "F16", "BF16")
_INDEX = "model.safetensors.index.json"
_MOST_JSON = 1 << 26  # bytes; the index of the largest models has a few million, the largest tokenizers 35
_MOST_TEMPLATE = 1 << 20  # bytes; the longest have some ten thousand
_STRANGE = "a \U0010fffd\ue000 b"
"""Letters, and characters of private use that no vocabulary has."""
_NEED_UNKNOWN = (tokenizers.models.WordPiece, tokenizers.models.WordLevel)
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_MOST_NAME = 255  # bytes, on every file system in use
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file of sane size, or a LoadError."""
    try:
        _check_length(path, _MOST_JSON)
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"cannot read {path} ({error}); expected a JSON object") from error
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds a JSON {type(value).__name__}; expected an object")
    return value


def _check_length(path: Path, most: int) -> None:
    """Before it is read."""
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"it has {size} bytes, more than {most}")


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def tensors_from_directory(directory: Path) -> Tensors:
    """All tensors of model.safetensors, or of the shards that model.safetensors.index.json lists."""
    file_of: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for path in _safetensors(directory):
        with open_safetensors(path) as file:
            for name in file.keys():  # noqa: SIM118  (an open file is no mapping)
                view = file.get_slice(name)
                if view.get_dtype() not in _DTYPES:
                    raise LoadError(
                        f"tensor {name} of {path} has the type {view.get_dtype()}, which is not supported; expected "
                        f"one of {', '.join(_DTYPES)}"
                    )
                if name in file_of:
                    raise LoadError(
                        f"tensor {name} is in {file_of[name]} and in {path}; expected it once, so check both"
                    )
                file_of[name], shapes[name] = path, tuple(view.get_shape())

    def blocks(name: str) -> Iterator[np.ndarray]:
        for rows in row_blocks(shapes[name]):
            with open_safetensors(file_of[name]) as file:  # anew, which lets go of the pages read before
                yield file.get_slice(name)[rows]

    return Tensors(str(directory), shapes, blocks)


def _safetensors(directory: Path) -> list[Path]:
    whole, index = directory / "model.safetensors", directory / _INDEX
    if whole.exists():
        return [whole]
    if index.exists():
        paths = [directory / name for name in indexed_shards(directory)]
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


def indexed_shards(directory: Path) -> list[str]:
    """The names of the files that a directory's index lists; none where there is no index."""
    index = directory / _INDEX
    if not index.exists():
        return []
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict):
        raise LoadError(f"{index} has no weight_map; expected the shard of each tensor")
    return _shard_names(shards.values(), index)


def _shard_names(values: Iterable[Any], index: Path) -> list[str]:
    """The files that an index names, which may lie nowhere but beside it; what they link to is up to the user."""
    names = list(dict.fromkeys(name if isinstance(name, str) else repr(name) for name in values))
    for name in names:
        if not name.endswith(".safetensors") or {"/", "\\", "\0", ":"} & set(name) or len(name.encode()) > _MOST_NAME:
            raise LoadError(
                f"{index} lists the shard {name[:200]!r}; expected the plain name of a .safetensors file beside it, so "
                "download it again from a source that you trust"
            )
    return sorted(names)


def open_safetensors(path: Path) -> safe_open:
    """A file of tensors, or a LoadError."""
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
    with blamed(f"cannot read {path} as a tokenizer", "download it again"):
        _check_length(path, _MOST_JSON)
        backend = tokenizers.Tokenizer.from_file(str(path))
    unknown = getattr(backend.model, "unk_token", None)
    if isinstance(backend.model, _NEED_UNKNOWN) and backend.token_to_id(unknown) is None:
        raise LoadError(
            f"the vocabulary of {path} lacks its unknown token, {unknown!r}, without which this kind of tokenizer "
            "fails at the first word that it does not know; download it again"
        )
    with blamed(f"the tokenizer of {path} fails at a text with characters that it does not know", "download it again"):
        backend.encode(_STRANGE)
    settings = _optional_json(directory / "tokenizer_config.json")
    names = _special_tokens(settings, directory)
    id_of = {key: backend.token_to_id(token) for key, token in names.items()}

    ends = [
        end
        for file, source in (
            ("generation_config.json", _optional_json(directory / "generation_config.json")),
            ("config.json", config),
        )
        for end in _ids(source, "eos_token_id", directory / file)
    ]
    begins = _ids(config, "bos_token_id", directory / "config.json")[:1]
    return Tokenizer(
        backend,
        eos_ids=[*ends, *(i for i in [id_of.get("eos_token")] if i is not None)],
        bos_id=id_of["bos_token"] if "bos_token" in id_of else next(iter(begins), None),
        chat_template=_chat_template(directory, settings),
        template_names=names,
    )


def special_ids(path: Path) -> dict[str, Any]:
    """What a config.json says about special tokens, checked. Early conversions of Llama have -1 for no padding."""
    config = read_json(path)
    if config.get("pad_token_id") == -1:
        config["pad_token_id"] = None
    return {
        key: config[key]
        for key in ("bos_token_id", "eos_token_id", "pad_token_id")
        if key in config and (config[key] is None or _ids(config, key, path))
    }


def _ids(source: dict[str, Any], key: str, path: Path) -> list[int]:
    """One token id, a list of them, or none: files write it in either way."""
    value = source.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    wrong = [i for i in ids if type(i) is not int or not 0 <= i < 2**31]
    if wrong:
        raise LoadError(f"{key} of {path} has {wrong[0]!r}; expected a token id or a list of them, so correct it")
    return ids


def _special_tokens(settings: dict[str, Any], directory: Path) -> dict[str, str]:
    """By their names. Older directories have them in a file of their own, which transformers then reads last."""
    found = {key: directory / "tokenizer_config.json" for key in _SPECIAL if key in settings}
    path = directory / "special_tokens_map.json"
    older = {} if "added_tokens_decoder" in settings else _optional_json(path)
    found |= {key: path for key in _SPECIAL if key in older}
    texts = {key: _content({**settings, **older}[key], f"{key} in {where}") for key, where in found.items()}
    return {key: text for key, text in texts.items() if text is not None}


def _content(token: Any, what: str) -> str | None:
    """A special token is written as its text, or as an object that holds it."""
    text = token.get("content") if isinstance(token, dict) else token
    if text is not None and not isinstance(text, str):
        raise LoadError(f"{what} is {text!r}; expected a text, or an object with content")
    return text


def _chat_template(directory: Path, settings: dict[str, Any]) -> str | None:
    """From a file of its own, or from tokenizer_config.json: alone, or the default one of several by name."""
    path = directory / "chat_template.jinja"
    if path.exists():
        try:
            _check_length(path, _MOST_TEMPLATE)
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise LoadError(f"cannot read {path} ({error}); expected a text file, so download it again") from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    if template is not None and not isinstance(template, str):
        raise LoadError(
            f"chat_template in {directory / 'tokenizer_config.json'} is a {type(template).__name__}; expected a text, "
            "or a list of objects with name and template"
        )
    return template
