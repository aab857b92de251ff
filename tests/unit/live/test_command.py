"""Payloads come back as they were; what is none is refused; an exception comes back with its traceback."""

from __future__ import annotations

import pickle

import pytest

from volery.live.command import Call, Command, Payload, Raised, RemoteTraceback, decode_payload, encode_payload


@pytest.mark.parametrize(
    "payload",
    [
        Command(("sh", "-c", "true"), 7, {"A": "1"}, "/tmp", b"in", 2.5, 0.5, ("out",), "ada", 512, 250, 1, 3, 1 << 40),
        Call(b"pickled", 7, 2.5, "ada", 512, 250, None, 3, 1 << 40),
    ],
)
def test_a_payload_comes_back_as_it_was(payload: Payload) -> None:
    assert decode_payload(encode_payload(payload)) == payload


@pytest.mark.parametrize(("content", "told"), [(b"", "carries no payload"), (b"\x93\x00", "2 bytes")])
def test_what_is_no_payload_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        decode_payload(content)


def test_an_exception_comes_back_with_the_traceback_of_its_process_as_the_cause() -> None:
    error = KeyError("who")
    back = pickle.loads(pickle.dumps(Raised(error, pickle.dumps(error), "'who'", "Traceback: line 7")))
    assert isinstance(back, KeyError)
    assert back.args == ("who",)
    assert isinstance(back.__cause__, RemoteTraceback)
    assert "line 7" in str(back.__cause__)


class OnNodesAloneError(ValueError):
    __module__ = "library_of_the_nodes"


class NeedsTwoError(OSError):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one, str(two))


class SeveralErrors(ExceptionGroup):
    __module__ = "library_of_the_nodes"


@pytest.mark.parametrize(
    ("error", "caught_as"),
    [
        (OnNodesAloneError("lost"), ValueError),
        (NeedsTwoError(1, 2), NeedsTwoError),
        (SeveralErrors("several", [KeyError()]), Exception),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "why"), UnicodeDecodeError),
        (SystemExit(3), SystemExit),
    ],
)
def test_an_exception_that_cannot_be_read_here_comes_back_with_name_and_text(
    error: BaseException, caught_as: type[BaseException]
) -> None:
    back = pickle.loads(pickle.dumps(Raised(error, b"no pickle", str(error), "Traceback: line 7")))
    assert isinstance(back, caught_as)
    assert (type(back).__name__, type(back).__module__) == (type(error).__name__, type(error).__module__)
    assert str(back) == str(error)
    assert "line 7" in str(back.__cause__)
