"""Forecasts: the state that is given is the state that is played on from."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup, names
from volery.core.model import SECOND, Cluster
from volery.core.standing import Lifetime, Outlook, RunningTask, Standing, StandingJob, WaitingTasks
from volery.study.forks import RESOLUTION_US, foretell
from volery.study.lifetimes import JobLifetimes

HOPS_US = 20_000
"""More than all messages of these designs take."""
SIZES = {"lms": 2, "gms": 2, "groups": 2, "distributors": 2, "reserved": 1}


def config_of(name: str, **given: Any) -> msgspec.Struct:
    known = lookup(name).defaults.__struct_fields__
    return configure(lookup(name), {key: value for key, value in (SIZES | given).items() if key in known})


def known(*seconds: float) -> tuple[Lifetime, ...]:
    """Kinds of tasks that always take the same."""
    return tuple(Lifetime("history", 0, ((round(one * SECOND),),)) for one in seconds)


def job(number: int, *, running: tuple[RunningTask, ...] = (), waiting: int = 0, kind: int = 0, mask: int = 0,
        user: str = "") -> StandingJob:  # fmt: skip
    return StandingJob(number, user, 0, running, (WaitingTasks(waiting, mask, kind),) if waiting else ())


def held(machines: range, elapsed_s: float, kind: int = 0) -> tuple[RunningTask, ...]:
    return tuple(RunningTask(machine, round(elapsed_s * SECOND), kind) for machine in machines)


CLUSTER = Cluster.uniform(12)


def ask(standing: Standing, name: str = "megha", cluster: Cluster = CLUSTER, runs: int = 4, **given: Any) -> Outlook:
    return foretell(lookup(name), config_of(name, **given), cluster, standing, 10.0, runs)


def near(value: int | None, seconds: float) -> bool:
    return value is not None and abs(value - seconds * SECOND) <= HOPS_US


def test_where_nothing_runs_it_starts_at_once_and_ends_when_its_tasks_do() -> None:
    told = ask(Standing(0, (), job(0, waiting=4), known(3)))
    assert told.runs == 4
    assert near(told.moments.last_start.median_us, 0)
    assert near(told.moments.last_end.median_us, 3)
    assert told.moments.last_end.high_us is not None
    assert near(told.moments.last_end.high_us - RESOLUTION_US, 3)
    assert told.known.history == 4


@pytest.mark.parametrize("name", names())
def test_every_design_plays_on_from_a_full_cluster(name: str) -> None:
    """All slots are taken for two more seconds, so that nothing starts before, and then there is room for all."""
    standing = Standing(0, (job(3, running=held(range(12), 1)),), job(7, waiting=6), known(3))
    told = ask(standing, name, runs=1)
    assert told.runs == 1
    start_us, end_us = told.moments.first_start.median_us, told.moments.last_end.median_us
    assert start_us is not None
    assert end_us is not None
    assert 2 * SECOND - HOPS_US <= start_us < 20 * SECOND
    assert end_us >= start_us + 3 * SECOND
    if name in ("megha", "central", "pigeonc", "oracle"):
        assert near(start_us, 2)
        assert near(end_us, 5)


def test_what_runs_stands_on_its_own_machine() -> None:
    """The job needs the one machine whose task runs longest: it waits for that one, not for the first that is free."""
    cluster = msgspec.structs.replace(Cluster.uniform(12), constraints=(0,) * 5 + (1,) + (0,) * 6)
    running = (*held(range(5), 0), *held(range(5, 6), 0, kind=1), *held(range(6, 12), 0))
    standing = Standing(0, (job(0, running=running),), job(2, waiting=1, mask=1), known(1, 8))
    assert near(ask(standing, cluster=cluster).moments.first_start.median_us, 8)


def test_without_room_for_a_bit_per_machine_a_machine_of_the_kind_stands_for_it() -> None:
    """100 machines; the 10 that the job needs are all taken, for 4 s and one of them for 2, and 80 others for 1."""
    cluster = msgspec.structs.replace(Cluster.uniform(100), constraints=(1,) * 10 + (0,) * 90)
    running = (*held(range(1), 2, kind=1), *held(range(1, 10), 0, kind=1), *held(range(10, 90), 0))
    standing = Standing(0, (job(0, running=running),), job(2, waiting=2, mask=1, kind=1), known(1, 4))
    moments = ask(standing, cluster=cluster).moments
    assert near(moments.first_start.median_us, 2)
    assert near(moments.last_start.median_us, 4)


def test_what_waits_already_comes_first() -> None:
    """With one master, 12 slots free in a second, and 24 tasks of a second before the job."""
    standing = Standing(0, (job(0, running=held(range(12), 2)), job(1, waiting=24)), job(2, waiting=1), known(3))
    assert near(ask(standing, "central", gms=1).moments.first_start.median_us, 1 + 3 + 3)


def test_nothing_goes_to_a_drained_machine() -> None:
    """All but one are drained: four tasks of a second follow each other."""
    standing = Standing(0, (), job(0, waiting=4), known(1), drained=tuple(range(1, 12)))
    assert near(ask(standing).moments.last_end.median_us, 4)


def test_it_says_whom_the_job_would_preempt() -> None:
    """The job's user has a half by right and nothing yet; the other one has it all."""
    standing = Standing(
        0, (job(0, running=held(range(12), 1), user="ada"), ), job(1, waiting=4, user="bo"), known(60)
    )  # fmt: skip
    told = ask(standing, shares="ada:1+bo:1")
    assert [(one.job, one.user, one.runs) for one in told.preempts] == [(0, "ada", 4)]
    assert told.preempts[0].tasks == 4
    assert told.moments.last_start.median_us is not None
    assert told.moments.last_start.median_us < SECOND


