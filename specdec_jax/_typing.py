"""Names for the array types in public signatures; the shapes stand in the annotations themselves.

The letters follow the field: B rows, P prompt slots, S cache slots, K drafted, T tokens fed, V vocabulary,
L layers, N query heads, G kv heads, H head size, D model width.
"""

from typing import Any

from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Key, PRNGKeyArray, Shaped, UInt32

PyTree = Any
"""Parameters, caches and drafter states: any registered pytree."""

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Float32",
    "Int",
    "Int32",
    "Key",
    "PRNGKeyArray",
    "PyTree",
    "Shaped",
    "UInt32",
]
