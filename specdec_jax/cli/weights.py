"""``--draft-weights`` and ``--target-weights``."""

import dataclasses

from rich.console import Console

from ..models import Loaded, Weights
from .drafting import has_weights


@dataclasses.dataclass(frozen=True)
class Held:
    """How the matrices of both models are held: in the dtype that is computed in, or rounded to int8."""

    draft_weights: Weights = "float"
    """How the matrices of a draft model or feature head are held. int8 takes half the bytes of bfloat16, a quarter of
    float32's: on accelerators guesses take less time, on a CPU only less memory. Answers stay exact, whatever the
    guesses."""
    target_weights: Weights = "float"
    """The same of the target. int8 CHANGES THE TARGET: its matrices are rounded, and answers are exact for the model
    that comes of it, which is not the one in the files."""

    def check(self, draft: str) -> None:
        """ValueError where this ``--draft`` has no matrices of its own."""
        if self.draft_weights != "float" and not has_weights(draft):
            raise ValueError(
                f"draft_weights is {self.draft_weights}, but the draft is {draft[:40]}, which has no weights of its "
                "own; expected a draft model or a feature head beside it"
            )

    def announce(self, target: Loaded, errors: Console) -> None:
        """Say so where the target is another model than its files hold."""
        if self.target_weights != "float":
            errors.print(
                f"The target is {target.name}: its matrices are rounded, which makes another model of it. Answers are "
                "exact for that one, not for the one in the files.",
                markup=False,
                soft_wrap=True,
            )


HELD = Held()
"""Nothing is rounded."""
