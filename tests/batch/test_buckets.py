"""Buckets of prompts, and requests as arrays."""

import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams
from specdec_jax.batch import Request
from specdec_jax.batch.prompts import UNFOLDED, bucket, pack, rows_at_once


@pytest.mark.parametrize(
    ("length", "slots"), [(1, 64), (64, 64), (65, 128), (128, 128), (129, 200), (200, 200), (201, 500), (499, 500)]
)
def test_buckets_are_powers_of_two_up_to_a_chunk_and_then_the_capacity(length, slots):
    assert bucket(length, GenerateConfig(capacity=500, prefill_chunk=200)) == slots


def test_a_bucket_is_never_wider_than_the_capacity():
    assert bucket(3, GenerateConfig(capacity=10)) == 10


@pytest.mark.parametrize(("slots", "batch", "rows"), [(64, 8, 4), (64, 3, 3), (128, 8, 2), (256, 8, 1), (1024, 8, 1)])
def test_as_many_prompts_are_read_at_once_as_fill_a_chunk(slots, batch, rows):
    assert rows_at_once(slots, GenerateConfig(capacity=1024, prefill_chunk=256), batch) == rows


def test_requests_as_arrays():
    packed = pack([Request(5, [7, 8], SamplingParams(0.5, 3), 4), Request(6, [9], seed=2**32 - 1)], 3, 4, 17)
    assert packed.tokens.tolist() == [[7, 8, 0, 0], [9, 0, 0, 0], [0, 0, 0, 0]]
    assert packed.lengths.tolist() == [2, 1, 1]
    assert packed.seeds.tolist() == [17, 2**32 - 1, 17]
    assert packed.folds.tolist() == [5, UNFOLDED, 0]
    assert packed.max_new_tokens.tolist() == [4, 2**31 - 1, 0]
    temperature, top_k, *_ = map(np.asarray, packed.sampling)
    assert temperature.tolist() == [0.5, 1.0, 0.0]
    assert (temperature.dtype, top_k.dtype) == (np.float32, np.int32)
