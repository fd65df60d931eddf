"""The law of whole generations, see test_law.py, where rounds differ in their number of guesses."""

import jax.numpy as jnp
import pytest
from laws import DRAFT, DRAFT_PARAMS, RECIPES, K, V, check

from specdec_jax import CONTROLLERS, Controller, draft_model
from specdec_jax.drafters import entropy_above
from specdec_jax.testing import markov_model


def erratic() -> Controller:
    """Guesses by what came of the last round, the row's own and its neighbour's: as much as a controller can know."""

    def choose(costs, state, running, widths):
        return (state + jnp.roll(state, 1)) % (K + 1)

    def update(state, outcome):
        return 2 * outcome.accepted + outcome.drafted + 1

    return Controller(lambda batch, K: jnp.arange(batch, dtype=jnp.int32), choose, update)


@pytest.mark.heavy
def test_guesses_that_follow_what_was_kept():
    check("block", DRAFT, DRAFT_PARAMS, erratic())


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in CONTROLLERS if name != "constant"])
def test_guesses_that_a_controller_allows(name):
    check("block", *RECIPES["ngram"], controller=CONTROLLERS[name]())


@pytest.mark.heavy
def test_guesses_that_end_where_the_drafter_is_unsure():
    check("token", draft_model(markov_model(V), stop=entropy_above(0.8)), DRAFT_PARAMS)


@pytest.mark.heavy
def test_a_drafter_that_looks_at_the_guess_it_drops_is_noticed():
    def propose(*args):
        proposal, state = DRAFT.propose(*args)
        unwanted = proposal.tokens[:, 0] == 1
        return proposal._replace(length=jnp.where(unwanted, 0, proposal.length)), state

    with pytest.raises(AssertionError, match="p-value"):
        check("token", DRAFT._replace(propose=propose), DRAFT_PARAMS)
