"""Managed jobs: a master takes its room until its job is done (Andreadis et al., SC18, section II-A)."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.architectures.pipeline.runs import job_of, run, starts

from volery.architectures import configure, lookup
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents

TWO = Cluster.uniform(2)


def master_and_workers() -> Trace:
    """A job whose master of 10 s requests two tasks of 10 s, and a lone task that comes after a second."""
    trace = job_of([10, 10, 10, 5])
    flat = msgspec.structs.replace(
        trace, arrival_us=array("q", [0, SECOND]), first=array("q", [0, 3, 4]), estimate_us=array("q", [SECOND] * 2)
    )
    return with_parents(flat, [(), (0,), (0,), ()])


def test_tasks_of_a_managed_job_do_not_use_the_room_of_their_master() -> None:
    assert starts(run("pipeline", master_and_workers(), TWO)) == [0, 10, 10, 1]
    records = run("pipeline", master_and_workers(), TWO, J2="managed/jobs:1")
    assert starts(records) == [0, 10, 20, 30], (
        "one slot of two is the master's until 30 s, and the next job waits for it"
    )
    assert records.counters["masters"] == 1


def test_the_room_of_a_master_is_given_back_with_its_job() -> None:
    """Three slots: the lone task has one at once, and both others are free for the job that comes last."""
    trace = job_of([10, 10, 10, 30, 5, 5])
    flat = msgspec.structs.replace(
        trace,
        arrival_us=array("q", [0, SECOND, 35 * SECOND]),
        first=array("q", [0, 3, 4, 6]),
        estimate_us=array("q", [SECOND] * 3),
    )
    flow = with_parents(flat, [(), (0,), (0,), (), (), ()])
    assert starts(run("pipeline", flow, Cluster.uniform(3), J2="managed/jobs:2")) == [0, 10, 20, 1, 35, 35]


def test_a_job_of_one_task_has_no_master_to_wait_for() -> None:
    records = run("pipeline", job_of([10]), TWO, J2="managed/jobs:1")
    assert starts(records) == [0]
    assert "masters" not in records.counters


def test_masters_and_allocs_go_together() -> None:
    """The second task starts in the alloc of the first; the master's room stays its own."""
    records = run("pipeline", master_and_workers(), TWO, J2="managed/jobs:1", alloc_s="50", T2="fifo")
    assert starts(records) == [0, 10, 20, 30]
    assert (records.counters["masters"], records.counters["alloc_starts"]) == (1, 1)


@pytest.mark.parametrize("given", [{"T9": "fixed"}, {"T3": "easy"}, {"T11": "restart"}, {"lrms": "2"}])
def test_what_does_not_know_of_masters_is_refused(given: dict[str, str]) -> None:
    pipeline = lookup("pipeline")
    with pytest.raises(InputError, match="room of a master is taken until its job is done"):
        pipeline.build(TWO, configure(pipeline, {"J2": "managed/jobs:1", **given}), Streams(0))


def test_masters_that_could_take_every_slot_are_refused() -> None:
    pipeline = lookup("pipeline")
    with pytest.raises(InputError, match="2 masters could take all of the 2 slots"):
        pipeline.build(TWO, configure(pipeline, {"J2": "managed/jobs:2"}), Streams(0))
