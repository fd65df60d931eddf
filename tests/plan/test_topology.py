"""The names of slices."""

import re

import pytest

from specdec_jax.plan import CHIPS, chip_of


@pytest.mark.parametrize("name", ["v5p:4x4x4", "v5p:16x20x28", "v5e:16x16", "v5e:2x4", "v6e:8x16"])
def test_the_name_says_which_chip(name):
    assert chip_of(name) is CHIPS[name[:3]]


@pytest.mark.parametrize("name", ["v5e", "v5e:", "h100:2x2", "v5e:4xx4", "v5e:0x4", "v5e:4x-4", "v5e:²x4", ""])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=r"topology is '.*'; expected one of v5e, v5p, v6e, then ':' and the shape"):
        chip_of(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v5e:4x4x4", "2 sizes, up to v5e:16x16"),
        ("v6e:16", "2 sizes, up to v6e:16x16"),
        ("v6e:8x17", "2 sizes, up to v6e:16x16"),
        ("v5e:32x8", "2 sizes, up to v5e:16x16"),
        ("v5p:4x4", "3 sizes, up to v5p:16x20x28"),
    ],
)
def test_slices_that_nobody_has_are_refused(name, expected):
    """libtpu compiles for some of them, and aborts the process for others."""
    with pytest.raises(ValueError, match=re.escape(f"topology is {name!r}; expected {expected}")):
        chip_of(name)
