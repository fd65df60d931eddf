"""What the tests of training share: a tiny target, and texts."""

import jax
import numpy as np
import pytest
from programs import quick, quick_generate
from tiny_teachers import V, tiny_teacher

from specdec_jax.models.load import Loaded


@pytest.fixture(scope="module", autouse=True)
def quick_jit():
    """What is compiled here runs for moments: the options of `programs` make that quick."""
    with pytest.MonkeyPatch.context() as patch:
        quick_generate(patch)
        patch.setattr(jax, "jit", quick)
        yield


@pytest.fixture(scope="session")
def tiny_target() -> Loaded:
    return tiny_teacher()


@pytest.fixture(scope="session")
def samples():
    """Texts of many lengths that follow a simple law."""
    from specdec_jax.training.samples import Sample

    rng = np.random.default_rng(0)
    found = []
    for _ in range(60):
        start, step, length = rng.integers(5, V), rng.integers(1, 3), rng.integers(3, 15)
        ids = [int(5 + (start + step * i) % (V - 5)) for i in range(length)]
        found.append(Sample(ids[:2], [*ids[2:], 0], 1.0))
    return found
