"""``specdec plan``: what it is asked for, and how it says what it found. What it finds is tests/plan's."""

import importlib.util
import io
import json

import jax
import jax.numpy as jnp
import pytest
from jobs import SMALL
from rich.console import Console

from specdec_jax import plan
from specdec_jax.cli import UserError, main
from specdec_jax.cli.meshes import held_whole
from specdec_jax.cli.plan import SHIPPED, show, show_too_large
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
        (["--batch", "0"], "batch is 0; expected an integer from 1"),
        (["--tensor", "-8"], "tensor is -8; expected an integer from 1"),
        (["--prompt-slots", "2048"], "prompt_slots is 2048; expected 1 to 2047, for capacity is 2048"),
        (["--capacity", "64", "--length", "65"], "length is 65; expected 1 to 64, for capacity is 64"),
        (["--rule", "best"], "best"),
        (["--controller", "some"], "adaptive"),
        (["--draft", "none", "--draft-weights", "int8"], "draft_weights is int8, but the draft is none, which has no"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"architectures": ["MambaForCausalLM"]}',
            "has the architecture 'MambaForCausalLM', which is not supported; expected one of LlamaForCausalLM, ",
        ),
        ('{"model_type": "mamba"}', "has the architecture 'mamba', which is not supported; expected one of llama, "),
        ('{"model_type": "llama"}', "config.json has no num_attention_heads, which a llama model needs; add it"),
        ("{", "config.json (Expecting property name"),
    ],
)
def test_configurations_that_are_none(text, message, tmp_path, capsys):
    (tmp_path / "config.json").write_text(text)
    for where in (tmp_path, tmp_path / "config.json"):
        assert main(["plan", "--target", str(where)]) == 2
        assert message in capsys.readouterr().err


def test_without_libtpu_it_says_what_to_install(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "libtpu" else find(name))
    assert main(["plan"]) == 2
    assert capsys.readouterr().err == ("specdec plan: libtpu is not installed; run pip install 'specdec-jax[plan]'\n")


@pytest.fixture
def on_one_device(monkeypatch):
    """The only device here stands for the slice."""
    monkeypatch.setattr(plan, "devices_of", lambda name: jax.devices()[:1])


@pytest.mark.usefixtures("on_one_device")
def test_logits_of_another_width_are_told_of(tiny, other, capsys, monkeypatch):
    """A job takes such a pair, or not, by tokenizers that are not here."""
    small = other("small", words=["<unk>", "<end>", "<user>", "<assistant>", "a"])
    asked = []

    def compiled(plan_of):
        asked.append(plan_of)
        raise plan.TooLargeError("too large", params=1, caches=1)

    monkeypatch.setattr(plan, "compiled", compiled)
    command = ["plan", "--target", str(tiny), "--draft", str(small), "--tensor", "1", "--capacity", "64"]
    assert main(command) == 1
    said = (
        f"the logits of {tiny} are 20 wide and those of {small} 5: a job takes the two only if their tokenizers agree"
    )
    assert said in capsys.readouterr().err
    assert asked[0].drafter.vocab_size == 20


@pytest.mark.parametrize(
    ("told", "sampled"),
    [
        ([], []),
        (["--rule", "token"], []),
        (["--rule", "coupled", "--verify-widths", "1", "2", "4"], []),
        (["--rule", "greedy"], ["--temperature", "0"]),
        (["--rule", "coupled", "--controller", "constant"], []),
        (["--controller", "adaptive", "--prefill-chunk", "32"], []),
        (["--draft-weights", "int8"], []),
        (["--target-weights", "int8"], []),
    ],
)
@pytest.mark.usefixtures("on_one_device")
def test_what_is_compiled_is_what_a_job_runs(told, sampled, tiny, run, monkeypatch):
    """Of `specdec generate` with the same options."""
    seen = []

    def in_int8(params) -> bool:
        return any(leaf.dtype == jnp.int8 for leaf in jax.tree.leaves(params))

    def generator(*args, controller, **settings):
        chosen, config = args
        seen.append((controller, config, in_int8(chosen.target.params), in_int8(chosen.params)))
        raise UserError("enough is known")

    def compiled(asked):
        target, draft = asked.target.params, asked.draft.params
        seen.append((asked.controller, asked.config, in_int8(target), in_int8(draft)))
        raise UserError("enough is known")

    monkeypatch.setattr("specdec_jax.cli.job.generator", generator)
    monkeypatch.setattr(plan, "compiled", compiled)
    assert run("--draft", tiny, *told, *sampled)[0] == 2
    shape = SMALL[: SMALL.index("--max-new-tokens")] + SMALL[SMALL.index("--prefill-chunk") :]
    models = ["--target", str(tiny), "--draft", str(tiny)]
    assert main(["plan", *models, "--topology", "v5e:1x1", "--tensor", "1", *shape, *told]) == 2
    job, planned = seen
    assert planned == job


