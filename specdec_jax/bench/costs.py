"""The costs that a controller weighs, measured on whole rounds of the loop that it controls."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from .._typing import PyTree
from ..control import Costs
from ..drafters import Drafter
from ..lm import LanguageModel
from ..state import GenerateConfig
from .simulated import SimulatedCost, simulated_costs


def measure_costs(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter,
    drafter_params: PyTree,
    *,
    batch: int,
    config: GenerateConfig,
    alphas: Sequence[float] = (),
    rounds: int = 24,
    repeats: int = 5,
) -> tuple[Costs, list[SimulatedCost]]:
    """Costs for this pair, batch and capacity on this device, and the rounds that they were measured on.

    Some ``rounds`` rounds of the fewest and of the most guesses that each verify width holds are timed in turns, every
    guess refused; in the same turns, for comparison, those of ``config.draft_length`` guesses kept with each of
    ``alphas``.
    """
    refused = [(0.0, length) for length in probed_lengths(config.widths)]
    points = [*refused, *((alpha, config.draft_length) for alpha in alphas)]
    found = simulated_costs(
        target,
        target_params,
        drafter,
        drafter_params,
        points,
        batch=batch,
        config=config,
        rounds=rounds,
        repeats=repeats,
    )
    seconds = {one.draft_length: one.round_seconds for one in found[: len(refused)]}
    return fitted(seconds, config.widths), found


def probed_lengths(widths: tuple[int, ...]) -> list[int]:
    """Fewest and most guesses of each width."""
    fewest = (0, *widths[:-1])
    return sorted({*fewest, *(width - 1 for width in widths)})


def fitted(seconds: Mapping[int, float], widths: tuple[int, ...]) -> Costs:
    """The costs that come nearest to these seconds of rounds by guesses: guesses * draft_step + verify[width].

    Least squares without negative costs. Where a width was timed at one number of guesses only, what it costs is not
    told apart from its draft steps; their sum, which is all that counts, is right.
    """
    guesses = np.array(list(seconds))
    bucket = np.searchsorted(widths, guesses + 1)
    parts = np.column_stack([guesses, bucket[:, None] == np.arange(len(widths))])
    (draft_step, *verify), _ = nnls(parts.astype(float), np.array(list(seconds.values())))
    if not all(verify):
        raise ValueError(f"rounds took {dict(seconds)} seconds, so a pass would cost nothing; measure more of them")
    return Costs(float(draft_step), [float(cost) for cost in verify])
