"""``specdec convert``: write any model that can be loaded as a Hugging Face directory."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from ..models import load, resolve, save, save_checkpoint
from ..models.draft_vocabulary import FILE as DRAFT_IDS
from ..models.hub import BESIDE_WEIGHTS
from ..models.huggingface import special_ids
from ..models.new_directory import check_new
from . import UserError, consoles
from .options import parse


@dataclasses.dataclass(frozen=True)
class Options:
    """Write a model as a Hugging Face directory (config.json, safetensors, and its tokenizer) or an orbax checkpoint.

    transformers loads the directory with the same logits, and so does specdec.
    """

    source: Positional[Annotated[str, arg(metavar="SOURCE")]]
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    destination: Positional[Annotated[Path, arg(metavar="DEST")]]
    """The directory to write; it must be empty or not exist."""
    format: Literal["huggingface", "orbax"] = "huggingface"
    """What to write: a directory that transformers loads, or a checkpoint that is restored straight into shards."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights in the files. float32 loses nothing, whatever the source."""


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "convert", args)
    destination = options.destination
    try:
        check_new(destination)  # before anything is loaded
    except FileExistsError as error:
        raise UserError(str(error)) from None
    source = resolve(options.source).path  # where `load` reads it
    is_directory, config = source.is_dir(), source / "config.json"
    ids = special_ids(config) if is_directory and config.is_file() else {}
    loaded = load(options.source, dtype=options.dtype)

    def copy(folder: Path) -> None:
        """As they are, for nobody knows them better."""
        # A checkpoint's tokenizer knows the end tokens of config.json too, which it has not.
        for name in (DRAFT_IDS,) if options.format == "orbax" else BESIDE_WEIGHTS:
            if is_directory and (source / name).is_file():
                shutil.copyfile(source / name, folder / name)

    if loaded.tokenizer is not None:  # it knows the others, from several files
        ids = {key: ids[key] for key in ids if key == "pad_token_id"}
    try:
        if options.format == "orbax":
            save_checkpoint(destination, loaded.config, loaded.params, tokenizer=loaded.tokenizer, also=copy)
        else:
            save(destination, loaded.config, loaded.params, tokenizer=loaded.tokenizer, special_ids=ids, also=copy)
    except (ValueError, OSError) as error:
        raise UserError(f"cannot write {destination}: {error}") from error
    consoles.errors().print(f"{destination}: {options.source} in {options.dtype}, as {options.format}", markup=False)
    return 0
