"""Roles that share a processor: turns, what they cost, and what waits for their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.sim.actors import Actor, Note, answer, launch_all, play

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.costs import EventCost, Frames, HostCosts
from volery.core.events import Event, JobAccepted, JobDone, Submit, TaskFinished, TimerFired
from volery.core.model import COALESCE_US, SUBMITTER, Address, Cluster, Message, Time
from volery.core.port import Port
from volery.core.records import PATH_SHIFT, Records
from volery.core.streams import Streams
from volery.sim import Network, Options, simulate
from volery.workload import load_trace

ONE = trace_of("one", [0], [[]])
FREE = Network(0)


def host(*roles: str, turn: float = 0, launch: float = 0, half: float = 1000, **events: EventCost) -> Options:
    """Options with one host; an event costs the same in every role."""
    known = {role: dict(events) for role in roles}
    return Options(hosts={"h": HostCosts(known, EventCost(turn), EventCost(launch), half)})


def test_tasks_start_one_after_the_other_when_their_turn_has_ended() -> None:
    """A turn of 100 us, a submission of 20 us and 2 us per task, then 10 us between launches."""
    options = host("node", turn=100, launch=10, Submit=EventCost(20, 2))
    node = Actor(launch_all)
    records = play(
        {"node/0": node}, trace_of("t", [0], [[900] * 3]), Cluster.uniform(1, 3), network=FREE, options=options
    )
    assert node.times(Submit) == [0], "what is handled in a turn happens at its beginning"
    assert list(records.start_us) == [126, 136, 146]
    assert list(records.path) == [126 << PATH_SHIFT, 136 << PATH_SHIFT, 146 << PATH_SHIFT], "all of it is processing"


def test_what_comes_during_a_turn_is_handled_in_the_next() -> None:
    node = Actor(answer)
    records = play(
        {"node/0": node}, trace_of("t", [0, 30, 60, 300], [[]] * 4), network=FREE, options=host("node", turn=100)
    )
    assert node.times(Submit) == [0, 100, 100, 300]
    assert list(records.answered_us) == [100, 200, 200, 400]


def test_messages_within_a_host_join_the_turn_and_others_leave_at_its_end() -> None:
    def forward(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            for to in ("far/0", "near/0", "far/0"):
                port.send(to, Note(now))
            port.send("submitter", JobDone(0))

    near, far = Actor(), Actor()
    options = host("entry", "near", turn=50, Note=EventCost(7))
    records = play(
        {"entry/0": Actor(forward), "near/0": near, "far/0": far}, ONE, network=Network(500), options=options
    )
    assert near.times(Note) == [0]
    assert far.times(Note) == [557, 557]
    assert records.counters["messages"] == 3


def test_a_rest_makes_events_dear_once_per_turn() -> None:
    """Never handled: 60 us more; after a rest of the half time, 30; two at once pay it once."""
    options = host("node", half=500, Submit=EventCost(0, 0, 60))
    records = play({"node/0": Actor(answer)}, trace_of("t", [0, 560, 560], [[]] * 3), network=FREE, options=options)
    assert list(records.answered_us) == [60, 590, 590]


def test_the_submitter_costs_the_host_that_it_shares() -> None:
    costs = HostCosts({"node": {}, "submitter": {"Submit": EventCost(11)}})
    records = play({"node/0": Actor(answer)}, ONE, network=FREE, options=Options(hosts={"h": costs}))
    assert list(records.answered_us) == [11]


def test_events_that_were_not_measured_cost_what_others_of_their_role_do() -> None:
    options = host("node", other=EventCost(13), TaskFinished=EventCost(1))
    records = play({"node/0": Actor(launch_all)}, trace_of("t", [0], [[100]]), network=FREE, options=options)
    assert (list(records.start_us), list(records.answered_us)) == ([13], [114])


def test_fractions_are_rounded_once_per_turn() -> None:
    options = host("node", Submit=EventCost(0.4))
    records = play({"node/0": Actor(answer)}, trace_of("t", [0] * 5, [[]] * 5), network=FREE, options=options)
    assert list(records.answered_us) == [2] * 5


@pytest.mark.parametrize("how", ["cancelled", "replaced"])
def test_a_timer_that_is_not_wanted_any_more_does_not_fire_from_the_inbox(how: str) -> None:
    """It falls due while a turn is at work, and the event before it in the inbox takes it back."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit) and now == 0:
            port.set_timer("t", 60)
        elif isinstance(event, Submit) and how == "cancelled":
            port.cancel_timer("t")
        elif isinstance(event, Submit):
            port.set_timer("t", 900)
        if isinstance(event, Submit):
            port.send("submitter", JobDone(event.job.id))

    node = Actor(react)
    play({"node/0": node}, trace_of("t", [0, 30], [[], []]), network=FREE, options=host("node", turn=100))
    assert node.times(TimerFired) == ([] if how == "cancelled" else [900])


