"""From what the commands were told to a generator, and answers one at a time to compare their speed."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from jax.sharding import Mesh

from ..batch import Answer, BatchGenerator, Request
from ..control import Controller
from ..state import GenerateConfig
from . import costs
from .drafting import Drafting


class Timed(NamedTuple):
    """An answer, and the seconds that it took."""

    answer: Answer
    seconds: float


def generator(
    drafting: Drafting,
    config: GenerateConfig,
    *,
    batch: int,
    seed: int,
    controller: Controller,
    mesh: Mesh | None = None,
    compiling: Callable[[int], None] | None = None,
) -> BatchGenerator:
    """A target and its drafter at work on a batch, by costs that were measured here if there are any.

    Costs that were measured are of one device: over a mesh they are estimated. ``mesh`` and ``compiling`` are the
    generator's own.
    """
    target = drafting.target
    return BatchGenerator(
        target.model,
        target.params,
        drafting.drafter,
        drafting.params,
        config=config,
        batch=batch,
        seed=seed,
        eos_tokens=() if target.tokenizer is None else target.tokenizer.eos_ids,
        controller=controller,
        costs=costs.find(drafting, config, batch) if mesh is None else None,
        mesh=mesh,
        compiling=compiling,
    )


def one_at_a_time(ask: BatchGenerator, requests: Iterable[Request]) -> Iterator[Timed]:
    """Each request alone: nothing runs before the answer is asked for, and nothing after it is given."""
    for request in requests:
        stretches = list(ask.stretches([request]))
        (found,) = (answer for stretch in stretches for answer in stretch.answers)
        assert isinstance(found, Answer), "requests.prepare refuses what cannot be answered"
        yield Timed(found, sum(stretch.seconds for stretch in stretches))
