"""Which controller the rounds of `specdec generate` have; `specdec plan` compiles a job with the same."""

from typing import Literal

from ..control import Controller, adaptive, constant

Name = Literal["adaptive", "constant"]


def chosen(told: Name | None, rule: str, *, is_job: bool) -> Name:
    """As told, or so that the answers of a job do not depend on when it was stopped."""
    alike = rule in ("greedy", "coupled")
    return told or ("constant" if is_job and not alike else "adaptive")


def made(name: Name) -> Controller:
    """The controller of that name, for rows that make room for the next prompts when they have ended."""
    return constant() if name == "constant" else adaptive("throughput")
