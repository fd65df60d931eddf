"""The batch generator on meshes of eight CPU devices, for test_slots_on_a_mesh to run in a process that has them.

Given a list of cases, each a family and the sizes of a mesh, it prints one line of JSON a case: whether the answers are
those of one device, what was compiled after the first use, and between which devices the programs exchange what.
"""

import dataclasses
import json
import sys
from functools import cache

import jax
import jax.monitoring
import numpy as np
import pytest
from on_eight_devices import CONFIG, FAMILIES, V, parameters
from programs import quick_batch

import specdec_jax as sd
from specdec_jax import models
from specdec_jax.batch import Answer, BatchGenerator, Request
from specdec_jax.plan.hlo import collectives
from specdec_jax.sharding import make_mesh

BATCH, COUNT = 16, 28
WIDE = dataclasses.replace(CONFIG, verify_widths=(CONFIG.draft_length + 1,))  # one pass to compile


def requests(seed: int) -> list[Request]:
    """Uneven prompts of one bucket, uneven limits, greedy and sampled."""
    draw = np.random.default_rng(seed)
    warm = [sd.SamplingParams(), sd.SamplingParams(temperature=0.0), sd.SamplingParams(0.5, top_p=0.9)]
    return [
        Request(index, draw.integers(0, V, draw.integers(1, 5)).tolist(), warm[index % 3], int(draw.integers(1, 14)))
        for index in range(COUNT)
    ]


def answers(generator: BatchGenerator, asked: list[Request]):
    found = [answer for answer in generator(asked) if isinstance(answer, Answer)]
    assert len(found) == len(asked)
    return {answer.request.index: (answer.token_ids, answer.finish_reason, answer.counts) for answer in found}


def exchanges() -> dict[str, list[list[str]]]:
    """What the compiled programs exchange, by kind and groups; in decode, what its loops do."""
    found = {}
    for executable in jax.devices()[0].client.live_executables():
        for module in executable.hlo_modules():
            name = module.name.removeprefix("jit_")
            if name in ("insert", "decode"):
                inside = [one for one in collectives(module.to_string()) if one.loops or name == "insert"]
                found[name] = sorted({(one.kind, one.groups) for one in inside})
    return found


@cache
def model_of(family: str) -> sd.LanguageModel:
    """One for all generators, or each would compile programs of its own."""
    return models.model_from_config(FAMILIES[family], dtype=jax.numpy.float32, layers="stacked")


def main(cases: list[tuple[str, int, int]]) -> None:
    quick_batch(pytest.MonkeyPatch())
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )

    def generator(family: str, placed=None, mesh=None, batch=BATCH) -> BatchGenerator:
        model = model_of(family)
        target, draft = parameters(FAMILIES[family])
        drafter, options = sd.draft_model(model), {"config": WIDE, "batch": batch, "seed": 3, "max_rounds": 4}
        return BatchGenerator(model, placed or target, drafter, draft, mesh=mesh, **options)

    with pytest.raises(ValueError, match="there are 12 rows for 8 groups of devices along 'data'; expected a multiple"):
        generator("llama", mesh=make_mesh(data=8), batch=12)

    alone = {family: answers(generator(family), requests(0)) for family in {family for family, *_ in cases}}
    for family, data, tensor in cases:
        mesh, one = make_mesh(data=data, tensor=tensor), alone[family]
        config = FAMILIES[family]
        placed = jax.device_put(parameters(config)[0], models.param_shardings(config, mesh, layers="stacked"))
        jax.clear_caches()
        same = answers(generator(family, placed, mesh), requests(0)) == one
        compiled.clear()
        answers(generator(family, placed, mesh), requests(1)[:BATCH])
        print(
            json.dumps(
                {
                    "case": [family, data, tensor],
                    "same": same,
                    "compiled": len(compiled),
                    "accepted": sum(counts.accepted for *_, counts in one.values()),
                    "tokens": sum(counts.tokens for *_, counts in one.values()),
                    **exchanges(),
                }
            )
        )


main(json.loads(sys.argv[1]))
