"""``specdec plan``: what it is asked for, and what it says. That it compiles is tests/plan's."""

import io
import json

import jax
import pytest
from rich.console import Console

from specdec_jax.cli import main
from specdec_jax.cli.meshes import held_whole
from specdec_jax.cli.plan import SHIPPED, show
from specdec_jax.models import config_from_json, param_shapes


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.2-1b", 1.24),
        ("llama-3.1-70b", 70.6),
        ("gemma-3-27b", 27.0),
        ("gemma-3-4b", 3.88),
    ],
)
def test_shipped_configurations_have_the_size_of_their_name(name, billions):
    """Text models: Gemma's eyes are left out."""
    leaves = jax.tree.leaves(param_shapes(config_from_json(SHIPPED[name]), layers="stacked"))
    assert sum(leaf.size for leaf in leaves) / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--target", "llama-9"],
            "there is no configuration 'llama-9'; expected a config.json, a directory with one, or",
        ),
        (["--draft", "/nowhere"], "there is no configuration '/nowhere'; expected"),
        (["--topology", "v9:2x2"], "topology is 'v9:2x2'; expected one of v5e, v5p, v6e"),
        (["--alpha", "2"], "alpha is 2.0; expected a probability"),
        (["--batch", "0"], "batch is 0; expected >= 1"),
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    try:
        status = main(["plan", *options])
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr().err.replace("│", " ")
    assert status == 2
    assert message in " ".join(said.split())


def test_more_chips_than_kv_heads_are_warned_of():
    config = config_from_json(SHIPPED["llama-3.1-70b"])
    assert held_whole("70b", config, 8) is None
    sixteen, three = held_whole("70b", config, 16) or "", held_whole("70b", config, 3) or ""
    assert "70b has 8 kv heads, which do not divide over 16 chips: each of them holds all" in sixteen
    assert three.endswith("With --tensor 1, 2, 4, 8 they are divided")


def test_the_report_is_for_people_and_names_what_does_not_fit():
    kinds = {"params": 12e9, "caches": 5e9, "rest": 0, "temporary": 1e9, "code": 0, "compile_seconds": 30.0}
    found = {
        "plan": {
            "target": "a",
            "draft": "b",
            "topology": "v5e:4x4",
            "batch": 8,
            "capacity": 64,
            "alpha": 0.7,
            "length": 32,
        },
        "chips": 16,
        "mesh": {"data": 2, "tensor": 8},
        "fits": False,
        "chip_bytes": 16e9,
        "insert": kinds,
        "decode": kinds | {"temporary": 2e9},
        "round": {"bytes": 12e6, "least_bytes": 10e6, "largest_other": 512, "messages": 40, "cache_copies": 3},
        "estimate": {"tokens_per_second": 2e4, "plain_tokens_per_second": 1e4, "tokens_per_round": 2.5, "speedup": 2.0},
    }
    written = io.StringIO()
    console = Console(file=written, width=200)
    show(json.loads(json.dumps(found)), console)
    text = written.getvalue()
    assert "does not fit the chip's 16 GB" in text
    assert "19.00" in text
    assert "12.0 MB a chip, 1.200 times the least" in text
    assert "Copies of a cache in the loop: 3" in text
    assert "20,000 tokens/s with the drafter" in text
