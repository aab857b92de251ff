"""Messages between the job tracker and its nodes."""

from __future__ import annotations

from volery.core.model import Message
from volery.roles.attempts import AttemptEnded, Kill, Launch


class Heartbeat(Message, frozen=True):
    """Node > job tracker: what has ended here since the last heartbeat."""

    ended: tuple[AttemptEnded, ...]


MESSAGES: frozenset[type[Message]] = frozenset({Launch, Kill, Heartbeat})
