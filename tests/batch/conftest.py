"""What is compiled here runs for moments; and where a job writes."""

import pytest
from programs import quick_batch, quick_generate

from specdec_jax.batch.files import Place, place


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with pytest.MonkeyPatch.context() as patch:
        quick_generate(patch)
        quick_batch(patch)
        yield


@pytest.fixture
def here(tmp_path) -> Place:
    return place(str(tmp_path))
