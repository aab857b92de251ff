"""The claims on a cell, with precedence and without, and the log of its changes."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.effects import RecordingPort, Sent

from volery.architectures import configure, lookup
from volery.architectures.omega.cell import LOG_MIN, CellClaim, ChangeLog, Claims
from volery.architectures.omega.placement import Layout, Rings
from volery.conformance.cases import Case, busy_cases, edge_cases, trace_of
from volery.conformance.features import AS_NEAR, rich_cases
from volery.conformance.outcomes import demand_all_finished, demand_capacity, demand_constraints
from volery.conformance.verdict import run
from volery.core.model import SECOND, Cluster, Task, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.roles.node import Completed, Kill, Launch
from volery.sim import Network, Options


class Cell:
    """Claims on two machines with two slots, and the claims that have ended."""

    def __init__(self) -> None:
        cluster = Cluster.uniform(2, slots=2)
        self.layout = Layout(cluster, Rings(cluster, Streams(0).of("rings")))
        self.claims, self.port = Claims(self.layout), RecordingPort("cell/0")
        self.freed: list[tuple[CellClaim, Time]] = []
        self.claims.open(self.port, lambda claim, now: self.freed.append((claim, now)))

    def begun(self, task: int, machine: int) -> CellClaim:
        claim = self.claims.claim("scheduler/0", Task(task, 0), machine)
        assert claim is not None
        self.claims.begin(claim)
        return claim


def test_a_full_machine_gives_nothing_until_a_task_has_ended() -> None:
    cell = Cell()
    first, _ = cell.begun(0, 0), cell.begun(1, 0)
    assert cell.claims.claim("scheduler/1", Task(2, 0), 0) is None
    cell.claims.ended(Completed(0), 7)
    assert cell.freed == [(first, 7)]
    assert cell.claims.claim("scheduler/1", Task(2, 0), 0) is not None


def test_tasks_are_launched_and_killed_on_their_machines() -> None:
    cell = Cell()
    cell.begun(0, 1)
    cell.claims.withdraw((0, 5), 0)
    sent = [(effect.to, type(effect.message)) for effect in cell.port.drain() if isinstance(effect, Sent)]
    assert sent == [("node/1", Launch), ("node/1", Kill)]


def test_a_claim_that_is_undone_leaves_nothing() -> None:
    cell = Cell()
    claim = cell.claims.claim("scheduler/0", Task(0, 0), 0)
    assert claim is not None
    with pytest.raises(AssertionError):
        cell.claims.check_rest()
    cell.claims.undo(claim)
    cell.claims.check()
    cell.claims.check_rest()


def test_an_end_that_is_reported_again_frees_nothing() -> None:
    cell = Cell()
    cell.begun(0, 0)
    cell.claims.ended(Completed(0), 1)
    cell.claims.ended(Completed(0), 2)
    assert [now for _, now in cell.freed] == [1]
    cell.claims.check_rest()


def test_what_others_hold_is_part_of_the_account() -> None:
    cell = Cell()
    claim = cell.claims.claim("scheduler/0", Task(0, 0), 0)
    assert claim is not None
    with pytest.raises(AssertionError, match="amounts without a task"):
        cell.claims.check()
    cell.claims.check([(claim.machine, claim.packed)])


def test_each_scheduler_is_sent_each_changed_machine_once() -> None:
    log = ChangeLog(5)
    log.note(3, 1, 3)
    assert log.unseen("scheduler/0") == [3, 1]
    assert log.unseen("scheduler/0") == []
    log.note(2)
    assert log.unseen("scheduler/0") == [2]
    assert log.unseen("scheduler/1") == [3, 1, 2]


def test_a_scheduler_that_has_not_looked_for_long_is_sent_all_machines() -> None:
    log = ChangeLog(5)
    log.note(4)
    assert log.unseen("scheduler/0") == [4]
    for _ in range(2 * LOG_MIN):
        log.note(0)
    assert log.unseen("scheduler/0") == [0, 1, 2, 3, 4]
    log.note(1)
    assert log.unseen("scheduler/0") == [1]


OMEGA = lookup("omega")
GIVEN = {**OMEGA.immediate, "preemption": "true"}


def played(trace: Trace, priorities: list[int], cluster: Cluster, **given: str) -> Records:
    """Play it without delays or decision times, checking invariants after every event."""
    trace = msgspec.structs.replace(trace, priority=array("q", priorities))
    design = msgspec.structs.replace(OMEGA, defaults=configure(OMEGA, {**GIVEN, **given}))
    case = Case("precedence", 0, trace, cluster)
    return run(design, case, network=Network(delay_us=0), options=Options(check=True))


def starts(records: Records) -> list[float]:
    return [at / SECOND for at in records.start_us]


def three_jobs() -> Trace:
    """A job of two tasks of 10 s at 0, one of a task of 10 s at 1 s, one of a task of 4 s at 2 s."""
    return trace_of("jobs", [0, SECOND, 2 * SECOND], [[10 * SECOND] * 2, [10 * SECOND], [4 * SECOND]])


def test_the_lowest_priority_makes_way_and_starts_again_from_zero() -> None:
    """On three machines: the last job ends the middle one, of priority 0, which is tried again after a pause."""
    records = played(three_jobs(), [1, 0, 2], Cluster.uniform(3), retry_s="1")
    assert starts(records) == [0, 0, 6, 2]
    assert records.worker[3] == records.worker[2]
    assert records.attempt[2] == 1
    assert [(one.task, one.beneficiary) for one in records.preemptions] == [(2, 3)]


def test_the_one_placed_last_of_equals_makes_way() -> None:
    records = played(three_jobs(), [0, 0, 1], Cluster.uniform(3), retry_s="1")
    assert records.worker[3] in records.worker[:3]
    assert len(records.preemptions) == 1
    one_machine = played(three_jobs(), [0, 0, 1], Cluster((0,), (3,)), retry_s="1")
    assert [one.task for one in one_machine.preemptions] == [2]


@pytest.mark.parametrize("priorities", [[0, 0, 0], [2, 1, 0], [2, 2, 2]])
def test_nobody_makes_way_for_equals_or_lower_priorities(priorities: list[int]) -> None:
    records = played(three_jobs(), priorities, Cluster.uniform(3), retry_s="1")
    assert not records.preemptions
    assert starts(records)[3] >= 10


def test_a_machine_with_room_is_taken_first() -> None:
    assert not played(three_jobs(), [0, 0, 1], Cluster.uniform(4), retry_s="1").preemptions


def test_without_it_priorities_change_nothing() -> None:
    trace, cluster = three_jobs(), Cluster.uniform(3)
    plain = [played(trace, given, cluster, preemption="false").digest() for given in ([1, 0, 2], [0, 0, 0])]
    assert plain[0] == plain[1]


def test_a_gang_ends_nobody_unless_it_runs_whole() -> None:
    """Three tasks at once on two machines that lower priority has, and one that higher priority has."""
    trace = trace_of("gang", [0, 0, SECOND], [[10 * SECOND] * 2, [10 * SECOND], [SECOND] * 3])
    records = played(trace, [0, 2, 1], Cluster.uniform(3), gang="true", retry_s="1")
    assert not records.preemptions
    larger = played(trace, [0, 0, 1], Cluster.uniform(3), gang="true", retry_s="1")
    assert {one.task for one in larger.preemptions} == {0, 1, 2}
    assert starts(larger)[3:] == [1, 1, 1]


@pytest.mark.parametrize("given", [{}, {"conflicts": "coarse", "gang": "true"}, {"reliable": "true"}])
def test_no_task_is_lost_and_no_machine_overfull_whatever_the_priorities(given: dict[str, str]) -> None:
    """On clusters that are too small for their load, with priorities drawn, with and without amounts."""
    parameters = {**GIVEN, "batch_schedulers": "2", "service": "user:a", "retry_s": "5", **given}
    design = msgspec.structs.replace(OMEGA, defaults=configure(OMEGA, parameters))
    lost = 0
    for case in [*rich_cases(3, AS_NEAR), *busy_cases(4, vectors=True), *edge_cases(5)]:
        draw = Streams(case.seed).of("priorities")
        priority = array("q", [draw.randrange(4) for _ in range(case.trace.job_count)])
        drawn = msgspec.structs.replace(case, trace=msgspec.structs.replace(case.trace, priority=priority))
        records = run(design, drawn, options=Options(check=True))
        if "gang" not in given:  # a gang that no empty cell holds is refused
            demand_all_finished(drawn, records)
        demand_capacity(drawn, records)
        demand_constraints(drawn, records)
        lost += len(records.preemptions)
    assert lost > 10
