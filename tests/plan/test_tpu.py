"""``specdec plan`` for a TPU v5e slice of 16 chips, two groups of eight: compiled here without one.

The models are those of a pod, but for fewer layers, a smaller vocabulary and fewer slots: the drafter's heads are
narrower than a TPU's registers, and a device has one kv head of it and two of the target.
"""

import json
from pathlib import Path

import pytest

from scripts import printed_by

HERE = Path(__file__).parent
GROUPS = "[2,8]<=[16]"
"""Chips 0 to 7, and 8 to 15."""
V, D, L, S = 6144, 1024, 2, 640
"""Of the target; S with room for a block of guesses that hangs over 512, in whole pages of TPUs' attention."""
SMALL_D = 512
"""Of the drafter, which has one layer."""
ROWS, K = 32, 3
"""Rows of a group of devices, and guesses."""
KINDS = ("params", "caches", "rest", "temporary", "code")

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": 2048,
    "num_hidden_layers": L,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "max_position_embeddings": 4096,
}
DRAFT = TARGET | {
    "hidden_size": SMALL_D,
    "intermediate_size": 1024,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
CASES = {
    "pair": ["--batch", str(2 * ROWS), "--capacity", "512", "--draft-length", str(K), "--prompt-slots", "60"],
    "adaptive": [
        "--batch",
        "64",
        "--capacity",
        "300",
        "--draft-length",
        "1",
        "--rule",
        "coupled",
        "--draft-whole",
        "--draft-weights",
        "int8",
    ],
    "insert too large": ["--draft", "none", "--batch", "32", "--capacity", "395000"],
    "too large to compile": ["--draft", "none", "--batch", "32", "--capacity", "496000"],
    "odd batch": ["--batch", "33"],
    "odd groups": ["--tensor", "3"],
    "odd slice": ["--topology", "v5e:5x7"],
}
"""None of the last three is compiled."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What became of each of the cases."""
    pytest.importorskip("libtpu", reason="compiling for a TPU needs the extra plan")
    folder = tmp_path_factory.mktemp("configs")
    models = []
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        models += [f"--{name}", str(folder / name)]
    commands = [[*models, "--topology", "v5e:4x4", *case] for case in CASES.values()]
    lines = printed_by(
        HERE / "compile_for_v5e.py",
        json.dumps(commands),
        JAX_COMPILATION_CACHE_DIR=str(folder / "cache"),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="1",
    )
    return {**dict(zip(CASES, lines, strict=True)), "cache": folder / "cache"}


def found(ran: dict, name: str, status: int) -> dict:
    """The line of JSON with which a command ends."""
    assert ran[name]["status"] == status, ran[name]["err"]
    return json.loads(ran[name]["out"].splitlines()[-1])


@pytest.fixture(scope="module")
def pair(ran):
    return found(ran, "pair", 0)


def matrices(config: dict, *, chips: int) -> int:
    """Numbers on one of so many chips."""
    heads = config["num_attention_heads"] + config["num_key_value_heads"]  # of queries and outputs, of keys and values
    layer = 2 * heads * config["head_dim"] + 3 * config["intermediate_size"]
    tables = V if config.get("tie_word_embeddings") else 2 * V
    return (config["num_hidden_layers"] * layer + tables) * config["hidden_size"] // chips


def norms(config: dict) -> int:
    return (2 * config["num_hidden_layers"] + 1) * config["hidden_size"]


def programs(report: dict) -> list[dict]:
    return [*report["inserts"], report["decode"]]


@pytest.mark.heavy
def test_what_fits_is_told_with_its_bytes_by_kind(ran, pair):
    assert pair["fits"] is True
    assert "It fits the chip's 16 GB" in ran["pair"]["out"]
    assert (pair["chips"], pair["mesh"], pair["chip_bytes"]) == (16, {"data": 2, "tensor": 8}, 16e9)
    assert [one["prompt_slots"] for one in pair["inserts"]] == [64]
    caches = 2 * L * ROWS * 2 * S * 128 * 2 + 2 * 1 * ROWS * 1 * S * 64 * 2  # by rows and by heads
    params = 2 * sum(matrices(config, chips=8) + norms(config) for config in (TARGET, DRAFT))
    for one in programs(pair):
        assert one["caches"] == caches
        assert one["params"] == params
        assert one["total"] == sum(one[kind] for kind in KINDS) < 16e9
        assert 0 <= one["rest"] < 2 * caches  # the drafter's heads fill half of the registers
        assert min(one["temporary"], one["code"]) > 0
        assert one["compile_seconds"] > 0.5
        assert f"{one['compile_seconds']:.0f}" in ran["pair"]["out"]
    whole = 2 * L * ROWS * 2 * S * 128 * 2
    turned = 2 * ROWS * S * 128 * 2  # of the drafter, before the first round and after the last: its heads are narrow
    assert pair["decode"]["temporary"] < whole / 2 + turned + 2**20


@pytest.mark.heavy
def test_nothing_comes_from_the_cache_of_compiled_programs(ran):
    """How long compiling takes is a part of the report."""
    assert not list(ran["cache"].glob("jit_*"))


@pytest.mark.heavy
def test_a_program_that_puts_prompts_in_counts_for_what_fits(ran):
    report = found(ran, "insert too large", 1)
    assert report["fits"] is False
    assert "It does not fit the chip's 16 GB" in ran["insert too large"]["out"]
    (short, long), decode = report["inserts"], report["decode"]
    assert (short["prompt_slots"], long["prompt_slots"]) == (64, 395000)
    assert decode["total"] < 16e9 < short["total"]
    row = decode["caches"] / 16
    assert short["temporary"] == pytest.approx(4 * row, rel=0.3)  # rows that are read together, in 256 tokens
    assert long["temporary"] == pytest.approx(row, rel=0.3)


@pytest.mark.heavy
def test_what_is_too_large_to_compile_is_told_with_what_it_needs_at_least(ran):
    report = found(ran, "too large to compile", 1)
    assert report["fits"] is False
    assert report["caches"] == 2 * L * 16 * 2 * 496000 * 128 * 2 > 16e9
    assert "insert 64: RESOURCE_EXHAUSTED" in report["why"]
    assert "16.25 of caches" in ran["too large to compile"]["out"]


@pytest.mark.heavy
def test_groups_of_devices_exchange_nothing_with_each_other(pair):
    exchanged = pair["round"]["exchanged"]
    assert {one["groups"] for one in exchanged} == {GROUPS}
    assert {one["kind"] for one in exchanged} == {"all-reduce"}


@pytest.mark.heavy
def test_states_are_exchanged_as_often_as_tensor_parallelism_needs(pair):
    """Twice a layer in every pass, and once for the embedding, which is cut by its vocabulary."""
    found, states = pair["round"], {}
    for one in found["exchanged"]:
        (width, *_) = [size for size in (D, SMALL_D) if size in one["shapes"][0]] or [0]
        states[width] = states.get(width, 0) + one["bytes"] * one["times"]
    target, draft = 2 * ROWS * (K + 1) * D, 2 * ROWS * (2 + K - 1) * SMALL_D
    assert found["least_bytes"] == 2 * L * target + 2 * draft
    assert (states[D], states[SMALL_D]) == ((2 * L + 1) * target, 3 * draft)
    assert found["bytes"] == sum(states.values())
    assert found["times_least"] == found["bytes"] / found["least_bytes"]
    # Beside these float32 numbers, whatever the vocabulary: for each of K + 1 draws a group of 128 weights, and for
    # each of 2 K + 1 distributions two sums in each of 31 halvings and a few more.
    assert states[0] < 4 * ROWS * ((K + 1) * 128 + (2 * K + 1) * 80)
    assert found["messages"] == sum(one["times"] for one in found["exchanged"])


@pytest.mark.heavy
def test_nothing_of_the_size_of_the_vocabulary_is_exchanged(pair):
    """A device has 768 of 6,144 tokens' logits. Beside states of model width it sends at most a group of a draw."""
    assert pair["round"]["largest_other"] == 128 * 4
    sizes = {size for one in pair["round"]["exchanged"] for shape in one["shapes"] for size in shape}
    assert sizes.isdisjoint({V, V // 8})


@pytest.mark.heavy
def test_caches_are_never_copied(ran, pair):
    """Nor is one layer of them, nor anything as large."""
    assert pair["round"]["copies"] == {"whole": [], "layers": [], "others": [], "near": []}
    assert "Copies in the loop: 0 as large as a cache, 0 as large as one layer of it" in " ".join(
        ran["pair"]["out"].split()
    )


@pytest.mark.heavy
def test_the_estimate_is_with_and_without_the_drafter(ran, pair):
    best = pair["estimate"]
    accepted = sum(0.7**place for place in range(K + 1))
    assert best["tokens_per_round"] == pytest.approx(accepted)
    assert best["tokens_per_second"] == pytest.approx(2 * ROWS * accepted / best["round_seconds"])
    assert best["plain_tokens_per_second"] == pytest.approx(2 * ROWS / best["step_seconds"])
    assert best["speedup"] == pytest.approx(best["tokens_per_second"] / best["plain_tokens_per_second"])
    # A step reads the target's part of the weights, but for the embedding, and 256 tokens of every row, at 819 GB/s; it
    # sends and receives seven eighths of what is reduced, twice.
    weights = matrices(TARGET, chips=8) - V * D // 8 + norms(TARGET)
    read = 2 * (weights + 2 * L * ROWS * 256 * 2 * 128) / 819e9
    sent = 4 * 7 / 8 * 2 * L * ROWS * D * 2 / 200e9
    assert best["step_seconds"] == pytest.approx(read + sent)
    assert f"{best['plain_tokens_per_second']:,.0f} tokens/s without a drafter" in ran["pair"]["out"]
    assert f"{best['tokens_per_second']:,.0f} with it" in ran["pair"]["out"]


@pytest.mark.heavy
def test_the_adaptive_controller_can_be_read_too(ran):
    """It is that of a job under the coupled rule, here with a drafter that is whole and in int8, and guesses once."""
    report = found(ran, "adaptive", 0)
    assert (report["plan"]["controller"], report["fits"]) == ("adaptive", True)
    rows = (16 + 2 * 8) * 64 + SMALL_D + 2 * 1024 + SMALL_D + V  # of the drafter's matrices, each with a scale
    small = matrices(DRAFT, chips=1) + 4 * rows + 2 * norms(DRAFT)
    assert report["decode"]["params"] == 2 * (matrices(TARGET, chips=8) + norms(TARGET)) + small
    assert report["round"]["least_bytes"] == 2 * L * 2 * ROWS * 2 * D
    assert report["round"]["copies"]["whole"] == report["round"]["copies"]["layers"] == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "odd batch",
            "cannot divide --batch: there are 33 rows for 2 groups of devices along 'data'; expected a multiple",
        ),
        ("odd groups", "tensor is 3, but there are 16 devices; expected a number that divides that"),
        ("odd slice", "libtpu knows no topology 'v5e:5x7' (INVALID_ARGUMENT: "),
    ],
)
def test_what_cannot_be_is_refused(name, message, ran):
    assert ran[name]["status"] == 2
    assert ran[name]["out"] == ""
    assert f"specdec plan: {message}" in ran[name]["err"]
