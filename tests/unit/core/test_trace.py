"""Traces as columns, and the messages that submit their jobs."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.limits import check_limits
from volery.core.model import CHUNK_TASKS, NEVER, Task
from volery.core.trace import little_endian, longs


def test_a_job_is_submitted_with_its_tasks_and_its_mean_duration() -> None:
    trace = trace_of("t", [0, 5], [[10, 30], [7]], [[1, 0], [2]])
    (message,) = trace.submission(0)
    assert isinstance(message, Submit)
    assert message.job.tasks == (Task(0, 0, 1, 20), Task(1, 0, 0, 20))
    assert (message.job.id, message.job.task_count, message.job.estimate_us) == (0, 2, 20)
    (second,) = trace.submission(1)
    assert isinstance(second, Submit)
    assert second.job.tasks == (Task(2, 1, 2, 7),)


def test_a_large_job_comes_in_chunks_that_together_are_the_job() -> None:
    size = 2 * CHUNK_TASKS + 3
    first, *more = trace_of("t", [0], [[1] * size]).submission(0)
    assert isinstance(first, Submit)
    assert first.job.task_count == size
    ids = [task.id for task in first.job.tasks]
    for message in more:
        assert isinstance(message, MoreTasks)
        assert message.first == len(ids)
        assert len(message.tasks) <= CHUNK_TASKS
        ids += [task.id for task in message.tasks]
    assert ids == list(range(size))
    assert len(more) == 2


def test_a_job_of_just_one_chunk_needs_no_more_and_an_empty_one_is_submitted_too() -> None:
    trace = trace_of("t", [0, 0], [[1] * CHUNK_TASKS, []])
    assert len(trace.submission(0)) == 1
    (empty,) = trace.submission(1)
    assert isinstance(empty, Submit)
    assert empty.job.tasks == ()


def test_schedulers_see_no_true_duration() -> None:
    """DESIGN section 2: knowledge is honest."""
    message = trace_of("t", [0], [[11, 22, 33_333]]).submission(0)[0]
    assert b"33333" not in msgspec.json.encode(message)


def test_a_chunk_of_tasks_stays_below_a_megabyte() -> None:
    heavy = trace_of("t", [0], [[10**12] * CHUNK_TASKS], [[(1 << 63) - 1] * CHUNK_TASKS])
    assert len(msgspec.msgpack.encode(heavy.submission(0)[0])) < 1_000_000


def test_the_digest_of_a_trace_sees_every_column() -> None:
    base = trace_of("a", [0, 5], [[10], [20]])
    changed = [
        trace_of("a", [0, 6], [[10], [20]]),
        trace_of("a", [0, 5], [[10], [21]]),
        trace_of("a", [0, 5], [[10, 20], []]),
        trace_of("a", [0, 5], [[10], [20]], [[0], [1]]),
        msgspec.structs.replace(base, user=("ann", "bob")),
        msgspec.structs.replace(base, estimate_us=array("q", [10, 19])),
        msgspec.structs.replace(base, limit_us=array("q", [NEVER, 30])),
        msgspec.structs.replace(base, deadline_us=array("q", [NEVER, 30])),
        msgspec.structs.replace(base, partition=("long", "")),
        msgspec.structs.replace(base, partition=("", "long")),
    ]
    assert len({base.digest(), *(trace.digest() for trace in changed)}) == 1 + len(changed)
    assert trace_of("another name", [0, 5], [[10], [20]]).digest() == base.digest()


def test_a_job_is_submitted_to_its_partition_and_most_name_none() -> None:
    trace = trace_of("t", [0, 5], [[10], [20]])
    messages = [trace.submission(0)[0], msgspec.structs.replace(trace, partition=("long", "")).submission(0)[0]]
    assert [message.job.partition for message in messages if isinstance(message, Submit)] == ["", "long"]


def test_a_job_is_submitted_with_its_limit_and_most_have_none() -> None:
    trace = trace_of("t", [0, 5], [[10], [20]])
    limited = msgspec.structs.replace(trace, limit_us=array("q", [NEVER, 30]))
    for one, limits in ((trace, [NEVER, NEVER]), (limited, [NEVER, 30])):
        submits = [message for job in (0, 1) for message in one.submission(job) if isinstance(message, Submit)]
        assert [submit.job.limit_us for submit in submits] == limits


@pytest.mark.parametrize("limit_us", [0, -7])
def test_a_limit_that_no_attempt_could_keep_is_refused(limit_us: int) -> None:
    trace = msgspec.structs.replace(trace_of("t", [0, 5], [[10], [20]]), limit_us=array("q", [NEVER, limit_us]))
    with pytest.raises(InputError, match=rf"t: job 1 has a limit of {limit_us} us; give one above 0"):
        check_limits(trace)


def test_every_task_knows_its_job() -> None:
    assert list(trace_of("t", [0, 0, 0], [[1, 1], [], [1]]).job_of_task()) == [0, 0, 2]


def test_columns_are_little_endian_everywhere() -> None:
    assert little_endian(longs(1, 258)) == b"\x02\x01" + bytes(6)
