"""The batch generator on meshes of eight CPU devices, for test_mesh to run in a process that has them.

Given a list of meshes, it prints one line of JSON a mesh: whether the answers are those of one device, what was
compiled after the first use, and between which devices the programs exchange what.
"""

import dataclasses
import json
import sys

import jax
import jax.monitoring
import numpy as np
import pytest
from on_eight_devices import CONFIG, MODEL, V, parameters
from programs import quick_batch

import specdec_jax as sd
from specdec_jax import models
from specdec_jax.batch import Answer, BatchGenerator, Request, programs
from specdec_jax.plan.hlo import collectives
from specdec_jax.sharding import make_mesh

BATCH, COUNT = 16, 40
WIDE = dataclasses.replace(CONFIG, verify_widths=(CONFIG.draft_length + 1,))  # one pass to compile


def requests(seed: int) -> list[Request]:
    """Uneven prompts of one bucket, uneven limits, greedy and sampled."""
    draw = np.random.default_rng(seed)
    warm = [sd.SamplingParams(), sd.SamplingParams(temperature=0.0), sd.SamplingParams(0.5, top_p=0.9)]
    return [
        Request(index, draw.integers(0, V, draw.integers(1, 5)).tolist(), warm[index % 3], int(draw.integers(1, 25)))
        for index in range(COUNT)
    ]


def answers(generator: BatchGenerator, asked: list[Request]):
    found = [answer for answer in generator(asked) if isinstance(answer, Answer)]
    assert len(found) == len(asked)
    return {answer.request.index: (answer.token_ids, answer.finish_reason, answer.counts) for answer in found}


def exchanges(name: str, patch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What the program of this name, once it is called, exchanges within its loops: kinds and groups."""
    program, found = getattr(programs, name), {}

    def called(*args, **static):
        if name not in found:
            text = program.lower(*args, **static).compile().as_text() or ""
            inside = {(one.kind, one.groups) for one in collectives(text) if one.loops or name == "insert"}
            found[name] = sorted(map(list, inside))
        return program(*args, **static)

    patch.setattr(programs, name, called)
    return found


def main(shapes: list[list[int]]) -> None:
    quick_batch(pytest.MonkeyPatch())
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    model = models.model_from_config(MODEL, dtype=jax.numpy.float32, layers="stacked")
    drafter, (target, draft) = sd.draft_model(model), parameters()

    def generator(placed, mesh=None, batch=BATCH) -> BatchGenerator:
        return BatchGenerator(model, placed, drafter, draft, config=WIDE, batch=batch, seed=3, mesh=mesh, max_rounds=4)

    with pytest.raises(ValueError, match="there are 12 rows for 8 groups of devices along 'data'; expected a multiple"):
        generator(target, make_mesh(data=8), batch=12)

    one = answers(generator(target), requests(0))
    for data, tensor in shapes:
        mesh = make_mesh(data=data, tensor=tensor)
        placed = jax.device_put(target, models.param_shardings(MODEL, mesh, layers="stacked"))
        with pytest.MonkeyPatch.context() as patch:
            inserted, decoded = exchanges("insert", patch), exchanges("decode", patch)
            same = answers(generator(placed, mesh), requests(0)) == one
        compiled.clear()
        answers(generator(placed, mesh), requests(1))
        print(
            json.dumps(
                {
                    "mesh": [data, tensor],
                    "same": same,
                    "compiled": len(compiled),
                    "accepted": sum(counts.accepted for *_, counts in one.values()),
                    "tokens": sum(counts.tokens for *_, counts in one.values()),
                    **inserted,
                    **decoded,
                }
            )
        )


main(json.loads(sys.argv[1]))
