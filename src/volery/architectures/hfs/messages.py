"""Messages between the job tracker and its nodes."""

from __future__ import annotations

from volery.core.model import Message
from volery.roles.node import Completed, Kill, Launch


class Heartbeat(Message, frozen=True):
    """Node > job tracker: what has ended here since the last heartbeat."""

    ended: tuple[Completed, ...]


MESSAGES: frozenset[type[Message]] = frozenset({Launch, Kill, Heartbeat})
