"""How tests compile: for programs so small that compiling them takes longer than running them."""

from functools import partial

import jax

QUICK: dict[str, str | bool] = {"xla_backend_optimization_level": "0", "xla_cpu_use_fusion_emitters": False}
"""Compiler options: little optimisation, and of the two ways to emit loops the one that compiles faster."""

quick = partial(jax.jit, compiler_options=QUICK)
"""`jax.jit` with them."""

BRISK: dict[str, str | bool] = QUICK | {"xla_backend_optimization_level": "1"}
"""Compiler options for programs that also take a while to run."""

brisk = partial(jax.jit, compiler_options=BRISK)
