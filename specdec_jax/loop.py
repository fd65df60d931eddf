"""The loop: rounds until every row has ended, each with as many guesses as the controller allows."""

from jax import lax

from ._typing import Array, Int, PyTree
from .control import Controller, Costs, Outcome
from .drafters import Drafter
from .lm import LanguageModel
from .round import step_by
from .state import FinishReason, GenerateConfig, GenerateState, Round
from .verify import Rule


def decode(
    rule: Rule,
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    controller: Controller,
    costs: Costs,
    state: GenerateState,
    config: GenerateConfig,
) -> GenerateState:
    """The state after the last round."""

    def body(carry):
        state, control = carry
        drafting = (target, target_params, drafter, drafter_params)
        return controlled(rule, *drafting, controller, costs, state, control, config)

    def more(carry):
        return (carry[0].finish_reason == FinishReason.RUNNING).any()

    control = begin(controller, drafter, state.lengths.shape[0], config)
    return lax.while_loop(more, body, (state, control))[0]


def begin(controller: Controller, drafter: Drafter | None, batch: int, config: GenerateConfig) -> PyTree:
    """The controller's state before the first round. Without a drafter there is nothing to control."""
    return () if drafter is None else controller.init(batch, config.draft_length)


def controlled(
    rule: Rule,
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    controller: Controller,
    costs: Costs,
    state: GenerateState,
    control: PyTree,
    config: GenerateConfig,
) -> tuple[GenerateState, PyTree]:
    """One round, and what the controller learns of it."""
    drafting = (target, target_params, drafter, drafter_params)
    limit = allowed(controller, drafter, costs, control, state, config)
    state, info = step_by(rule, *drafting, state, config=config, draft_length=limit)
    return state, learned(controller, control, limit, info, state)


def allowed(
    controller: Controller,
    drafter: Drafter | None,
    costs: Costs,
    control: PyTree,
    state: GenerateState,
    config: GenerateConfig,
) -> Int[Array, "*b"] | None:
    """The most guesses of the next round, one number or one a row; None where there is nobody to make any."""
    return None if drafter is None else controller.choose(costs, control, state.left, config.widths)


def learned(
    controller: Controller,
    control: PyTree,
    limit: Int[Array, "*b"] | None,
    info: Round,
    state: GenerateState,
) -> PyTree:
    """The controller's state after a round of ``limit``, of which ``info`` says what came out."""
    if limit is None:
        return control
    return controller.update(control, Outcome(limit, info.num_drafted, info.num_accepted, state.left))
