"""The instants kernel: order, timers, delays, servers, the submitter's protocol, and how a run ends."""

from __future__ import annotations

import gc
import heapq
import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sim.actors import Actor, Note, answer, launch_all, play

from volery.conformance.cases import trace_of
from volery.core.component import Component, UnknownMessageError, role_of
from volery.core.events import (
    Computed,
    Counted,
    Event,
    JobDone,
    Submit,
    TaskFinished,
    TimerFired,
)
from volery.core.model import Address, Cluster, Message, Task, Time
from volery.core.port import Port, Problem
from volery.core.records import PATH_SHIFT
from volery.sim import Network, Options, Progress, Stalled

ONE = trace_of("one", [0], [[]])


def test_an_instant_is_finishes_then_timers_then_delayed_messages_then_free_ones() -> None:
    """DESIGN section 2: order is part of the contract."""
    at = 700

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit) and now == 0:
            port.launch(event.job.tasks[0], 0)
            port.set_timer("t", at)
            port.send("node/0", Note(1))
        elif isinstance(event, Submit):
            port.send("submitter", JobDone(1))
        elif isinstance(event, TaskFinished):
            port.send("free/0", Note(2))
            port.send("submitter", JobDone(0))

    node = Actor(react)
    trace = trace_of("t", [0, at], [[at], []])
    free = Actor(lambda port, event, source, now: port.send("node/0", Note(3)))
    play(
        {"node/0": node, "free/0": free},
        trace,
        network=Network(
            overrides={
                ("node", "node"): at,
                ("node", "free"): 0,
                ("free", "node"): 0,
            }
        ),
    )
    now = [type(event).__name__ + str(getattr(event, "number", "")) for time, event, _ in node.seen if time == at]
    assert now[:3] == ["TaskFinished", "TimerFired", "Note1"]
    assert now[3:] == ["Submit", "Note3"], "submissions are among the messages without delay, in the order of sending"


def test_messages_that_arrive_together_arrive_in_the_order_of_sending() -> None:
    """The slower link's message was sent first."""
    actor = Actor(answer)

    def slow(port: Port) -> None:
        port.send("entry/0", Note(1))

    def fast(port: Port) -> None:
        port.set_timer("later", 300)

    later = Actor(lambda port, event, source, now: port.send("entry/0", Note(2)), fast)
    play(
        {"entry/0": actor, "fast/0": later, "slow/0": Actor(None, slow)},
        ONE,
        network=Network(overrides={("slow", "entry"): 500, ("fast", "entry"): 200}),
    )
    assert actor.numbers() == [1, 2]


def test_a_replaced_timer_fires_once_at_its_new_time_and_a_cancelled_one_never() -> None:
    def start(port: Port) -> None:
        port.set_timer("replaced", 100)
        port.set_timer("replaced", 300)
        port.set_timer("brought forward", 400)
        port.set_timer("brought forward", 200)
        port.set_timer("cancelled", 100)
        port.cancel_timer("cancelled")
        port.cancel_timer("never set")

    actor = Actor(answer, start)
    play({"entry/0": actor}, ONE)
    fired = [(now, event.key) for now, event, _ in actor.seen if isinstance(event, TimerFired)]
    assert fired == [(200, "brought forward"), (300, "replaced")]


