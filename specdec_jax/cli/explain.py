"""``specdec explain``: the story of one token, and of a block of them, as a page of pictures."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import OmitArgPrefixes, Positional, arg

from .._typing import Array
from ..sampling import RoundKeys, SamplingParams, row_keys
from ..state import GenerateConfig
from ..trace import first_round
from ..verify import Proposal
from ..verify.proposal import q_of
from ..viz import explain, picture
from ..viz.duel import Duel, constant_rounds, duel
from ..viz.glyphs import label
from . import UserError, consoles, drafting, requests
from .options import SAMPLING, File, changed, check_integers, check_outputs, check_text, parse

_TOLERANCE = 1e-3  # of the sum of probabilities that people write down
_AT_ONCE = 32  # rounds

Rounds = tuple[RoundKeys, Proposal, Array]
"""What a rule is given."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Show on one token how a draft's guess is kept or replaced, so that the target's distribution comes out.

    Either after a prompt, with two models, or for two distributions: --p .5,.3,.2 --q .2,.5,.3 --words a,b,c
    """

    prompt: Positional[Annotated[str | None, arg(metavar="PROMPT")]] = None
    """Text after which the token comes."""
    p: str | None = None
    """The target's distribution, numbers with commas between them, in the place of a prompt."""
    q: str | None = None
    """The draft's."""
    words: str | None = None
    """Names of what p and q are about; by default letters."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "smollm2-135m-head"
    """Who guesses: a feature head, exit:M for the target's own first M layers, a model with its vocabulary (directory,
    GGUF file or name), or ngram."""
    chat: bool = False
    """Put the prompt into the target's chat template, as what the user says."""
    draft_length: int = 4
    """K, the guesses of a block."""
    rounds: int = 32
    """Rounds with draws of their own to compare the block rule and the token rule on."""
    seed: int = 0
    """Of all randomness."""
    output: Path = Path("explain.html")
    """The page to write; it opens from the disk and needs no network."""
    figures: File = None
    """A folder for the page's figures, each as PNG and SVG."""
    sampling: OmitArgPrefixes[SamplingParams] = SAMPLING

    def __post_init__(self):
        check_text(prompt=self.prompt, words=self.words)
        self.sampling.check()
        check_integers(self, draft_length=(1, 2**10), rounds=(1, 2**16), seed=(0, 2**32))
        given = {"a prompt": self.prompt, "--p": self.p, "--q": self.q, "--words": self.words}
        got = [name for name, value in given.items() if value is not None]
        if got != ["a prompt"] and got[:2] != ["--p", "--q"]:
            raise ValueError(f"got {' and '.join(got) or 'nothing'}; expected a prompt, or --p and --q")
        if self.p is not None and (unused := changed(self, ("target", "draft", "chat", "sampling"))):
            raise ValueError(f"got --p and --q, and {' and '.join(unused)}; expected that with a prompt only")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter, such as a feature head, exit:M, a model or ngram")


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "explain", args)
    check_outputs(options.output, options.figures)
    subject = _from_models(options) if options.p is None else _from_numbers(options)
    p, q = subject.first
    told = explain.told(np.asarray(p), np.asarray(q), subject.duel, subject.label)
    page = explain.page(told, prompt=options.prompt, target=subject.target, draft=subject.draft)
    options.output.write_text(page, encoding="utf-8")
    if options.figures is not None:
        for one in told.pictures.values():
            picture.save(one, options.figures)
    consoles.console().print(f"{options.output}: {len(told.pictures)} figures", markup=False, soft_wrap=True)
    return 0


class Subject(NamedTuple):
    """What is explained."""

    first: tuple[Array, Array]
    """p and q [V] of the first token."""
    duel: Duel
    """Of all rounds."""
    label: Callable[[int], str]
    target: str
    draft: str


def _from_models(options: Options) -> Subject:
    target = drafting.load_target(options.target, options.draft)
    chosen = drafting.make(options.draft, target)
    assert chosen.drafter is not None, "Options refuses none"
    request = requests.only(
        options.prompt or "",
        target,
        config=GenerateConfig(capacity=2**20),  # more than any prompt has
        sampling=options.sampling,
        max_new_tokens=1,
        chat=options.chat,
    )
    ids, K = request.token_ids, options.draft_length

    def after_prompt(keys: Array) -> Rounds:
        evidence = first_round(
            chosen.target.model,
            target.params,
            chosen.drafter,
            chosen.params,
            jnp.broadcast_to(jnp.asarray(ids, jnp.int32), (len(keys), len(ids))),
            jnp.full(len(keys), len(ids), jnp.int32),
            keys,
            request.sampling,
            GenerateConfig(capacity=len(ids) + K + 1, draft_length=K),
        )
        if int(evidence.proposal.length[0]) == 0:
            raise UserError(
                f"{options.draft} guesses nothing after this prompt; expected another prompt, or another --draft"
            )
        return evidence[:3]

    tokenizer = target.tokenizer
    assert tokenizer is not None, "the prompt was read with it"
    judged = _judged(after_prompt, options)
    return Subject(*judged, lambda token: label(tokenizer.bytes_of(token)), target.name, chosen.name)


def _from_numbers(options: Options) -> Subject:
    p, q = (_distribution(name, getattr(options, name)) for name in ("p", "q"))
    words = [chr(ord("a") + i % 26) * (1 + i // 26) for i in range(len(p))]
    words = words if options.words is None else options.words.split(",")
    if not len(p) == len(q) == len(words):
        raise UserError(f"p has {len(p)} numbers, q {len(q)} and words {len(words)} names; expected as many of each")
    judged = _judged(lambda keys: constant_rounds(p, q, options.draft_length, len(keys), keys), options)
    return Subject(*judged, lambda token: label(words[token].encode()), "p as given", "q as given")


def _judged(rounds_of: Callable[[Array], Rounds], options: Options) -> tuple[tuple[Array, Array], Duel]:
    """p and q of the first token, and all rounds judged: a few at a time, for each has a cache and whole distributions.

    ``rounds_of(keys [N])`` gives rounds with these keys.
    """
    size = min(_AT_ONCE, options.rounds)
    keys = row_keys(jax.random.key(options.seed), -(-options.rounds // size) * size)
    first, found = None, []
    for start in range(0, len(keys), size):
        of_rounds, proposal, p = rounds_of(keys[start : start + size])
        # Before its first guess every row is at the same place, so the first stands for all.
        first = first or (p[0, 0], q_of(proposal, p.shape[-1])[0, 0])
        found.append(duel(of_rounds, proposal, p))
    assert first is not None, "there is a round at least"
    return first, jax.tree.map(lambda *parts: np.concatenate(parts)[: options.rounds], *found)


def _distribution(name: str, text: str) -> jax.Array:
    """Probabilities [V] from numbers with commas between them."""
    try:
        values = np.asarray([float(number) for number in text.split(",")])
    except ValueError as error:
        raise UserError(f"{name} is {text[:60]}; expected numbers such as .5,.3,.2, with commas") from error
    total = values.sum()
    if len(values) < 2 or not (values >= 0).all() or not math.isclose(total, 1, abs_tol=_TOLERANCE):
        raise UserError(
            f"{name} is {text[:60]}, which sums to {total:.4g}; expected at least two numbers, none below 0, with sum 1"
        )
    return jnp.asarray(values / total, jnp.float32)
