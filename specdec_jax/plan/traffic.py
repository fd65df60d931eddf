"""What the chips of a group tell each other in a round, beside what tensor parallelism needs."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..round import widths_of
from ..sharding import TENSOR
from .hlo import Collective, Loop
from .programs import Plan
from .roofline import message_bytes


class Exchange(NamedTuple):
    """Equal collectives in the loop of rounds."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    """Of the results, on a chip."""
    bytes: int
    """Of the results on a chip, each time."""
    groups: str
    """The chips that exchange, as the program has it."""
    times: int
    """In a round of K guesses; none for what other rounds do."""


class Traffic(NamedTuple):
    """What a chip exchanges in a round."""

    bytes: int
    least_bytes: int
    """Two all-reduces of [rows, tokens, D] a layer, for every pass of the round."""
    largest_other: int
    """Bytes a row of the largest exchange whose arrays are not of model width."""
    messages: int
    """Times that chips exchange anything, if rows use every transform of the logits."""


def exchanges(plan: Plan, inside: Sequence[Collective], loops: Sequence[Loop]) -> list[Exchange]:
    """The collectives ``inside`` the rounds, those with the most bytes a round first.

    ``loops`` are those that a round is made of, in their order: the drafter's first pass and its others, and the verify
    pass of each width, of which one runs.
    """
    widths = widths_of(plan.drafter, plan.config)
    drafting = [] if plan.draft is None else [1, plan.config.draft_length - 1]
    verifying = [] if len(widths) == 1 else [int(width == widths[-1]) for width in widths]
    expected = [*drafting, *verifying]
    if len(loops) != len(expected):
        raise ValueError(f"the round has {len(loops)} loops of unknown length; expected {len(expected)}")
    passes = dict(zip(loops, expected, strict=True))

    times: Counter[Exchange] = Counter()
    for one in inside:
        count = 1
        for loop in one.loops[1:]:
            count *= passes[loop] if loop.trips is None else loop.trips
        times[Exchange(one.kind, one.shapes, one.bytes, one.groups, 0)] += count
    found = [one._replace(times=count) for one, count in times.items()]
    return sorted(found, key=lambda one: (-one.bytes * one.times, -one.bytes))


def traffic(plan: Plan, exchanged: Sequence[Exchange]) -> Traffic:
    """Of one round of K guesses."""
    K = plan.config.draft_length
    least = message_bytes(plan.target, plan, tokens=1 if plan.draft is None else K + 1)
    if plan.draft is not None:
        least += sum(message_bytes(plan.draft, plan, tokens=n) * t for n, t in ((2, 1), (1, K - 1)))
    # Where a device's part of the vocabulary is as wide as a model, its arrays do not pass for states.
    states = {side.config.width for side in (plan.target, plan.draft) if side is not None}
    states -= {plan.target.config.vocab_size // plan.mesh.shape[TENSOR]}
    others = [one.bytes for one in exchanged if not any(states & set(shape) for shape in one.shapes)]
    return Traffic(
        bytes=sum(one.bytes * one.times for one in exchanged),
        least_bytes=least,
        largest_other=max(others, default=0) // plan.group_rows,
        messages=sum(one.times for one in exchanged),
    )
