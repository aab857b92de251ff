"""Frames between hosts: one per turn and receiver, with what they cost, in order; and cores that hosts share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.sim.actors import Actor, Note, launch_all, play

from volery.conformance.cases import trace_of
from volery.core.costs import EventCost, Frames, HostCosts
from volery.core.events import Event, JobAccepted, JobDone, Submit
from volery.core.model import COALESCE_US, SUBMITTER, Address, Cluster, Time
from volery.core.port import Port
from volery.core.records import PATH_SHIFT
from volery.sim import Network, Options

ONE = trace_of("one", [0], [[]])
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
        {"entry/0": Actor(send), "far/0": far, "near/0": near}, ONE, network=FAR_NETWORK,
        options=options((50,), hosts, broker_us=30, cores=1),
    )  # fmt: skip
    assert [far.times(Note), near.times(Note)] == [[70], [80]]


def test_the_submitter_on_a_host_of_its_own_sends_frames_and_reads_them_and_hears_reports() -> None:
    """A turn of 30 us and 5 to submit, 100 on the way, 9 to launch, and a frame back for each start and end."""
    api = HostCosts({"submitter": {"Submit": EventCost(5)}}, EventCost(30), made=EventCost(1), read=EventCost(1_000))
    node = HostCosts({"node": {}}, launch=EventCost(9), made=EventCost(2), reports=True)

    def run(reports: bool) -> tuple[list[int], list[int]]:
        hosts = {"api": api, "node": msgspec.structs.replace(node, reports=reports)}
        records = play(
            {"node/0": Actor(launch_all)}, trace_of("t", [0, 1_400], [[10], [10]]), Cluster.uniform(1, 2),
            network=FAR_NETWORK, options=options((100,), hosts),
        )  # fmt: skip
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
