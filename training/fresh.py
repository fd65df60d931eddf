"""Texts sampled afresh while training goes on: a student learns where it would go itself (DistillSpec)."""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from specdec_jax._typing import PyTree
from specdec_jax.models import Loaded

from .batches import Corpus
from .packing import pack
from .samples import DataError, Sample
from .self_prompt import answers, config_of
from .settings import TextConfig
from .teacher import Outputs, Teacher, in_a_format_that_holds_them, sound_outputs

_ROWS = 8  # that the teacher reads at a time


def fresh_texts(
    writer: Callable[[PyTree], Loaded], source: Teacher, samples: Sequence[Sample], text: TextConfig, seed: int
) -> Callable[[int, PyTree], Corpus]:
    """``fresh(first step, student's parameters)``: other answers to some of the prompts, read by the teacher.

    Args:
        writer: who answers, from the student's parameters.
        source: the teacher.
        samples: whose prompts are answered.
        text: temperatures, rows, length and limit of the answers.
        seed: with the step, of the choice of prompts and of all draws.

    Raises:
        DataError: no sample has a prompt.
        FloatingPointError: by ``fresh``, where what the teacher says is not finite, not even in float32.
    """
    prompted = [sample.prompt_ids for sample in samples if sample.prompt_ids]
    if not prompted:
        raise DataError("fresh texts need prompts to answer, and there are texts alone; expected prompts, or fresh 0")

    def fresh(first: int, params: PyTree) -> Corpus:
        chosen = np.random.default_rng((seed, first, 2)).choice(len(prompted), text.rows)
        said = answers(
            writer(params),
            [prompted[place] for place in chosen],
            key=jax.random.fold_in(jax.random.key(seed), first),
            temperatures=text.temperatures,
            config=config_of(text.capacity),
            max_tokens=text.max_tokens,
            rows=text.rows,
        )
        packed = pack(said, text.length)
        rows = len(packed.tokens)
        if not rows:
            raise DataError(f"not one of {text.rows} fresh answers has a token; expected text, so look at the student")

        def read(dtype: str) -> Outputs:
            starts = range(0, rows, _ROWS)
            places = [np.minimum(np.arange(start, start + _ROWS), rows - 1) for start in starts]
            parts = [sound_outputs(source, packed.rows(place), dtype, "fresh texts") for place in places]
            return Outputs(*(np.concatenate(each)[:rows] for each in zip(*parts, strict=True)))

        # `texts` has said already that such a target is read in float32.
        return Corpus(packed, in_a_format_that_holds_them(read, lambda line: None))

    return fresh
