"""Requests that take seconds of a processor keep nobody else waiting; what is too much is refused, with its place."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.loopback import loopback

from volery.architectures import choose
from volery.core.errors import PLACE_MAX, InputError, suggestion
from volery.live import clock, jobs
from volery.live.assembly import running
from volery.live.config.federation import FederationFile, resolve
from volery.live.jobs import (
    KINDS_MAX,
    LISTED_MAX,
    JobDescription,
    TaskDescription,
    demand_at,
    demands,
    job_from_json,
    merged,
    task_count,
)
from volery.live.service import descriptions
from volery.live.service.descriptions import (
    HERE_BYTES_MAX,
    PIECE_TASKS,
    EncodedDescription,
    Intake,
    encoded_at_once,
    encoded_in_slices,
)
from volery.live.service.forecaster import RECORDED_MAX, _sketch
from volery.live.service.store import JobStore
from volery.live.service.submissions import IMPOSSIBLE_MAX, insert_all, planned_jobs

LIMIT_S = 120
ONE = {"gms": 1, "lms": 1}
GAP_MAX_S = 0.1
"""Of the process's own processor time, which a busy machine does not lengthen."""
SEND = """
import sys, urllib.request, urllib.error
body = open(sys.argv[2], "rb").read()
try:
    answer = urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, {"content-type": "application/json"}))
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.read().decode())
"""


async def worst_gap_s(meanwhile: Awaitable[object]) -> float:
    """The most processor time of this process between two turns of its loop, until something is done."""
    worst, done = 0.0, asyncio.ensure_future(meanwhile)
    at = time.process_time()
    while not done.done():
        await asyncio.sleep(0)
        now = time.process_time()
        worst, at = max(worst, now - at), now
    await done
    return worst


def own_heap_only() -> None:
    """Keep what earlier tests and their tools have left out of collections, as it is in a server."""
    gc.collect()
    gc.freeze()


async def sent(url: str, file: Path) -> tuple[int, str]:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SEND, url, str(file), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(LIMIT_S):
        out, _ = await client.communicate()
    status, _, body = out.decode().partition("\n")
    return int(status), body


def tasks_of(count: int, task: Callable[[int], dict[str, Any]]) -> bytes:
    return json.dumps({"command": "true", "tasks": [task(at) for at in range(count)]}).encode()


HEAVY: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "an unknown key": ("/jobs", lambda: b'{"%s":1}' % (b"x" * 20_000_000), 422),
    "a task per line": ("/jobs", lambda: tasks_of(100_000, lambda _: {}), 201),
    "a plan of a task per line": ("/plan", lambda: tasks_of(300_000, lambda _: {}), 200),
    "a plan of different tasks": ("/plan", lambda: tasks_of(50_000, lambda at: {"stdin": str(at)}), 200),
    "different constraints": ("/plan", lambda: tasks_of(50_000, lambda at: {"constraints": [f"cores > {at}"]}), 422),
    "a forecast": ("/forecast", lambda: tasks_of(50_000, lambda at: {"stdin": str(at)}), 200),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_nobody_stops_the_api_with_a_heavy_request(name: str, tmp_path: Path) -> None:
    path, body, expected = HEAVY[name]
    file = tmp_path / "body"
    file.write_bytes(body())
    keys: dict[str, Any] = {"machines": [{"count": 4}], "parameters": ONE, "executor": "instant", "journal": False}
    federation = resolve(FederationFile(folder=str(tmp_path), api="127.0.0.1:0", **keys), Path(), choose)

    async def play() -> tuple[float, int, str]:
        async with running(federation) as it:
            assert it.front is not None
            own_heap_only()
            asked = asyncio.ensure_future(sent(it.front.url + path, file))
            worst_s = await worst_gap_s(asked)
            return worst_s, *await asked

    try:
        worst_s, status, answer = asyncio.run(play())
    finally:
        gc.unfreeze()
    assert status == expected, answer[:500]
    assert len(answer) < 1_000_000
    assert worst_s <= GAP_MAX_S


