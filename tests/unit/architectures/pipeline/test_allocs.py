"""Allocs: room that a job keeps between its tasks (Verma et al., EuroSys 2015, section 2.4)."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.architectures.pipeline.runs import job_of, run, starts
from tests.unit.architectures.pipeline.test_recovery import crashed

from volery.architectures import configure, lookup
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents

ONE = Cluster.uniform(1)


def two_jobs() -> Trace:
    """A chain of three tasks of 10 s, and a lone task that comes after a second."""
    trace = job_of([10, 10, 10, 10])
    flat = msgspec.structs.replace(
        trace, arrival_us=array("q", [0, SECOND]), first=array("q", [0, 3, 4]), estimate_us=array("q", [SECOND] * 2)
    )
    return with_parents(flat, [(), (0,), (1,), ()])


def test_without_allocs_tasks_of_others_come_in_between() -> None:
    assert starts(run("pipeline", two_jobs(), ONE, T2="fifo")) == [0, 20, 30, 10]


def test_a_job_goes_on_in_the_room_of_its_own_task() -> None:
    """The lone task, which waits since 1 s, starts when the job is done and has given its alloc back."""
    records = run("pipeline", two_jobs(), ONE, T2="fifo", alloc_s="5")
    assert starts(records) == [0, 10, 20, 30]
    assert records.counters["alloc_starts"] == 2


def test_an_alloc_that_is_not_used_is_given_back() -> None:
    """The last task of the job waits 20 s for one on the other machine, and an alloc lasts 5 s, or 50 s."""
    flow = with_parents(
        msgspec.structs.replace(
            job_of([10, 30, 10, 10]),
            arrival_us=array("q", [0, SECOND]),
            first=array("q", [0, 3, 4]),
            estimate_us=array("q", [SECOND] * 2),
        ),
        [(), (), (0, 1), ()],
    )
    assert starts(run("pipeline", flow, Cluster.uniform(2), alloc_s="5")) == [0, 0, 30, 15]
    assert starts(run("pipeline", flow, Cluster.uniform(2), alloc_s="50")) == [0, 0, 30, 40]


def test_allocs_of_a_machine_that_fails_are_gone() -> None:
    records = crashed(two_jobs(), ONE, (12, 0, 60), T2="fifo", alloc_s="50")
    assert records.attempt[1] == 1
    assert all(at > 60 * SECOND for at in list(records.start_us)[1:])


@pytest.mark.parametrize("given", [{"T9": "fixed"}, {"T3": "easy"}])
def test_allocs_and_what_reckons_with_ends_exclude_each_other(given: dict[str, str]) -> None:
    pipeline = lookup("pipeline")
    with pytest.raises(InputError, match="allocs cannot be combined"):
        pipeline.build(ONE, configure(pipeline, {"alloc_s": "1", **given}), Streams(0))


def test_a_task_that_waits_already_starts_in_the_room_of_another_of_its_job() -> None:
    assert starts(run("pipeline", job_of([10] * 4), ONE, alloc_s="50")) == [0, 10, 20, 30]


def test_files_are_deleted_before_an_alloc_is_used_again() -> None:
    records = run("pipeline", two_jobs(), ONE, T2="fifo", alloc_s="50", T8="delete/files:2000")
    assert starts(records) == [0, 12, 24, 36]
    assert records.counters["alloc_starts"] == 2