def test_a_killed_attempt_ends_when_the_turn_does() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit) and event.job.tasks:
            port.launch(event.job.tasks[0], 0)
        elif isinstance(event, Submit):
            port.kill(0, 0)
            port.send("submitter", JobDone(1))
        elif isinstance(event, TaskFinished):
            port.send("submitter", JobDone(0))

    node = Actor(react)
    records = play({"node/0": node}, trace_of("t", [0, 500], [[9000], []]), network=FREE, options=host("node", turn=10))
    assert records.killed == {(0, 0): 510}
    assert [event.outcome for _, event, _ in node.seen if isinstance(event, TaskFinished)] == ["killed"]


@pytest.mark.parametrize("name", ["megha", "pigeon"])
def test_designs_run_on_one_processor_and_on_several(name: str) -> None:
    """All tasks run, a dearer processor makes them wait longer, and the digest is the same each time."""
    architecture = lookup(name)
    sizes = {"gms": 2, "lms": 2} if name == "megha" else {"distributors": 2, "groups": 2, "reserved": 2}
    config, cluster = configure(architecture, sizes), Cluster.uniform(40)
    trace = load_trace("poisson:load=0.7,workers=40,fanout=6,mean=0.05,jobs=150")
    roles = ("gm", "lm", "node", "distributor", "master")

    def run(options: Options) -> Records:
        return simulate(architecture.build(cluster, config, Streams(0)), trace, cluster, network=FREE, options=options)

    def waited_us(records: Records) -> int:
        return sum(records.start_us)

    cheap, dear = (
        host(*roles, turn=turn, launch=5, other=EventCost(each, 1, 20)) for turn, each in ((10, 3), (40, 40))
    )
    spread = Options(hosts={role: HostCosts({role: {"other": EventCost(40, 1, 20)}}, EventCost(40)) for role in roles})
    assert min(run(cheap).finish_us) > 0
    assert min(run(spread).finish_us) > 0
    assert run(cheap).digest() == run(cheap).digest()
    assert run(Options()).counters["messages"] > 0
    assert waited_us(run(Options())) < waited_us(run(cheap)) < waited_us(run(dear))


def test_each_component_of_a_role_may_have_a_processor_of_its_own() -> None:
    """Two nodes that work 100 us each at the same time end together; on one processor it takes both 200 us."""
    ends: list[Time] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.send("node/0", Note(0))
            port.send("node/1", Note(1))
            port.send("submitter", JobDone(0))
        elif isinstance(event, Note) and port.address == "end/0":
            ends.append(now)
        elif isinstance(event, Note):
            port.send("end/0", event)

    for each, expected in ((True, 1100), (False, 1200)):
        costs = HostCosts({"node": {"Note": EventCost(event_us=100)}}, each=each)
        actors = {name: Actor(react) for name in ("entry/0", "node/0", "node/1", "end/0")}
        play(actors, ONE, Cluster.uniform(2), options=Options(hosts={"nodes": costs}))
        assert ends == [expected] * 2
        ends.clear()


class Told(Message, frozen=True):
    """Of so many machines, and slots."""

    entries: int
    changed_slots: int = 0


def test_a_message_costs_its_sender_and_its_receiver_by_the_machines_that_it_tells_of() -> None:
    seen: list[Time] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.send("far/0", Told(30, 10))
            port.send("submitter", JobDone(0))
        if isinstance(event, Told):
            port.send("end/0", Note(1))
        if isinstance(event, Note):
            seen.append(now)

    trace = trace_of("t", [0], [[]])
    free = EventCost()
    cases = (
        (free, free, 1000),
        (EventCost(entry_us=2), free, 1060),
        (free, EventCost(entry_us=3), 1090),
        (EventCost(change_us=2), free, 1020),
        (free, EventCost(change_us=3), 1030),
    )
    for send, entry, expected in cases:
        hosts = {
            "near": HostCosts({"entry": {}}, sends={"Told": send}),
            "far": HostCosts({"far": {"Told": entry}}),
        }
        play({name: Actor(react) for name in ("entry/0", "far/0", "end/0")}, trace, options=Options(hosts=hosts))
        assert seen.pop() == expected


FAR_NETWORK = Network(1_000_000)
"""Of this nobody is to see anything."""


def options(delays_us: tuple[int, ...], hosts: Mapping[str, HostCosts], **frames: Any) -> Options:
    return Options(hosts=hosts, frames=Frames(delays_us, **frames))


def forward(port: Port, event: Event, source: Address, now: Time) -> None:
    if isinstance(event, Submit):
        for to in ("far/0", "far/1", "near/0"):
            port.send(to, Note(now))
        port.send(SUBMITTER, JobDone(event.job.id))


