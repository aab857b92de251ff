"""Frames between versions: more fields are no trouble, unknown messages and other formats are refused by name."""

from __future__ import annotations

import msgspec
import pytest

from volery.architectures import registry
from volery.core.events import JobDone, Submit
from volery.core.model import Job, Message, Task
from volery.live.transport.codec import VERSION, Codec, CodecError, HostFrame


class Old(Message, frozen=True, tag="Hop"):
    number: int


class New(Message, frozen=True, tag="Hop"):
    number: int
    reason: str = "none"


@pytest.mark.parametrize("name", registry())
def test_every_architecture_has_a_codec(name: str) -> None:
    codec = Codec(registry()[name].messages)
    frame = HostFrame(2, 7, [("gm/0", "submitter", Submit(Job(1, 1, (Task(5, 1, 3, 10, b"what"),), 10, "ann")))])
    assert codec.decode(codec.encode(frame)) == frame


def test_a_newer_message_is_read_by_an_older_host_and_an_older_one_by_a_newer() -> None:
    new, old = Codec({New}), Codec({Old})
    assert old.decode(new.encode(HostFrame(1, 1, [("a", "b", New(4, "because"))]))).parcels == [("a", "b", Old(4))]
    assert new.decode(old.encode(HostFrame(1, 1, [("a", "b", Old(4))]))).parcels == [("a", "b", New(4))]


def test_an_unknown_message_is_refused_by_name() -> None:
    class Stranger(Message, frozen=True):
        number: int

    encoded = Codec({Stranger}).encode(HostFrame(1, 1, [("a", "b", Stranger(4))]))
    with pytest.raises(CodecError, match="'Stranger'"):
        Codec(()).decode(encoded)


@pytest.mark.parametrize("encoded", [b"", b"\x09abc", bytes([VERSION]), bytes([VERSION]) + b"\xc1"])
def test_other_bytes_are_refused(encoded: bytes) -> None:
    with pytest.raises(CodecError, match="frame"):
        Codec(()).decode(encoded)


def test_two_messages_of_one_name_are_no_codec() -> None:
    with pytest.raises(TypeError, match="Double"):
        Codec({type("Double", (Old,), {}, tag="Double"), type("Double", (Old,), {}, tag="Other")})


def test_what_a_frame_holds_is_what_was_sent() -> None:
    codec = Codec(())
    encoded = codec.encode(HostFrame(1, 3, [("submitter", "gm/0", JobDone(1))]))
    assert encoded[0] == VERSION
    assert msgspec.msgpack.decode(encoded[1:]) == [1, 3, [["submitter", "gm/0", ["JobDone", 1, 0]]], 0, 0, 0]
