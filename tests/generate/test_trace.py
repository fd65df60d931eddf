"""A recorded generation is the generation, and what is recorded of it is what the rules were given."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from toys import (
    CONSTANT,
    KEYS,
    MIXED,
    NONE,
    PARAMS,
    PROMPT_LENGTHS,
    PROMPTS,
    TARGET,
    WIDTHS,
    V,
    config,
    guesser,
    run,
)

from specdec_jax import SamplingParams, draft_model, init, step
from specdec_jax.control import Costs, adaptive
from specdec_jax.state import FinishReason
from specdec_jax.testing import history_logits, markov_model, random_logits, reference
from specdec_jax.trace import record
from specdec_jax.viz import trace_page

pytestmark = pytest.mark.usefixtures("quick_recordings")

LIMIT = 12
REFERENCES = {"token": reference.token_rule, "block": reference.block_rule}


def recorded(rule, guesser, sampling=MIXED, widths=(), **more):
    arguments = {
        "key": KEYS,
        "sampling": sampling,
        "config": config(rule, verify_widths=widths),
        "max_new_tokens": LIMIT,
    }
    arguments |= {"controller": CONSTANT} | more
    return record(TARGET, PARAMS, guesser.drafter, guesser.weak, PROMPTS, PROMPT_LENGTHS, **arguments)


RECORDED = [("block", "draft_model"), ("token", "early_exit"), ("coupled", "ngram"), ("greedy", "none")]


@pytest.mark.parametrize(("rule", "name"), at_once(RECORDED, RECORDED[2:3]))
def test_the_rounds_of_a_batch_hold_what_generate_gives(rule, name):
    guess = NONE if name == "none" else guesser(name)
    sampling = MIXED._replace(temperature=jnp.zeros(len(PROMPTS))) if rule == "greedy" else MIXED
    moments = list(recorded(rule, guess, sampling))
    wanted = run(rule, guess, sampling=sampling, limit=LIMIT)
    for row, tokens in enumerate(wanted.rows):
        records = filter(None, (moment.rows[row] for moment in moments))
        assert list(itertools.chain.from_iterable(one.tokens for one in records)) == tokens
    assert [int(reason) for reason in moments[-1].finish_reasons] == wanted.reasons
    for found, made in zip(*map(jax.tree.leaves, (moments[-1].stats, wanted.raw.stats)), strict=True):
        np.testing.assert_array_equal(found, made)


@pytest.mark.heavy
def test_the_draft_length_is_chosen_as_generate_chooses_it():
    costs = Costs(0.65, [1.0, 1.04]).checked(WIDTHS)  # at which one guess pays, if it is kept often enough
    choice = {"controller": adaptive(), "costs": costs}
    moments = list(recorded("block", guesser("draft_model"), widths=WIDTHS, **choice))
    wanted = run("block", guesser("draft_model"), limit=LIMIT, verify_widths=WIDTHS, **choice)
    for row, tokens in enumerate(wanted.rows):
        records = filter(None, (moment.rows[row] for moment in moments))
        assert list(itertools.chain.from_iterable(one.tokens for one in records)) == tokens
    records = [found for moment in moments for found in filter(None, moment.rows)]
    assert {len(found.guesses) for found in records} == {0, 1}
    assert all(found.is_plain != bool(found.guesses) for found in records)
    assert not any(found.is_plain and found.is_bonus for found in records)


@pytest.mark.parametrize("rule", REFERENCES)
def test_each_number_is_that_of_the_reference(rule):
    sampling = SamplingParams(temperature=0.8).broadcast(len(PROMPTS))
    judged = refused = 0
    tokens = [PROMPTS[row, :length].tolist() for row, length in enumerate(PROMPT_LENGTHS)]
    for moment in recorded(rule, guesser("draft_model"), sampling):
        for row, found in enumerate(moment.rows):
            if found is None:
                continue
            guesses = [guess.token for guess in found.guesses]
            contexts = [tokens[row] + guesses[:i] for i in range(len(guesses) + 1)]
            p, q = (
                np.stack([reference.distribution(history_logits(params, context), 0.8) for context in contexts])
                for params in (PARAMS, guesser("draft_model").weak)
            )
            kept, following = REFERENCES[rule](guesses, q[:-1], p, np.array([guess.draw for guess in found.guesses]))
            assert found.num_accepted == min(kept, len(found.tokens))
            for place, guess in enumerate(found.guesses):
                np.testing.assert_allclose(
                    (guess.p, guess.q), (p[place, guess.token], q[place, guess.token]), rtol=1e-4
                )
            if found.follow is not None:
                expected = p[kept, found.follow.token], following[found.follow.token]
                assert found.follow[1:] == pytest.approx(expected, rel=1e-3)
                assert found.is_bonus == (kept == len(guesses))
                refused += not found.is_bonus
            for place, choices in enumerate(found.likeliest):
                assert [choice.token for choice in choices] == np.argsort(-p[place])[:4].tolist()
                np.testing.assert_allclose([choice.p for choice in choices], np.sort(p[place])[::-1][:4], rtol=1e-4)
                assert {choice.q is None for choice in choices} == {place >= len(guesses)}
                if place < len(guesses):
                    given = [choice.q for choice in choices if choice.q is not None]
                    np.testing.assert_allclose(given, q[place, [choice.token for choice in choices]], rtol=1e-4)
            assert len(found.likeliest) == len(found.tokens)
            tokens[row] += found.tokens
            judged += len(guesses)
    assert judged > 50
    assert refused > 5


def test_the_likeliest_of_a_greedy_row_is_the_one_token_that_it_may_draw():
    for moment in recorded("greedy", guesser("draft_model"), SamplingParams(temperature=0.0)):
        for found in filter(None, moment.rows):
            assert [[choice.token for choice in choices] for choices in found.likeliest] == [
                [token] for token in found.tokens
            ]


def test_guesses_that_the_rule_accepts_were_drawn_below():
    for moment in recorded("token", guesser("draft_model")):
        for found in filter(None, moment.rows):
            for place, guess in enumerate(found.guesses[: found.num_accepted + 1]):
                assert guess.accept is not None
                assert guess.draw is not None
                assert guess.accept == pytest.approx(min(1, guess.p / guess.q), rel=1e-5)
                if place < found.num_accepted or found.follow is not None:
                    assert (guess.draw < guess.accept) == (place < found.num_accepted)


def test_rules_that_draw_nothing_record_no_draw():
    records = [found for moment in recorded("coupled", guesser("ngram")) for found in filter(None, moment.rows)]
    guesses = [guess for found in records for guess in found.guesses]
    assert guesses
    assert {found.follow.chance for found in records if found.follow is not None} == {None}
    assert {(guess.accept, guess.draw) for guess in guesses} == {(None, None)}
    assert {guess.q for guess in guesses} == {1.0}


def test_a_row_of_a_batch_has_a_page_of_its_own():
    moments = list(recorded("block", guesser("draft_model")))
    records = [trace_page.row_of(moments, row) for row in range(len(PROMPTS))]
    row = min(range(len(PROMPTS)), key=lambda row: len(records[row]))
    assert len(records[row]) < len(moments)
    page = trace_page.page(moments, [0], lambda token: b"%d " % token, target="", draft="", rule="block", row=row)
    assert f"<dt>rounds</dt><dd>{len(records[row])}</dd>" in page
    assert f"<dt>tokens</dt><dd>{sum(len(record.tokens) for record in records[row])}</dd>" in page


def test_both_halves_are_timed_apart():
    ticks = itertools.accumulate(itertools.cycle([5.0, 2.0, 5.0, 3.0]))  # seconds between the readings of a round
    moments = list(recorded("greedy", NONE, SamplingParams(temperature=0.0), clock=lambda: next(ticks)))
    assert {(moment.draft_seconds, moment.verify_seconds) for moment in moments} == {(2.0, 3.0)}


@pytest.mark.heavy
def test_past_broken_logits_nothing_is_told():
    """The draft goes on where the target breaks: after a 7."""
    model, params = markov_model(V), np.array(random_logits(0, V, V))
    params[:, 7] += 4
    weak, params[7] = params.copy(), np.nan
    moments = list(
        record(
            model,
            params,
            draft_model(model),
            weak,
            np.array([[0]]),
            [1],
            key=jax.random.key(2),
            config=config("block"),
            max_new_tokens=LIMIT,
            controller=CONSTANT,
        )
    )
    *_, last = moments
    records = trace_page.row_of(moments, 0)
    found = records[-1]
    assert last.finish_reasons == (FinishReason.NAN,)
    judged = sum(len(record.guesses) for record in records)
    assert int(last.stats.drafted[0]) > judged > 0
    assert found.follow is None
    assert [guess.token for guess in found.guesses] == found.tokens
    assert found.tokens[-1:] in ([], [7])
    assert len(found.likeliest) == len(found.tokens)


def test_what_the_caller_gave_is_still_the_callers():
    prompts = jnp.asarray(PROMPTS)
    sampling = MIXED.broadcast(len(PROMPTS))
    next(
        record(TARGET, PARAMS, None, None, prompts, PROMPT_LENGTHS, key=KEYS, sampling=sampling, config=config("block"))
    )
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((prompts, sampling, KEYS)))


def test_errors_come_before_the_first_round():
    with pytest.raises(ValueError, match="num_likeliest is 17; expected from 1 to the vocabulary's 16"):
        recorded("block", NONE, num_likeliest=V + 1)
    with pytest.raises(ValueError, match="temperature is -1"):
        recorded("block", NONE, SamplingParams(temperature=-1.0))


def test_a_round_that_is_not_recorded_gives_out_nothing_as_large_as_the_vocabulary():
    settings, guess = config("block"), guesser("draft_model")
    arguments = (TARGET, PARAMS, guess.drafter, guess.weak)
    state = init(*arguments, PROMPTS, PROMPT_LENGTHS, key=KEYS, sampling=MIXED, config=settings)
    program = jax.make_jaxpr(lambda state: step(*arguments, state, config=settings))(state)
    assert all(V not in value.shape for value in program.out_avals)
