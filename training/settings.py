"""What a distillation can be told; the command line's options are these."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from specdec_jax.models.feature_head_files import Storage

from .losses import LOSS_NAMES, LossName, check_beta


def _at_least_one(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")


def _told(kind: str, settings: Any, *left_out: str) -> dict[str, Any]:
    """All but the fields ``left_out``, under the name that their options begin with; of a path its last part, for
    digests say what was found there."""
    fields = {name: value for name, value in dataclasses.asdict(settings).items() if name not in left_out}
    paths = {name: Path(fields[name]).name for name in ("file", "config", "start") if fields.get(name)}
    return {kind: fields | paths}


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """A feature head: a decoder layer or a few that read the target's states."""

    layers: int = 1
    """Of its own."""
    reads: tuple[int, ...] = ()
    """Layers of the target whose states it reads; by default a low, a middle and a high one."""
    draft_vocab_size: int = 16_384
    """Tokens that it can guess: those most frequent in the text."""
    steps: int = 3
    """Guesses in a row that it is trained to make, from the second on its own output."""
    decay: float = 0.8
    """Weight of each guess in the loss, relative to the one before."""
    storage: Storage = "bfloat16"
    """How its matrices are stored."""
    start: str | None = None
    """A head to go on from, by directory or name; its shape and its draft vocabulary stand."""

    def __post_init__(self):
        _at_least_one(self, "layers", "draft_vocab_size", "steps")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; expected more than 0 and at most 1")

    def told(self) -> dict[str, Any]:
        """What a run that goes on has to agree with: all but how files are stored."""
        return _told("head", self, "storage")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A draft model: a small language model with the target's vocabulary."""

    layers: tuple[int, ...] = ()
    """Layers of the target that it is made of; by default ``count``, evenly spaced."""
    count: int = 2
    """How many layers, where none are listed."""
    config: Path | None = None
    """A config.json instead, of a model that starts at random."""
    start: str | None = None
    """A model to start from instead, by path or name."""
    draft_vocab_size: int | None = None
    """Tokens that it can guess, those most frequent in the text; by default all."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the files."""

    def __post_init__(self):
        _at_least_one(self, "count", "draft_vocab_size")

    def told(self) -> dict[str, Any]:
        """What a run that goes on has to agree with: all but how files are stored."""
        return _told("model", self, "dtype")


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """What is learned from."""

    file: Path | None = None
    """JSON lines with text, or with prompt or messages for the target to answer; by default the target asks itself."""
    tokens: int = 300_000
    """Tokens of answers to gather."""
    temperatures: tuple[float, ...] = (0.0, 1.0)
    """Of the target's answers, in turn."""
    max_tokens: int | None = None
    """Most tokens of an answer; by default as many as fit."""
    rows: int = 64
    """Answers written at a time."""
    capacity: int = 384
    """Most tokens of a prompt and its answer, where the target writes; prompts that leave no room are left out."""
    length: int = 256
    """Tokens of a row that texts are packed into; longer ones are cut."""
    fresh: float = 0.0
    """Share of each batch from answers that are sampled afresh in every phase of training, as in DistillSpec: ``rows``
    answers, gone through as often as the phase takes; the fewer and the longer the phase, the oftener each."""
    fresh_from: Literal["target", "student"] = "target"
    """Who gives these answers."""
    held_out: float = 0.05
    """Share of the texts that is only measured on."""

    def __post_init__(self):
        _at_least_one(self, "max_tokens")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is {self.held_out}; expected more than 0 and less than 1")
        if not 0 <= self.fresh <= 1:
            raise ValueError(f"fresh is {self.fresh}; expected 0 to 1, a share of each batch")
        for name in ("tokens", "rows", "capacity", "length"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 2")
        if not self.temperatures or any(not 0 <= t < float("inf") for t in self.temperatures):
            raise ValueError(f"temperatures are {self.temperatures}; expected numbers >= 0, at least one")

    def told(self) -> dict[str, Any]:
        """What a run that goes on has to agree with."""
        return _told("text", self)


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """How far the student is from its teacher."""

    name: LossName = "forward_kl"
    """Of the loss; cross_entropy learns from the text's tokens alone, not from what the teacher says."""
    temperature: float = 1.0
    """That both distributions are taken at. At another than 1 every loss sees the tokens of a draft vocabulary only."""
    eta: float = 3.0
    """Of hybrid: how fast it turns from KL to total variation as acceptance grows."""
    beta: float = 0.5
    """Of jensen_shannon: the teacher's weight in the mixture."""

    def __post_init__(self):
        if self.name not in LOSS_NAMES:
            raise ValueError(f"loss is {self.name!r}; expected one of {', '.join(LOSS_NAMES)}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"the loss's temperature is {self.temperature}; expected a number > 0")
        if not 0 <= self.eta < math.inf:
            raise ValueError(f"eta is {self.eta}; expected a number >= 0")
        check_beta(self.beta)

    def options(self) -> dict[str, Any]:
        """For the students."""
        own = {"hybrid": {"eta": self.eta}, "jensen_shannon": {"beta": self.beta}}
        return {"loss": self.name, "temperature": self.temperature, **own.get(self.name, {})}
