"""A job that is killed at random moments and started again: every prompt once, every answer the undisturbed run's."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from busy import make, requests
from processes import kill_once_it_wrote, start, status, write_slowly

from specdec_jax.batch import Answer, Refused
from specdec_jax.batch.files import place
from specdec_jax.batch.job import resume, run_job
from specdec_jax.batch.manifest import claim
from specdec_jax.batch.results import open_results

COUNT = 500


def work(folder: Path, slowly: bool) -> int:
    """The job, from wherever it stands."""
    if slowly:
        write_slowly()
    where = place(str(folder))
    claim(where, {"prompts": COUNT})
    with open_results(where) as results:
        progress = resume(where)
        left = (request for request in requests(COUNT) if request.index not in progress.done)
        run_job(make(batch=8), left, record, results, progress)
    return 0


def record(found: Answer | Refused) -> dict[str, Any]:
    assert isinstance(found, Answer)
    return {"answer": [found.token_ids, found.finish_reason, found.logprobs, found.sampled_logprobs]}


def answers(folder: Path) -> dict[int, list]:
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    found = {line["index"]: line["answer"] for line in lines}
    assert len(found) == len(lines), "a prompt was answered twice"
    return found


@pytest.mark.heavy
def test_twenty_kills_lose_nothing(tmp_path):
    moments, torn = random.Random(1), 0
    options = {"cache": tmp_path / "cache", "log": tmp_path / "log.txt"}
    assert status(start(work, tmp_path / "undisturbed", False, **options)) == 0
    whole = answers(tmp_path / "undisturbed")
    assert sorted(whole) == list(range(COUNT))

    out = tmp_path / "out" / "answers.jsonl"
    size = (tmp_path / "undisturbed" / "answers.jsonl").stat().st_size
    for kill in range(20):
        # A few die before they have written anything, the others after up to a fifteenth of the whole.
        count = 0 if kill % 7 == 6 else moments.randint(1, size // 15)
        kill_once_it_wrote(start(work, tmp_path / "out", True, **options), out, count)
        torn += out.exists() and not out.read_bytes().endswith(b"\n")
    assert len(answers(tmp_path / "out") if out.read_bytes().endswith(b"\n") else []) < COUNT
    assert torn, "no kill tore a line"
    assert status(start(work, tmp_path / "out", False, **options)) == 0
    assert answers(tmp_path / "out") == whole
