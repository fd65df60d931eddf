"""Testing decoders: toy models with known probabilities, slow references, exact enumeration, chi-square tests.

Public, so that a drafter or a rule from elsewhere can be put through the same tests as ours.
"""

from . import closed_forms, reference
from .checks import SIGNIFICANCE, check_draws, check_guessed_laws, check_law, check_strict, decode_rounds
from .contracts import BrokenContractError
from .drafter import check_drafter
from .enumeration import RuleLaw, SampledRule, guessed_laws, rule_law
from .exact import Tree, constant_tree, joint, random_tree, sequence_law
from .language_model import check_language_model
from .statistics import chi_square_p_value, sequence_p_value
from .table import (
    history_head,
    history_logits,
    history_model,
    markov_head,
    markov_logits,
    markov_model,
    random_logits,
)

__all__ = [
    "SIGNIFICANCE",
    "BrokenContractError",
    "RuleLaw",
    "SampledRule",
    "Tree",
    "check_drafter",
    "check_draws",
    "check_guessed_laws",
    "check_language_model",
    "check_law",
    "check_strict",
    "chi_square_p_value",
    "closed_forms",
    "constant_tree",
    "decode_rounds",
    "guessed_laws",
    "history_head",
    "history_logits",
    "history_model",
    "joint",
    "markov_head",
    "markov_logits",
    "markov_model",
    "random_logits",
    "random_tree",
    "reference",
    "rule_law",
    "sequence_law",
    "sequence_p_value",
]
