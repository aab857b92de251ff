"""Forecasts: the state that is given is the state that is played on from."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup, names
from volery.core.forecast import (
    ActiveJob,
    FederationState,
    ForecastResult,
    Lifetime,
    Quantiles,
    RunningTask,
    WaitingTasks,
)
from volery.core.model import SECOND, Cluster
from volery.whatif.forks import RESOLUTION_US, TaskKind, forecast

HOPS_US = 20_000
"""More than all messages of these designs take."""
SIZES = {"lms": 2, "gms": 2, "groups": 2, "distributors": 2, "reserved": 1}


def config_of(name: str, **given: Any) -> msgspec.Struct:
    known = lookup(name).defaults.__struct_fields__
    return configure(lookup(name), {key: value for key, value in (SIZES | given).items() if key in known})


def known(*seconds: float) -> tuple[Lifetime, ...]:
    """Kinds of tasks that always take the same."""
    return tuple(Lifetime("history", 0, ((round(one * SECOND),),)) for one in seconds)


def job(
    number: int,
    *,
    running: tuple[RunningTask, ...] = (),
    waiting: int = 0,
    kind: int = 0,
    mask: int = 0,
    user: str = "",
) -> ActiveJob:
    return ActiveJob(number, user, 0, running, (WaitingTasks(waiting, mask, kind),) if waiting else ())


def held(machines: range, elapsed_s: float, kind: int = 0) -> tuple[RunningTask, ...]:
    return tuple(RunningTask(machine, round(elapsed_s * SECOND), kind) for machine in machines)


CLUSTER = Cluster.uniform(12)


def ask(
    state: FederationState, name: str = "megha", cluster: Cluster = CLUSTER, runs: int = 5, **given: Any
) -> ForecastResult:
    return forecast(lookup(name), config_of(name, **given), cluster, state, 10.0, runs)


def near(value: int | None, seconds: float) -> bool:
    return value is not None and abs(value - seconds * SECOND) <= HOPS_US


def test_where_nothing_runs_it_starts_at_once_and_ends_when_its_tasks_do() -> None:
    told = ask(FederationState(0, (), job(0, waiting=4), known(3)))
    assert told.runs == 5
    assert near(told.moments.last_start.median_us, 0)
    assert near(told.moments.last_end.median_us, 3)
    assert told.moments.last_end.high_us is not None
    assert near(told.moments.last_end.high_us - RESOLUTION_US, 3)
    assert told.known.history == 4


@pytest.mark.parametrize("name", names())
def test_every_design_plays_on_from_a_full_cluster(name: str) -> None:
    """All slots are taken for two more seconds, so that nothing starts before, and then there is room for all."""
    state = FederationState(0, (job(3, running=held(range(12), 1)),), job(7, waiting=6), known(3))
    told = ask(state, name, runs=1)
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
    state = FederationState(0, (job(0, running=running),), job(2, waiting=1, mask=1), known(1, 8))
    assert near(ask(state, cluster=cluster).moments.first_start.median_us, 8)


def test_without_room_for_a_bit_per_machine_a_machine_of_the_kind_stands_for_it() -> None:
    """100 machines; the 10 that the job needs are all taken, for 4 s and one of them for 2, and 80 others for 1."""
    cluster = msgspec.structs.replace(Cluster.uniform(100), constraints=(1,) * 10 + (0,) * 90)
    running = (*held(range(1), 2, kind=1), *held(range(1, 10), 0, kind=1), *held(range(10, 90), 0))
    state = FederationState(0, (job(0, running=running),), job(2, waiting=2, mask=1, kind=1), known(1, 4))
    moments = ask(state, cluster=cluster).moments
    assert near(moments.first_start.median_us, 2)
    assert near(moments.last_start.median_us, 4)


def test_what_waits_already_comes_first() -> None:
    """With one master, 12 slots free in a second, and 24 tasks of a second before the job."""
    state = FederationState(0, (job(0, running=held(range(12), 2)), job(1, waiting=24)), job(2, waiting=1), known(3))
    assert near(ask(state, "central", gms=1).moments.first_start.median_us, 1 + 3 + 3)


def test_nothing_goes_to_a_drained_machine() -> None:
    """All but one are drained: four tasks of a second follow each other."""
    state = FederationState(0, (), job(0, waiting=4), known(1), drained=tuple(range(1, 12)))
    assert near(ask(state).moments.last_end.median_us, 4)


def test_of_a_job_under_way_it_says_when_what_is_left_starts_and_ends() -> None:
    """Its running tasks end in 2 s and in 5; its others can start when the job before it ends, in 1 s."""
    jobs = (
        job(0, running=held(range(6), 2)),
        ActiveJob(1, "", 0, (*held(range(6, 10), 1), *held(range(10, 12), 0, kind=1)), (WaitingTasks(4, 0, 0),)),
    )
    moments = ask(FederationState(0, jobs, None, known(3, 5), asked=1), "central", gms=1).moments
    assert near(moments.first_end.median_us, 2)
    assert near(moments.first_start.median_us, 1)
    assert near(moments.last_start.median_us, 1)
    assert near(moments.last_end.median_us, 5)
    nothing_waits = ask(FederationState(0, jobs, None, known(3, 5), asked=0), "central", gms=1).moments
    assert nothing_waits.first_start == nothing_waits.last_start == Quantiles(None, None, None)
    assert near(nothing_waits.last_end.median_us, 1)


def test_it_says_whom_the_job_would_preempt() -> None:
    """The job's user has a half by right and nothing yet; the other one has it all."""
    state = FederationState(
        0, (job(0, running=held(range(12), 1), user="ada"),), job(1, waiting=4, user="bo"), known(60)
    )
    told = ask(state, shares="ada:1+bo:1")
    assert [(one.job, one.user, one.runs) for one in told.preempts] == [(0, "ada", 5)]
    assert told.preempts[0].tasks == 4
    assert told.moments.last_start.median_us is not None
    assert told.moments.last_start.median_us < SECOND


