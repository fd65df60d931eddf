"""Models in int8 compiled for a TPU that is not here, for test_int8_tpu to run in a process of its own.

It prints a line of JSON a layout: the bytes of the arguments, those of the same in bfloat16, and the arrays of two or
four bytes a number that the program writes out and that are as large as a matrix, or as a layer's part of a stack.
"""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from specdec_jax import GenerateConfig, constant, draft_model, generate, models, plan
from specdec_jax.models import Int8Weight
from specdec_jax.plan.hlo import instructions, parsed
from specdec_jax.sharding import make_mesh

TARGET = models.LlamaConfig(6144, 1024, 2048, 3, 8, 8, 128, 4096)
DRAFT = dataclasses.replace(TARGET, width=512, mlp_width=1024, num_layers=2, num_kv_heads=4, tied_head=True)
ROWS, CHUNK = 6, 16
"""No product of rows, tokens and a width is as large as a matrix."""
PASSED_ON = ("get-tuple-element", "parameter", "bitcast", "while", "tuple")


def main() -> None:
    mesh = make_mesh(devices=plan.devices_of("v5e:4x4")[:1])
    for layers in ("stacked", "unrolled"):
        print(json.dumps({"layers": layers} | compiled(layers, NamedSharding(mesh, P()))))


def compiled(layers, where: NamedSharding) -> dict:
    def there(tree):
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree)

    configs = (TARGET, DRAFT)
    target, draft = (models.model_from_config(one, dtype=jnp.bfloat16, layers=layers) for one in configs)
    params = [there(models.param_shapes(one, dtype=jnp.bfloat16, layers=layers, weights="int8")) for one in configs]

    def run(target_params, draft_params, prompts, lengths, key):
        return generate(
            target,
            target_params,
            draft_model(draft),
            draft_params,
            prompts,
            lengths,
            key=key,
            config=GenerateConfig(capacity=128, draft_length=3, prefill_chunk=CHUNK),
            max_new_tokens=16,
            controller=constant(),
        ).tokens

    prompts, lengths = jax.ShapeDtypeStruct((ROWS, 8), jnp.int32), jax.ShapeDtypeStruct((ROWS,), jnp.int32)
    inputs = there((prompts, lengths, jax.eval_shape(lambda: jax.random.key(0))))
    program = jax.jit(run).lower(*params, *inputs).compile()
    memory, sizes = program.memory_analysis(), matrix_sizes(params)
    assert memory is not None
    written = {
        f"{list(shape)} by {placed.instruction.operation}"
        for placed in instructions(parsed(program.as_text() or ""))
        if not placed.fused and placed.instruction.operation not in PASSED_ON
        for size, shape in placed.instruction.arrays()
        if size > 1 and math.prod(shape) in sizes
    }
    memory = program.memory_analysis()
    assert memory is not None
    return {
        "arguments": memory.argument_size_in_bytes,
        "floats": sum(leaf.size * 2 for leaf in jax.tree.leaves(params)),
        "written": sorted(written),
    }


def matrix_sizes(params) -> set[int]:
    """Numbers of each matrix, and of one layer of those that are stacked."""
    found = set()
    for path, node in jax.tree_util.tree_leaves_with_path(params, is_leaf=lambda node: isinstance(node, Int8Weight)):
        if isinstance(node, Int8Weight):
            stacked = "['layers']['" in jax.tree_util.keystr(path)
            found |= {node.values.size, node.values.size // (node.shape[0] if stacked else 1)}
    return found


main()
