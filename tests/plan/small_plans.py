"""A plan of two small models for two groups of four devices that nobody has."""

import dataclasses

from jax.sharding import AbstractMesh

from specdec_jax import GenerateConfig
from specdec_jax.control import constant
from specdec_jax.models import LlamaConfig
from specdec_jax.plan import Plan, side

CONFIG = LlamaConfig(
    vocab_size=96, width=16, mlp_width=32, num_layers=3, num_heads=8, num_kv_heads=4, head_size=8, max_positions=64
)
MESH = AbstractMesh((2, 4), ("data", "tensor"))
ROWS, K = 6, 3
"""Rows of a group of devices, and guesses."""


def plan_of(*, whole: bool = False, draft: bool = True) -> Plan:
    target = side(CONFIG, MESH)
    small = side(dataclasses.replace(CONFIG, num_layers=1, tied_head=True), MESH, whole=whole)
    config = GenerateConfig(capacity=32, draft_length=K)
    return Plan(MESH, target, small if draft else None, 2 * ROWS, 8, config, constant())
