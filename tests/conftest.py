"""What every test runs under: shapes checked at run time, no silent promotion, compiled programs kept between runs."""

import gc
import os
import sys
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook
from programs import quick_batch, quick_generate, quick_record

ROOT = Path(__file__).parents[1]

# The hook instruments what Python's path finder finds; an editable install answers before it, through a finder of its
# own. With the checkout last on the path the hook sees the package in both kinds of install.
sys.path.append(str(ROOT))
assert "specdec_jax" not in sys.modules, "imported before the shape checks could be installed"
install_import_hook("specdec_jax", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Workers that run side by side compile each program once between them, and a second run hardly any.
jax.config.update(
    "jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


MAPS, MEMORY = Path("/proc/self/maps"), Path("/proc/self/statm")
"""Of Linux: one line a mapping; and pages, those in memory second."""
MOST_MAPS, MOST_BYTES = 20_000, 4 << 30


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Let go of compiled programs before a worker has so many that it cannot map another, or that memory runs out.

    Linux allows 65,530 maps a process, a program of XLA:CPU takes dozens, and one that cannot be mapped is a
    segmentation fault.
    """
    yield
    if not MAPS.exists():
        return
    many = MAPS.read_bytes().count(b"\n") > MOST_MAPS
    if many or int(MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST_BYTES:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def quick_programs(monkeypatch):
    """`generate` compiles as quickly as it can, unless a caller's own jit takes it in, and so does `batch`."""
    quick_generate(monkeypatch)
    quick_batch(monkeypatch)


@pytest.fixture
def quick_recordings(monkeypatch):
    """`record` compiles as quickly as it can."""
    quick_record(monkeypatch)


@pytest.fixture(scope="session")
def smollm2():
    """The real SmolLM2-135M: model, params and tokenizer."""
    from specdec_jax import models

    return models.load("smollm2-135m")
