"""The submitter's protocol on the wire."""

from __future__ import annotations

import msgspec

from volery.conformance.protocol import decoder, examples
from volery.core.events import SUBMITTER_MESSAGES, Computed, PeerBack, PeerLost, TaskFinished, TimerFired
from volery.core.model import Message


def test_every_message_of_the_submitters_protocol_round_trips() -> None:
    carried = decoder(SUBMITTER_MESSAGES)
    for kind in SUBMITTER_MESSAGES:
        for message in examples(kind):
            assert carried.decode(msgspec.msgpack.encode(message)) == message


def test_the_drivers_own_events_are_no_messages() -> None:
    """They never travel, so nobody can forge them."""
    assert not any(issubclass(kind, Message) for kind in (TimerFired, TaskFinished, Computed, PeerLost, PeerBack))
