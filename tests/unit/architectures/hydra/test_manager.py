"""A resource manager alone: queues, heartbeats, registrations; and the node that registers."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone, messages
from tests.unit.effects import Launched, RecordingPort, Sent, TimerSet

from volery.architectures.hydra.messages import (
    Container,
    ContainerRequest,
    Entitle,
    Grant,
    Refused,
    Register,
    Release,
    Start,
    Vacated,
    Welcome,
)
from volery.core.events import TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.roles.recovery.channel import Linked, Renewed

AT_ONCE: dict[str, Any] = {"node_heartbeat_s": 0.0, "am_heartbeat_s": 0.0, "subclusters": 1}
A, B = "proxy/0/0", "proxy/0/1"


def manager(machines: int, **parameters: Any) -> Alone:
    return Alone("hydra", "rm/0", Cluster.uniform(machines), **{**AT_ONCE, **parameters})


def granted(effects: list[Any]) -> list[tuple[str, int]]:
    """Receiver and job of every container."""
    return [(to, container.job) for to, grant in messages(effects, Grant) for container in grant.containers]


def ask(number: int, job: int, count: int, user: str = "") -> ContainerRequest:
    return ContainerRequest(number, job, user, (0,), (count,))


def test_what_is_free_is_granted_and_the_rest_waits_for_a_heartbeat() -> None:
    rm = manager(2)
    assert granted(rm.hear(ask(1, 7, 3), A)) == [(A, 7), (A, 7)]
    assert not granted(rm.hear(ask(1, 7, 3), A)), "repeated"
    assert granted(rm.hear(Vacated((1,)), "node/0")) == [(A, 7)]
    assert not granted(rm.hear(Vacated((1,)), "node/0")), "repeated"


def test_containers_that_are_not_wanted_any_more_are_not_granted() -> None:
    rm = manager(1)
    rm.hear(ask(1, 7, 4), A)
    rm.hear(ask(1, 8, 1), B)
    rm.hear(ask(2, 7, -3), A)
    assert granted(rm.hear(Release((1,)), A)) == [(B, 8)]
    rm.hear(Vacated((2,)), "node/0")
    rm.component.check_rest()


def test_the_queue_that_uses_least_of_its_capacity_is_served_first_and_entitlements_change_that() -> None:
    rm = manager(4, queues="a:1+b:1")
    rm.hear(ask(1, 1, 9, "a"), A)
    rm.hear(ask(1, 2, 9, "b"), B)
    assert granted(rm.hear(Release((1,)), A)) == [(B, 2)]
    assert granted(rm.hear(Release((2,)), A)) == [(B, 2)]
    rm.hear(Entitle(1, ("a", "b"), (3, 1)), "store/0")
    assert granted(rm.hear(Release((5,)), B)) == [(A, 1)], "a is due three of four now"
    rm.hear(Entitle(2, ("a", "b"), (1, 3)), "store/0")
    assert granted(rm.hear(Release((3,)), A)) == [(B, 2)]


def test_heartbeats_bound_how_soon_a_container_is_granted_and_told() -> None:
    rm = manager(2, node_heartbeat_s=1.0, am_heartbeat_s=2.0)
    effects = rm.hear(ask(1, 7, 2), A, now=100_000)
    assert not granted(effects)
    (due,) = [effect.at for effect in effects if isinstance(effect, TimerSet) and effect.key == "serve"]
    assert 100_000 < due <= 100_000 + SECOND
    effects = rm.hear(TimerFired("serve"), "rm/0", now=due)
    told = [effect.at for effect in effects if isinstance(effect, TimerSet) and effect.key == "tell"]
    assert told == [2 * SECOND], "the next heartbeat of the masters beside the first proxy"
    assert granted(rm.hear(TimerFired("tell"), "rm/0", now=2 * SECOND + 300)) == [(A, 7)], "live timers fire late"


def test_a_decision_per_container_holds_up_the_next_machine() -> None:
    rm = manager(2, decision_ms=5.0)
    effects = rm.hear(ask(1, 7, 2), A)
    assert not granted(effects)
    (problem,) = [effect.problem for effect in effects if hasattr(effect, "problem")]
    assert problem.decision_us == 5000, "one machine at a time"


def test_a_registration_voids_what_was_given_before_and_keeps_what_runs() -> None:
    linked = Alone("hydra", "node/0", Cluster.uniform(1), **AT_ONCE, reliable=True).component
    assert isinstance(linked, Linked)
    node = linked.inner

    port = RecordingPort.under(node, "node/0")
    given = Container(1, 0, 0, 7, 0)
    node.handle(Start(1, given, "", Task(70, 7), 0), A, 0)
    node.handle(Renewed("rm/0"), "rm/0", 1)
    node.handle(Start(2, Container(2, 0, 0, 7, 0), "", Task(71, 7), 0), A, 2)
    (launch, register) = port.drain()
    assert launch == Launched(Task(70, 7), 0)
    assert isinstance(register, Sent)
    assert isinstance(register.message, Register)
    assert [held.container for held in register.message.running] == [given]
    node.handle(Welcome(1, 5), "rm/0", 3)
    assert port.drain() == [Sent(A, Refused(7, 71, 0))]
    node.handle(Start(3, Container(3, 0, 5, 7, 0), "", Task(72, 7), 0), A, 4)
    assert port.drain() == [Launched(Task(72, 7), 0)]
