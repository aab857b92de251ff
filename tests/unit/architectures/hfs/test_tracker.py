"""The job tracker: events in, launches and kills out; and whole runs of it beside what the paper says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, messages, tasks
from tests.unit.effects import TimerSet

from volery import theory
from volery.architectures import configure, lookup
from volery.architectures.hfs.tracker import Heartbeat
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, Submit, TimerFired
from volery.core.model import SECOND, Cluster, Job
from volery.core.records import Records
from volery.core.streams import Streams
from volery.metrics import locality_summary
from volery.roles.node import Completed, Kill, Launch
from volery.sim import simulate
from volery.workload import load_cluster, load_trace

CLUSTER = Cluster.uniform(4)


def job(number: int, *held: tuple[int, ...], user: str = "") -> Submit:
    """A job with a task per entry, whose input lies on those machines."""
    made = tasks(number, *[0] * len(held))
    return Submit(Job(number, len(made), made, 0, user, replicas=held))


def beat(*ended: tuple[int, int, bool]) -> Heartbeat:
    return Heartbeat(tuple(Completed(task, attempt, not finished) for task, attempt, finished in ended))


def launched_on(effects: list[Any]) -> list[tuple[str, int]]:
    return [(to, message.task.id) for to, message in messages(effects, Launch)]


def test_a_job_goes_where_its_input_lies_and_waits_for_it() -> None:
    alone = Alone("hfs", "jobtracker/0", CLUSTER, node_wait_s=5.0)
    assert launched_on(alone.hear(job(0, (2,), (3,)))) == [("node/2", 0), ("node/3", 1)]
    effects = alone.hear(job(1, (2,)), now=1)
    assert launched_on(effects) == [], "two machines are free, neither holds its input"
    assert any(isinstance(effect, TimerSet) for effect in effects), "it waits for the next heartbeat of a free machine"
    assert launched_on(alone.hear(beat((0, 0, True)), "node/2", SECOND)) == [("node/2", 100)]


def test_after_its_wait_a_job_takes_what_there_is_at_the_next_heartbeat() -> None:
    alone = Alone("hfs", "jobtracker/0", CLUSTER, node_wait_s=5.0, heartbeat_s=4.0)
    alone.hear(job(0, (2,)))
    (timer,) = [effect for effect in alone.hear(job(1, (2,)), now=1) if isinstance(effect, TimerSet)]
    launched: list[tuple[str, int]] = []
    now = timer.at
    while not launched:
        assert now <= 7 * SECOND, "5 s, and at most one heartbeat of three free machines"
        effects = alone.hear(TimerFired("heartbeat"), "jobtracker/0", now)
        launched = launched_on(effects)
        assert not launched or now >= 5 * SECOND
        now = next((effect.at for effect in effects if isinstance(effect, TimerSet)), now)
    assert launched[0][1] == 100
    assert launched[0][0] != "node/2"


def test_a_night_without_jobs_does_not_make_offers_look_rare() -> None:
    """The wait of `delay=rates` is worth it where offers come often while jobs wait; none is made while none waits."""
    alone = Alone("hfs", "jobtracker/0", CLUSTER, delay="rates", node_wait_s=5.0)
    alone.hear(job(0, (2,), (3,)))
    alone.hear(beat((1, 0, True)), "node/3", 36_000 * SECOND)
    assert launched_on(alone.hear(job(1, (2,)), now=72_000 * SECOND)) == [], "it waits for the machine with its input"


def test_another_job_goes_first_meanwhile() -> None:
    two = Cluster.uniform(2)
    alone = Alone("hfs", "jobtracker/0", two, delay="skips", node_skips=2, rack_skips=0)
    alone.hear(job(0, (0,), (1,)))
    alone.hear(job(1, (1,)))
    alone.hear(job(2, (0,)))
    assert launched_on(alone.hear(beat((0, 0, True)), "node/0", 5)) == [("node/0", 200)], "job 1 lets job 2 go first"
    assert alone.facts(beat((0, 0, True)), "node/0", 6) == {}, "a repeated heartbeat says nothing"


def test_per_heartbeat_bounds_launches() -> None:
    alone = Alone("hfs", "jobtracker/0", Cluster.uniform(1, 3), per_heartbeat=1)
    assert len(launched_on(alone.hear(job(0, (), (), ())))) == 1
    assert len(launched_on(alone.hear(TimerFired("heartbeat"), "jobtracker/0", 3 * SECOND))) == 1


def test_a_cancelled_job_is_dropped_and_killed() -> None:
    alone = Alone("hfs", "jobtracker/0", Cluster.uniform(1))
    alone.hear(job(0, (0,), (0,)))
    assert messages(alone.hear(Cancel(0)), Kill) == [("node/0", Kill(0, 0))]
    assert messages(alone.hear(beat((0, 0, False)), "node/0", 9), JobDone) == [("submitter", JobDone(0))]


def test_a_pool_below_its_minimum_share_kills_the_newest_task_of_another() -> None:
    alone = Alone(
        "hfs",
        "jobtracker/0",
        Cluster.uniform(3),
        delay="off",
        min_shares="ann:1",
        min_share_timeout_s=2.0,
        update_s=0.5,
    )
    alone.hear(job(0, (), (), (), user="bob"))
    alone.hear(job(1, (), user="ann"), now=SECOND)
    look = TimerFired("shares")
    assert messages(alone.hear(look, "jobtracker/0", SECOND + SECOND // 2), Kill) == []
    ((to, kill),) = messages(alone.hear(look, "jobtracker/0", 4 * SECOND), Kill)
    assert kill == Kill(2, 0), "the newest"
    assert messages(alone.hear(look, "jobtracker/0", 8 * SECOND), Kill) == [], "what dies for it is not asked again"
    effects = alone.hear(beat((2, 0, False)), to, 9 * SECOND)
    assert launched_on(effects) == [(to, 100)], "below its minimum share, ann comes first"
    effects = alone.hear(beat((100, 0, True)), to, 10 * SECOND)
    assert messages(effects, Launch)[0][1].attempt == 1, "what was killed runs again, as another attempt"


@pytest.mark.parametrize(
    ("parameter", "match"),
    [({"heartbeat_s": 1e-6}, "not fit"), ({"min_shares": "a:1(b:1)"}, "tree"), ({"shares": "a:x"}, "not a weight")],
)
def test_what_cannot_be_is_refused(parameter: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Alone("hfs", "jobtracker/0", CLUSTER, **parameter)


def ran(spec: str, **parameters: Any) -> tuple[Records, float]:
    """A run on 100 machines, and the share of tasks that ran where their input lies."""
    hfs, trace, cluster = lookup("hfs"), load_trace(spec), load_cluster(100)
    records = simulate(hfs.build(cluster, configure(hfs, parameters), Streams(0)), trace, cluster)
    found = locality_summary(records, cluster)
    assert found is not None
    return records, found.node


def test_delay_brings_locality_back_where_fair_sharing_is_stuck() -> None:
    """Sticky slots (section 3.2), and what skips do for them; the wait stays within D T / S (section 3.4)."""
    spec = "hdfs:400x20,gap=0,workers=100"
    _, naive = ran(spec, delay="off")
    assert naive < 0.2
    assert naive == pytest.approx(theory.sticky_locality(20, 3, 1), abs=0.03)
    records, delayed = ran(spec, delay="skips", node_skips=25, rack_skips=0)
    assert delayed >= 0.95
    waits = records.tallies["locality_wait_us"]
    assert 0 < waits.total / waits.count < theory.delay_wait(25, 60 * SECOND, 100)
    _, timed = ran(spec, node_wait_s=15.0)
    assert timed >= 0.95


def test_runs_on_work_without_input_are_those_of_plain_fair_sharing() -> None:
    trace, cluster, hfs = load_trace("poisson:load=0.9,workers=50,jobs=200"), load_cluster(50), lookup("hfs")
    digests = {
        simulate(hfs.build(cluster, configure(hfs, {"delay": kind}), Streams(0)), trace, cluster).digest()
        for kind in ("time", "off")
    }
    assert len(digests) == 1
