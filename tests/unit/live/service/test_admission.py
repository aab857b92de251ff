"""Jobs on their way into the store: all of a request or none, and each key of a user belongs to one job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.jobs import job_from_table
from volery.live.service import admission
from volery.live.service.admission import ConflictError, NewJob, admit, planned_jobs
from volery.live.service.store import JobStore
from volery.live.status import Receipt

FLEET = Fleet([Machine("x86_64", "linux", "6.1", 4, 1024, {})], [1])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    opened = JobStore(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


def planned(*tables: dict[str, object]) -> list[NewJob]:
    jobs = [job_from_table({"command": "true", "user": "ann", **table}, "job") for table in tables]
    places = [f"jobs[{at}]" for at in range(len(jobs))]
    return asyncio.run(planned_jobs(jobs, places, 5, 100, FLEET))


def admitted(store: JobStore, jobs: Sequence[NewJob]) -> tuple[list[Receipt], list[tuple[int, str]]]:
    assigned: list[tuple[int, str]] = []
    store.begin(durable=False)
    try:
        return admit(store, jobs, 7, lambda number, user: assigned.append((number, user))), assigned
    finally:
        store.commit()


def test_jobs_and_tasks_are_numbered_one_after_the_other() -> None:
    jobs = planned({"tasks": 3}, {}, {"tasks": [{"count": 2}, {"command": "false"}]})
    assert [(job.number, job.first, job.tasks) for job in jobs] == [(5, 100, 3), (6, 103, 1), (7, 104, 3)]


def test_a_key_that_is_used_again_for_the_same_job_gives_its_receipt(store: JobStore) -> None:
    receipts, assigned = admitted(store, planned({"key": "k", "tasks": 2}, {"key": "k", "tasks": 2}))
    assert [(one.id, one.tasks, one.known) for one in receipts] == [(5, 2, False), (5, 2, True)]
    assert assigned == [(5, "ann")]
    later, assigned = admitted(store, planned({"key": "k", "tasks": 2}))
    assert (later[0].id, later[0].known, assigned) == (5, True, [])


@pytest.mark.parametrize("earlier", [True, False])
def test_a_key_of_another_job_is_refused_and_nothing_is_written(store: JobStore, earlier: bool) -> None:
    if earlier:
        admitted(store, planned({"key": "k"}))
    before = store.next_numbers()
    first: list[dict[str, object]] = [] if earlier else [{"key": "k"}]
    jobs = planned(*first, {}, {"key": "k", "tasks": 2})
    with pytest.raises(ConflictError) as caught:
        admitted(store, jobs)
    assert caught.value.place == f"jobs[{len(jobs) - 1}].key"
    assert store.next_numbers() == before


def test_a_task_that_no_machine_can_run_is_a_warning_and_too_many_an_error(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"constraints": ["cores >= 8"], "tasks": 3}
    (receipt,), _ = admitted(store, planned(needs))
    assert receipt.warnings == ("task 0 will never run: no machine has cores >= 8; there is 4",)
    assert [task.state for task in store.tasks(5, 0, 9)] == ["unsatisfiable"] * 3
    monkeypatch.setattr(admission, "IMPOSSIBLE_MAX", 2)
    with pytest.raises(InputError, match="no machine can run 3 of its tasks"):
        planned(needs)
