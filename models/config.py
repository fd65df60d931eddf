"""What every model's configuration has, and the checks that several families share."""

import dataclasses
import math
from typing import Protocol, runtime_checkable


@runtime_checkable
class DecoderConfig(Protocol):
    """What the family-independent code reads of a configuration; each family's own is a frozen dataclass."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def tied_head(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class RotaryConfig:
    """The shape of a model with grouped queries, rotary positions and a gated feed-forward layer."""

    vocab_size: int
    """V, the width of the logits."""
    width: int
    """D."""
    mlp_width: int
    num_layers: int
    num_heads: int
    """N."""
    num_kv_heads: int
    """G, a divisor of N."""
    head_size: int
    """H, which need not be D / N."""
    max_positions: int
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tied_head: bool = False
    """The logits use the embedding as their weight."""

    def __post_init__(self):
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads} and num_kv_heads {self.num_kv_heads}; expected a multiple of it"
            )
        if not 0 < self.rope_theta < math.inf:
            raise ValueError(f"rope_theta is {self.rope_theta}; expected a number > 0")
        if self.head_size < 2 or self.head_size % 2:
            raise ValueError(f"head_size is {self.head_size}; expected an even number, for rotary pairs")


def check_factors(factors: tuple[float, ...] | None, head_size: int) -> None:
    """One factor for each rotary pair, each a number to divide by."""
    for factor in factors or ():
        if not 0 < factor < math.inf:
            raise ValueError(f"rope_factors has {factor}; expected finite numbers above 0")
    if factors is not None and len(factors) != head_size // 2:
        raise ValueError(f"rope_factors has {len(factors)} numbers; expected one a pair, {head_size // 2}")


def check_window(window: int | None) -> None:
    """A token sees itself at least."""
    if window is not None and window < 1:
        raise ValueError(f"sliding_window is {window}; expected at least 1, or None")


def every(pattern: int, num_layers: int) -> tuple[bool, ...]:
    """Which layers have the window: all but each ``pattern``-th."""
    return tuple((index + 1) % pattern != 0 for index in range(num_layers))


def check_windowed(windowed: tuple[bool, ...], window: int | None, num_layers: int) -> None:
    """Every layer is said to have the window or not, wherever there is one."""
    check_window(window)
    expected = 0 if window is None else num_layers
    if len(windowed) != expected:
        raise ValueError(
            f"windowed has {len(windowed)} entries for {num_layers} layers and sliding_window {window}; expected one a "
            "layer, or none without a window"
        )
