"""What happened in a generation, round by round: what was guessed, how it was judged, and how long both halves took."""

from .recorder import first_round, record
from .records import Choice, Follow, Guess, Moment, RoundRecord

__all__ = ["Choice", "Follow", "Guess", "Moment", "RoundRecord", "first_round", "record"]
