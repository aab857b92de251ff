"""A tracer records messages, queues and errors of views, and changes nothing."""

from __future__ import annotations

import pytest

from volery import architectures, sim
from volery.core.component import Deployment
from volery.core.model import Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.playback.run_log import FINISHED, KILLED, RunLog
from volery.playback.tracer import FLIGHTS_PER_KIND, Tracer
from volery.sim.faults import Crash, FaultPlan
from volery.workload import synthesize

WORKERS, WORK = 40, "syn:12x30"


def driven(name: str, *, tracer: bool = True) -> tuple[Records, RunLog | None]:
    cluster, trace, entry = Cluster.uniform(WORKERS), synthesize(WORK), architectures.lookup(name)
    deployment: Deployment = entry.build(cluster, entry.defaults, Streams(0))
    one = Tracer(0, 60_000_000, cluster.slots, deployment.machines)
    if tracer:
        one.watch(deployment.components)
    return sim.simulate(deployment, trace, cluster), one.log() if tracer else None


@pytest.mark.parametrize("name", ["megha", "pigeon", "sparrow", "oracle"])
def test_a_run_is_the_same_under_a_tracer_and_every_task_is_seen(name: str) -> None:
    plain, _ = driven(name, tracer=False)
    records, log = driven(name)
    assert records.digest() == plain.digest()
    assert log is not None
    assert sorted(log.attempts["task"]) == list(range(360))
    assert list(log.attempts["start_us"]) == [records.start_us[task] for task in log.attempts["task"]]
    assert list(log.attempts["machine"]) == [records.worker[task] for task in log.attempts["task"]]


def test_counts_are_of_all_messages_and_flights_are_few_of_each_kind() -> None:
    records, log = driven("megha")
    assert log is not None
    counts = dict(zip(log.kinds, map(sum, log.sent), strict=True))
    assert counts["Launch"] == counts["Completed"] == 360
    assert counts["JobDone"] == counts["JobAccepted"] == 30
    assert sum(log.facts["inconsistencies"]) == records.counters["inconsistencies"] > 0
    shown = [(one.sent_us // log.step_us, one.kind) for one in log.flights]
    assert max(map(shown.count, shown)) == FLIGHTS_PER_KIND
    assert {one.received_us - one.sent_us for one in log.flights} == {0, 500}
    assert log.meanings[log.kinds.index("Refusal")].startswith("LM > GM: these placements were invalid")


def test_queues_are_empty_at_the_end_and_were_as_long_as_the_design_says() -> None:
    records, log = driven("megha")
    assert log is not None
    waiting = {role.name: role.waiting for role in log.roles}
    assert waiting["gm"][-1] == waiting["lm"][-1] == waiting["node"][-1] == 0
    assert max(waiting["gm"]) >= max(1, records.tallies["queued_tasks"].largest)


def test_views_are_wrong_while_news_is_under_way_and_true_in_the_end() -> None:
    _, log = driven("megha")
    assert log is not None
    assert log.views
    for one in log.views:
        assert max(one.free) > 0
        assert (one.free[-1], one.taken[-1], one.wrong[-1]) == (0, 0, [])
        assert [sum(free for _, free, _ in wrong) for wrong in one.wrong] == one.free
    assert any("inconsistencies" in what for _, what in log.moments)
    _, silent = driven("pigeon")
    assert silent is not None
    assert silent.views == []


def test_a_part_of_a_run_shows_that_part_and_knows_what_was_before() -> None:
    cluster, trace, entry = Cluster.uniform(WORKERS), synthesize(WORK), architectures.lookup("megha")

    def log(begin_us: int, end_us: int, *, part: bool) -> RunLog:
        deployment = entry.build(cluster, entry.defaults, Streams(0))
        tracer = Tracer(begin_us, end_us, cluster.slots, deployment.machines, part=part)
        sim.simulate(tracer.on(deployment), trace, cluster)
        return tracer.log()

    whole, part = log(0, 60_000_000, part=False), log(5_500_000, 9_700_000, part=True)
    assert (part.begin_us, part.end_us) == (5_500_000, 9_700_000)
    assert all(5_500_000 <= at_us <= 9_700_000 for at_us, _ in part.moments)
    launches = {name: sum(one.sent[one.kinds.index("Launch")]) for name, one in (("whole", whole), ("part", part))}
    assert launches == {"whole": 360, "part": 48}, "four jobs come in it"
    before = [start for start in whole.attempts["start_us"] if start <= 9_700_000]
    assert sorted(part.attempts["start_us"]) == sorted(before), "those of before are known"
    assert [job.id for job in part.jobs] == list(range(10))


def test_a_crash_ends_what_ran_there_and_the_next_incarnation_is_traced_too() -> None:
    entry, cluster, trace = architectures.lookup("megha"), Cluster.uniform(6), synthesize("syn:4x6")
    parameters = {"gms": 1, "lms": 1, "reliable": True, "detection_s": 0.2}
    deployment = entry.build(cluster, architectures.configure(entry, parameters), Streams(0))
    tracer = Tracer(0, 20_000_000, cluster.slots, deployment.machines, crashes=((2_300_000, "node/1"),))
    deployment = tracer.on(deployment)
    plan = FaultPlan(crashes=(Crash(2_300_000, "node/1", 4_100_000),))
    records = sim.simulate(deployment, trace, cluster, options=sim.Options(plan=plan))
    found = tracer.log()
    assert [(at_us, gone) for at_us, _, gone in found.crashed] == [(2_300_000, True), (4_100_000, False)]
    ended = list(zip(found.attempts["task"], found.attempts["finish_us"], found.attempts["outcome"], strict=True))
    died = [(task, end) for task, end, outcome in ended if outcome == KILLED]
    assert died == [(one.task, 2_300_000) for one in records.lost], "and nothing else"
    assert sorted(task for task, _, outcome in ended if outcome == FINISHED) == list(range(24))
    later = [
        start
        for start, machine in zip(found.attempts["start_us"], found.attempts["machine"], strict=True)
        if machine == 1 and start > 4_100_000
    ]
    assert later, "it runs tasks again, and that is seen"
    assert any("node/1 is restarted" in what for _, what in found.moments)
