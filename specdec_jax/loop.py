"""The loop: rounds until every row has ended, each with as many guesses as the controller allows."""

from jax import lax

from ._typing import PyTree
from .control import Controller, Costs, Outcome
from .drafters import Drafter
from .lm import LanguageModel
from .round import step_by
from .state import FinishReason, GenerateConfig, GenerateState
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
    """The state after the last round. Without a drafter there is nothing to control."""

    def running(state: GenerateState):
        return state.finish_reason == FinishReason.RUNNING

    def body(carry):
        state, control = carry
        limit = None if drafter is None else controller.choose(costs, control, running(state), config.widths)
        state, info = step_by(
            rule, target, target_params, drafter, drafter_params, state, config=config, draft_length=limit
        )
        if limit is not None:
            outcome = Outcome(limit, info.num_drafted, info.num_accepted, running(state))
            control = controller.update(control, outcome)
        return state, control

    control = () if drafter is None else controller.init(state.lengths.shape[0], config.draft_length)
    return lax.while_loop(lambda carry: running(carry[0]).any(), body, (state, control))[0]
