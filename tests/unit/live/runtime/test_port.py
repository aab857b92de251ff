"""The live port keeps the promises of core/port.py: timers, computing, and the order of commit and release."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import msgspec
import pytest
from tests.live.federations import header_of, plan

from volery.core.component import Architecture, Component, Deployment
from volery.core.events import Computed, Counted, Measured, TaskFinished, TimerFired
from volery.core.model import Address, Cluster, Key, Message, Task, TaskId, Time
from volery.core.port import Problem
from volery.live.config.plan import FederationPlan
from volery.live.messages import HostName
from volery.live.node.executor import OnEnd
from volery.live.runtime.host import Host
from volery.live.runtime.journal import Entry, JournalReader, JournalWriter
from volery.live.runtime.mailboxes import Inbox
from volery.live.runtime.replay import replay
from volery.live.transport.delivery import Codec, HostFrame
from volery.live.transport.transport import KnownIncarnation, OnFrame, OnLater

LIMIT_S = 20


class Order(Message, frozen=True):
    """What the puppet is to ask for."""

    what: str
    key: int | str = 0
    at: Time = 0


def half(number: int) -> int:
    assert number % 2 == 0, f"{number} is odd"
    return number // 2


class Puppet(Component):
    """Asks for what it is told to, and notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Key, Time]] = []
        self.changed = asyncio.Event()

    def on_order(self, message: Order, source: Address, now: Time) -> None:
        port, key, at = self._port, message.key, message.at
        if message.what == "set":
            port.set_timer(key, now + at)
        elif message.what == "cancel":
            port.cancel_timer(key)
        elif message.what == "compute":
            port.compute(key, Problem(half, at))
        elif message.what == "observe":
            port.observe(Counted("orders"))
            port.observe(Measured("length", at))
        elif message.what == "launch":
            port.launch(Task(at, 0), 0)
            port.send("elsewhere/0", message)
        self.note(message.what, now)

    def on_event(self, event: TimerFired | Computed | TaskFinished, source: Address, now: Time) -> None:
        if isinstance(event, TimerFired):
            self.note(event.key, now)
        elif isinstance(event, Computed):
            self.note((event.key, event.answer), now)  # type: ignore[arg-type] # keys are plain here
        else:
            self.note(event.outcome, now)

    def note(self, what: Key, now: Time) -> None:
        self.heard.append((what, now))
        self.changed.set()

    @property
    def words(self) -> list[Key]:
        return [what for what, _ in self.heard]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Order: on_order,
        TimerFired: on_event,
        Computed: on_event,
        TaskFinished: on_event,
    }


def design() -> FederationPlan:
    base = plan("oracle")

    def build(cluster: Cluster, config: object, streams: object) -> Deployment:
        return Deployment({"puppet/0": Puppet()}, {"puppet/0": 0}, lambda job: "puppet/0")

    architecture: Architecture = msgspec.structs.replace(
        base.architecture, build=build, messages=frozenset({Order}), name="puppet"
    )
    return msgspec.structs.replace(base, architecture=architecture)


def play(scenario: Callable[[Host, Puppet], Awaitable[None]]) -> None:
    async def run() -> None:
        puppet = Puppet()
        host = Host("test", {"puppet/0": puppet})
        await host.open()
        host.start()
        await scenario(host, puppet)
        await host.close()

    asyncio.run(run())


def order(host: Host, *orders: Order) -> None:
    for one in orders:
        host.inbox.post("puppet/0", one, "test")


def test_a_timer_fires_once_and_never_early() -> None:
    async def scenario(host: Host, puppet: Puppet) -> None:
        order(host, Order("set", "late", 3_000), Order("set", "now"), Order("set", "soon", 700))
        await puppet.until(lambda: "late" in puppet.words)
        assert puppet.words == ["set", "set", "set", "now", "soon", "late"]
        at = dict(puppet.heard)
        assert at["late"] - at["set"] >= 3_000
        assert at["soon"] - at["set"] >= 700

    play(scenario)


def test_a_cancelled_or_replaced_timer_never_fires_not_even_from_the_inbox() -> None:
    async def scenario(host: Host, puppet: Puppet) -> None:
        order(host, Order("set", "a"), Order("cancel", "a"), Order("set", "b"), Order("set", "b", 500))
        order(host, Order("set", "c", 200), Order("set", "c", 900), Order("set", "d", 300), Order("cancel", "d"))
        time.sleep(0.002)  # what is due meanwhile is due together
        await puppet.until(lambda: {"b", "c"} <= set(puppet.words))
        order(host, Order("set", "end", 1_000))
        await puppet.until(lambda: "end" in puppet.words)
        fired = [word for word in puppet.words if word in ("a", "b", "c", "d")]
        assert sorted(map(str, fired)) == ["b", "c"]

    play(scenario)


def test_facts_add_up() -> None:
    async def scenario(host: Host, puppet: Puppet) -> None:
        order(host, Order("observe", at=3), Order("observe", at=5))
        await puppet.until(lambda: len(puppet.heard) == 2)
        assert host.facts.counters == {"orders": 2}
        assert host.facts.tallies["length"].largest == 5

    play(scenario)