def test_what_a_turn_says_to_a_host_is_one_frame_and_making_writing_and_reading_it_is_work() -> None:
    """A turn of 50 us, 5 and 2 messages to make, 7 and a frame to write, 100 on the way, 11 and 2 messages to read."""
    entry = HostCosts(
        {"entry": {}, "near": {}}, EventCost(50), made=EventCost(5, 1), written=EventCost(7, 1), read=EventCost(99)
    )
    reader = HostCosts({"far": {}}, EventCost(20), read=EventCost(11, 3))
    near, first = Actor(), Actor()

    def echo(port: Port, event: Event, source: Address, now: Time) -> None:
        port.send("near/0", Note(now))

    components = {"entry/0": Actor(forward), "near/0": near, "far/0": first, "far/1": Actor(echo)}
    records = play(components, ONE, network=FAR_NETWORK, options=options((100,), {"a": entry, "b": reader}))
    left = 50 + 5 + 2 * 1 + 7 + 1
    assert first.times(Note) == [left + 100], "a turn is handled at its beginning, and what it reads is charged after"
    assert near.times(Note) == [0, left + 100 + 20 + 11 + 2 * 3 + 100]
    assert records.counters["messages"] == 4


def test_frames_of_a_link_keep_their_order_whatever_they_draw() -> None:
    heard: list[int] = []

    def note(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Note):
            heard.append(event.number)

    def send(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.send("far/0", Note(event.job.id))
            port.send(SUBMITTER, JobDone(event.job.id))

    hosts = {"a": HostCosts({"entry": {}}), "b": HostCosts({"far": {}})}
    jobs = trace_of("many", list(range(200)), [[]] * 200)
    play(
        {"entry/0": Actor(send), "far/0": Actor(note)}, jobs, network=FAR_NETWORK, options=options((900, 1, 30), hosts)
    )
    assert heard == list(range(200))


@pytest.mark.parametrize(("cores", "began"), [(0, [1, 1]), (1, [1, 41]), (2, [1, 1])])
def test_hosts_wait_for_a_core(cores: int, began: list[int]) -> None:
    far, near = Actor(), Actor()
    hosts = {
        "entry": HostCosts({"entry": {}}),
        **{name: HostCosts({name: {}}, EventCost(40)) for name in ("far", "near")},
    }
    actors = {"entry/0": Actor(forward), "far/0": far, "far/1": Actor(), "near/0": near}
    play(actors, ONE, network=FAR_NETWORK, options=options((1,), hosts, cores=cores))
    assert [actor.times(Note)[0] for actor in (far, near)] == began


def test_the_broker_takes_a_core_for_each_frame() -> None:
    """The broker has the first frame from 10 to 40 us and the second to 70, and so long the only core."""

    def send(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            for to in ("far/0", "near/0"):
                port.send(to, Note(0))
            port.send(SUBMITTER, JobDone(event.job.id))

    far, near = Actor(), Actor()
    hosts = {name: HostCosts({name: {}}) for name in ("entry", "far", "near")}
    play(
        {"entry/0": Actor(send), "far/0": far, "near/0": near},
        ONE,
        network=FAR_NETWORK,
        options=options((50,), hosts, broker_us=30, cores=1),
    )
    assert [far.times(Note), near.times(Note)] == [[70], [80]]


def test_the_submitter_on_a_host_of_its_own_sends_frames_and_reads_them_and_hears_reports() -> None:
    """A turn of 30 us and 5 to submit, 100 on the way, 9 to launch, and a frame back for each start and end."""
    api = HostCosts({"submitter": {"Submit": EventCost(5)}}, EventCost(30), made=EventCost(1), read=EventCost(1_000))
    node = HostCosts({"node": {}}, launch=EventCost(9), made=EventCost(2), reports=True)

    def run(reports: bool) -> tuple[list[int], list[int]]:
        hosts = {"api": api, "node": msgspec.structs.replace(node, reports=reports)}
        records = play(
            {"node/0": Actor(launch_all)},
            trace_of("t", [0, 1_400], [[10], [10]]),
            Cluster.uniform(1, 2),
            network=FAR_NETWORK,
            options=options((100,), hosts),
        )
        return list(records.start_us), list(records.path)

    start, path = run(reports=False)
    assert start == [136, 1_536]
    assert path[0] == 36 << PATH_SHIFT | 100
    later, _ = run(reports=True)
    assert later[0] == 136
    assert later[1] > 1_536, "the API reads of the first task's start and end when the second is to be submitted"


def test_what_nobody_waits_for_rides_with_the_next_frame_or_goes_after_a_while() -> None:
    told: list[Time] = []

    def accept(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.send("far/0", JobAccepted(event.job.id))
            if event.job.id:
                port.send("far/0", Note(0))
            port.send(SUBMITTER, JobDone(event.job.id))

    def hear(port: Port, event: Event, source: Address, now: Time) -> None:
        told.append(now)

    hosts = {"a": HostCosts({"entry": {}}), "b": HostCosts({"far": {}})}
    far = Actor(hear)
    jobs = trace_of("two", [0, COALESCE_US // 2, 3 * COALESCE_US], [[], [], []])
    play({"entry/0": Actor(accept), "far/0": far}, jobs, network=FAR_NETWORK, options=options((10,), hosts))
    rides = COALESCE_US // 2 + 10
    assert told[:3] == [rides] * 3
    told.clear()
    play({"entry/0": Actor(accept), "far/0": far}, ONE, network=FAR_NETWORK, options=options((10,), hosts))
    assert told == [COALESCE_US + 10]
