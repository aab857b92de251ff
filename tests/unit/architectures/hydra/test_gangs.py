"""Gangs in Hydra: asked of one sub-cluster, granted in one message, and asked for again when a member is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.hydra.test_manager import A, B, ask, granted, manager
from tests.unit.architectures.parts import Alone, messages, submit, tasks
from tests.unit.effects import RecordingPort, Sent

from volery.architectures import configure, lookup
from volery.architectures.hydra.messages import (
    Completed,
    Container,
    Directory,
    GangRequest,
    Grant,
    Hosted,
    Kill,
    Refused,
    Release,
    Start,
    Vacated,
)
from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, MoreTasks
from volery.core.gangs import with_gangs
from volery.core.model import SECOND, Cluster, Gang, Job
from volery.core.streams import Streams
from volery.roles.recovery.channel import Linked, Renewed
from volery.sim import simulate

ANYWHERE = Gang()
ROUTER, PROXY = "router/0", "proxy/0/0"


def want(number: int, job: int, *needs: int, shape: Gang = ANYWHERE) -> GangRequest:
    return GangRequest(number, job, "", needs, shape)


def grants(effects: list[Any]) -> list[list[int]]:
    """The jobs of the containers of each grant."""
    return [[container.job for container in grant.containers] for _, grant in messages(effects, Grant)]


def test_a_gang_is_granted_in_one_message_and_slots_are_kept_for_it_until_then() -> None:
    rm = manager(4)
    assert granted(rm.hear(ask(1, 7, 2), A)) == [(A, 7)] * 2
    assert grants(rm.hear(want(2, 8, 0, 0, 0), A)) == [], "two slots are kept"
    assert grants(rm.hear(ask(1, 9, 1), B)) == []
    assert grants(rm.hear(Vacated((1,)), "node/0")) == [[8, 8, 8]]
    assert grants(rm.hear(Vacated((2,)), "node/1")) == [[9]]


def test_a_gang_waits_for_its_turn_and_what_does_not_suit_it_goes_on() -> None:
    rm = Alone("hydra", "rm/0", Cluster((0, 1, 1), (1,) * 3), node_heartbeat_s=0.0, am_heartbeat_s=0.0, subclusters=1)
    (grant,) = [grant for _, grant in messages(rm.hear(ask(1, 7, 4), A), Grant)]
    on = {container.machine: container.id for container in grant.containers}
    assert grants(rm.hear(want(2, 8, 1, 1), A)) == []
    assert grants(rm.hear(Vacated((on[1],)), "node/1")) == [[7]], "which was before it"
    assert grants(rm.hear(ask(1, 9, 1), B)) == []
    assert grants(rm.hear(Vacated((on[2],)), "node/2")) == [], "kept for the gang"
    assert grants(rm.hear(Vacated((on[0],)), "node/0")) == [[9]]


def test_a_gang_that_is_not_wanted_any_more_gives_its_slots_back() -> None:
    rm = manager(2)
    rm.hear(ask(1, 7, 1), A)
    rm.hear(want(2, 8, 0, 0), A)
    rm.hear(ask(1, 9, 1), B)
    assert grants(rm.hear(want(3, 8), A)) == [[9]]
    assert not grants(rm.hear(want(3, 8), A)), "repeated"


def test_a_shape_spreads_containers_over_machines() -> None:
    rm = Alone("hydra", "rm/0", Cluster.uniform(3, slots=2), node_heartbeat_s=0.0, am_heartbeat_s=0.0, subclusters=1)
    (grant,) = [grant for _, grant in messages(rm.hear(want(1, 7, 0, 0, 0, shape=Gang(3, 1)), A), Grant)]
    assert sorted(container.machine for container in grant.containers) == [0, 1, 2]


def test_gangs_are_granted_at_heartbeats_too() -> None:
    architecture = lookup("hydra")
    cluster = Cluster.uniform(4)
    trace = with_gangs(trace_of("turns", [0, 1, 2], [[5 * SECOND] * 3, [SECOND] * 4, [SECOND]]), [0, 0, -1])
    deployment = architecture.build(cluster, configure(architecture, {"subclusters": "1"}), Streams(0))
    records = simulate(deployment, trace, cluster)
    starts = [set(records.start_us[first:last]) for first, last in ((0, 3), (3, 7), (7, 8))]
    assert [len(each) for each in starts] == [1, 1, 1]
    assert max(starts[1]) < max(starts[2]), "the last slot is kept for the second gang"
    assert not records.held_us


def proxy(machines: int = 6, **parameters: Any) -> Alone:
    return Alone("hydra", PROXY, Cluster.uniform(machines), **{"subclusters": 2, **parameters})


def hosted(number: int, size: int, shape: Gang = ANYWHERE) -> Hosted:
    return Hosted(msgspec.structs.replace(submit(number, *[0] * size).job, gang=shape))


def asked(effects: list[Any]) -> list[tuple[str, int]]:
    """Receiver and size of requests for gangs; 0: withdrawn."""
    return [(to, len(message.needs)) for to, message in messages(effects, GangRequest)]


def give(number: int, *machines: int, job: int = 0) -> Grant:
    containers = [Container(100 * number + place, machine, 0, job, 0) for place, machine in enumerate(machines)]
    return Grant(number, tuple(containers), 0)


def started(effects: list[Any]) -> list[tuple[str, int, int]]:
    return [(to, message.task.id, message.attempt) for to, message in messages(effects, Start)]


def test_the_sub_cluster_with_most_headroom_is_asked_for_all_containers() -> None:
    one = proxy()
    one.hear(Directory(1, (True, True), (1000, 1000), (1, 3)), "store/0")
    assert asked(one.hear(hosted(0, 2), ROUTER)) == [("rm/1", 2)]
    assert asked(one.hear(hosted(1, 2), ROUTER)) == [("rm/0", 2)], "the first has asked for what was free"
    effects = one.hear(give(1, 3, 4), "rm/1")
    assert started(effects) == [("node/3", 0, 0), ("node/4", 1, 0)]
    assert [messages(one.hear(Completed(0, task, 0, False), "node/3"), JobDone) for task in (0, 1)][1]


def test_a_gang_that_is_lost_in_part_is_ended_and_asked_for_again_whole() -> None:
    one = proxy(split="home")
    assert asked(one.hear(hosted(0, 3, Gang(3, 1)), ROUTER)) == [("rm/0", 3)]
    one.hear(give(1, 0, 1, 2), "rm/0")
    one.hear(Completed(0, 2, 0, False), "node/2")
    assert one.hear(Refused(0, 0, 0), "node/0") == [("node/1", Kill(1, 0))]
    effects = one.hear(Completed(0, 1, 0, True), "node/1")
    assert messages(effects, GangRequest) == [("rm/0", GangRequest(2, 0, "", (0, 0), Gang(2, 1)))]
    assert started(one.hear(give(2, 1, 2), "rm/0")) == [("node/1", 0, 1), ("node/2", 1, 1)]


def test_a_gang_whose_last_running_member_finishes_is_asked_for_again() -> None:
    one = proxy(split="home")
    one.hear(hosted(0, 2), ROUTER)
    one.hear(give(1, 0, 1), "rm/0")
    one.hear(Refused(0, 0, 0), "node/0")
    assert asked(one.hear(Completed(0, 1, 0, False), "node/1")) == [("rm/0", 1)]


def test_another_sub_cluster_is_asked_where_one_is_lost_and_late_grants_are_returned() -> None:
    one = proxy(split="home")
    one.hear(hosted(0, 2), ROUTER)
    effects = one.hear(Directory(1, (False, True), (1000, 1000), (0, 3)), "store/0")
    assert asked(effects) == [("rm/0", 0), ("rm/1", 2)]
    effects = one.hear(give(1, 0, 1), "rm/0")
    assert len(started(effects)) == 2, "it was granted before the loss: as good as any"
    assert asked(effects) == [("rm/1", 0)]
    assert messages(one.hear(give(1, 3, 4), "rm/1"), Release) == [("rm/1", Release((100, 101)))]


def test_a_container_whose_start_a_restarted_machine_never_got_is_returned() -> None:
    one = proxy(split="home", reliable=True)
    assert isinstance(one.component, Linked)
    bare = one.component.inner
    port = RecordingPort.under(bare, PROXY)
    bare.start(0)
    for event, source in ((hosted(0, 2), ROUTER), (give(1, 0, 1), "rm/0"), (Renewed("node/1"), "node/1")):
        port.drain()
        bare.handle(event, source, 0)
    sent = [(effect.to, effect.message) for effect in port.drain() if isinstance(effect, Sent)]
    assert sent == [("rm/0", Release((101,))), ("node/0", Kill(0, 0))]


def test_a_gang_that_is_cancelled_is_wanted_no_more() -> None:
    one = proxy(split="home")
    one.hear(hosted(0, 2), ROUTER)
    effects = one.hear(Cancel(0), ROUTER)
    assert asked(effects) == [("rm/0", 0)]
    assert [message for _, message in messages(effects, JobDone)] == [JobDone(0, 0)]
    one.hear(hosted(1, 2), ROUTER)
    one.hear(give(1, 0, 1, job=1), "rm/0")
    one.hear(Refused(1, 100, 0), "node/0")
    effects = [effect for event in (Cancel(1), Completed(1, 101, 0, True)) for effect in one.hear(event, ROUTER)]
    assert [message for _, message in messages(effects, JobDone)] == [JobDone(1, 0)]


def test_a_gang_in_chunks_is_asked_for_when_all_have_come_and_one_that_none_holds_is_refused() -> None:
    one = proxy(split="home")
    all_tasks = tasks(0, 0, 0, 0)
    assert asked(one.hear(Hosted(Job(0, 3, all_tasks[:2], gang=ANYWHERE)), ROUTER)) == []
    assert asked(one.hear(MoreTasks(0, 2, all_tasks[2:]), ROUTER)) == [("rm/0", 3)]
    one = Alone("hydra", PROXY, Cluster((1, 0, 0, 1), (1,) * 4), subclusters=2)
    gang = Hosted(msgspec.structs.replace(submit(0, 1, 1).job, gang=ANYWHERE))
    assert [message for _, message in messages(one.hear(gang, ROUTER), JobDone)] == [JobDone(0, 2)]


def test_a_gang_larger_than_every_sub_cluster_is_refused_before_the_run() -> None:
    architecture = lookup("hydra")
    cluster = Cluster.uniform(6)
    deployment = architecture.build(cluster, configure(architecture, {"subclusters": "2"}), Streams(0))
    trace = with_gangs(trace_of("large", [0], [[SECOND] * 4]), [0])
    with pytest.raises(InputError, match=r"job 0 is a gang of 4 tasks.*holds 3 of them; give fewer sub-clusters"):
        simulate(deployment, trace, cluster)
