"""SentencePiece vocabularies in GGUF give the ids that sentencepiece and llama.cpp give."""

import itertools

import pytest
import tokenizers
from vocabularies import FIXTURE, SENTENCEPIECE, sentencepiece_metadata, tokenizer_of

from specdec_jax.models import LoadError, gguf_sentencepiece

BOS, EOS, END = 1, 2, 3
TEXTS = FIXTURE["texts"]
WAYS = ["".join(letters) for size in range(1, 10) for letters in itertools.product("ab", repeat=size)]
"""Each can be cut everywhere."""


@pytest.fixture
def read(tmp_path):
    def make(name: str, architecture: str = "llama", **changes):
        return tokenizer_of(sentencepiece_metadata(name, **changes), tmp_path / "model.gguf", architecture)

    return make


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_ids_of_sentencepiece(name, read):
    tokenizer = read(name)
    # A real U+2581 is a space to sentencepiece even where it looks for wished tokens; llama.cpp looks before.
    texts = [(i, text) for i, text in enumerate(TEXTS) if name == "llama" or "▁▁" not in text]
    got = [tokenizer.encode(text, add_special_tokens=False) for _, text in texts]
    assert got == [FIXTURE[name]["ids"][i] for i, _ in texts]
    assert [tokenizer.decode(ids) for ids in got] == [FIXTURE[name]["decoded"][i] for i, _ in texts]


def greedy(text: str, made: dict) -> list[int]:
    """What llama.cpp does, written plainly: join the neighbours of the best score, the leftmost of equals."""
    ids = {piece: i for i, piece in enumerate(made["pieces"])}
    symbols = list(("▁" if text and made["add_space_prefix"] else "") + text.replace(" ", "▁"))
    while True:
        joined = [left + right for left, right in itertools.pairwise(symbols)]
        found = [(-made["scores"][ids[both]], place) for place, both in enumerate(joined) if both in ids]
        if not found:
            break
        place = min(found)[1]
        symbols[place : place + 2] = [joined[place]]
    spelt = [[symbol] if symbol in ids else [f"<0x{byte:02X}>" for byte in symbol.encode()] for symbol in symbols]
    return [ids[piece] for pieces in spelt for piece in pieces]


@pytest.mark.parametrize("name", ["llama", "unigram"])
def test_best_score_first(name, read):
    """Also with the scores of another way to train, which are no ranks and may be equal."""
    tokenizer = read(name)
    for text in TEXTS:
        assert tokenizer.encode(text, add_special_tokens=False) == greedy(text, FIXTURE[name])


def test_begin_and_end_tokens(read):
    plain = read("llama").encode("the drafter", add_special_tokens=False)
    assert read("llama").encode("the drafter") == [BOS, *plain], "texts begin with it unless the file says otherwise"
    assert read("llama", **{"ggml.add_bos_token": False}).encode("the drafter") == plain
    both = read("llama", **{"ggml.add_eos_token": True})
    assert both.encode("the drafter") == [BOS, *plain, EOS]
    assert both.adds_bos
    assert both.encode("") == [BOS, EOS]
    assert both.decode([BOS, *plain, EOS]) == "the drafter"


def test_special_tokens_inside_a_text(read):
    """What follows one begins with a space of its own, where texts do."""
    llama, gemma = read("llama"), read("gemma")

    def parts(tokenizer, text):
        return [tokenizer.token_of(i) for i in tokenizer.encode(text, add_special_tokens=False)]

    assert parts(llama, "in<|end|>the") == ["▁in", "<|end|>", "▁the"]
    assert parts(llama, "in<|end") != parts(llama, "in<|end|>")
    assert parts(gemma, "in<|end|> the") == ["in", "<|end|>", "▁the"]
    assert parts(gemma, "<start_of_turn>in<table>") == ["<start_of_turn>", "in", "<table>"]
    assert parts(gemma, "in   the")[:3] == ["in", "  ", "▁the"]


def test_wished_tokens_are_text_and_control_tokens_are_not(read):
    tokenizer = read("gemma")
    ids = tokenizer.encode("<table>in<|end|>")
    assert ids[0] == BOS
    assert tokenizer.decode(ids) == "<table>in"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s><table>in<|end|>"


def test_end_tokens(read):
    assert read("llama").eos_ids == (EOS, END)
    assert read("llama", **{"ggml.eot_token_id": 7, "ggml.eom_token_id": 8}).eos_ids == (EOS, 7, 8, END)


