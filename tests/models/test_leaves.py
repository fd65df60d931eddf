"""Where tensors lie in parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import CASES

from specdec_jax import models
from specdec_jax.models.registry import family_of_config


@pytest.fixture(scope="module")
def spec_of(tmp_path_factory):
    def make(case):
        path = tmp_path_factory.mktemp("case")
        case.config(**case.settings).save_pretrained(path)
        return models.config_from_json(path / "config.json")

    return make


@pytest.mark.parametrize("name", CASES)
def test_places_cover_a_parameter_once(name, spec_of):
    """They are views of it, so that reading needs no other memory; and every element belongs to one tensor."""
    config = spec_of(CASES[name])
    family = family_of_config(config)
    for of_files in {family.spec, family.spec_of_gguf or family.spec}:
        spec = of_files(config)
        for leaf in (*spec.top, *spec.layer):
            array = np.zeros(leaf.shape, np.int32)
            for shape, places in zip(leaf.parts.values(), leaf.places(array), strict=True):
                assert sum(map(len, places)) == shape[0]
                for place in places:
                    assert place[0].size == np.prod(shape[1:], dtype=int)
                    place += 1
            np.testing.assert_array_equal(array, 1)


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_those_of_the_model(name, spec_of):
    config = spec_of(CASES[name])
    spec = family_of_config(config).spec(config)
    params = jax.eval_shape(lambda: models.init_params(config, jax.random.key(0), dtype=jnp.float32, layers="unrolled"))

    def of(tree, leaf):
        for key in leaf.path:
            tree = tree[key]
        return tree.shape

    assert [of(params, leaf) for leaf in spec.top] == [leaf.shape for leaf in spec.top]
    for layer in params["layers"].values():
        assert [of(layer, leaf) for leaf in spec.layer] == [leaf.shape for leaf in spec.layer]
