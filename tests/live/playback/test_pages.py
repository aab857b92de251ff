"""A recording on the live page says, at every moment, what the records of its run say of that moment."""

from __future__ import annotations

import asyncio
import html
import re
from array import array
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.live.bench import LIMIT_S
from tests.live.playback.shown import showing
from tests.live.runtime.test_replay import record

from volery import architectures, sim
from volery.core.model import Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.live.service.rows import JobOrder, JobQuery
from volery.playback import snapshot
from volery.playback.recording import Recording
from volery.playback.run_log import source_of
from volery.playback.server import playback_app
from volery.playback.snapshot import at
from volery.playback.traced_runs import TimeRange, demonstration, trace_journals
from volery.playback.tracer import Tracer
from volery.workload import synthesize

EVIL = "<script>alert(1)</script>\"'&\u202e" + "x" * 10_000
SECOND = 1_000_000
USERS = ("ada", EVIL, "bob")


def recorded(name: str = "megha", **parameters: object) -> tuple[Records, Recording]:
    """A run of tasks with constraints, two of them beyond any machine."""
    trace = synthesize("syn:12x30")
    constraints = array("q", [1 if task % 5 == 0 else 2 if task in (7, 8) else 0 for task in range(trace.task_count)])
    trace = msgspec.structs.replace(
        trace, constraints=constraints, user=tuple(USERS[job % 3] for job in range(trace.job_count))
    )
    cluster = Cluster(tuple(machine % 2 for machine in range(10)), (1,) * 10)
    entry = architectures.lookup(name)
    deployment = entry.build(cluster, architectures.configure(entry, parameters), Streams(0))
    tracer = Tracer(0, 60 * SECOND, cluster.slots, deployment.machines, entry.captions())
    records = sim.simulate(tracer.on(deployment), trace, cluster)
    return records, Recording(tracer.log(), source_of("run", "10 machines", cluster, deployment))


RECORDS, RECORDING = recorded("megha", gms=3, lms=3, why=True)
TRACE: Trace = RECORDS.trace
MOMENTS = (0, 400_000, 3 * SECOND + 200_001, 11 * SECOND, 29_500_000, 60 * SECOND)


@pytest.mark.parametrize("now", MOMENTS)
def test_every_count_is_that_of_the_records(now: int) -> None:
    snapshot = at(RECORDING, now)
    spans = list(zip(RECORDS.start_us, RECORDS.finish_us, strict=True))
    running = [task for task, (start, end) in enumerate(spans) if 0 <= start <= now < end]
    finished = [task for task, (start, end) in enumerate(spans) if start >= 0 and end <= now]
    waited = [
        start - TRACE.arrival_us[job]
        for job, (start, _) in zip(TRACE.job_of_task(), spans, strict=True)
        if 0 <= start <= now
    ]
    assert sorted(snapshot.allocations_us(1_000)) == sorted(waited)
    nodes = snapshot.nodes()
    assert sum(node.running for node in nodes) == len(running)
    assert {node.address for node in nodes if node.running} == {f"node/{RECORDS.worker[task]}" for task in running}
    assert snapshot.reports_by_state["finished"] == len(finished)
    arrived = [job for job in range(TRACE.job_count) if TRACE.arrival_us[job] <= now]
    listed = snapshot.jobs(JobQuery(), 1_000, JobOrder("id", falling=False))
    assert [job.id for job in listed] == arrived
    for job in listed:
        members = range(TRACE.first[job.id], TRACE.first[job.id + 1])
        assert (job.tasks, job.running) == (len(members), sum(task in members for task in running))
        assert job.finished == sum(task in members for task in finished)
        assert job.unsatisfiable == sum(task in (7, 8) for task in members)
        assert (job.state == "done") == (0 <= RECORDS.answered_us[job.id] <= now)
        tasks = snapshot.tasks(job.id, 0, 1_000)
        assert [task.index for task in tasks if task.state == "running"] == [
            t - members[0] for t in running if t in members
        ]
        assert snapshot.job(job.id) == job
    loads = {load.user: load for load in snapshot.loads()}
    assert sum(load.tasks_running for load in loads.values()) == len(running)
    assert snapshot.job(len(arrived)) is None, "nobody has heard of it yet"


def test_jobs_are_filtered_and_sorted_as_a_desk_does() -> None:
    snapshot = at(RECORDING, 11 * SECOND)
    every = snapshot.jobs(JobQuery(), 1_000)
    assert [job.id for job in every] == sorted((job.id for job in every), reverse=True)
    of_bob = snapshot.jobs(JobQuery(user="bob"), 1_000)
    assert [job.id for job in of_bob] == [job.id for job in every if job.user == "bob"]
    assert snapshot.jobs(JobQuery(user="nobody"), 10) == []
    assert {job.state for job in snapshot.jobs(JobQuery(state="running"), 1_000)} <= {"running"}
    assert [job.id for job in snapshot.jobs(JobQuery(reason="constraint"), 10)] == [0]
    for key in ("tasks", "user", "state", "submitted_us", "ended_us", "reason"):
        ranked = [
            getattr(job, key) or 0 if key == "ended_us" else getattr(job, key)
            for job in snapshot.jobs(JobQuery(), 1_000, JobOrder(key, falling=False))
        ]
        assert ranked == sorted(ranked)
    assert snapshot.jobs(JobQuery(), 2, JobOrder("id", falling=True, skip=1)) == every[1:3]