def test_a_timer_that_is_cancelled_in_its_own_instant_does_not_fire() -> None:
    """Not even from an inbox."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, TimerFired):
            port.cancel_timer("second" if event.key == "first" else "first")
        answer(port, event, source, now)

    def start(port: Port) -> None:
        port.set_timer("first", 100)
        port.set_timer("second", 100)

    actor = Actor(react, start)
    play({"entry/0": actor}, ONE)
    assert len(actor.times(TimerFired)) == 1


def test_a_timer_in_the_past_fires_once_after_the_handler_in_the_same_instant() -> None:
    order: list[str] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.set_timer("now", now - 50)
            order.append("handler ends")
            answer(port, event, source, now)
        else:
            order.append("fires")

    actor = Actor(react)
    play({"entry/0": actor}, trace_of("t", [1000], [[]]))
    assert order == ["handler ends", "fires"]
    assert actor.times(TimerFired) == [1000]


def test_a_timer_can_be_set_again_from_its_own_handler() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        answer(port, event, source, now)
        if isinstance(event, TimerFired) and now < 300:
            port.set_timer("beat", now + 100)

    actor = Actor(react, lambda port: port.set_timer("beat", 100))
    play({"entry/0": actor}, ONE)
    assert actor.times(TimerFired) == [100, 200, 300]


def test_slow_work_is_answered_after_its_modelled_time() -> None:
    actor = Actor(answer, lambda port: port.compute("sum", Problem(sum, (1, 2, 3), 2_500)))
    play({"entry/0": actor}, ONE)
    assert [(now, event) for now, event, _ in actor.seen if isinstance(event, Computed)] == [
        (2_500, Computed("sum", 6))
    ]


def test_a_decision_counts_as_processing_of_what_it_leads_to() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.compute("think", Problem(sum, (), 2_500))
        elif isinstance(event, Computed):
            port.launch(Task(0, 0), 0)
        elif isinstance(event, TaskFinished):
            port.send("submitter", JobDone(0))

    records = play({"node/0": Actor(react)}, trace_of("thought over", [0], [[10]]))
    assert (records.start_us[0], records.path[0]) == (2_500, 2_500 << PATH_SHIFT)


def test_the_path_to_a_start_sums_communication_and_processing() -> None:
    def forward(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.send("node/0", event)

    records = play(
        {"entry/0": Actor(forward), "node/0": Actor(launch_all)},
        trace_of("t", [0, 0], [[9], [9]]),
        Cluster.uniform(1, slots=2),
        network=Network(delay_us=700),
        options=Options(costs={"node": 30}),
    )
    assert list(records.path) == [(30 << PATH_SHIFT) + 700] * 2
    assert list(records.start_us) == [730, 760]


def test_a_forgotten_job_stalls_the_run() -> None:
    with pytest.raises(Stalled, match="1 of 2 jobs were never answered; the first is job 1"):
        play(
            {"entry/0": Actor(lambda p, e, s, n: answer(p, e, s, n) if n == 0 else None)},
            trace_of("t", [0, 9], [[], []]),
        )


def test_a_message_to_nobody_is_refused_by_name() -> None:
    class Lost(Component):
        """Sends where nobody lives."""

        __slots__ = ()

        def on_submit(self, message: Submit, source: Address, now: Time) -> None:
            self._port.send("gm/9", Note())

        receives = {Submit: on_submit}  # noqa: RUF012 - the base class reads the table once and replaces it

    with pytest.raises(KeyError, match="a entry sent to 'gm/9', which is not an address"):
        play({"entry/0": Lost()}, ONE)


def test_messages_between_components_are_counted_and_answers_are_not() -> None:
    def start(port: Port) -> None:
        port.send("other/0", Note(1))
        port.send("other/0", Note(2))

    actor = Actor(answer, start)
    records = play({"entry/0": actor, "other/0": Actor()}, ONE)
    assert records.counters["messages"] == 2


def test_facts_reach_the_records() -> None:
    records = play({"entry/0": Actor(answer, lambda port: port.observe(Counted("beats", 3)))}, ONE)
    assert records.counters["beats"] == 3


def test_progress_is_told_and_ends_with_the_whole() -> None:
    told: list[Progress] = []
    records = play({"node/0": Actor(launch_all)}, trace_of("t", [0, 9], [[5], [5]]), progress=told.append)
    assert told[-1] == Progress(14, jobs_done=2, tasks_finished=2)
    assert records.answered_us[1] == 14


def test_copying_through_the_codec_gives_an_equal_but_other_message() -> None:
    note = Note(5)
    got: list[Message] = []

    def keep(port: Port, event: Event, source: Address, now: Time) -> None:
        assert isinstance(event, Message)
        got.append(event)

    for options in (Options(), Options(copy_messages=True)):
        play(
            {"entry/0": Actor(answer, lambda port: port.send("other/0", note)), "other/0": Actor(keep)},
            ONE,
            options=options,
        )
    assert got == [note, note]
    assert got[0] is note
    assert got[1] is not note


def test_the_collector_runs_again_after_a_run_that_failed() -> None:
    """The kernel switches it off for speed."""
    assert gc.isenabled()
    with pytest.raises(Stalled):
        play({"entry/0": Actor()}, ONE)
    assert gc.isenabled()


@pytest.mark.parametrize("check", [False, True])
def test_a_key_error_inside_a_handler_stays_a_key_error(check: bool) -> None:
    """It is the design's own mistake and must not look like an unknown message."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        raise KeyError("absent")

    with pytest.raises(KeyError, match="absent"):
        play({"node/0": Actor(react)}, ONE, options=Options(check=check))


