"""Decoding compiled for a TPU slice that is not here, for test_tpu to run in a process of its own.

Prints one line of JSON. The models are those of a pod, but for fewer layers, a smaller vocabulary and fewer slots: the
drafter's heads are narrower than a TPU's registers, and a device has one kv head of it and two of the target.
"""

import dataclasses
import json

from specdec_jax import GenerateConfig, plan
from specdec_jax.models import LlamaConfig
from specdec_jax.plan.hlo import collectives, copies, loops_of_rounds
from specdec_jax.plan.report import cache_arrays, shard_shape, traffic
from specdec_jax.sharding import make_mesh

TARGET = LlamaConfig(6144, 1024, 2048, 2, 32, 16, 128, 4096)
DRAFT = dataclasses.replace(
    TARGET, width=512, mlp_width=1024, num_layers=1, num_heads=16, num_kv_heads=8, head_size=64, tied_head=True
)


def main() -> None:
    mesh = make_mesh(data=2, tensor=8, devices=plan.devices_of("v5e:4x4"))
    asked = plan.Plan(
        mesh=mesh,
        target=plan.side(TARGET, mesh),
        draft=plan.side(DRAFT, mesh),
        rows=64,
        prompt_slots=64,
        config=GenerateConfig(capacity=512, draft_length=3),
    )
    made = plan.programs(asked)
    program = made.decode()
    text = program.as_text()
    inside = [found for found in collectives(text) if found.loops]
    caches = [shard_shape(leaf) for leaf in cache_arrays(made.state)]
    print(
        json.dumps(
            {
                "kinds": sorted({found.kind for found in inside}),
                "groups": sorted({found.groups for found in inside}),
                "widths": sorted({size for found in inside for shape in found.shapes for size in shape}),
                "caches": caches,
                "copies": copies(text, caches),
                "temporary": program.memory_analysis().temp_size_in_bytes,
                **traffic(asked, inside, loops_of_rounds(text))._asdict(),
            }
        )
    )


main()