KINDS = {"params": 12e9, "caches": 5e9, "rest": 0, "temporary": 1e9, "code": 0}
ASKED = {
    "plan": {
        "target": "a",
        "draft": "b",
        "topology": "v5e:4x4",
        "batch": 8,
        "weights": {"target_weights": "float", "draft_weights": "int8"},
        "config": {"capacity": 64},
        "alpha": 0.7,
        "length": 32,
    },
    "chips": 16,
    "mesh": {"data": 2, "tensor": 8},
    "fits": False,
    "chip_bytes": 16e9,
}


def written(show, found) -> str:
    file = io.StringIO()
    show(json.loads(json.dumps(found)), Console(file=file, width=200))
    return file.getvalue()


def test_the_report_is_for_people_and_names_what_does_not_fit():
    states = {"kind": "all-reduce", "shapes": [[4, 5, 64]], "bytes": 2_000_000, "groups": "", "times": 6}
    rare = {"kind": "all-gather", "shapes": [[3]], "bytes": 12, "groups": "", "times": 1}
    copy = {"operation": "copy", "shape": [2, 8, 4], "bytes": 3_000_000, "near": False, "loops": [None]}
    found = ASKED | {
        "inserts": [KINDS | {"prompt_slots": 64, "compile_seconds": 30.0, "total": 18e9}],
        "decode": KINDS | {"compile_seconds": 61.0, "temporary": 2e9, "total": 19e9},
        "round": {
            "bytes": 12e6,
            "least_bytes": 10e6,
            "times_least": 1.2,
            "largest_other": 512,
            "messages": 40,
            "exchanged": [states, rare],
            "copies": {"whole": [copy], "layers": [copy, copy], "others": [], "near": []},
        },
        "estimate": {"tokens_per_second": 2e4, "plain_tokens_per_second": 1e4, "tokens_per_round": 2.5, "speedup": 2.0},
    }
    text = written(show, found)
    assert text.startswith("a with b in int8 on v5e:4x4: 16 chips, data 2 x tensor 8, 8 rows of 64\n")
    assert "does not fit the chip's 16 GB" in text
    assert "insert 64" in text
    assert "18.00" in text
    assert "19.00" in text
    assert "61" in text
    assert "12.0 MB a chip, 1.200 times the least" in text
    assert "6 times all-reduce of [4, 5, 64]: 12.00 MB" in text
    assert "all-gather" not in text  # less than a hundredth of it all
    assert "Copies in the loop: 1 as large as a cache, 2 as large as one layer of it, 0 as large of other" in text
    assert "3 times copy of [2, 8, 4], 3.0 MB" in text
    assert (
        "At best 10,000 tokens/s without a drafter and 20,000 with it (alpha 0.7, 2.50 tokens a round), 2.00 times"
        in text
    )
    plain = found["plan"] | {"draft": "none"}
    assert "10,000 tokens/s without a drafter, at 32 tokens a row." in written(show, found | {"plan": plain})
    assert "It fits the chip's 16 GB" in written(show, found | {"fits": True})


def test_what_the_compiler_refuses_is_for_people_too():
    found = ASKED | {"why": "decode: Ran out of memory", "params": 12e9, "caches": 5e9}
    text = written(show_too_large, found)
    assert "12.00 GB of params and 5.00 of caches are 17.00 together" in " ".join(text.split())
    assert "decode: Ran out of memory" in text
