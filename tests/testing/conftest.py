"""The checks compile small programs of their own."""

import jax
import pytest
from programs import quick, quick_generate


@pytest.fixture(scope="module", autouse=True)
def quick_jit():
    with pytest.MonkeyPatch.context() as patch:
        quick_generate(patch)
        patch.setattr(jax, "jit", quick)
        yield
