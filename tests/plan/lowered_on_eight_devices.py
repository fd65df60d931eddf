"""The programs of a plan beside those that the slots of a job would run, for test_plan_programs to run where eight CPU
devices are and no shape checks, which know no shapes without arrays.

Given a list of cases, it prints one line of JSON a case: which of the lowered programs are the same text.
"""

import dataclasses
import json
import re
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from specdec_jax import GenerateConfig, plan
from specdec_jax.batch import Request
from specdec_jax.batch import programs as batch_programs
from specdec_jax.batch.slots import Slots
from specdec_jax.control import CONTROLLERS
from specdec_jax.models import LlamaConfig, param_shapes, param_shardings
from specdec_jax.sharding import make_mesh

TARGET = LlamaConfig(64, 16, 24, 2, 4, 4, 8, 256)
DRAFT = dataclasses.replace(TARGET, num_layers=1)
BATCH = 8


_EMPTY = re.compile(r"tensor<\d+x0x\w+> \{[^}]*?<@mesh, \[.*?\]>\}")
"""An argument without numbers, as plain decoding has for guesses: it may be said to lie anywhere."""


def text_of(lowered: Any) -> str:
    return _EMPTY.sub("empty", lowered.as_text())


class EnoughError(Exception):
    """What would have been compiled is known."""


class Recorder:
    """In the place of a jitted program."""

    def __init__(self, program):
        self.program, self.text = program, ""

    def __call__(self, *args, **settings):
        self.text = text_of(self.program.lower(*args, **settings))
        raise EnoughError


def of_a_job(asked: plan.Plan, mesh: Mesh, whole: bool) -> list[str]:
    """What its slots would compile to put in a short prompt, and a long one, and to decode."""

    def placed(side: plan.Side | None, whole: bool) -> Any:
        if side is None:
            return None
        shapes = param_shapes(side.config, dtype=jnp.bfloat16, layers="stacked")
        params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        # As a job has them: whole ones come without a place.
        return params if whole else jax.device_put(params, param_shardings(side.config, mesh, layers="stacked"))

    slots = Slots(
        asked.target.model,
        placed(asked.target, False),
        asked.drafter,
        placed(asked.draft, whole),
        batch=BATCH,
        config=asked.config,
        seed=0,
        eos_tokens=(1,),
        controller=asked.controller,
        costs=None,
        mesh=mesh,
    )

    def insert(length: int) -> None:
        slots.insert(*slots.next_group(deque([Request(0, [2] * length)])))

    return [
        recorded("insert", lambda: insert(1)),
        recorded("insert", lambda: insert(asked.prompt_slots)),
        recorded("decode", lambda: slots.decode(wanted=1, rounds=9)),
    ]


def recorded(name: str, step: Callable[[], None]) -> str:
    """What of this name a step would compile."""
    usual = getattr(batch_programs, name)
    recorder = Recorder(usual)
    setattr(batch_programs, name, recorder)
    try:
        step()
    except EnoughError:
        return recorder.text
    finally:
        setattr(batch_programs, name, usual)
    raise AssertionError(f"{name} was not called")


def main(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        mesh = make_mesh(data=case["data"], tensor=8 // case["data"])
        drafting, whole = case["draft"] != "none", case["draft"] == "whole"
        asked = plan.Plan(
            mesh=mesh,
            target=plan.side(TARGET, mesh),
            draft=plan.side(DRAFT, mesh, whole=whole) if drafting else None,
            rows=BATCH,
            prompt_slots=case["prompt"],
            config=GenerateConfig(**case["config"]),
            controller=CONTROLLERS[case["controller"]](),
        )
        made = plan.programs(asked)
        short, *_, long = made.inserts.values() if len(made.inserts) > 1 else [*made.inserts.values()] * 2
        planned = [text_of(one) for one in (short, long, made.decode)]
        texts = of_a_job(asked, mesh, whole)
        same = [one == other for one, other in zip(planned, texts, strict=True)]
        print(json.dumps({"same": same, "text": hash(texts[-1])}), flush=True)


main(json.loads(sys.argv[1]))
