"""Acceptance rules, by name. A rule added to RULES is swept by the exactness suite at once."""

from . import block, coupled, greedy, token
from .proposal import Proposal, Rule, Verdict

RULES: dict[str, Rule] = {
    "greedy": greedy.rule,
    "token": token.rule,
    "block": block.rule,
    "coupled": coupled.rule,
}
"""By the names that `GenerateConfig.rule` takes."""

__all__ = ["RULES", "Proposal", "Rule", "Verdict"]
