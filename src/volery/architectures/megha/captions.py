"""Captions of a film of Megha, for the first message of each kind and readers new to the design."""

from __future__ import annotations

from typing import Final

_ASKED: Final = "{sender} asks {receiver}, the Local Master, for {tasks}: only {receiver} knows what is really free."
_LAUNCHED: Final = "{sender} finds it free, and launches {tasks} on {receiver}."
_REFUSED: Final = (
    "An inconsistency: {receiver}'s view was old. {sender} refuses {tasks}, and sends the truth along; {receiver} "
    "tries again."
)
_UPDATED: Final = "Heartbeat: {sender} tells {receiver} what has changed. Until the next one, that view grows old."
_FREED: Final = "{sender} tells {receiver} at once that {tasks} finished: room for others."

CAPTIONS: Final = {
    "Submit": (
        "Job {job}{user} comes to {receiver}, a Global Master. It matches {tasks_of_job} on its own view, its own "
        "partitions first: an internal match."
    ),
    "Request": _ASKED,
    "Launch": _LAUNCHED,
    "Run": _LAUNCHED,
    "external_placements": (
        "{sender} has nothing free left in its own partitions, and borrows machines of others: an external match."
    ),
    "Refusal": _REFUSED,
    "inconsistencies": "",
    "StateUpdate": _UPDATED,
    "Ended": _FREED,
    "Lost": "{sender} is sure that what ran there is dead: {receiver} places it anew, before all that waits.",
    "Preempt": "{sender} takes {tasks} from who has more than its share, for who has less.",
}
"""By the name of a message or of a counted fact; what is empty has no caption of its own."""
