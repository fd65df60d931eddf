"""``specdec generate`` on a tiny model: what comes out, and what is said of what cannot be answered."""

import json
import os

import pytest
from marks import at_once

from specdec_jax import Costs, SamplingParams
from specdec_jax.cli import costs, main

pytestmark = pytest.mark.usefixtures("quick_programs")

SMALL = ["--capacity", "40", "--draft-length", "3", "--max-new-tokens", "12", "--prefill-chunk", "64"]


@pytest.fixture
def run(tiny, capsys):
    """Runs the command on the tiny model; returns its status, its lines of JSON and its messages."""

    def call(*args, target=tiny):
        status = main(["generate", "--target", str(target), "--format", "jsonl", *SMALL, *map(str, args)])
        out, err = capsys.readouterr()
        return status, [json.loads(line) for line in out.splitlines()], err

    return call


def test_a_line_of_json_for_each_prompt(run):
    status, (one, two), _ = run("a b c", "d", "--logprobs")
    assert status == 0
    assert [one["id"], two["id"]] == [0, 1]
    assert one["finish_reason"] in ("length", "end_token")
    assert (
        len(one["token_ids"])
        == len(one["logprobs"]["raw"])
        == len(one["logprobs"]["sampled"])
        == one["stats"]["tokens"]
    )
    assert one["stats"]["rounds"] >= one["stats"]["tokens"] / 4
    assert set(one["stats"]) == {
        "tokens", "rounds", "drafted", "accepted", "acceptance_rate", "block_efficiency", "accepted_at"
    }  # fmt: skip


def test_readable_output_and_the_metrics_on_standard_error(tiny, capsys):
    assert main(["generate", "--target", str(tiny), *SMALL, "a b c"]) == 0
    out, err = capsys.readouterr()
    assert "prompt 1" in out
    assert "tokens_per_second" in err
    assert "\x1b" not in out + err  # no terminal, so no colours and no progress bar


def test_greedy_text_is_the_same_with_any_drafter(run, tiny, monkeypatch):
    # The model drafts for itself, which never pays: as if a guess cost next to nothing.
    monkeypatch.setattr(costs, "find", lambda *pair: Costs(0.05, [1.0, 1.1]))
    lines = [run("a b c", "d e", "--temperature", 0, "--draft", draft)[1] for draft in ("none", "ngram", tiny)]
    assert lines[0][0]["stats"]["acceptance_rate"] is None
    assert lines[2][0]["stats"]["acceptance_rate"] > 0.5  # drafted by itself
    tokens = [[line["token_ids"] for line in answers] for answers in lines]
    assert tokens[0] == tokens[1] == tokens[2]


@pytest.mark.heavy
def test_coupled_text_depends_on_the_seed_and_not_on_the_drafter(run):
    coupled = ["a b c", "a b c", "--rule", "coupled"]
    plain, drafted, reseeded = (
        [line["token_ids"] for line in run(*coupled, *more)[1]]
        for more in (["--draft", "none"], ["--draft", "ngram"], ["--draft", "none", "--seed", 1])
    )
    assert plain == drafted != reseeded
    assert plain[0] != plain[1]  # every row has randomness of its own


@pytest.mark.parametrize("how", at_once([["--controller", "constant"], ["--rule", "coupled"]], [["--rule", "coupled"]]))
def test_the_batch_size_does_not_change_a_row(how, run, write_lines):
    path = write_lines(*({"prompt": text, "id": text} for text in ("a", "b c d", "e f", "g h i j", "k")))
    # Five, one at a time and in batches of three.
    alone, together = (run("--prompt-file", path, "--batch", size, *how)[1] for size in (1, 3))
    assert [line["id"] for line in together] == ["a", "b c d", "e f", "g h i j", "k"]
    assert [line["token_ids"] for line in alone] == [line["token_ids"] for line in together]


