"""``specdec generate`` with a prompt file and an output: nothing lost, nothing twice, nothing mixed."""

import dataclasses
import json
import os

import pytest
from jobs import SMALL, TEXTS, answers
from processes import start, status
from safetensors.numpy import load_file, save_file

from specdec_jax.cli import job, main
from specdec_jax.cli.generate import Options
from specdec_jax.cli.options import parse
from specdec_jax.models.chat import ChatTemplate

pytestmark = pytest.mark.usefixtures("quick_programs")


def test_every_prompt_has_a_line(run, undisturbed):
    assert sorted(undisturbed) == list(range(len(TEXTS)))
    assert undisturbed[5]["id"] == "no 5"
    assert undisturbed[5]["token_ids"]
    assert undisturbed[5]["stats"]["rounds"] > 0


def test_the_answers_are_those_that_come_in_order(tiny, prompts, capsys, undisturbed):
    command = ["generate", "--target", str(tiny), "--prompt-file", str(prompts), "--format", "jsonl"]
    main([*command, *SMALL, "--batch", "1", "--controller", "constant"])  # as a job has it
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{"index": index, **line} for index, line in enumerate(lines)] == [
        undisturbed[index] for index in range(len(TEXTS))
    ]


def test_output_may_be_a_file(run, tmp_path, undisturbed):
    assert run(output="mine.jsonl")[0] == 0
    assert answers(tmp_path / "mine.jsonl") == undisturbed
    assert (tmp_path / "mine.manifest.json").exists()


def test_a_job_that_is_done_has_nothing_to_do(run, out, undisturbed):
    assert run()[0] == 0
    before = out.read_bytes()
    status, err = run()
    assert (status, out.read_bytes()) == (0, before)
    assert "8 of 8 prompts are done, 0 of them with an error" in err


def test_half_a_line_is_answered_again(run, out, undisturbed):
    assert run()[0] == 0
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    assert run()[0] == 0
    assert answers(out) == undisturbed


def test_prompts_that_cannot_be_answered_have_lines_too(run, out, write_lines):
    path = write_lines({"prompt": "a", "id": 7}, "no JSON", {"prompt": "a " * 40, "id": "long"}, {"prompt": "b"})
    for again in (False, True):  # the second run finds all of it done
        status, err = run(prompt_file=path)
        assert status == 1
        assert "4 of 4 prompts are done, 2 of them with an error" in err
        assert (f"{path}:2: the line is not JSON" in err) != again
    found = answers(out)
    assert found[1]["error"].startswith("the line is not JSON")
    assert found[1]["where"] == f"{path}:2"
    assert (found[2]["id"], found[2]["error"][:29]) == ("long", "the prompt has 40 tokens, but")
    assert found[0]["token_ids"]
    assert found[3]["token_ids"]


def test_ids_are_neither_lost_nor_doubled(run, out, write_lines):
    lines = [{"prompt": "a", "id": 1}, {"promt": "a", "id": 2}, {"prompt": "b", "id": 3, "seed": -1}, "no JSON"]
    assert run(prompt_file=write_lines(*lines))[0] == 1
    assert {index: line["id"] for index, line in answers(out).items()} == {0: 1, 1: 2, 2: 3, 3: None}


def test_of_two_prompts_with_one_id_the_later_is_refused(run, out, write_lines):
    path = write_lines({"prompt": "a", "id": 1}, {"prompt": "b", "id": 1}, {"prompt": "c"})
    for _ in range(2):  # the second run finds all of it done
        assert run(prompt_file=path)[0] == 1
    found = answers(out)
    assert found[1]["error"].startswith("the id 1 is that of")
    assert {index: line["id"] for index, line in found.items()} == {0: 1, 1: None, 2: 2}


def test_a_model_that_breaks_leaves_a_line_that_says_so(run, out, other):
    broken = other("broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, broken / "model.safetensors")
    status, err = run("--target", broken)
    assert status == 1
    assert "8 of 8 prompts are done, 8 of them with an error" in err
    assert answers(out)[0]["error"] == "the target's logits were broken (NaN, +inf or all -inf) after 0 tokens"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--seed", "1"], "seed was 0 and is now 1"),
        (["--temperature", "0.5"], "sampling.temperature was 1.0 and is now 0.5"),
        (["--template-json", "{}"], "template_json was None and is now '{}'"),
        (["--system", "a"], "system was None and is now 'a'"),
        (["--draft", "none"], "drafter.name was 'ngram' and is now 'none'"),
        (["--draft-length", "2"], "config.draft_length was 3 and is now 2"),
    ],
)
def test_other_settings_are_refused(run, change, message):
    assert run("--batch", "2")[0] == 0
    status, err = run(*change)
    assert status == 2
    assert f"answers.manifest.json is of another job: {message}. Expected the same to go on with it" in err


