"""What is compiled here runs for moments."""

import pytest
from programs import quick_batch, quick_generate


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with pytest.MonkeyPatch.context() as patch:
        quick_generate(patch)
        quick_batch(patch)
        yield