def test_a_line_brings_values_of_its_own(run, write_lines):
    path = write_lines(
        {"prompt": "a b", "temperature": 0, "max_new_tokens": 2, "category": "short"},
        {"prompt": "a b", "seed": 3},
        {"token_ids": [4, 5], "seed": 3},
        {"messages": [{"role": "user", "content": "a b"}], "max_new_tokens": 5},
        {"prompt": "a b"},
    )
    _, lines, _ = run("--prompt-file", path)
    assert lines[0]["category"] == "short"
    assert len(lines[0]["token_ids"]) == 2
    assert lines[1]["token_ids"] == lines[2]["token_ids"] != lines[4]["token_ids"]
    assert len(lines[3]["token_ids"]) <= 5


def test_chat_puts_the_prompt_into_the_template(run, write_lines):
    messages = write_lines({"messages": [{"role": "user", "content": "a b"}]})
    from_messages = run("--prompt-file", messages, "--temperature", 0)[1][0]["token_ids"]
    assert run("a b", "--chat", "--temperature", 0)[1][0]["token_ids"] == from_messages
    assert run("a b", "--temperature", 0)[1][0]["token_ids"] != from_messages


def test_what_the_system_says(run, write_lines):
    messages = [{"role": "system", "content": "d e"}, {"role": "user", "content": "a b"}]
    from_messages = run("--prompt-file", write_lines({"messages": messages}), "--temperature", 0)[1][0]["token_ids"]
    assert run("a b", "--chat", "--system", "d e", "--temperature", 0)[1][0]["token_ids"] == from_messages
    # Conversations that do not begin with it have it too, and none has it twice.
    both = write_lines({"messages": messages[1:]}, {"messages": messages})
    lines = run("--prompt-file", both, "--system", "d e", "--temperature", 0)[1]
    assert [line["token_ids"] for line in lines] == [from_messages] * 2


def test_the_text_leaves_the_end_token_out(run, write_lines):
    path = write_lines(*({"prompt": "a", "seed": seed, "max_new_tokens": 38} for seed in range(12)))
    _, lines, _ = run("--prompt-file", path, "--temperature", 2)
    ended = [line for line in lines if line["finish_reason"] == "end_token"]
    assert ended
    for line in ended:
        assert line["token_ids"][-1] == 1
        assert "<end>" not in line["text"]


def test_a_full_row_says_so(run, tiny, capsys):
    args = ("a b c", "--temperature", 0, "--max-new-tokens", 1000)
    _, (line,), _ = run(*args)
    assert line["finish_reason"] == "capacity"
    assert len(line["token_ids"]) == 37
    assert main(["generate", "--target", str(tiny), *SMALL, *map(str, args)]) == 0
    assert "[cut off: the row is full; --capacity gives more room]" in capsys.readouterr().out


def test_output_goes_to_a_file(run, tmp_path):
    path = tmp_path / "answers.jsonl"
    status, lines, _ = run("a", "--output", path)
    assert (status, lines) == (0, [])
    assert json.loads(path.read_text())["id"] == 0