@pytest.mark.parametrize("kind", [1, 3, 4, 5, 6], ids=["normal", "control", "user defined", "unused", "byte"])
def test_the_end_of_a_turn_is_a_control_token_whatever_its_type(kind, read):
    kinds = list(FIXTURE["gemma"]["types"])
    turn = FIXTURE["gemma"]["pieces"].index("<end_of_turn>")
    kinds[turn] = kind
    tokenizer = read("gemma", **{"ggml.token_type": kinds})
    assert tokenizer.eos_ids == (EOS, END, turn)
    ids = tokenizer.encode("in<end_of_turn>", add_special_tokens=False)
    assert ids == [*tokenizer.encode("in", add_special_tokens=False), turn]
    assert tokenizer.decode(ids) == "in"


@pytest.mark.parametrize("text", ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_utterance>"])
def test_tokens_that_end_a_turn_or_a_text(text, read):
    """In files that name another as the end token."""
    pieces = [text if piece == "<|end|>" else piece for piece in FIXTURE["llama"]["pieces"]]
    assert read("llama", **{"ggml.tokens": pieces}).eos_ids == (EOS, END)


@pytest.mark.parametrize("name", ["llama", "unigram"])
def test_a_token_that_comes_twice(name, read):
    """Both ids are the model's, and both stand for the same text; texts are cut into the last."""
    pieces = list(FIXTURE[name]["pieces"])
    first, last = pieces.index("▁the"), len(pieces) - 1
    pieces[last] = "▁the"
    tokenizer = read(name, **{"ggml.tokens": pieces})
    assert tokenizer.holes() == []
    assert tokenizer.encode("the the", add_special_tokens=False) == [last, last]
    assert tokenizer.decode([first, last]) == tokenizer.decode([last, last]) == "the the"
    assert tokenizer.bytes_of(first) == tokenizer.bytes_of(last) == b" the"
    assert tokenizer.stream().push([first]) == "the"
    written = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    assert written.decode([first, last]) == "the the", "as others read what convert writes"


def test_phi3_swallows_space_after_special_tokens(read):
    text = "<|end|>\n the <s> the"
    kept, swallowed = read("llama"), read("llama", "phi3")
    assert kept.decode(kept.encode(text), skip_special_tokens=False) == "<s><|end|> \n the <s>  the"
    assert swallowed.decode(swallowed.encode(text), skip_special_tokens=False) == "<s><|end|> the <s>  the"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ggml.scores": [0.5]}, "has 620 tokens and 1 scores; expected a finite score for each"),
        ({"ggml.scores": [float("nan")] * 620}, "expected a finite score for each"),
        ({"ggml.scores": [1] * 620}, "begins with the int 1; expected items of the kind float"),
        ({"ggml.token_type": [1, 1]}, "has 620 tokens and 2 token types; expected one type for each"),
        ({"ggml.tokens": ["a", "b"] * 310, "ggml.token_type": [5] * 620}, "has no token that stands for text"),
        ({"ggml.tokens": ["a" * 513] + ["b"] * 619}, "expected at most 512"),
        ({"ggml.tokens": "abc"}, "is the str 'abc'; expected a value of the kind list"),
        ({"ggml.bos_token_id": 620}, "bos_token_id of .* is 620; expected the id of one of its 620 tokens"),
        ({"ggml.add_space_prefix": 1}, "add_space_prefix of .* is the int 1; expected a value of the kind bool"),
        ({"ggml.model": "t5"}, "of the kind 't5', which is not supported; expected one of gpt2, llama"),
    ],
)
def test_what_is_refused(changes, message, read):
    kinds = {"ggml.token_type": [1] * 620} if "ggml.tokens" in changes else {}
    with pytest.raises(LoadError, match=message):
        read("llama", **kinds | changes)


def test_more_ways_to_cut_tokens_than_a_language_has(read, monkeypatch):
    monkeypatch.setattr(gguf_sentencepiece, "_MOST_MERGES", 0)
    with pytest.raises(LoadError, match="can be cut into two others in more than 1000 ways; expected"):
        read("llama", **{"ggml.tokens": WAYS[:620], "ggml.token_type": [1] * 620})


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_every_id_has_its_token(name, read):
    pieces = sentencepiece_metadata(name)["tokenizer.ggml.tokens"]
    assert read(name).vocab() == pieces
