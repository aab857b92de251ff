"""Gangs of a Global Master: two phases, the line, patience; and runs in which gangs contend or masters crash."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest
from tests.unit.architectures.megha.words import news
from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures import configure, lookup
from volery.architectures.megha.gangs import scheduler
from volery.architectures.megha.gangs.messages import (
    CommitRequest,
    MembersReleased,
    PrepareRequest,
    PrepareVote,
    ReleaseRequest,
)
from volery.architectures.megha.gangs.scheduler import GANGS, PATIENCE
from volery.architectures.megha.messages import Request
from volery.conformance.cases import trace_of
from volery.core.capabilities import GangPlacement
from volery.core.errors import InputError
from volery.core.events import GANG_TASKS_REFUSED, Cancel, JobDone, Submit, TimerFired
from volery.core.gangs import with_gangs
from volery.core.model import NEVER, SECOND, Cluster, Gang
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import NO_GANG, Trace
from volery.faults.judge import attempts_of, parts_of_gangs
from volery.sim import Network, Options, simulate
from volery.sim.faults import Crash, FaultPlan
from volery.sim.kernel import Kernel

PERIOD_US = 5 * SECOND


def gm(machines: int = 4) -> Alone:
    """gm/0 of one, with two Local Masters: partition 0 is lm/0's, partition 1 lm/1's."""
    return Alone("megha", "gm/0", Cluster.uniform(machines), gms=1, lms=2)


def gang(job: int, size: int, shape: Gang | None = None) -> Submit:
    """A gang of tasks without constraints."""
    plain = submit(job, *(0,) * size)
    return Submit(msgspec.structs.replace(plain.job, gang=shape or Gang()))


def prepared(effects: list[Any]) -> list[tuple[str, int, tuple[int, ...], bool]]:
    """Local Master, number, positions and patience of each request."""
    return [(to, one.number, one.positions, one.is_patient) for to, one in messages(effects, PrepareRequest)]


def test_all_members_are_prepared_at_once_and_committed_when_all_have_voted() -> None:
    master = gm()
    effects = master.hear(gang(1, 3))
    assert prepared(effects) == [("lm/0", 1, (0, 1), False), ("lm/1", 1, (0,), False)]
    assert not [one for _, one in messages(effects, Request) if type(one) is Request]
    assert not messages(master.hear(PrepareVote(1, 1), "lm/1"), CommitRequest), "lm/0 has not voted"
    assert not messages(master.hear(PrepareVote(1, 1), "lm/1"), CommitRequest), "a repeat is one vote"
    commits = messages(master.hear(PrepareVote(1, 1), "lm/0"), CommitRequest)
    assert commits == [("lm/0", CommitRequest((1,))), ("lm/1", CommitRequest((1,)))]


def test_one_refusal_releases_what_others_have_reserved_and_it_is_tried_again_when_all_is_back() -> None:
    master = gm()
    master.hear(gang(1, 4))
    master.hear(PrepareVote(1, 1), "lm/0")
    effects = master.hear(MembersReleased((102, 103), news(1, {1: (0b10, 0)})), "lm/1")
    assert messages(effects, ReleaseRequest) == [("lm/0", ReleaseRequest((100, 101), (0, 0)))]
    assert not prepared(effects)
    effects = master.hear(MembersReleased((100, 101), news(1, {0: (0b11, 0)})), "lm/0")
    assert not prepared(effects), "three units are free in the view, and it has four members"
    effects = master.hear(news(2, {1: (0b01, 0)}), "lm/1")
    assert prepared(effects) == [("lm/0", 2, (0, 1), False), ("lm/1", 2, (0, 1), False)]
    assert not messages(master.hear(PrepareVote(1, 1), "lm/0"), CommitRequest), "a vote on what was released"


def test_a_gang_that_waits_holds_nothing_and_others_pass_it() -> None:
    master = gm()
    master.hear(submit(1, 0))
    assert not prepared(master.hear(gang(2, 4)))
    assert len(messages(master.hear(submit(3, 0)), Request)) == 1
    assert prepared(master.hear(gang(4, 2)))


def test_machines_are_kept_for_the_oldest_gang_after_some_heartbeats() -> None:
    master = gm()
    master.hear(submit(1, 0))
    master.hear(gang(2, 4), now=1)
    master.hear(gang(3, 4), now=2)
    for beat in range(1, PATIENCE):
        assert not prepared(master.hear(TimerFired(GANGS), "gm/0", beat * PERIOD_US + 1))
    effects = master.hear(TimerFired(GANGS), "gm/0", PATIENCE * PERIOD_US + 1)
    assert prepared(effects) == [("lm/0", 2, (0, 1), True), ("lm/1", 1, (0, 1), True)]
    assert {one.tasks[0].job for _, one in messages(effects, PrepareRequest)} == {2}

    effects = master.hear(TimerFired(GANGS), "gm/0", (PATIENCE + 1) * PERIOD_US + 1)
    assert prepared(effects) == [("lm/0", 2, (0, 1), True), ("lm/1", 1, (0, 1), True)], "repeats renew the lease"


def test_a_machine_that_cannot_be_waited_for_is_avoided() -> None:
    master = gm(5)
    master.hear(gang(1, 5), now=0)
    master.hear(PrepareVote(1, 1), "lm/0"), master.hear(PrepareVote(1, 1), "lm/1")
    master.hear(gang(2, 4), now=0)
    (first, *_) = messages(master.hear(TimerFired(GANGS), "gm/0", PATIENCE * PERIOD_US), PrepareRequest)
    members = tuple(task.id for task in first[1].tasks)
    update = news(1, {})
    master.hear(MembersReleased(members, update, unusable_tasks=members[:1]), first[0])
    (other,) = [to for to in ("lm/0", "lm/1") if to != first[0]]
    left = tuple({200, 201, 202, 203} - set(members))
    master.hear(MembersReleased(left, update), other)
    again = messages(master.hear(TimerFired(GANGS), "gm/0", (PATIENCE + 1) * PERIOD_US), PrepareRequest)
    places = {(to, position) for to, one in again for position in one.positions}
    assert len(places) == 4
    assert (first[0], first[1].positions[0]) not in places


def test_a_gang_that_the_empty_cluster_cannot_hold_is_reported() -> None:
    master = gm()
    assert master.facts(gang(1, 5))[GANG_TASKS_REFUSED] == 5
    assert messages(gm().hear(gang(2, 3, Gang(1, 3))), JobDone) == [("submitter", JobDone(2, 3))], "no machine holds 3"


def test_a_gang_is_cancelled_while_it_waits_and_while_it_prepares() -> None:
    master = gm()
    master.hear(gang(1, 4))
    master.hear(gang(2, 4))
    assert messages(master.hear(Cancel(2)), JobDone) == [("submitter", JobDone(2))]
    assert not messages(master.hear(Cancel(1)), JobDone)
    master.hear(MembersReleased((100, 101), news(1, {0: (0b11, 0)})), "lm/0")
    effects = master.hear(MembersReleased((102, 103), news(1, {1: (0b11, 0)})), "lm/1")
    assert messages(effects, JobDone) == [("submitter", JobDone(1))]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("megha", {"shares": "a:1+b:1"}),
        ("megha", {"launch": "synchronous"}),
        ("megha", {"reliable": "true", "recovery": "paper"}),
        ("megha-2021-printed", {}),
    ],
)
def test_forms_that_start_tasks_one_by_one_refuse_gangs(name: str, parameters: dict[str, str]) -> None:
    entry, cluster = lookup(name), Cluster.uniform(8)
    deployment = entry.build(cluster, configure(entry, {"gms": "2", "lms": "2", **parameters}), Streams(0))
    assert deployment.capability(GangPlacement) is None
    trace = with_gangs(trace_of("gang", [0], [[SECOND] * 2]), [0])
    with pytest.raises(InputError, match="gangs"):
        simulate(deployment, trace, cluster)


# Runs.


def played(trace: Trace, cluster: Cluster, name: str = "megha", seed: int = 0, **parameters: str) -> Records:
    entry = lookup(name)
    deployment = entry.build(cluster, configure(entry, {"gms": "3", "lms": "3", **parameters}), Streams(seed))
    return simulate(deployment, trace, cluster, seed=seed, options=Options(check=True))


def starts_of(records: Records, job: int) -> set[int]:
    return set(records.start_us[records.trace.first[job] : records.trace.first[job + 1]])


@pytest.mark.parametrize("name", ["megha", "megha-2021"])
def test_gangs_as_wide_as_the_cluster_at_all_masters_run_one_after_another(name: str) -> None:
    """Each wants what the others have begun to take: none waits for ever, and none is held."""
    count = 9
    trace = with_gangs(trace_of("wide", [0] * count, [[SECOND] * 12] * count), [0] * count)
    records = played(trace, Cluster.uniform(12), name)
    starts = sorted(min(starts_of(records, job)) for job in range(count))
    assert all(len(starts_of(records, job)) == 1 for job in range(count))
    assert NEVER not in starts
    assert not records.held_us
    assert starts[-1] < 150 * SECOND


def _stream_with_a_wide_gang() -> Trace:
    """Single tasks that alone keep the cluster busy for a minute, and a gang of half of it after five seconds."""
    arrivals = [job * SECOND // 5 for job in range(300)]
    jobs = [[3 * SECOND] * (6 if job == 25 else 1) for job in range(300)]
    nodes = [0 if job == 25 else NO_GANG for job in range(300)]
    return with_gangs(trace_of("stream", arrivals, jobs), nodes)


def test_a_stream_of_single_tasks_starves_no_wide_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, cluster = _stream_with_a_wide_gang(), Cluster.uniform(12)
    (wide,) = [job for job, nodes in enumerate(trace.gang_nodes) if nodes != NO_GANG]
    (start_us,) = starts_of(played(trace, cluster), wide)
    assert start_us <= 5 * SECOND + (PATIENCE + 3) * PERIOD_US, "heartbeats, the tasks that run then, and a look"

    monkeypatch.setattr(scheduler, "PATIENCE", 1_000_000)
    (starved_us,) = starts_of(played(trace, cluster), wide)
    assert starved_us > 58 * SECOND, "without patience it waits for the end of the stream"


def test_members_of_a_shape_lie_on_its_machines() -> None:
    trace = with_gangs(trace_of("shapes", [0, 0, 0], [[SECOND] * 6, [SECOND] * 3, [SECOND] * 9]), [2, 3, 3])
    records = played(trace, Cluster.uniform(9, slots=3))
    for job, nodes in enumerate((2, 3, 3)):
        members = range(trace.first[job], trace.first[job + 1])
        assert len({records.worker[task] for task in members}) == nodes


def test_urgent_gangs_come_first_where_priorities_count() -> None:
    trace = with_gangs(trace_of("urgent", [0, 1, 2], [[SECOND] * 9] * 3), [0] * 3)
    trace = msgspec.structs.replace(trace, priority=array("q", [0, 0, 5]))
    records = played(trace, Cluster.uniform(9), gms="1", order="priority")
    assert min(starts_of(records, 2)) < min(starts_of(records, 1))


BETWEEN_US = range(0, 2_600, 200)
"""Moments after the submission: requests, votes, commits, runs and the start are 500 us apart."""


@pytest.mark.parametrize("address", ["gm/0", "lm/0", "lm/1", "lm/1/standby", "node/0", "node/7"])
@pytest.mark.parametrize("name", ["megha", "megha-2021"])
def test_a_crash_at_any_point_leaves_no_gang_in_parts(name: str, address: str) -> None:
    entry, cluster = lookup(name), Cluster.uniform(8)
    trace = with_gangs(trace_of("gangs", [SECOND, SECOND], [[10 * SECOND] * 6] * 2), [0, 0])
    parameters = {"reliable": "true", "gms": "2", "lms": "2", "heartbeat_s": "1"}
    for after_us in BETWEEN_US:
        crash = Crash(SECOND + after_us, address, 20 * SECOND)
        plan = FaultPlan(crashes=(crash,), deadline_us=3_600 * SECOND)
        deployment = entry.build(cluster, configure(entry, parameters), Streams(3))
        kernel = Kernel(deployment, trace, cluster, Network(), 3, Options(check=True, plan=plan))
        records = kernel.run(None)
        kernel.check_rest()
        assert not list(parts_of_gangs(attempts_of(records), trace)), f"{after_us} us after the submission"
        whole = [attempt for attempts in attempts_of(records).values() for attempt in attempts if attempt.whole]
        assert len(whole) == trace.task_count, f"{after_us} us after the submission: each task runs to its end once"


def test_what_a_master_has_reserved_is_free_when_it_does_not_come_back() -> None:
    """gm/0 crashes between request and commit; a gang of gm/1 that needs all machines starts when the lease is over."""
    entry, cluster = lookup("megha"), Cluster.uniform(8)
    trace = with_gangs(trace_of("gangs", [SECOND, 2 * SECOND], [[SECOND] * 6, [SECOND] * 8]), [0, 0])
    parameters = {"reliable": "true", "gms": "2", "lms": "2", "heartbeat_s": "1"}
    plan = FaultPlan(crashes=(Crash(SECOND + 700, "gm/0", 600 * SECOND),), deadline_us=3_600 * SECOND)
    deployment = entry.build(cluster, configure(entry, parameters), Streams(3))
    records = Kernel(deployment, trace, cluster, Network(), 3, Options(check=True, plan=plan)).run(None)
    assert max(records.start_us[6:]) < 12 * SECOND