def test_the_same_question_has_the_same_answer() -> None:
    kinds = (Lifetime("estimate", 2 * SECOND), Lifetime("history", 0, ((10, 20, 3 * SECOND), (SECOND, SECOND))))
    standing = Standing(0, (job(0, running=held(range(12), 0.5)), job(1, waiting=9, kind=1)), job(2, waiting=9), kinds)
    first, second = ask(standing), ask(standing)
    assert first.moments == second.moments
    assert first.moments.first_start.low_us != first.moments.first_start.median_us


def test_without_time_for_a_run_it_says_from_when_on() -> None:
    """The one run that was begun has shown that the job does not start until then."""
    standing = Standing(0, (job(0, running=held(range(12), 0)), job(1, waiting=60_000)), job(2, waiting=1), known(100))
    told = foretell(lookup("central"), config_of("central", gms=1), CLUSTER, standing, 0.0)
    start = told.moments.first_start
    assert told.runs == 0
    assert start.low_us is not None
    assert start.low_us >= 0
    assert start.median_us is None
    assert start.high_us is None


def test_a_task_that_runs_takes_longer_than_it_has() -> None:
    past = ((SECOND, 2 * SECOND), (3 * SECOND, 9 * SECOND))
    estimated, corrected = Lifetime("estimate", SECOND), Lifetime("estimate", SECOND, (), (500, 1500))
    for basis in (Lifetime("history", 0, past), estimated, corrected, Lifetime("nothing")):
        for elapsed_us in (0, SECOND, 5 * SECOND, 60 * SECOND):
            assert JobLifetimes(basis, Random(3)).total_us(elapsed_us) > elapsed_us
    assert JobLifetimes(Lifetime("history", 0, past), Random(3)).total_us(3 * SECOND) == 9 * SECOND


def test_tasks_of_a_job_are_drawn_from_one_earlier_job() -> None:
    lifetime = Lifetime("history", 0, ((1, 2, 3), (10, 20, 30)))
    for seed in range(20):
        drawn = JobLifetimes(lifetime, Random(seed))
        assert {drawn.total_us() >= 10 for _ in range(20)} in ({True}, {False})


def test_estimates_are_corrected_by_how_wrong_they_were() -> None:
    lifetime = Lifetime("estimate", 10 * SECOND, (), (400, 500))
    drawn = {JobLifetimes(lifetime, Random(seed)).total_us() for seed in range(20)}
    assert drawn == {4 * SECOND, 5 * SECOND}
