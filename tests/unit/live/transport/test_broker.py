"""Frames larger than the broker's limit are cut and put together; one without its beginning or its end is dropped."""

from __future__ import annotations

import pytest

from volery.core.errors import InputError
from volery.live.transport import broker
from volery.live.transport.broker import BrokerTransport, FrameAssembly, pieces


@pytest.mark.parametrize("size", [0, 1, 8, 9, 10, 27, 28])
def test_a_frame_of_any_size_comes_back_from_its_pieces(size: int) -> None:
    frame, assembly = bytes(range(size)), FrameAssembly()
    cut = list(pieces(frame, 10))
    assert max(map(len, cut)) <= 10
    assert [assembly.add(piece) for piece in cut] == [None] * (len(cut) - 1) + [frame]


def test_a_frame_that_lacks_a_piece_at_either_end_is_dropped_and_the_next_one_is_not() -> None:
    assembly, long, short = FrameAssembly(), list(pieces(bytes(25), 10)), list(pieces(b"next", 10))
    assert [assembly.add(piece) for piece in [*long[1:], *short]] == [None, None, b"next"]
    assert [assembly.add(piece) for piece in [*long[:-1], *short, b""]] == [None, None, b"next", None]


def test_a_frame_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "FRAME_BYTES_MAX", 20)
    assembly = FrameAssembly()
    assert [assembly.add(piece) for piece in pieces(bytes(100), 10)][-1] is None


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "x" * 65])
def test_a_name_that_cannot_be_part_of_a_subject_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="letters, digits"):
        BrokerTransport("nats://here", name, "")
