"""How tests compile: for programs so small that compiling them takes longer than running them."""

import importlib
import inspect
from functools import cache, partial
from typing import Any

import jax
import pytest
from jax.core import Tracer

QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": "1",
}
"""Compiler options: little optimisation, of the two ways to emit loops the one that compiles faster, and one module in
place of one a core: dividing it takes a fifth of the time, and tests run on all cores anyway."""

quick = partial(jax.jit, compiler_options=QUICK)
"""`jax.jit` with them."""

BRISK: dict[str, str | bool] = QUICK | {"xla_backend_optimization_level": "1"}
"""Compiler options for programs that also take a while to run."""

brisk = partial(jax.jit, compiler_options=BRISK)


@cache
def _compiled_quickly(function):
    return jax.jit(function, static_argnames=("target", "drafter", "config", "controller"), compiler_options=QUICK)


@cache
def _batch_quickly():
    programs = importlib.import_module("specdec_jax.batch.programs")
    models = ("target", "drafter", "config")
    return {
        "insert": quick(programs.insert.__wrapped__, static_argnames=(*models, "placement"), donate_argnames="state"),
        "decode": quick(
            programs.decode.__wrapped__,
            static_argnames=(*models, "controller", "placement"),
            donate_argnames=("state", "control"),
        ),
        "take": quick(programs.take.__wrapped__, static_argnames=("config", "placement")),
    }


def quick_batch(patch: pytest.MonkeyPatch) -> None:
    """Let the programs of `specdec_jax.batch` compile with QUICK."""
    for name, program in _batch_quickly().items():
        patch.setattr(f"specdec_jax.batch.programs.{name}", program)


def quick_generate(patch: pytest.MonkeyPatch) -> None:
    """Let `generate` compile with QUICK, unless a caller's own jit takes it in."""
    module: Any = importlib.import_module("specdec_jax.generate")  # the package has a function of that name
    usual = module._generate

    def chosen(*args):
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args[1:2] + args[3:5]))
        return (usual if traced else _compiled_quickly(usual.__wrapped__))(*args)

    patch.setattr(module, "_generate", chosen)


def quick_record(patch: pytest.MonkeyPatch) -> None:
    """Let `record` and `first_round` compile with QUICK."""
    # Not at the top: the shape checks are not installed yet.
    recorder: Any = importlib.import_module("specdec_jax.trace.recorder")
    for name in ("_draft", "_judge", "look", "first_round"):
        patch.setattr(recorder, name, _quickly(getattr(recorder, name).__wrapped__))


@cache
def _quickly(function):
    names = inspect.signature(function).parameters
    static = [name for name in ("target", "drafter", "config", "controller", "rule", "n", "width") if name in names]
    donated = "state" if "state" in names else ()
    return jax.jit(function, static_argnames=static, donate_argnames=donated, compiler_options=QUICK)
