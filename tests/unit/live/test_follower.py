"""Results of calls are fetched together, and fail one by one."""

from __future__ import annotations

import pickle
import sqlite3
import threading
from concurrent.futures import Future
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from volery.core.errors import InputError
from volery.live.api_calls import ApiCall, BusyError, check
from volery.live.follower import EndedCall, FutureFollower
from volery.live.service.checksums import RowDamageError
from volery.live.service.requests import unreadable_store
from volery.live.status import TaskStatus


def test_a_result_that_is_damaged_fails_its_own_call_alone() -> None:
    def answered(asked: ApiCall[Any]) -> Any:
        places = str(asked.request["params"]["tasks"]).split(",")
        if "1" in places:
            raise InputError("jobs", "the row of table tasks with job 7 and place 1 is damaged")
        return [pickle.dumps(int(place) * 10) for place in places]

    follower = FutureFollower.__new__(FutureFollower)  # it has no connection
    follower.closing, follower._request = threading.Event(), answered
    calls = [EndedCall(Future(), 7, place, TaskStatus(job=7, index=place, state="finished")) for place in range(3)]
    follower._settle_calls(7, calls)
    assert [calls[at].future.result(0) for at in (0, 2)] == [0, 20]
    with pytest.raises(InputError, match="place 1 is damaged"):
        calls[1].future.result(0)


def test_a_job_whose_row_is_damaged_fails_its_own_futures_alone() -> None:
    error = RowDamageError("the row of table jobs with id 7 is damaged", 7)
    answer = unreadable_store(request_of("/events"), error)
    follower = FutureFollower.__new__(FutureFollower)  # it has no connection
    follower.pause, follower.jobs, follower.calls = threading.Lock(), {7: Future(), 8: Future()}, {7: {0: Future()}}
    futures = [follower.jobs[7], follower.calls[7][0]]
    with pytest.raises(InputError) as refused:
        check(httpx2.Response(answer.status_code, content=bytes(answer.body)))
    assert follower.has_lost(refused.value)
    assert follower.reopens
    for future in futures:
        with pytest.raises(InputError, match=r"jobs/7: .*id 7 is damaged"):
            future.result(0)
    assert not follower.jobs[8].done()
    assert not follower.has_lost(InputError("jobs", "the store of jobs cannot be read")), "that is of all jobs"


def request_of(path: str) -> Request:
    return Request({"type": "http", "method": "GET", "path": path, "headers": [], "server": ("a", 1)})


@pytest.mark.parametrize(
    ("error", "status"), [(sqlite3.DatabaseError("is damaged"), 500), (sqlite3.OperationalError("disk I/O error"), 503)]
)
def test_what_is_damaged_is_not_asked_for_again(error: sqlite3.Error, status: int) -> None:
    answer = unreadable_store(request_of("/jobs/7"), error)
    assert (answer.status_code, "retry-after" in answer.headers) == (status, status == 503)


def test_who_asks_while_the_api_ends_asks_again() -> None:
    closed = sqlite3.connect(":memory:")
    closed.close()
    with pytest.raises(sqlite3.Error) as error:
        closed.execute("SELECT 1")
    answer = unreadable_store(request_of("/events"), error.value)
    with pytest.raises(BusyError, match="is ending"):
        check(httpx2.Response(answer.status_code, content=bytes(answer.body)))
