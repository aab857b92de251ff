"""A call answers with its result, or with what it has raised: also when neither can be pickled, or is too large."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import cloudpickle

from volery.live.node.worker import RESULT_BYTES_MAX, CallAnswer, CallRequest, answer


def called(function: Any, *arguments: Any) -> CallAnswer:
    return answer(CallRequest(cloudpickle.dumps((function, arguments, {})), "", {}))


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("cannot travel")
        self.lock = threading.Lock()


def raise_it(error: BaseException | type[BaseException]) -> None:
    raise error


def test_a_call_answers_with_its_result() -> None:
    found = called(sum, [1, 2])
    assert (pickle.loads(found.result), found.reason) == (3, "")


def test_an_exit_of_the_called_code_is_an_answer_with_its_traceback() -> None:
    found = called(raise_it, SystemExit(3))
    raised = pickle.loads(found.result)
    assert found.reason == "SystemExit: 3"
    assert isinstance(raised, SystemExit)
    assert raised.args == (3,)
    assert "raise_it" in str(raised.__cause__)


def test_an_exception_that_cannot_be_pickled_is_caught_by_its_class() -> None:
    raised = pickle.loads(called(raise_it, UnpicklableError).result)
    assert isinstance(raised, UnpicklableError)
    assert repr(raised) == "UnpicklableError('cannot travel')"
    assert "raise_it" in str(raised.__cause__)


class SilentError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_an_exception_without_a_text_comes_back_with_one() -> None:
    found = called(raise_it, SilentError())
    assert found.reason == "SilentError: its text cannot be read: KeyError"
    assert str(pickle.loads(found.result)) == "its text cannot be read: KeyError"


def test_a_result_that_is_too_large_is_refused_with_its_size() -> None:
    found = called(bytes, RESULT_BYTES_MAX + 1)
    assert "write it to a file" in found.reason
    assert isinstance(pickle.loads(found.result), ValueError)
