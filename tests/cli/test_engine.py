"""The engine: buckets, order, and how many programs it compiles."""

import pytest

from specdec_jax import GenerateConfig, SamplingParams
from specdec_jax.bench import count_traces
from specdec_jax.cli.drafting import Drafting
from specdec_jax.cli.engine import Engine, answer, bucket
from specdec_jax.cli.prompts import Prompt
from specdec_jax.cli.requests import Request
from specdec_jax.models import load

pytestmark = pytest.mark.usefixtures("quick_programs")


def make_request(index: int, length: int) -> Request:
    prompt = Prompt(where=f"prompt {index}", token_ids=[4] * length)
    return Request(index, prompt, [4] * length, SamplingParams(temperature=0.0), 2, None)


@pytest.mark.parametrize(
    ("length", "slots"), [(1, 64), (64, 64), (65, 128), (128, 128), (129, 200), (200, 200), (201, 500), (499, 500)]
)
def test_buckets_are_powers_of_two_up_to_a_chunk_and_then_the_capacity(length, slots):
    assert bucket(length, GenerateConfig(capacity=500, prefill_chunk=200)) == slots


def test_a_bucket_is_never_wider_than_the_capacity():
    assert bucket(3, GenerateConfig(capacity=10)) == 10


def test_answers_come_in_order_from_one_program_a_bucket(tiny):
    target = load(tiny)
    model, traces = count_traces(target.model)
    config = GenerateConfig(capacity=150, prefill_chunk=64)
    engine = Engine(Drafting("none", target._replace(model=model), None, None), config, batch=2, seed=0)
    lengths = [3, 100, 5, 70, 8, 1]
    built = []
    answers = list(answer(engine, [make_request(i, n) for i, n in enumerate(lengths)], compiling=built.append))
    assert [found.request.index for found in answers] == list(range(6))
    assert built == [64, 150]
    first = traces()
    list(answer(engine, [make_request(i, n) for i, n in enumerate([9, 99, 10])]))
    assert traces() == first
