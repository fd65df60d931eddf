"""Which kernel attends over the cache."""

from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax

from .attention import Attend, attend
from .library_attention import library
from .paged_attention import PAGE, paged

KernelName = Literal["auto", "blocks", "xla", "cudnn", "paged"]
"""What attends over the cache. All give the same within the rounding of the dtype.

``blocks``: `attention.attend`, plain JAX in a loop over the blocks in use. ``xla`` and ``cudnn``:
`jax.nn.dot_product_attention` over the smallest bucket of slots that holds the longest row, as plain JAX or by cuDNN.
``paged``: JAX's Pallas kernel of paged attention for TPUs. A kernel hands what it does not take to ``blocks``: other
dtypes and sizes of heads, windows, many tokens. ``auto``: by JAX's default backend, ``paged`` on TPUs, ``cudnn`` on
NVIDIA GPUs from Ampere on, ``blocks`` elsewhere.

``paged`` is compiled for TPUs and ``cudnn`` lowered for CUDA by the tests; neither has been run on such hardware yet.
``load(...).variant(attention="blocks")`` is a model with the plain loop anywhere.
"""


class Kernel(NamedTuple):
    """One that has a name, or one of your own."""

    attend: Attend
    page: int = 1
    """The cache has whole pages of so many slots."""

    def slots(self, capacity: int) -> int:
        """Of a cache that is to hold so many tokens a row."""
        return -(-capacity // self.page) * self.page


_KERNELS: Mapping[str, Kernel] = {
    "blocks": Kernel(attend),
    "xla": Kernel(partial(library, implementation="xla")),
    "cudnn": Kernel(partial(library, implementation="cudnn")),
    "paged": Kernel(paged, PAGE),
}
_AMPERE = 8.0


def find(kernel: str | Kernel) -> Kernel:
    """The kernel of a name, for ``auto`` of this machine; a ValueError for a name that is none."""
    if isinstance(kernel, Kernel):
        return kernel
    name = of_backend(jax.default_backend()) if kernel == "auto" else kernel
    if name not in _KERNELS:
        names = ", ".join(map(repr, get_args(KernelName)))
        raise ValueError(f"attention is {kernel!r}; expected one of {names}, or a Kernel")
    return _KERNELS[name]


def of_backend(backend: str) -> KernelName:
    """What ``auto`` stands for on one of JAX's backends."""
    if backend == "tpu":
        return "paged"
    if backend != "gpu":
        return "blocks"
    # AMD's name architectures here, such as gfx942.
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    return "cudnn" if capability.replace(".", "", 1).isdigit() and float(capability) >= _AMPERE else "blocks"
