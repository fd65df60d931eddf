"""The text of a run: gathered, divided, packed, and read by the teacher."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax

from specdec_jax.models import Loaded

from . import data
from .batches import Corpus
from .packing import Packed, pack
from .samples import DataError, Sample, split
from .self_prompt import left_out
from .settings import TextConfig
from .teacher import Outputs, Teacher, cache_key, cached_outputs, digest, in_a_format_that_holds_them

Tell = Callable[[str, float | None], None]
"""Called with what goes on and how much of it is done, from 0 to 1, where that is known."""


def silent(what: str, share: float | None) -> None:
    """Tells nobody."""
    del what, share


class Texts(NamedTuple):
    """Gathered, divided, packed, and read by the teacher."""

    samples: list[Sample]
    """Those that are trained on."""
    learned: Corpus
    held_out: Corpus
    digest: str
    """Of the packed texts, what is learned of them, and what the teacher says about them."""


def texts(
    target: Loaded, source: Teacher, settings: TextConfig, folder: Path, *, seed: int, tell: Tell = silent
) -> Texts:
    """Gather the text of a run and what the teacher says about it; all that is on the disk already is used again.

    Raises:
        DataError: the file cannot be used, or holds too little.
        FloatingPointError: what the teacher says is not finite, not even in float32.
    """
    samples = gather(target, settings, folder / "text", seed=seed, tell=tell)
    # What the target asks itself is stripped already.
    text_of = target.tokenizer.decode if settings.file is not None and target.tokenizer is not None else None
    kept, aside = split(samples, settings.held_out, text_of)
    packed = [pack(side, settings.length) for side in (kept, aside)]
    for name, one in zip(("training", "held-out text"), packed, strict=True):
        if not len(one.tokens) or not one.learned.any():
            raise DataError(
                f"there is nothing for {name}: {len(samples)} texts in all, {len(aside)} of them held out; expected "
                "more text, or another share held out"
            )

    def outputs(packed: Packed, name: str) -> Corpus:
        def done(rows: int, of: int) -> None:
            tell(f"the target reads the {name}", rows / of)

        def kept_in(dtype: str) -> Outputs:
            return cached_outputs(folder / "outputs", source, packed, dtype=dtype, progress=done)

        return Corpus(packed, in_a_format_that_holds_them(kept_in, lambda line: tell(line, None)))

    read = outputs(packed[0], "text"), outputs(packed[1], "held-out text")
    keys = (
        digest(cache_key(source, one.packed, str(one.outputs.features.dtype)), {"learned": one.packed.learned})
        for one in read
    )
    return Texts(kept, *read, " ".join(keys))


def gather(target: Loaded, settings: TextConfig, folder: Path, *, seed: int, tell: Tell = silent) -> list[Sample]:
    """The samples of a run: from a file of texts, answers to a file of prompts, or questions and answers."""
    now = data.begun(folder)
    samples, asked = data.from_file(settings.file, target, now=now) if settings.file is not None else ([], None)
    if samples:
        return samples
    lost = left_out(asked or (), target, settings.capacity)
    if lost:
        tell(
            f"{lost} of {len(asked or ())} prompts are left out: they have no token, or no room for an answer within "
            f"{settings.capacity} tokens",
            None,
        )
    return data.gather(
        folder,
        target,
        tokens=settings.tokens,
        key=jax.random.key(seed),
        temperatures=settings.temperatures,
        rows=settings.rows,
        max_tokens=settings.max_tokens,
        capacity=settings.capacity,
        asked=asked,
        now=now,
        tell=lambda line: tell(line, None),
        progress=lambda have, want: tell("the target writes", min(have / want, 1.0)),
    )
