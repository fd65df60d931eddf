"""``specdec throughput`` on a tiny model."""

import json

import pytest

from specdec_jax.cli import main

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.mark.heavy
def test_tables_and_one_line_of_json(tiny, write_lines, capsys):
    prompts = write_lines({"prompt": "a b c"}, {"prompt": "d e"})
    small = ["--capacity", "40", "--count", "7", "--mean", "6", "--versus", "3", "--batches", "3", "--draft", "none"]
    assert main(["throughput", "--target", str(tiny), "--prompt-file", str(prompts), *small]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert "slots with refill" in out
    assert found["same_tokens"]
    assert found["refill"]["tokens"] == found["whole_batches"]["tokens"] > 0
    assert found["refill"]["rows"] == 7
    assert found["ratio"] == found["whole_batches"]["seconds"] / found["refill"]["seconds"]
    assert [(entry["batch"], entry["draft"]) for entry in found["batches"]] == [(3, "none")]
