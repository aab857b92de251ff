"""A journalled period becomes a trace: who arrived when, and how long everything really took."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.live.commands import volery
from tests.live.federations import DESIGNS, Federation, plan

from volery import workload
from volery.architectures import lookup
from volery.core.errors import InputError
from volery.live.node.sleep import SleepExecutor
from volery.live.runtime.journal_trace import Period, read_period
from volery.live.runtime.replay import journals
from volery.policies.queues import ConstraintQueue

SIZES = (3, 1, 0, 20, 5)
PAUSE_S = 0.004


def slept_us(task: int) -> int:
    return 1000 + task % 5 * 4000


def record(name: str, folder: Path, split: bool, cancel: int | None = None) -> int:
    """Journal a period in which a pause follows the acceptance of each job; the pauses of all jobs but the last, in ns.

    They are measured: loops count in milliseconds, so that a pause may be shorter than was asked.
    """
    pauses_ns: list[int] = []

    async def scenario() -> None:
        executor = SleepExecutor(lambda task: slept_us(task.id))
        async with Federation(plan(name), executor, split, folder) as federation:
            for size in SIZES:
                job = federation.submit(size, 7000, constraints=[0] * size)
                await federation.until_accepted(job)
                began_ns = time.monotonic_ns()
                await asyncio.sleep(PAUSE_S)
                pauses_ns.append(time.monotonic_ns() - began_ns)
            if cancel is not None:
                federation.cancel(cancel)
            await federation.until_done(len(SIZES))

    asyncio.run(scenario())
    return sum(pauses_ns[:-1])


def period_of(folder: Path) -> Period:
    return read_period(journals(folder), "recorded", lookup)


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
@pytest.mark.parametrize("name", DESIGNS)
def test_a_period_becomes_a_trace(name: str, split: bool, tmp_path: Path) -> None:
    pauses_ns = record(name, tmp_path, split)
    period = period_of(tmp_path)
    trace = period.trace
    assert trace.job_count == 4, "a job without tasks has left none"
    assert [b - a for a, b in zip(trace.first, trace.first[1:], strict=False)] == [3, 1, 20, 5]
    assert trace.arrival_us[0] == 0
    assert list(trace.arrival_us) == sorted(trace.arrival_us)
    assert trace.arrival_us[-1] + 1 >= pauses_ns // 1000, "a pause follows the acceptance of each job"
    assert list(trace.estimate_us) == [7000] * 4
    slept = sorted(slept_us(task) for task in range(sum(SIZES)))
    assert all(measured >= least for measured, least in zip(sorted(trace.duration_us), slept, strict=True)), (
        "each task has its own duration, which a busy machine makes longer"
    )
    assert (period.architecture, period.workers, period.slots) == (name, 12, 12)
    assert (period.unfinished_tasks, period.constrained_tasks, period.cancelled_jobs) == (0, 0, 0)


def test_hops_are_measured_between_hosts_and_nowhere_else(tmp_path: Path) -> None:
    record("megha", tmp_path / "split", split=True)
    hops = {(hop.sender, hop.receiver): hop for hop in period_of(tmp_path / "split").hops}
    assert set(hops) == {("gm", "lm"), ("lm", "gm"), ("lm", "node"), ("node", "lm")}
    assert hops["lm", "node"].count == sum(SIZES)
    assert all(0 <= hop.p50_us <= hop.p99_us for hop in hops.values())
    record("megha", tmp_path / "one", split=False)
    assert period_of(tmp_path / "one").hops == ()


def test_decisions_are_measured_by_role(tmp_path: Path) -> None:
    record("pigeon", tmp_path, split=False)
    decisions = {decision.role: decision for decision in period_of(tmp_path).decisions}
    assert set(decisions) == {"distributor", "master", "node"}
    assert decisions["node"].events == 2 * sum(SIZES)
    assert all(decision.mean_us > 0 for decision in decisions.values())


def test_what_never_finished_is_left_out(tmp_path: Path) -> None:
    record("megha", tmp_path, split=False, cancel=3)
    period = period_of(tmp_path)
    assert period.cancelled_jobs == 1
    assert period.unfinished_tasks + period.trace.task_count == sum(SIZES)


@pytest.mark.slow
def test_the_command_writes_what_the_lab_reads(tmp_path: Path) -> None:
    record("megha", tmp_path / "journal", split=True)
    target = tmp_path / "lived.tr.gz"
    told = json.loads(volery("trace", "from-journal", tmp_path, "-o", target, "--json"))
    trace = workload.load_trace(target)
    assert (told["jobs"], told["tasks"]) == (trace.job_count, trace.task_count) == (4, 29)
    assert told["digest"] == trace.digest() == period_of(tmp_path / "journal").trace.digest()
    assert {hop["sender"] for hop in told["hops"]} == {"gm", "lm", "node"}
    words = volery("trace", "from-journal", tmp_path, "-o", target, "--force")
    again = words[words.index("volery compare") :].split()[1:]
    assert again[1] == "megha:gms=2,lms=2,heartbeat_s=0.05", "as it was configured"
    compared = json.loads(volery(*again, "--json"))
    assert compared["runs"][0]["tasks"] == 29
    volery("trace", "from-journal", tmp_path, "-o", target, status=2)


def test_journals_that_tell_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no journal here"):
        period_of(tmp_path)
    record("megha", tmp_path / "a", split=False)
    record("pigeon", tmp_path / "b", split=False)
    both = [*journals(tmp_path / "a"), *journals(tmp_path / "b")]
    with pytest.raises(InputError, match="another federation"):
        read_period(both, "mixed", lookup)
    monkeypatch.setattr(ConstraintQueue, "push", ConstraintQueue.push_front)
    with pytest.raises(InputError, match="does not replay"):
        period_of(tmp_path / "a")