def test_a_task_that_ends_where_nobody_listens_is_an_unknown_event() -> None:
    """A role that launches has to list TaskFinished."""

    class Deaf(Component):
        def on_submit(self, message: Submit, source: Address, now: Time) -> None:
            self._port.launch(message.job.tasks[0], 0)

        receives = {Submit: on_submit}  # noqa: RUF012 - the base class reads the table once and replaces it

    with pytest.raises(UnknownMessageError, match="TaskFinished"):
        play({"node/0": Deaf()}, trace_of("one task", [0], [[5]]))


def test_a_first_launch_keeps_the_attempt_that_it_was_given() -> None:
    """A later kill names the attempt."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 3)
        elif isinstance(event, TaskFinished):
            port.send("submitter", JobDone(0))

    records = play({"node/0": Actor(react)}, trace_of("one task", [0], [[5]]))
    assert list(records.attempt) == [3]


ROLES = ("entry", "left", "node")
Step = tuple[str, int]
"""What an actor does on an event: "send" to the role of this place, "timer" after so long, "launch" the next task."""
Happened = tuple[Time, Address, str, int]


def in_contract_order(
    steps: Sequence[Step], delays: Mapping[tuple[str, str], Time], durations: list[Time]
) -> list[Happened]:
    """What happens by the contract alone: a heap of (time, phase, order of sending); each event takes two steps."""
    left, task, seen = list(enumerate(steps)), 0, list[Happened]()
    heap = [(0, 3, -1, "entry/0", "submit", 0)]
    while heap:
        now, _, _, who, what, number = heapq.heappop(heap)
        seen.append((now, who, what, number))
        for order, (kind, argument) in [left.pop(0) for _ in range(min(2, len(left)))]:
            if kind == "send":
                to = f"{ROLES[argument % 3]}/0"
                delay = delays[role_of(who), role_of(to)]
                heapq.heappush(heap, (now + delay, 2 if delay else 3, order, to, "note", order))
            elif kind == "timer":
                heapq.heappush(heap, (now + argument, 1, order, who, "timer", order))
            elif who == "node/0" and task < len(durations):
                heapq.heappush(heap, (now + durations[task], 0, order, who, "end", task))
                task += 1
    return seen


@given(
    steps=st.lists(st.tuples(st.sampled_from(["send", "send", "timer", "launch"]), st.integers(1, 4)), max_size=40),
    delays=st.fixed_dictionaries({link: st.integers(0, 2) for link in itertools.product(ROLES, ROLES)}),
    durations=st.lists(st.integers(1, 4), min_size=8, max_size=8),
)
def test_events_come_in_the_order_of_the_contract(
    steps: list[Step], delays: dict[tuple[str, str], Time], durations: list[Time]
) -> None:
    """(time, phase, order of sending), phases being ends, timers, delayed messages, messages without delay."""
    left, tasks, seen = list(enumerate(steps)), list[Task](), list[Happened]()

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            tasks.extend(event.job.tasks)
            port.send("submitter", JobDone(0))
            seen.append((now, port.address, "submit", 0))
        elif isinstance(event, Note):
            seen.append((now, port.address, "note", event.number))
        elif isinstance(event, TimerFired):
            assert isinstance(event.key, int)
            seen.append((now, port.address, "timer", event.key))
        elif isinstance(event, TaskFinished):
            seen.append((now, port.address, "end", event.task.id))
        for order, (kind, argument) in [left.pop(0) for _ in range(min(2, len(left)))]:
            if kind == "send":
                port.send(f"{ROLES[argument % 3]}/0", Note(order))
            elif kind == "timer":
                port.set_timer(order, now + argument)
            elif port.address == "node/0" and tasks:
                port.launch(tasks.pop(0), 0)

    actors = {f"{role}/0": Actor(react) for role in ROLES}
    play(actors, trace_of("t", [0], [durations]), Cluster((0,), (8,)), delays=delays)
    assert seen == in_contract_order(steps, delays, durations)
