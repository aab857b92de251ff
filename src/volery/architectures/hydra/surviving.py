"""A resource manager that may die, of machines that may: it knows what they tell it when they register."""

from __future__ import annotations

from random import Random

from volery.architectures.hydra.layout import SubCluster
from volery.architectures.hydra.manager import IDS, ResourceManager, Setting
from volery.architectures.hydra.messages import Held, NodeDead, Reborn, Register, Welcome
from volery.core.component import sent_to
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import Address, Time
from volery.roles.recovery.channel import Renewed


class MortalManager(ResourceManager):
    """Gives containers on machines that have registered, and of these on those that are not lost.

    Args:
        sub, setting, stream: see `ResourceManager`.
        incarnation: of this component.
    """

    def __init__(self, sub: SubCluster, setting: Setting, stream: Random, incarnation: int) -> None:
        super().__init__(sub, setting, stream)
        self._incarnation = incarnation
        self._last_id = incarnation * IDS
        self._last_term = incarnation * IDS
        self._away = 0
        self._registered = self._usable
        if incarnation:
            self._usable = self._registered = 0

    def start(self, now: Time) -> None:
        """After a restart: machines register, and proxies ask again, when they hear of it."""
        if self._incarnation:
            for address in (*self._nodes, *self._setting.proxies):
                self._port.send(address, Reborn())
            self._settle(now)

    def _use(self) -> None:
        self._usable = self._registered & ~self._away

    def _vacate(self, seat: int) -> None:
        """Nothing that was given on this machine holds any more."""
        machine = self._sub.machines[seat]
        for number in [n for n, held in self._containers.items() if held.container.machine == machine]:
            self._give_back(number)

    def _seat(self, node: Address) -> int:
        return self._sub.seat_of[int(node.split("/")[1])]

    def on_register(self, message: Register, source: Address, now: Time) -> None:
        """Take over what runs there; from now on containers of another term are given."""
        seat = self._seat(source)
        self._vacate(seat)
        for held in message.running:
            self._take(Held(held.container, held.proxy, self._queue_of(held.user)), seat)
        self._registered |= 1 << seat
        self._use()
        self._last_term += 1
        self._terms[seat] = self._last_term
        self._port.send(source, Welcome(message.number, self._last_term))
        self._offer(seat, now)

    def _offer(self, seat: int, now: Time) -> None:
        if self._beats is None and self._usable >> seat & 1 and not self._deciding:
            self._serve(seat, now)
        self._settle(now)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """A machine has begun anew: it will register."""
        if message.peer in self._nodes:
            seat = self._seat(message.peer)
            self._vacate(seat)
            self._registered &= ~(1 << seat)
            self._use()
            self._settle(now)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Give nothing more there; after a while it has ended all that ran."""
        if event.peer in self._nodes:
            seat = self._seat(event.peer)
            self._away |= 1 << seat
            self._use()
            self._port.set_timer(("lease", seat), now + self._setting.lease_us)
            self._settle(now)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """All is well, or it will register."""
        if event.peer in self._nodes:
            seat = self._seat(event.peer)
            self._away &= ~(1 << seat)
            self._use()
            self._port.cancel_timer(("lease", seat))
            self._offer(seat, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also: a machine is given up; nothing was given there while it was lost, so all that ran is dead."""
        if not isinstance(event.key, tuple):
            super().on_timer(event, source, now)
            return
        seat = int(event.key[1])
        self._vacate(seat)
        for proxy in self._setting.proxies:
            self._port.send(proxy, NodeDead(self._sub.machines[seat]))
        self._settle(now)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **ResourceManager.receives,
        Register: on_register,
        Renewed: on_renewed,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
        TimerFired: on_timer,
    }
    sends = ResourceManager.sends | sent_to("node", Reborn, Welcome) | sent_to("proxy", Reborn, NodeDead)