def test_whoever_submits_many_different_tasks_lets_others_have_turns_while_they_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparisons of neighbours are counted by turns of the loop; all of them in one turn took 70 ms, twice."""
    listed = 100_000
    turn, compared, one_of = 0, Counter[int](), jobs._one_of

    def counted(task: TaskDescription) -> TaskDescription:
        compared[turn] += 1
        return one_of(task)

    keys: dict[str, Any] = {"machines": [{"count": 1}], "parameters": ONE, "executor": "instant", "journal": False}
    fleet = resolve(FederationFile(folder=str(tmp_path), **keys), Path(), choose).fleet
    job = JobDescription(command=("true",), tasks=tuple([TaskDescription(stdin=str(at)) for at in range(listed)]))
    monkeypatch.setattr(jobs, "_one_of", counted)
    store = JobStore(tmp_path / "jobs.sqlite")

    async def play() -> None:
        nonlocal turn
        planning = asyncio.ensure_future(planned_jobs([job], ["job"], 0, 0, fleet))
        while not planning.done():
            turn += 1
            await asyncio.sleep(0)
        store.begin(durable=False)
        (receipt,) = insert_all(store, await planning, 0, lambda number, user: None)
        store.commit()
        assert receipt.tasks == listed

    asyncio.run(play())
    assert asyncio.run(store.descriptions.whole(0)) == job
    store.close()
    assert compared.total() == listed, "each task is compared once"
    assert max(compared.values()) < listed / 2


def test_a_long_description_is_written_and_explained_without_holding_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is encoded in turns and written by another thread, and no `why` decodes all of it."""
    monkeypatch.setattr(descriptions, "LONG_BYTES", 1_000)
    monkeypatch.setattr(clock, "SLICE_S", 0.0)
    listed = 20 * PIECE_TASKS
    job = JobDescription(command=("cat",), tasks=tuple([TaskDescription(stdin=str(at)) for at in range(listed)]))
    keep, writers = JobStore.keep, list[int]()

    def noted(store: JobStore, kept: Iterable[EncodedDescription]) -> None:
        writers.append(threading.get_ident())
        keep(store, kept)

    async def turns_of(work: Awaitable[object]) -> int:
        turns, working = 0, asyncio.ensure_future(work)
        while not working.done():
            turns += 1
            await asyncio.sleep(0)
        await working
        return turns

    async def play() -> None:
        assert await turns_of(encoded_in_slices(job)) >= 20
        async with loopback(tmp_path) as it:
            it.silent = True
            receipt = await it.service.submit(job)
            assert len(writers) == 1
            assert writers[0] != threading.get_ident()
            why = await it.service.queries.explain(receipt.id, listed - 1)
            assert why is not None
            assert (why.index, why.waiting) == (listed - 1, listed)
            described = await it.service.queries.description(receipt.id)
            assert described is not None
            assert described.tasks == (TaskDescription(stdin="0"),)
            assert await it.store.descriptions.whole(receipt.id) == job
            await it.agent.close()
            await it.service.close()

    monkeypatch.setattr(JobStore, "keep", noted)
    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_a_forecast_of_tasks_that_need_the_same_lets_others_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice ends after any task: all 100,000 that differ in their input alone made one turn of 120 ms."""
    listed = RECORDED_MAX + 1_000
    monkeypatch.setattr(clock, "SLICE_S", 0.0)
    inputs = tuple([TaskDescription(stdin=str(at), count=2) for at in range(listed)])

    async def turns() -> tuple[int, JobDescription]:
        found, sketching = 0, asyncio.ensure_future(_sketch(JobDescription(command=("cat",), tasks=inputs)))
        while not sketching.done():
            found += 1
            await asyncio.sleep(0)
        return found, await sketching

    found, sketch = asyncio.run(turns())
    assert found >= listed - 1
    assert task_count(sketch) == sum(task.count for task in inputs)
    alike = JobDescription(command=("cat",), tasks=(TaskDescription(count=5),) * listed)
    assert asyncio.run(_sketch(alike)).tasks == (TaskDescription(count=5), TaskDescription(count=5 * (listed - 1)))


def test_a_name_is_cut_before_it_is_compared_or_repeated() -> None:
    began = time.process_time()
    assert suggestion("x" * 10_000_000, ["command", "tasks"]) == "; known are command, tasks"
    with pytest.raises(InputError) as refused:
        job_from_json(b'{"command":"true","tasks":[{"%s":1}]}' % (b"y" * 10_000_000), "job")
    assert len(str(refused.value)) < PLACE_MAX
    assert refused.value.problem.startswith("unknown key; known are")
    assert time.process_time() - began < 2, "comparing took a time that grows with the square of the length"


def test_a_hint_is_given_only_for_a_name_that_is_near() -> None:
    known = JobDescription.__struct_fields__
    assert "did you mean" not in suggestion("retries", known)
    assert "did you mean" not in suggestion("image", known)
    assert suggestion("comand", known) == "; did you mean 'command'?"
    assert suggestion("estimate", known) == "; did you mean 'estimate_s'?"
    assert suggestion("constraint", known) == "; did you mean 'constraints'?"


def test_equal_tasks_that_follow_each_other_are_kept_once() -> None:
    job = job_from_json(tasks_of(1000, lambda at: {"stdin": "a" if at < 600 else "b"}), "job")
    assert isinstance(job.tasks, tuple)
    assert [(task.stdin, task.count) for task in job.tasks] == [("a", 600), ("b", 400)]
    twice = job_from_json(b'{"command":"true","tasks":[{},{},{"count":2}]}', "job")
    assert twice.tasks == (TaskDescription(count=4),)
    with pytest.raises(InputError, match=r"job.tasks\[3\].env"):
        job_from_json(b'{"command":"true","tasks":[{},{},{},{"env":{"=":""}}]}', "job")


def test_too_many_different_tasks_or_demands_are_refused_with_place_and_fix() -> None:
    with pytest.raises(InputError, match=r"job.tasks: lists more than 100,000 different tasks; write count, or submit"):
        job_from_json(tasks_of(LISTED_MAX + 1, lambda at: {"stdin": str(at)}), "job")
    job_from_json(tasks_of(KINDS_MAX, lambda at: {"constraints": [f"cores > {at}"]}), "job")
    with pytest.raises(InputError, match=r"job.tasks: have more than 1,000 different .*; submit several jobs"):
        job_from_json(tasks_of(KINDS_MAX + 1, lambda at: {"constraints": [f"cores > {at}"]}), "job")


def test_a_large_body_is_read_elsewhere_as_it_is_here() -> None:
    """Pieces of it are put together in order, and what is refused there is refused here in the same words."""
    tasks = [TaskDescription(stdin=str(at) * 40, count=1 + at % 3) for at in range(1_000)]
    body = bytearray(
        json.dumps(
            {"name": "n", "tasks": [{"stdin": t.stdin, "count": t.count} for t in tasks], "command": ["cat"]}
        ).encode()
    )
    wrong = bytearray(body.replace(b'"count": 2', b'"count": 0'))
    assert len(body) > HERE_BYTES_MAX

    async def play() -> None:
        intake = Intake()
        try:
            assert await intake.job(body, "job") == job_from_json(body, "job")
            assert await intake.jobs(bytearray(b"[%s]" % body), "jobs") == [job_from_json(body, "jobs[0]")]
            with pytest.raises(InputError, match=r"job.tasks\[1\].count"):
                await intake.job(wrong, "job")
        finally:
            intake.close()

    asyncio.run(play())


def test_large_bodies_that_come_together_are_read_when_their_process_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptions, "REQUESTS_PER_PROCESS", 2)
    monkeypatch.setattr(descriptions, "HERE_BYTES_MAX", 0)
    body = bytearray(b'{"command":"true"}')

    async def play() -> None:
        reading = Intake()
        try:
            async with asyncio.timeout(LIMIT_S):
                jobs = await asyncio.gather(*(reading.job(body, "job") for _ in range(7)))
        finally:
            reading.close()
        assert jobs == [job_from_json(body, "job")] * 7

    asyncio.run(play())


def test_a_job_of_before_equal_tasks_were_kept_once_is_known_by_its_key(tmp_path: Path) -> None:
    keyed = JobDescription(command=("true",), user="u", key="k", tasks=(TaskDescription(),) * 3)
    with contextlib.closing(JobStore(tmp_path / "jobs.sqlite")) as store:
        store.insert(1, 1, merged(keyed), 3, [], 0)
        store.commit()
        other = msgspec.structs.replace(keyed, tasks=(TaskDescription(),) * 4)
        assert store.describes(1, encoded_at_once(merged(keyed)).digest)
        assert not store.describes(1, encoded_at_once(merged(other)).digest)


def test_the_demand_of_one_task_is_found_as_among_all(tmp_path: Path) -> None:
    federation = resolve(FederationFile(machines=[{"count": 2}], parameters=ONE, folder=str(tmp_path)), Path(), choose)
    body = tasks_of(40, lambda at: {"constraints": [f"cores >= {at // 4}"], "count": 1 + at % 2})
    for job in (job_from_json(body, "job"), job_from_json(b'{"command":"true","tasks":60}', "job")):
        listed = list(demands(job, federation.fleet))
        for place in range(60):
            assert demand_at(job, place, federation.fleet) == next(
                one for one in listed if place < one.first + one.tasks
            )
        with pytest.raises(IndexError):
            demand_at(job, 60, federation.fleet)


def test_a_job_of_tasks_that_no_machine_can_run_is_refused_when_there_are_very_many(tmp_path: Path) -> None:
    file = tmp_path / "body"
    keys: dict[str, Any] = {"machines": [{"count": 2}], "parameters": ONE, "executor": "instant", "journal": False}
    federation = resolve(FederationFile(folder=str(tmp_path), api="127.0.0.1:0", **keys), Path(), choose)

    async def play(count: int) -> tuple[int, str]:
        file.write_text(json.dumps({"command": "true", "tasks": count, "constraints": ["cores >= 99999"]}))
        async with running(federation) as it:
            assert it.front is not None
            return await sent(it.front.url + "/jobs", file)

    assert asyncio.run(play(3))[0] == 201
    status, answer = asyncio.run(play(IMPOSSIBLE_MAX + 1))
    assert (status, json.loads(answer)["error"]["place"]) == (422, "job.tasks")
    assert "no machine can run 10,001 of its tasks" in answer