def test_no_file_is_written_over(run, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\n")
    status, lines, err = run("--prompt-file", path, "--output", path, "--format", "text")
    assert (status, lines) == (2, [])
    assert f"{path} exists, and answers would take its place; expected a new file, so name another" in err
    assert path.read_text() == "a\n"


def test_json_lines_by_their_names(run, tmp_path, write_lines):
    path = write_lines({"prompt": "a b"})
    named = path.rename(path.with_suffix(".NDJSON"))
    assert run("--prompt-file", named, "--temperature", 0)[1][0]["text"]
    status, _, err = run("--prompt-file", named.rename(path.with_suffix(".json")))
    assert status == 2
    assert "is one JSON document; expected JSON lines (.jsonl)" in err


def test_a_job_wants_prompts_that_can_be_read_again(run, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    status, _, err = run("--prompt-file", tmp_path / "pipe.jsonl", "--output", tmp_path / "answers")
    assert status == 2
    assert "pipe.jsonl is no regular file; expected one" in err


def test_bad_lines_are_reported_and_the_others_answered(run, write_lines):
    path = write_lines(
        {"prompt": "a"},
        "no json",
        {"prompt": "b", "temperature": -1},
        {"token_ids": [99]},
        {"prompt": "a " * 40},
        {"prompt": " "},
        {"prompt": "c"},
    )
    status, lines, err = run("--prompt-file", path)
    assert status == 1
    assert [line["id"] for line in lines] == [0, None, *range(2, 7)]
    assert [place for place, line in enumerate(lines) if "error" not in line] == [0, 6]
    assert lines[2]["error"].startswith("temperature is -1.0")
    assert f"{path}:2: the line is not JSON" in err
    assert f"{path}:3: temperature is -1.0; expected temperature from 0" in err
    assert f"{path}:4: token_ids[0] is 99; expected a token id from 0 to 19" in err
    assert (
        f"{path}:5: the prompt has 40 tokens, but a row holds 40 with its answer; shorten the prompt, or raise" in err
    )
    assert f"{path}:6: the prompt has no tokens; expected at least one" in err
    assert "5 of 7 prompts could not be answered" in err


def test_values_that_only_the_program_finds_impossible_are_an_error(run, monkeypatch):
    monkeypatch.setattr(SamplingParams, "check", lambda self: None)
    status, (line,), err = run("a b c", "--top-p", 0)
    assert status == 1
    assert line["finish_reason"] == "invalid"
    assert "impossible" in line["error"]
    assert "1 of 1 prompts could not be answered" in err


def test_a_bad_line_does_not_change_the_randomness_of_the_others(run, write_lines):
    good = run("--prompt-file", write_lines({"prompt": "x"}, {"prompt": "c d"}))[1]
    beside_bad = run("--prompt-file", write_lines("no json", {"prompt": "c d"}))[1]
    assert good[1]["token_ids"] == beside_bad[1]["token_ids"]


def test_the_greedy_rule_refuses_a_line_with_a_temperature(run, write_lines):
    path = write_lines({"prompt": "a"}, {"prompt": "b", "temperature": 1})
    status, lines, err = run("--prompt-file", path, "--rule", "greedy", "--temperature", 0)
    assert (status, ["error" in line for line in lines]) == (1, [False, True])
    assert ":2: rule is greedy, but temperature is 1.0; expected temperature 0" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--prompt-file", "none.jsonl"], "cannot read the prompts in none.jsonl: No such file"),
        (["a", "--target", "none"], "none does not exist and is none of the known names"),
        (["a", "--draft", "none.gguf"], "none.gguf does not exist"),
        (
            ["a", "--output", "no/such/folder.jsonl"],
            "cannot write no/such/folder.jsonl; expected a file in a folder that exists",
        ),
    ],
)
def test_missing_files(run, args, message):
    status, lines, err = run(*args)
    assert (status, lines) == (2, [])
    assert message in err


def test_a_file_without_prompts(run, write_lines):
    assert "holds no prompts; expected one a line" in run("--prompt-file", write_lines(""))[2]


def test_another_vocabulary_names_the_first_token_that_differs(run, other):
    words = [
        "<unk>",
        "<end>",
        "<user>",
        "<assistant>",
        "a",
        "b",
        "c",
        "X",
        "e",
        "f",
        "g",
        "h",
        "i",
        "j",
        "k",
        "l",
        "m",
        "n",
        "o",
        "p",
    ]
    status, _, err = run("a", "--draft", other("renamed", words=words))
    assert status == 2
    assert "token 7 is 'd' to the target tiny but 'X' to the draft renamed; expected the same vocabulary" in err


def test_no_chat_template(run, other):
    plain = other("plain", template=None)
    status, lines, err = run("a", "--chat", target=plain)
    assert (status, lines) == (2, [])
    assert "prompt 1: this model brings no chat template" in err


def test_no_tokenizer(run, other, write_lines):
    silent = other("silent")
    (silent / "tokenizer.json").unlink()
    path = write_lines({"token_ids": [4, 5]}, {"prompt": "a"})
    status, lines, err = run("--prompt-file", path, target=silent)
    assert status == 1
    assert lines[0]["text"] is None
    assert lines[0]["token_ids"]
    assert ":2: the target brings no tokenizer, so text cannot be read; give token_ids" in err