def test_other_prompts_and_weights_are_refused(run, prompts, other):
    assert run()[0] == 0
    assert "target.params was" in run("--target", other("reweighed", seed=1))[1]
    prompts.write_text(prompts.read_text().replace("no 7", "no 8"))
    assert "another job: prompts.digest was" in run()[1]


def test_prompts_that_are_resumed_have_the_date_of_the_first_run(run, out, monkeypatch):
    asked, render = [], ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", lambda *args, **how: asked.append(how["now"]) or render(*args, **how))
    assert run("--chat")[0] == 0
    assert len({*asked}) == 1
    manifest = out.with_name("answers.manifest.json")
    manifest.write_text(manifest.read_text().replace(asked[0].isoformat(), "2024-07-26T10:00:00"))
    out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[:5]))
    asked.clear()
    assert run("--chat")[0] == 0
    assert [when.isoformat() for when in asked] == ["2024-07-26T10:00:00"] * (len(TEXTS) - 5)


def test_a_directory_is_not_called_as_a_file_is(run, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(output="answers.txt")
    message = "answers.txt, and a job writes a directory; expected another name for it, a file that ends in .jsonl, or"
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "answers.txt").exists()


@pytest.mark.parametrize("change", [{"batch": 4}, {"tensor": 2}, {}])
def test_hosts_that_run_one_program_are_told_one_shape(prompts, tmp_path, change):
    line = ["--prompt-file", str(prompts), "--output", str(tmp_path), "--batch", "8", "--tensor", "1"]
    options = parse(Options, "generate", line)
    other = dataclasses.replace(options, **change)
    assert (job.in_step(options, {"seed": 1}) == job.in_step(other, {"seed": 1})) == (not change)
    assert job.in_step(options, {"seed": 1}) != job.in_step(options, {"seed": 2})


def test_prompts_that_are_read_otherwise_are_others(run, prompts):
    assert run()[0] == 0
    as_text = prompts.with_suffix(".txt")
    as_text.write_bytes(prompts.read_bytes())
    assert "another job: prompts.form was 'jsonl' and is now 'text'. Expected" in run(prompt_file=as_text)[1]


def test_prompts_that_change_while_it_runs_are_not_answered(run, out, prompts, undisturbed, monkeypatch):
    before, claim = prompts.read_text(), job.claim

    def and_change(*args):
        prompts.write_text(before.replace('"n"', '"a a a"'))
        return claim(*args)

    with monkeypatch.context() as patch:
        patch.setattr(job, "claim", and_change)
        status, err = run()
    assert status == 2
    assert 7 not in answers(out)
    assert "line 8 of" in err
    assert "is not what it was when this run began; expected a file that stays as it is" in err
    prompts.write_text(before)
    assert run()[0] == 0
    assert answers(out) == undisturbed


def test_the_batch_may_change_between_runs(run, out, undisturbed):
    assert run("--batch", "2")[0] == 0
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:3]))
    assert run("--batch", "3")[0] == 0
    assert answers(out) == undisturbed


def test_a_file_without_prompts(run, write_lines):
    status, err = run(prompt_file=write_lines(""))
    assert status == 2
    assert "holds no prompts; expected one a line" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--scope", "host", "--format", "text"], "scope is host, but this is no job; expected --prompt-file and"),
        (["--processes", "2"], "got processes, but scope is process; expected it with --scope host or pod"),
        (["--scope", "pod"], "scope is pod, but tensor is missing; expected --tensor with a number of chips"),
        (["--tensor", "2", "--format", "text"], "tensor is 2, but this is no job; expected --prompt-file and"),
        (
            ["--draft-whole"],
            "draft_whole is asked for, but tensor is missing; expected --tensor with a number of chips",
        ),
        (["--tensor", "0"], "tensor is 0; expected an integer from 1 to"),
        (["--drain", "-1"], "drain is -1.0; expected seconds, 0 or more"),
    ],
)
def test_options_that_contradict_each_other(run, args, message, capsys):
    with pytest.raises(SystemExit) as stop:
        run(*args)
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("to", ["out", "out.txt"])
def test_a_prompt_file_whose_name_is_no_text(to, tiny, tmp_path):
    """In a process of its own, for pytest's standard error takes no such name and the real one does."""
    path = tmp_path / os.fsdecode(b"\xff.jsonl")
    path.write_text('{"prompt": "a b"}\n{"prom": 1}\n')
    how = ["--format", "text"] if to == "out.txt" else []
    args = ["generate", "--target", str(tiny), "--prompt-file", str(path), "--output", str(tmp_path / to), *SMALL, *how]
    assert status(start(main, args, cache=tmp_path / "cache", log=tmp_path / "log.txt")) == 1
    if to == "out":
        assert answers(tmp_path / "out" / "answers.jsonl")[1]["where"] == f"{path}:2"
    else:
        assert "cut off" in (tmp_path / to).read_text(encoding="utf-8")  # of the answer, below a heading of that name
