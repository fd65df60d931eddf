"""``--draft-weights`` and ``--target-weights`` of the commands."""

import itertools
import json

import pytest

from specdec_jax import GenerateConfig
from specdec_jax.cli import costs, drafting, main
from specdec_jax.models import Int8Weight, Weights

pytestmark = pytest.mark.usefixtures("quick_programs")

SHORT = ["--max-new-tokens", "8", "--capacity", "64", "--format", "jsonl", "--temperature", "0"]
INT8_DRAFT, INT8_TARGET = ["--draft-weights", "int8"], ["--target-weights", "int8"]
CHANGED = "its matrices are rounded, which makes another model of it"


def generate(capsys, target, *args) -> tuple[list[dict], str]:
    assert main(["generate", "a b c", "--target", str(target), *SHORT, *map(str, args)]) == 0
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


def test_a_draft_in_int8_changes_no_answer(tiny, capsys):
    plain, _ = generate(capsys, tiny, "--draft", "none")
    drafted, err = generate(capsys, tiny, "--draft", tiny, *INT8_DRAFT, "--controller", "constant")
    assert drafted[0]["token_ids"] == plain[0]["token_ids"]
    assert drafted[0]["stats"]["accepted"] > 0
    assert CHANGED not in err


@pytest.mark.heavy
def test_a_target_in_int8_says_that_it_is_another(tiny, capsys):
    _, err = generate(capsys, tiny, "--draft", "ngram", *INT8_TARGET)
    assert f"The target is {tiny.name} in int8: {CHANGED}" in " ".join(err.split())


WITHOUT_WEIGHTS = [
    *itertools.product([["generate", "a"], ["tune"], ["check"], ["bench"]], ["ngram", "exit:1"]),
    (["generate", "a"], "none"),  # which the others refuse as such
]


@pytest.mark.parametrize(("command", "draft"), WITHOUT_WEIGHTS)
def test_a_draft_without_weights_is_refused(command, draft, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--draft", draft, *INT8_DRAFT])
    assert stop.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"draft_weights is int8, but the draft is {draft}, which has no weights of its own" in said


def test_both_are_held_so_and_named_so(tiny):
    target = drafting.load_target(str(tiny), weights="int8")
    made = drafting.make(str(tiny), target, weights="int8")
    assert (target.name, made.name) == (f"{tiny.name} in int8",) * 2
    for params in (target.params, made.params):
        assert isinstance(params["embedding"]["weight"], Int8Weight)
    assert drafting.make(str(tiny), target).name == tiny.name


def test_costs_are_measured_for_each(tiny):
    """What was measured in floats says nothing of int8."""
    config = GenerateConfig(capacity=64)
    kinds: list[Weights] = ["float", "int8"]
    keys = []
    for target_weights in kinds:
        target = drafting.load_target(str(tiny), weights=target_weights)
        made = [drafting.make(str(tiny), target, weights=draft_weights) for draft_weights in kinds]
        keys += [costs.key(one, config, 1) for one in made]
    assert len({str(costs.path_of(key)) for key in keys}) == 4
    assert {key["dtype"] for key in keys} == {"float32"}


@pytest.mark.heavy
def test_a_job_does_not_go_on_with_other_weights(run, tiny):
    how = ["--draft", tiny, "--controller", "constant"]
    assert run(*how)[0] == 0
    status, err = run(*how, *INT8_TARGET)
    assert status == 2
    assert "another" in err
