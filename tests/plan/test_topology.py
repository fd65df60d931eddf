"""The names of slices."""

import pytest

from specdec_jax.plan import CHIPS, chip_of


def test_the_name_says_which_chip():
    assert chip_of("v5p:4x4x4") == CHIPS["v5p"]


@pytest.mark.parametrize("name", ["v5e", "v5e:", "h100:2x2", "v5e:4xx4", "v5e:0x4", "v5e:4x-4", ""])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=r"topology is '.*'; expected one of v5e, v5p, v6e, then ':' and the shape"):
        chip_of(name)