def test_weights_are_those_that_hold_now() -> None:
    """With a weight of 1 to 11 in place of equal ones, one machine is all that the job's user may take."""
    state = FederationState(
        0,
        (job(0, running=held(range(12), 1), user="ada"),),
        job(1, waiting=4, user="bo"),
        known(60),
        weights=(("ada", 11),),
    )
    assert ask(state, shares="ada:1+bo:1").preempts[0].tasks == 1


def test_the_same_question_has_the_same_answer() -> None:
    kinds = (Lifetime("estimate", 2 * SECOND), Lifetime("history", 0, ((10, 20, 3 * SECOND), (SECOND, SECOND))))
    state = FederationState(
        0, (job(0, running=held(range(12), 0.5)), job(1, waiting=9, kind=1)), job(2, waiting=9), kinds
    )
    first, second = ask(state), ask(state)
    assert first.moments == second.moments
    assert first.moments.first_start.low_us != first.moments.first_start.median_us


def test_without_time_for_a_run_it_says_from_when_on() -> None:
    """The one run that was begun has shown that the job does not start until then."""
    state = FederationState(
        0, (job(0, running=held(range(12), 0)), job(1, waiting=60_000)), job(2, waiting=1), known(100)
    )
    told = forecast(lookup("central"), config_of("central", gms=1), CLUSTER, state, 0.0)
    start = told.moments.first_start
    assert told.runs == 0
    assert start.low_us is not None
    assert start.low_us >= 0
    assert start.median_us is None
    assert start.high_us is None


@pytest.mark.slow
def test_intervals_hold_four_of_five() -> None:
    """Sixty federations of unknown durations; each is also played with those that its tasks then really take."""
    stream = Random(11)

    def of_a_job(count: int) -> tuple[int, ...]:
        own = stream.gauss(0, 0.4)
        return tuple(round(60 * SECOND * math.exp(own + stream.gauss(0, 0.4))) for _ in range(count))

    covered = dict.fromkeys(("first_start", "last_start", "last_end"), 0)
    for _ in range(60):
        past = tuple(tuple(sorted(of_a_job(20))) for _ in range(8))
        elapsed_us = round(stream.uniform(0, 50) * SECOND)
        while min(running := of_a_job(12)) <= elapsed_us:
            pass
        truth = [*running, *of_a_job(12), *of_a_job(6)]

        def state(kinds: tuple[Lifetime, ...], places: list[int], elapsed_us: int = elapsed_us) -> FederationState:
            running = tuple(RunningTask(k, elapsed_us, places[k]) for k in range(12))
            waiting = tuple(WaitingTasks(1, 0, places[k]) for k in range(12, 24))
            planned = tuple(WaitingTasks(1, 0, places[k]) for k in range(24, 30))
            jobs = (ActiveJob(0, "", 0, running), ActiveJob(1, "", 0, (), waiting))
            return FederationState(0, jobs, ActiveJob(2, "", 0, (), planned), kinds)

        told = ask(state((Lifetime("history", 0, past),), [0] * 30), "central", runs=20, gms=1).moments
        exact = tuple(Lifetime("history", 0, ((took,),)) for took in truth)
        came = ask(state(exact, list(range(30))), "central", runs=1, gms=1).moments
        for name in covered:
            interval, at = getattr(told, name), getattr(came, name).median_us
            covered[name] += interval.low_us <= at <= interval.high_us
    assert all(39 <= count <= 57 for count in covered.values()), covered


def test_a_task_that_runs_takes_longer_than_it_has() -> None:
    past = ((SECOND, 2 * SECOND), (3 * SECOND, 9 * SECOND))
    estimated, corrected = Lifetime("estimate", SECOND), Lifetime("estimate", SECOND, (), (500, 1500))
    for basis in (Lifetime("history", 0, past), estimated, corrected, Lifetime("nothing")):
        for elapsed_us in (0, SECOND, 5 * SECOND, 60 * SECOND):
            assert TaskKind(basis).job(Random(3), [elapsed_us]).total_us(elapsed_us) > elapsed_us
    assert TaskKind(Lifetime("history", 0, past[1:])).job(Random(3)).total_us(3 * SECOND) > 3 * SECOND


def test_tasks_of_a_job_are_drawn_from_one_earlier_job() -> None:
    kind = TaskKind(Lifetime("history", 0, ((SECOND,) * 3, (50 * SECOND,) * 3)))
    for seed in range(20):
        drawn = kind.job(Random(seed))
        assert len({drawn.total_us() for _ in range(20)}) == 1


def test_what_runs_for_long_resembles_what_ran_for_long() -> None:
    """An earlier job of 50 s per task, nine of about 1 s, and a job of which ten tasks have been running for 3 s."""
    short = tuple((900_000 + k, 1_000_000 + k, 1_100_000 + k) for k in range(9))
    kind = TaskKind(Lifetime("history", 0, (*short, (49 * SECOND, 50 * SECOND, 51 * SECOND))))
    kind.spread = 0.0
    assert all(kind.job(Random(seed), [3 * SECOND] * 10).total_us() > 40 * SECOND for seed in range(20))


def test_estimates_are_corrected_by_how_wrong_they_were() -> None:
    kind = TaskKind(Lifetime("estimate", 10 * SECOND, (), (400, 400, 400)))
    assert {kind.job(Random(seed)).total_us() for seed in range(20)} == {4 * SECOND}