def test_slow_pure_work_is_answered_and_replays_although_the_journal_holds_no_answer(tmp_path: Path) -> None:
    plan_of_puppet = design()

    async def run() -> None:
        components = plan_of_puppet.build().components
        puppet = components["puppet/0"]
        assert isinstance(puppet, Puppet)
        journal = JournalWriter(tmp_path / "test-1.journal", header_of(plan_of_puppet, "test", ("puppet/0",)), "flush")
        host = Host("test", components, journal=journal)
        await host.open()
        host.start()
        order(host, Order("compute", 1, 84))
        await puppet.until(lambda: (1, 42) in puppet.words)
        order(host, Order("compute", 2, 7))
        with pytest.raises(AssertionError, match="7 is odd"):
            async with asyncio.timeout(LIMIT_S):
                await host.run()
        await host.close()

    asyncio.run(run())
    result = replay(tmp_path / "test-1.journal", lambda name: plan_of_puppet.architecture)
    assert result.difference is None
    assert result.events == 5


class Spies:
    """Journal, executor and transport that write down what is done when."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def append(self, now: Time, entries: list[Entry]) -> None:
        self.done.append("commit")

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:
        self.done.append("launch")
        on_end(task, attempt, "finished")

    def kill(self, task: TaskId, attempt: int) -> None:
        self.done.append("kill")

    def begun(self, incarnation: int, on_later: OnLater) -> None:
        pass

    def doubt(self) -> None:
        pass

    async def claim(
        self, name: HostName, incarnation: int = 0, peers: Collection[HostName] = (), patient: bool = False
    ) -> int:
        return incarnation

    def announce(self, mark: bytes) -> None:
        pass

    @property
    def kept_marks(self) -> Mapping[HostName, bytes]:
        return {}

    async def open(self, name: HostName, on_frame: OnFrame, known_incarnation: KnownIncarnation | None = None) -> None:
        self.on_frame = on_frame

    async def meet(self, peers: Collection[HostName], limit_s: float) -> frozenset[HostName]:
        return frozenset()

    def send(self, to: HostName, frame: bytes) -> None:
        self.done.append("send")

    async def aclose(self) -> None:
        pass


def test_nothing_leaves_a_host_before_the_journal_has_it(caplog: pytest.LogCaptureFixture) -> None:
    spies = Spies()

    class Transport(Spies):
        done = spies.done

        def __init__(self) -> None:
            pass

        async def close(self) -> None:
            pass

    class Journal:
        is_full = False

        append = staticmethod(spies.append)

        def launched(self, node: str, task: Task, attempt: int) -> None:
            pass

        def event(self, address: str, event: object) -> object:
            return event

        def close(self) -> None:
            pass

    async def run() -> None:
        puppet, transport, codec = Puppet(), Transport(), Codec({Order})
        host = Host(
            "test",
            {"puppet/0": puppet},
            Inbox({"elsewhere/0": "elsewhere"}),
            executor=transport,
            transport=transport,
            codec=codec,
            journal=Journal(),  # type: ignore[arg-type] # it is a spy
        )
        await host.open()
        host.start()
        order(host, Order("launch", at=1), Order("launch", at=2))
        await puppet.until(lambda: puppet.words.count("finished") == 2)
        introduction, *effects = spies.done
        assert introduction == "send", "an empty frame, so that the others know of this incarnation"
        assert effects == ["commit", "commit", "launch", "launch", "send", "commit"]
        for number in (1, 5, 2, 1):
            transport.on_frame(
                "elsewhere", codec.encode(HostFrame(1, number, [("puppet/0", "elsewhere/0", Order("none"))]))
            )
        await puppet.until(lambda: puppet.words.count("none") == 2)
        frame = HostFrame(1, 6, [("puppet/0", "elsewhere/0", Order("none"))], oldest=5)
        transport.on_frame("elsewhere", codec.encode(frame))
        await puppet.until(lambda: puppet.words.count("none") == 4)
        assert "2 frames of host elsewhere are lost for good" in caplog.text
        transport.on_frame("elsewhere", b"\x00")
        transport.on_frame("elsewhere", codec.encode(HostFrame(1, 7, [("gm/9", "elsewhere/0", Order("none"))])))
        assert host.refused == 2
        assert caplog.text.count("host test rejected a message from host elsewhere") == 1
        await host.close()

    asyncio.run(run())


def test_a_journal_of_another_configuration_is_not_replayed(tmp_path: Path) -> None:
    plan_of_puppet = design()
    header = msgspec.structs.replace(header_of(plan_of_puppet, "test", ("puppet/0",)), configuration="other")
    JournalWriter(tmp_path / "test-1.journal", header, "none").close()
    assert JournalReader(tmp_path / "test-1.journal").header == header
    with pytest.raises(ValueError, match="other parameters"):
        replay(tmp_path / "test-1.journal", lambda name: plan_of_puppet.architecture)
