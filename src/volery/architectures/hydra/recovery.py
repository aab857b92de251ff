"""Recovery: nodes register with a resource manager that has restarted, and with theirs after a restart of their own.

A restarted resource manager has no state, and a restarted node runs nothing. In both cases the node registers: it lists
what runs, and from then on only containers that were granted since are valid. So nothing that was granted before, and
is still under way, can take a slot twice, and what runs goes on while its resource manager is down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from volery.architectures.hydra.layout import SubCluster
from volery.architectures.hydra.messages import Held, Kill, NodeDead, Reborn, Refused, Register, Start, Vacated, Welcome
from volery.core.component import Sends, sent_to
from volery.core.events import Event, PeerBack, PeerLost
from volery.core.model import Address, TaskId, Time
from volery.core.port import Port
from volery.roles.recovery.channel import Renewed

EXPIRY: Final = "expiry"
NO_TERM: Final = -1
"""Term of a node that has registered again, and was not welcomed yet."""
IDS: Final = 1 << 40
"""Number of containers, or terms, that one incarnation of a resource manager can give."""


class Registrant(Protocol):
    """A node, as its registration calls it."""

    running: dict[TaskId, tuple[Start, Address]]

    def launch(self, start: Start, proxy: Address) -> None: ...
    def forget_vacated(self) -> None: ...


class Registration:
    """A node's registration with its resource manager: tasks start under it, or wait for it.

    Args:
        expiry_us: Time without its resource manager after which the node ends all that runs.
    """

    __slots__ = ("_expiry_us", "_incarnation", "_node", "_number", "_port", "_proxies", "_rm", "_term", "_waiting")

    _node: Registrant
    _port: Port

    def __init__(self, rm: Address, proxies: Sequence[Address], expiry_us: Time, incarnation: int) -> None:
        self._rm = rm
        self._proxies = proxies
        self._expiry_us = expiry_us
        self._incarnation = incarnation
        self._term = 0
        self._number = 0
        self._waiting: list[tuple[Start, Address]] = []

    def bind(self, node: Registrant, port: Port) -> None:
        """Serve a node, by its port."""
        self._node = node
        self._port = port

    def start(self) -> None:
        """Register after a restart, and inform the proxies that nothing runs here."""
        if self._incarnation:
            self._register()
            for proxy in self._proxies:
                self._port.send(proxy, Reborn())

    def _register(self) -> None:
        self._term = NO_TERM
        self._number += 1
        running = [Held(start.container, proxy, start.user) for start, proxy in self._node.running.values()]
        self._port.send(self._rm, Register(self._number, tuple(running)))

    def admits(self, start: Start, proxy: Address) -> bool:
        """True if a task may begin now; else it waits for the term, or is refused with its container's earlier one."""
        # What it may start is known when the term is: the resource manager may have restarted.
        if self._term == NO_TERM:
            self._waiting.append((start, proxy))
            return False

        # A container that was granted before the registration may hold a slot that was granted again since.
        if start.container.term != self._term:
            self._port.send(proxy, Refused(start.task.job, start.task.id, start.attempt))
            return False

        return True

    def refuses(self, kill: Kill) -> bool:
        """True if the attempt to end has not begun; then it never does."""
        for place, (start, proxy) in enumerate(self._waiting):
            if (start.task.id, start.attempt) == (kill.task, kill.attempt):
                del self._waiting[place]
                self._port.send(proxy, Refused(start.task.job, kill.task, kill.attempt))
                # The container may be of the term that is on its way; one of an earlier term is unknown there.
                self._port.send(self._rm, Vacated((start.container.id,)))
                return True

        return False

    def handle(self, event: Event, source: Address, now: Time) -> None:
        self.receives[type(event)](self, event, source, now)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """The resource manager has restarted and has no state."""
        # Ends that were to be reported are part of what the new incarnation does not know.
        if message.peer == self._rm:
            self._node.forget_vacated()
            self._register()

    def on_reborn(self, message: Reborn, source: Address, now: Time) -> None:
        """Ignore the notice: the link has reported the restart."""

    def on_welcome(self, message: Welcome, source: Address, now: Time) -> None:
        """The last registration is acknowledged: from now on containers of its term are valid."""
        # An answer to an earlier registration would admit containers granted before this one.
        if message.number == self._number:
            self._term = message.term
            waiting_starts = self._waiting
            self._waiting = []

            for start, proxy in waiting_starts:
                if self.admits(start, proxy):
                    self._node.launch(start, proxy)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Go on for a while without the resource manager."""
        self._port.set_timer(EXPIRY, now + self._expiry_us)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        self._port.cancel_timer(EXPIRY)

    def expire(self) -> None:
        """End all that runs: the resource manager has been away for so long that it will give the machine up."""
        for start, _ in self._node.running.values():
            self._port.kill(start.task.id, start.attempt)

        # Nothing that is under way may begin either, until the node is welcomed again.
        self._term = NO_TERM
        self._number += 1
        self._port.send(self._rm, Register(self._number, ()))

    def check(self) -> None:
        assert not self._waiting or self._term == NO_TERM, "something waits that could begin"

    def check_rest(self) -> None:
        assert not self._waiting, "something waits to begin"
        assert self._term != NO_TERM, "never welcome"

    receives: ClassVar[Mapping[type, Any]] = {
        Welcome: on_welcome,
        Reborn: on_reborn,
        Renewed: on_renewed,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
    }
    sends: ClassVar[Sends] = sent_to("proxy", Reborn, Refused) | sent_to("rm", Register)


class Registrar(Protocol):
    """A resource manager, as the account of registrations calls it; a machine goes by its seat."""

    def use(self, seats: int) -> None: ...
    def vacate(self, seat: int) -> None: ...
    def adopt(self, seat: int, running: Sequence[Held], term: int) -> None: ...
    def offer(self, seat: int, now: Time) -> None: ...
    def settle(self, now: Time) -> None: ...


class Registrations:
    """A resource manager's account of its machines: those that have registered and are not lost are used.

    Args:
        lease_us: Time for which a machine was lost, after which all that ran there has ended.
    """

    _manager: Registrar
    _port: Port

    def __init__(self, sub: SubCluster, proxies: Sequence[Address], lease_us: Time, incarnation: int) -> None:
        self._seat_of = {f"node/{machine}": seat for seat, machine in enumerate(sub.machines)}
        self._machines = sub.machines
        self._proxies = proxies
        self._lease_us = lease_us
        self._incarnation = incarnation
        self._registered_seats = 0 if incarnation else sub.matches.every
        self._lost_seats = 0
        self._last_term = incarnation * IDS

    def bind(self, manager: Registrar, port: Port) -> None:
        """Serve a resource manager, by its port."""
        self._manager = manager
        self._port = port

        self._use()

    def start(self, now: Time) -> None:
        """Inform machines, which register, and proxies, which ask again, after a restart."""
        if self._incarnation:
            for address in (*self._seat_of, *self._proxies):
                self._port.send(address, Reborn())
            self._manager.settle(now)

    def _use(self) -> None:
        self._manager.use(self._registered_seats & ~self._lost_seats)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        self.receives[type(event)](self, event, source, now)

    def on_register(self, message: Register, source: Address, now: Time) -> None:
        """Take over what runs there; from now on containers of another term are granted."""
        seat = self._seat_of[source]
        self._last_term += 1

        # Containers that were granted and not begun are void; what runs is taken over from the message.
        self._manager.vacate(seat)
        self._manager.adopt(seat, message.running, self._last_term)

        self._registered_seats |= 1 << seat
        self._use()

        self._port.send(source, Welcome(message.number, self._last_term))
        self._manager.offer(seat, now)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """A machine has restarted: it will register."""
        if message.peer in self._seat_of:
            seat = self._seat_of[message.peer]
            self._manager.vacate(seat)
            self._registered_seats &= ~(1 << seat)

            self._use()
            self._manager.settle(now)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Grant nothing more there; after a while it has ended all that ran."""
        if event.peer in self._seat_of:
            seat = self._seat_of[event.peer]
            # It may go on running what it has, and nothing new would be reported back.
            self._lost_seats |= 1 << seat

            self._use()
            self._port.set_timer(("lease", seat), now + self._lease_us)

            self._manager.settle(now)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Use the machine again, unless it has to register."""
        if event.peer in self._seat_of:
            seat = self._seat_of[event.peer]
            self._lost_seats &= ~(1 << seat)
            self._use()
            self._port.cancel_timer(("lease", seat))

            self._manager.offer(seat, now)

    def give_up(self, seat: int, now: Time) -> None:
        """The lease of a lost machine is over: nothing was granted there since, so all that ran has ended."""
        self._manager.vacate(seat)

        for proxy in self._proxies:
            self._port.send(proxy, NodeDead(self._machines[seat]))
        self._manager.settle(now)

    receives: ClassVar[Mapping[type, Any]] = {
        Register: on_register,
        Renewed: on_renewed,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
    }
    sends: ClassVar[Sends] = sent_to("node", Reborn, Welcome) | sent_to("proxy", Reborn, NodeDead)
