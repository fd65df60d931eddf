"""The batch generator: the answers are those of `generate`, whoever sits in which slot, and none goes missing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from busy import CAPACITY, DRAFT, EOS, GUESSERS, PARAMS, SEED, TARGET, WEAK, V, config, make, requests
from marks import at_once

from specdec_jax import (
    DRAFTERS,
    RULES,
    Drafter,
    FinishReason,
    GenerateConfig,
    LanguageModel,
    SamplingParams,
    constant,
    generate,
)
from specdec_jax.batch import Answer, BatchGenerator, Refused, Request
from specdec_jax.batch.request import check_integer
from specdec_jax.bench import count_traces


def tokens(answers: Iterable[Answer | Refused]) -> dict[int, list[int]]:
    found = [(answer.request.index, answer.token_ids) for answer in answers if isinstance(answer, Answer)]
    assert len(dict(found)) == len(found), "an answer came twice"
    return dict(found)


def one_batch(name: str, rule: str, asked: list[Request]):
    """All of them by `generate`, with the keys that they are promised."""
    slots = max(len(request.token_ids) for request in asked)
    drafter, drafter_params = GUESSERS[name]

    def key(request):
        if request.seed is not None:
            return jax.random.key(request.seed)
        return jax.random.fold_in(jax.random.key(SEED), request.index)

    return generate(
        TARGET,
        PARAMS,
        drafter,
        drafter_params,
        np.asarray([[*request.token_ids, *[0] * (slots - len(request.token_ids))] for request in asked]),
        [len(request.token_ids) for request in asked],
        key=jnp.stack([key(request) for request in asked]),
        sampling=SamplingParams(*(jnp.asarray(values) for values in zip(*(r.sampling for r in asked), strict=True))),
        config=config(rule),
        max_new_tokens=[request.max_new_tokens for request in asked],
        eos_tokens=EOS,
        controller=constant(),
    )


# Every rule and every drafter once; that they go together, whatever the pair, is what tests/generate shows.
PAIRS = [
    ("block", "draft_model"),
    ("coupled", "early_exit"),
    ("block", "none"),
    ("token", "ngram"),
    ("greedy", "feature_head"),
]


def test_every_rule_and_drafter_is_tested():
    rules, names = map(set, zip(*PAIRS, strict=True))
    assert rules == RULES.keys()
    assert names == {*DRAFTERS, "none"}


@pytest.mark.parametrize(("rule", "name"), at_once(PAIRS, [("block", "draft_model")]))
def test_answers_are_those_of_generate(rule, name):
    asked = requests(rule=rule)
    whole = one_batch(name, rule, asked)
    answers = {answer.request.index: answer for answer in make(name, rule)(asked) if isinstance(answer, Answer)}
    assert len(answers) == len(asked)
    for row, request in enumerate(asked):
        answer, length = answers[request.index], int(whole.lengths[row])
        assert answer.request == request
        assert answer.token_ids == whole.tokens[row, :length].tolist()
        assert answer.finish_reason == int(whole.finish_reason[row])
        np.testing.assert_allclose(answer.logprobs, whole.logprobs.raw[row, :length], rtol=1e-5)
        np.testing.assert_allclose(answer.sampled_logprobs, whole.logprobs.sampled[row, :length], rtol=1e-5)
        assert answer.counts.rounds == int(whole.stats.rounds[row])
        assert answer.counts.accepted_at == whole.stats.accepted_at[row].tolist()


def test_batch_order_and_buckets_do_not_matter():
    asked = requests(20)
    expected = tokens(make()(asked))
    assert tokens(make(batch=1, prefill_chunk=4)(asked)) == expected
    assert tokens(make(refill=2)(asked[::-1])) == expected
    assert tokens(make(max_rounds=1)(asked[7:] + asked[:7])) == expected


def test_a_short_answer_does_not_wait_for_a_long_one():
    asked = [replace(request, max_new_tokens=1) for request in requests(13)]
    asked[0] = replace(asked[0], max_new_tokens=30)
    order = list(tokens(make(eos_tokens=())(asked)))
    assert len(order) == 13
    assert order.index(0) >= 8


def test_requests_are_drawn_as_slots_become_idle():
    drawn = []

    def each():
        for request in requests(50):
            drawn.append(request.index)
            yield request

    for count, _ in enumerate(make()(each()), 1):
        assert len(drawn) <= count + 3 * 3  # those that ended, those that run, and those that wait


@pytest.fixture
def compilations():
    """The programs that XLA has compiled, or taken from its cache."""
    found = []

    def listen(event: str, *_, **__) -> None:
        if "backend_compile" in event:
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


def test_nothing_is_compiled_after_each_bucket_ran(compilations):
    model, traces = count_traces(TARGET)
    built = []
    generator = BatchGenerator(
        model, PARAMS, DRAFT, WEAK, config=config(prefill_chunk=4), batch=3, compiling=built.append
    )
    asked = requests(12)
    first = tokens(generator(asked[:6]))
    assert sorted(built) == [4, CAPACITY]
    before = traces()
    compilations.clear()
    list(generator([replace(request, sampling=SamplingParams(1.3, 2, 0.5, 0.1), seed=5) for request in asked]))
    assert tokens(generator(asked[:6])) == first
    assert traces() == before
    assert not compilations
    jax.jit(lambda x: x + x)(np.arange(3))
    assert compilations, "they are not seen at all"


def test_what_cannot_be_answered_comes_back_and_the_others_are_answered():
    asked = requests(4)
    bad = {
        10: Request(10, []),
        11: Request(11, [1, V]),
        12: Request(12, [1] * CAPACITY),
        13: Request(13, [1], SamplingParams(temperature=-1.0)),
        14: Request(14, [1], seed=-1),
        20: odd(20, token_ids=[1, 1.7]),
        21: odd(21, token_ids=["a"]),
        22: odd(22, token_ids=None),
        23: odd(23, max_new_tokens=1.5),
        24: odd(24, seed=2.0),
        26: odd(26, token_ids=b"\x01"),
        27: odd(27, sampling=None),
        25: odd(25, sampling=SamplingParams(temperature=jnp.ones(2))),
    }
    found = list(make()([*bad.values(), *asked, Refused(15, "no JSON", "line 16")]))
    why = {one.index: one.why for one in found if isinstance(one, Refused)}
    assert tokens(found) == tokens(make()(asked))
    assert "the prompt has no tokens; expected at least one" in why[10]
    assert "token_ids[1] is 16; expected a token id from 0 to 15" in why[11]
    assert "the prompt has 40 tokens, but a row holds 40 with its answer; shorten the prompt" in why[12]
    assert "temperature is -1.0; expected temperature from 0" in why[13]
    assert "seed is -1; expected an integer from 0" in why[14]
    assert why[15] == "no JSON"
    assert "token_ids[1] is 1.7; expected a token id" in why[20]
    assert "token_ids[0] is 'a'; expected a token id" in why[21]
    assert "token_ids is of the type NoneType; expected a list of token ids" in why[22]
    assert "max_new_tokens is 1.5; expected an integer from 0" in why[23]
    assert "seed is 2.0; expected an integer from 0" in why[24]
    assert "expected a number, for a request is one row" in why[25]
    assert "token_ids is of the type bytes" in why[26]
    assert "sampling is of the type NoneType" in why[27]


def test_what_was_not_drawn_is_still_the_callers():
    asked = iter(request for request in requests(12))
    stretches: Any = make(batch=1).stretches(asked)
    next(stretches)
    stretches.close()
    assert next(asked).index < 12


def odd(index: int, **fields: Any) -> Request:
    """With values that a type checker would not let through; the tests have one that runs."""
    request = Request(index, [1])
    for name, value in fields.items():
        object.__setattr__(request, name, value)
    return request


def test_integers_of_any_library_are_integers():
    plain = tokens(make()([Request(7, [1, 2], max_new_tokens=5, seed=3)]))
    kinds: Any = (np, jnp)
    for kind in kinds:
        request = odd(7, token_ids=kind.array([1, 2]), max_new_tokens=kind.int32(5), seed=kind.int32(3))
        assert tokens(make()([request])) == plain


def test_an_error_of_the_iterable_comes_after_the_answers_to_what_was_before():
    asked = requests(7)

    def breaking():
        yield from asked
        raise OSError("the prompts are gone")

    found = []
    with pytest.raises(OSError, match="the prompts are gone"):
        found.extend(make()(breaking()))  # keeps those that came before an error
    assert tokens(found) == tokens(make()(asked))


def test_many_bad_requests_in_a_row_do_not_end_it():
    asked = [*[Request(index, []) for index in range(20)], Request(20, [1], max_new_tokens=2)]
    found = list(make()(asked))
    assert [one.index for one in found if isinstance(one, Refused)] == list(range(20))
    assert tokens(found).keys() == {20}


def test_no_requests_no_answers():
    assert list(make()([])) == []


def test_a_row_of_nan_ends_alone():
    broken = PARAMS.copy()
    broken[11] = np.nan
    options = {"config": config(), "batch": 3, "seed": SEED}
    asked = [replace(request, max_new_tokens=25) for request in requests(12)]
    found = BatchGenerator(TARGET, broken, DRAFT, WEAK, **options)(asked)
    whole = {answer.request.index: answer for answer in found if isinstance(answer, Answer)}
    reasons = {index: answer.finish_reason for index, answer in whole.items()}
    assert {FinishReason.NAN, FinishReason.LENGTH} <= set(reasons.values())
    sound = tokens(BatchGenerator(TARGET, PARAMS, DRAFT, WEAK, **options)(asked))
    for index, answer in whole.items():
        assert answer.token_ids == sound[index][: len(answer.token_ids)]


def test_no_request_starts_once_it_does_not_accept():
    going = [True]
    asked = requests(30)
    seen = []
    for stretch in make().stretches(asked, accepting=lambda: going[0]):
        seen += stretch.answers
        if len(seen) >= 5:
            going[0] = False
    assert 5 <= len(seen) <= 5 + 3 + 3
    assert tokens(seen).items() <= tokens(make()(asked)).items()


@pytest.mark.heavy
def test_what_rows_share_is_kept_while_they_come_and_go():
    """A drafter may keep a count over all rounds; a cache may count its rows on any axis."""

    def init(params, context, slots, chunk):
        return {"rounds": jnp.float32(5), "rows": jnp.zeros((2, 7, context.tokens.shape[0]))}

    def propose(params, state, context, K, limit, draw):
        proposal, _ = GUESSERS["ngram"][0].propose(None, (), context, K, limit, draw)
        return proposal, {
            "rounds": state["rounds"] + 1,
            "rows": state["rows"] + context.lengths[None, None].astype(jnp.float32),
        }

    seen = []

    def commit(params, state, context, hidden):
        jax.debug.callback(lambda rounds: seen.append(float(rounds)), state["rounds"])
        return state

    drafter = Drafter(init, propose, commit)
    generator = BatchGenerator(TARGET, PARAMS, drafter, None, config=config(), batch=3, seed=SEED, eos_tokens=EOS)
    found = tokens(generator(requests()))
    jax.effects_barrier()
    assert found == tokens(make("ngram")(requests()))
    assert seen == [5 + place for place in range(1, len(seen) + 1)]


def test_a_cache_without_an_axis_of_rows():
    def new_cache(batch, slots):
        return jnp.zeros((batch * slots,), jnp.int32)

    model = LanguageModel(new_cache, lambda params, tokens, cache, lengths: (params[tokens], None, cache), V)
    generator = BatchGenerator(model, PARAMS[:V], None, None, config=GenerateConfig(capacity=39), batch=2)
    with pytest.raises(ValueError, match=r"shape \(80,\) for 2 rows and \(120,\) for 3; expected one axis that counts"):
        list(generator(requests()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch is 0; expected an integer from 1"),
        ({"refill": 0}, "refill is 0; expected"),
        ({"max_rounds": 0}, "max_rounds is 0; expected"),
        ({"seed": -1}, "seed is -1; expected an integer from 0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("value", [2.5, "2", None, True, 0, 5])
def test_what_is_no_integer_of_a_range(value):
    with pytest.raises(ValueError, match=rf"batch is {value!r}; expected an integer from 1 to 4"):
        check_integer("batch", value, 1, 4)
