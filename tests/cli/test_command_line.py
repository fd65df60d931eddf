"""The command line as a whole: help, defaults, and messages in place of tracebacks."""

import dataclasses
import subprocess
import sys

import pytest

from specdec_jax import GenerateConfig, SamplingParams
from specdec_jax.cli import COMMANDS, explain, main
from specdec_jax.cli.generate import Options
from specdec_jax.cli.options import parse


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)


def test_no_command_is_an_error_that_shows_the_usage(capsys):
    assert main([]) == 2
    assert "usage: specdec COMMAND" in capsys.readouterr().out


def test_an_unknown_command(capsys):
    assert main(["decode"]) == 2
    assert "no command 'decode'; expected one of generate" in capsys.readouterr().err


def test_an_error_that_nobody_expected_is_not_work_done_in_part(monkeypatch, capsys):
    def out_of_memory(args):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(explain, "main", out_of_memory)
    assert main(["explain"]) == 70
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "RuntimeError: RESOURCE_EXHAUSTED: out of memory" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: specdec {command}" in capsys.readouterr().out


def test_options_and_defaults_are_the_librarys(capsys):
    options = parse(Options, "generate", ["a prompt"])
    assert options.sampling == SamplingParams()
    assert options.config == GenerateConfig()
    with pytest.raises(SystemExit):
        parse(Options, "generate", ["--help"])
    printed = capsys.readouterr().out
    names = [field.name for field in dataclasses.fields(GenerateConfig)] + list(SamplingParams._fields)
    assert all(f"--{name.replace('_', '-')}" in printed for name in names)


def test_values_reach_the_librarys_classes():
    line = "a b --temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --capacity 99 --draft-length 7 --rule token"
    options = parse(Options, "generate", line.split())
    assert options.prompts == ("a", "b")
    assert options.sampling == SamplingParams(0.5, 3, 0.9, 0.1)
    assert options.config == GenerateConfig(capacity=99, draft_length=7, rule="token")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a --temperature -1", "temperature is -1.0; expected temperature from 0"),
        ("a --temperature nan", "temperature is nan"),
        ("a --temperature warm", "could not convert string to float"),
        ("a --top-p 0", "top_p is 0.0; expected top_p in (0, 1]"),
        ("a --top-p 1.5", "top_p is 1.5; expected top_p in (0, 1]"),
        ("a --top-k -2", "top_k is -2; expected"),
        ("a --min-p 2", "min_p is 2.0; expected"),
        ("a --draft-length 0", "draft_length is 0; expected an integer from 1"),
        ("a --capacity 1", "capacity is 1; expected an integer from 2"),
        ("a --rule exact", "rule is 'exact'; expected one of greedy"),
        ("a --rule greedy", "rule is greedy, but temperature is 1.0"),
        ("a --max-new-tokens 0", "max_new_tokens is 0; expected an integer from 1"),
        ("a --batch 0", "batch is 0; expected an integer from 1"),
        ("a --seed -1", "seed is -1; expected an integer from 0"),
        ("a --prompt-file x.txt", "got prompts and --prompt-file; expected"),
        ("", "got no prompt; expected prompts as arguments"),
        ("--prompt-file x --output y --scope host --coordinator node1", "coordinator is 'node1'; expected host:port"),
        ("a --format xml", "invalid choice 'xml'"),
        ("a --tempreture 1", "--tempreture"),
    ],
)
def test_bad_values_exit_with_2_and_say_what_was_expected(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["generate", *line.split()])
    assert stop.value.code == 2
    printed = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in printed


@pytest.mark.heavy
def test_the_console_script_answers_from_the_real_model():
    command = [sys.executable, "-m", "specdec_jax.cli", "generate", "--chat", "--temperature", "0"]
    done = subprocess.run(
        [*command, "What is the capital of France?", "--max-new-tokens", "12"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "block_efficiency" in done.stderr
