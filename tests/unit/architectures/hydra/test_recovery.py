"""Registrations: what a resource manager takes over of its machines, and what a node ends and refuses."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone
from tests.unit.effects import Killed, Launched, RecordingPort, Sent

from volery.architectures.hydra.messages import (
    Container,
    ContainerRequest,
    Grant,
    Held,
    Kill,
    NodeDead,
    Reborn,
    Refused,
    Register,
    Start,
    Vacated,
    Welcome,
)
from volery.core.component import Component
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import SECOND, Address, Cluster, Task
from volery.roles.recovery.channel import Linked, Renewed

PROXY = "proxy/0/0"
AT_ONCE: dict[str, Any] = {"node_heartbeat_s": 0.0, "am_heartbeat_s": 0.0, "subclusters": 1, "proxies": 1}


class Bare:
    """A component without its link: events in, messages, launches and kills out."""

    def __init__(self, address: Address, machines: int = 1) -> None:
        linked = Alone("hydra", address, Cluster.uniform(machines), **AT_ONCE, reliable=True, node_expiry_s=4.0)
        assert isinstance(linked.component, Linked)
        self.component: Component = linked.component.inner
        self.port = RecordingPort.under(self.component, address)

    def hear(self, event: Any, source: Address, now: int = 0) -> list[Any]:
        self.component.handle(event, source, now)
        self.component.check()
        effects = self.port.drain()
        sent = [(effect.to, effect.message) for effect in effects if isinstance(effect, Sent)]
        return [*sent, *[effect for effect in effects if isinstance(effect, Launched | Killed)]]


def granted(effects: list[Any]) -> list[Container]:
    return [each for _, message in effects if isinstance(message, Grant) for each in message.containers]


def ask(number: int, count: int) -> ContainerRequest:
    return ContainerRequest(number, 7, "", (0,), (count,))


def test_a_registration_is_taken_over_and_later_containers_are_of_its_term() -> None:
    rm = Bare("rm/0", machines=2)
    before = granted(rm.hear(ask(1, 2), PROXY))
    assert {each.term for each in before} == {0}
    kept = before[0]
    effects = rm.hear(Register(1, (Held(kept, PROXY, ""),)), f"node/{kept.machine}")
    assert effects == [(f"node/{kept.machine}", Welcome(1, 1))]
    node = f"node/{before[1].machine}"
    rm.hear(Register(1, ()), node)
    (again,) = granted(rm.hear(ask(2, 1), PROXY))
    assert (again.machine, again.term) == (before[1].machine, 2), "what was granted there before is void"


def test_a_machine_that_is_lost_for_a_lease_is_given_up() -> None:
    rm = Bare("rm/0")
    granted(rm.hear(ask(1, 2), PROXY))
    rm.hear(PeerLost("node/0"), "rm/0")
    assert rm.hear(TimerFired(("lease", 0)), "rm/0", now=6 * SECOND) == [(PROXY, NodeDead(0))]
    assert not granted(rm.hear(ask(2, 1), PROXY)), "nothing is granted there"
    assert granted(rm.hear(PeerBack("node/0"), "rm/0"))


def test_a_restarted_machine_is_used_when_it_has_registered() -> None:
    rm = Bare("rm/0")
    rm.hear(Renewed("node/0"), "node/0")
    assert not granted(rm.hear(ask(1, 1), PROXY))
    assert granted(rm.hear(Register(1, ()), "node/0"))


def test_a_task_waits_for_the_welcome_and_may_be_refused_meanwhile() -> None:
    node = Bare("node/0")
    effects = node.hear(Renewed("rm/0"), "rm/0")
    assert effects == [("rm/0", Register(1, ()))]
    for number, task in enumerate((70, 71), 1):
        assert not node.hear(Start(number, Container(number, 0, 3, 7, 0), "", Task(task, 7), 0), PROXY)
    assert node.hear(Kill(71, 0), PROXY) == [(PROXY, Refused(7, 71, 0)), ("rm/0", Vacated((2,)))]
    assert not node.hear(Welcome(0, 9), "rm/0"), "of an earlier registration"
    assert node.hear(Welcome(1, 3), "rm/0") == [Launched(Task(70, 7), 0)]
    assert not node.hear(Reborn(), "rm/0"), "the link has reported it"


def test_a_node_without_its_manager_ends_all_in_the_end() -> None:
    node = Bare("node/0")
    node.hear(Start(1, Container(1, 0, 0, 7, 0), "", Task(70, 7), 0), PROXY)
    node.hear(PeerLost("rm/0"), "node/0")
    assert node.hear(TimerFired("expiry"), "node/0", now=4 * SECOND) == [("rm/0", Register(1, ())), Killed(70, 0)]