def test_why_is_as_it_was_then(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = next(noted for noted in RECORDING.log.decided.of_task.values() if noted[0].decision.chosen == "queued")
    task = waited[0].decision.task
    job = waited[0].decision.job
    place = task - TRACE.first[job]

    def why(now: int) -> tuple[str, list[str], int]:
        found = asyncio.run(at(RECORDING, now).explain(job, place))
        assert found is not None
        free = next(step.machines for step in found.funnel if step.demand == "have a free slot now")
        return found.state, [step.chosen for step in found.decisions], free

    now = RECORDS.start_us[task] - 1
    state, decided, free = why(now)
    assert (state, decided[0]) == ("pending", "queued")
    taken = {RECORDS.worker[t] for t, end in enumerate(RECORDS.finish_us) if 0 <= RECORDS.start_us[t] <= now < end}
    suits = {machine for machine in range(10) if not TRACE.constraints[task] & ~(machine % 2)}
    assert free == len(suits - taken)
    state, later, _ = why(RECORDS.start_us[task])
    assert state == "running"
    assert later[-1] == "placed"
    pairs = at(RECORDING, 60 * SECOND).views()
    assert sum(pair.refused for pair in pairs) == RECORDS.counters["inconsistencies"]
    assert sum(pair.decisions for pair in at(RECORDING, 0).views()) < sum(pair.decisions for pair in pairs)
    assert [(pair.recent, pair.recent_refused) for pair in pairs] == [(p.decisions, p.refused) for p in pairs]
    assert all(pair.recent_view_age_us == pair.view_age_us for pair in pairs if pair.recent)
    monkeypatch.setattr(snapshot, "RECENT_US", 2 * SECOND)
    assert 0 < sum(pair.recent for pair in at(RECORDING, 20 * SECOND).views()) < sum(pair.decisions for pair in pairs)


PATHS = (
    "/",
    "/dashboard/jobs",
    "/dashboard/jobs/1",
    "/dashboard/jobs/1/tasks/2",
    "/dashboard/nodes",
    "/dashboard/nodes/node/3",
    "/dashboard/users",
    "/dashboard/preemptions",
)


def test_pages_are_of_their_moment_take_no_orders_and_hold_nothing_hostile() -> None:
    traced = demonstration()
    with (
        showing(playback_app(Recording(traced.log, traced.source))) as url,
        httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http,
    ):
        for path in PATHS:
            answer = http.get(path, params={"at": "3.1"})
            assert answer.status_code == 200, path
            assert "recorded</span>" in answer.text
            assert 'value="3.1"' in answer.text
            assert "data-order" not in answer.text
            assert "data-pulse" not in answer.text
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert http.post(path).status_code == 405
        assert http.get("/dashboard/jobs/5", params={"at": "5.9"}).status_code == 404, "it comes at 6 s"
        assert http.get("/dashboard/jobs/5", params={"at": "6"}).status_code == 200
        assert re.search(
            r"<td[^>]*>6\.000 s|<time>6\.000 s</time>", http.get("/dashboard/jobs", params={"at": "6"}).text
        )
        for wrong in ("x", "nan", "inf", "1e99", "9" * 100):
            assert http.get("/", params={"at": wrong}).status_code == 422
        assert http.get("/", params={"at": "-5"}).status_code == http.get("/", params={"at": "1e9"}).status_code == 200
        assert http.get("/nothing").status_code == 404
        assert http.get("/", headers={"host": "elsewhere.example"}).status_code == 400
        assert '"node/4",1,1,0,0,1' in html.unescape(http.get("/", params={"at": "7"}).text), "it has crashed"
        assert '"node/4",1,1,0,0,0' in html.unescape(http.get("/", params={"at": "9.6"}).text), "it is back"
        assert "gm/0" in http.get("/", params={"at": "2.95", "view": "gm/0"}).text


def test_hostile_names_are_text() -> None:
    with (
        showing(playback_app(RECORDING)) as url,
        httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http,
    ):
        for path in (
            "/",
            "/dashboard/jobs",
            "/dashboard/jobs/1",
            "/dashboard/users",
            f"/dashboard/jobs?user={EVIL[:40]}",
            f"/?view={EVIL[:40]}",
        ):
            page = http.get(path + ("&" if "?" in path else "?") + "at=11").text
            assert "<script>" not in page
            assert "\u202e" not in page
        assert "&lt;script&gt;" in http.get("/dashboard/jobs?at=11").text


def test_journals_are_shown_by_the_calendar(tmp_path: Path) -> None:
    record("megha", tmp_path, split=True)
    paths = sorted(tmp_path.glob("*.journal"))
    traced = trace_journals(paths)
    log = traced.log
    with (
        showing(playback_app(Recording(log, traced.source))) as url,
        httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http,
    ):
        end = log.end_us / SECOND
        page = http.get("/dashboard/jobs", params={"at": f"{end}"}).text
        ended = re.findall(r'class="state (done|failed|cancelled)"', page)
        assert len(ended) == len(log.jobs) > 0
        assert re.search(r'<time datetime="20\d\d-', page)
    half = (log.begin_us + log.end_us) / 2 / SECOND
    part = trace_journals(paths, TimeRange(end_s=half)).log
    assert part.end_us == round(half * SECOND)
    assert 0 < len(part.attempts["task"]) <= len(log.attempts["task"])
    assert all(job.submitted_us <= part.end_us for job in part.jobs)
