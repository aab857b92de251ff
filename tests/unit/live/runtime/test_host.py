"""A host: components get PeerLost first, a failing disk stops it, a full one delays it, faulty hosts stop nobody."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.live.federations import header_of, plan

from volery.core.component import Component
from volery.core.events import PeerBack, PeerLost
from volery.core.model import SECOND, SUBMITTER, Address, Message, Time
from volery.live.messages import HostHeartbeat, HostReport
from volery.live.runtime import failure_detector
from volery.live.runtime.failure_detector import Presence, WatchList, watched_by
from volery.live.runtime.host import Host, Superseded
from volery.live.runtime.journal import JournalReader, JournalWriter, Started
from volery.live.runtime.mailboxes import Inbox
from volery.live.transport.delivery import Codec, Delivery
from volery.live.transport.transport import Memory, MemoryTransport

LIMIT_S = 20
WHERE = {"watcher/0": "one", "watcher/1": "other"}


class Note(Message, frozen=True):
    """Something to note."""

    text: str


class Watcher(Component):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.changed = asyncio.Event()

    def on_event(self, event: Note | PeerLost | PeerBack, source: Address, now: Time) -> None:
        self.heard.append(event.text if isinstance(event, Note) else f"{type(event).__name__} {event.peer}")
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    receives = {Note: on_event, PeerLost: on_event, PeerBack: on_event}  # noqa: RUF012 - the base class replaces it


class Cut(MemoryTransport):
    """A transport that loses all frames while it is cut."""

    cut = False

    def send(self, to: str, frame: bytes) -> None:
        if not self.cut:
            super().send(to, frame)


class Pair:
    """Two hosts with a watcher each, which watch each other."""

    def __init__(self, detection_us: Time, folder: Path | None = None) -> None:
        medium = Memory()
        self.watchers = {address: Watcher() for address in WHERE}
        self.transports = {name: Cut(medium) for name in WHERE.values()}
        self.path = None if folder is None else folder / "one-1.journal"
        self.hosts = {}
        for address, name in WHERE.items():
            journal = None
            if self.path is not None and name == "one":
                journal = JournalWriter(self.path, header_of(plan("oracle"), "one", ("watcher/0",)), "none")
            watches = WatchList(watched_by([("watcher/0", "watcher/1")], WHERE, name), detection_us)
            self.hosts[name] = Host(
                name,
                {address: self.watchers[address]},
                Inbox(WHERE),
                codec=Codec(frozenset({Note})),
                transport=self.transports[name],
                journal=journal,
                watches=watches,
            )

    def cut(self, cut: bool) -> None:
        for transport in self.transports.values():
            transport.cut = cut


@asynccontextmanager
async def at_work(detection_us: Time = SECOND // 5, folder: Path | None = None) -> AsyncIterator[Pair]:
    pair = Pair(detection_us, folder)
    await asyncio.gather(*(host.open() for host in pair.hosts.values()))
    for host in pair.hosts.values():
        host.start()
    yield pair
    for host in pair.hosts.values():
        await host.close()


def test_a_peer_is_lost_while_nothing_comes_and_back_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with at_work(folder=tmp_path) as pair:
            pair.cut(True)
            one, other = pair.watchers["watcher/0"], pair.watchers["watcher/1"]
            # A machine that is busy for longer than the detection takes loses and finds peers by itself.
            await one.until(lambda: one.heard[-1:] == ["PeerLost watcher/1"])
            await other.until(lambda: other.heard[-1:] == ["PeerLost watcher/0"])
            pair.cut(False)
            await one.until(lambda: one.heard[-1:] == ["PeerBack watcher/1"])
            await other.until(lambda: other.heard[-1:] == ["PeerBack watcher/0"])

    asyncio.run(scenario())
    kept = [entry[2] for turn in JournalReader(tmp_path / "one-1.journal").turns({Note}) for entry in turn.entries]
    assert kept[:2] == [Started(), PeerLost("watcher/1")], "a replay hears of it, too"


def test_the_loss_of_a_peer_is_heard_before_what_came_earlier() -> None:
    async def scenario() -> None:
        async with at_work(SECOND) as pair:
            host, it = pair.hosts["one"], pair.watchers["watcher/0"]
            host.inbox.post("watcher/0", Note("earlier"), "watcher/0")
            assert host._watch is not None
            host._watch.look(host.now() + 10 * SECOND)
            await it.until(lambda: len(it.heard) == 2)
            assert it.heard == ["PeerLost watcher/1", "earlier"]

    asyncio.run(scenario())


def test_frames_that_are_none_are_counted_and_stop_nobody() -> None:
    async def scenario() -> None:
        async with at_work(60 * SECOND) as pair:
            host, it = pair.hosts["one"], pair.watchers["watcher/0"]
            for frame in (b"", b"\xff\xff", b"\x93\x01\x02\x03"):
                host._arrived("other", frame)
            assert host.refused == 3
            pair.hosts["other"].inbox.post("watcher/0", Note("hello"), "watcher/1")
            await it.until(lambda: it.heard == ["hello"])
            pair.hosts["other"].inbox.post("watcher/0", Note("forged"), "watcher/0")
            pair.hosts["other"].inbox.post("watcher/0", Note("true"), "watcher/1")
            await it.until(lambda: it.heard[-1] == "true")
            assert it.heard == ["hello", "true"], "a host sends for its own components alone"
            assert host.refused == 4

    asyncio.run(scenario())


def test_a_disk_that_is_full_stops_the_host_before_anybody_sees_an_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with at_work(60 * SECOND, tmp_path) as pair:
            host = pair.hosts["one"]

            def full(*_: object) -> None:
                raise OSError("no space left on device")

            monkeypatch.setattr(host._journal, "append", full)
            host.inbox.post("watcher/0", Note("written nowhere"), "watcher/0")
            with pytest.raises(OSError, match="no space left"):
                await asyncio.wait_for(host.run(), LIMIT_S)
            host.inbox.post("watcher/0", Note("too late"), "watcher/0")
            await asyncio.sleep(0)
            assert pair.watchers["watcher/0"].heard == ["written nowhere"]

    asyncio.run(scenario())


def test_a_host_stops_when_another_process_has_begun_to_be_it() -> None:
    async def scenario() -> None:
        async with at_work(60 * SECOND) as pair:
            host = pair.hosts["one"]
            host._superseded(2)
            with pytest.raises(Superseded, match="incarnation 2 of this host has begun elsewhere"):
                await asyncio.wait_for(host.run(), LIMIT_S)
            host._superseded(3)
            assert "incarnation 2" in str(host.failed), "the first one counts"

    asyncio.run(scenario())


def test_a_host_opens_though_another_never_comes_and_a_third_comes_in_the_turn_in_which_the_wait_is_over() -> None:
    """The wait goes in slices under one limit: neither may swallow the end of the other."""

    async def scenario() -> None:
        medium, where = Memory(), {"a/0": "one", "a/1": "late", "a/2": "dead"}
        watches = WatchList(watched_by([("a/0", "a/1"), ("a/0", "a/2")], where, "one"), SECOND // 10)
        host = Host(
            "one", {}, Inbox(where), codec=Codec(()), transport=medium.transport(), watches=watches, incarnation=2
        )

        async def come_late() -> None:
            await asyncio.sleep(0.05)
            time.sleep(0.1)
            await medium.transport().open("late", lambda sender, frame: None)

        opening, coming = asyncio.create_task(host.open()), asyncio.create_task(come_late())
        done, _ = await asyncio.wait({opening}, timeout=LIMIT_S)
        assert done, "it waits for one that never comes"
        await coming
        assert host.waits_for == {"dead"}
        host.start()
        assert not host.waits_for
        await host.close()

    asyncio.run(scenario())


def test_a_host_that_waits_for_others_sends_beats_and_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peers do not give it up meanwhile, and whoever asks the API is told."""
    monkeypatch.setattr(failure_detector, "PRESENCE_S", 0.01)

    async def scenario() -> None:
        medium, where = Memory(), {**WHERE, "watcher/2": "dead", SUBMITTER: "other"}
        heard: list[Message] = []
        watches = WatchList(watched_by([("watcher/0", "watcher/1")], where, "one"), SECOND // 10)
        one = Host(
            "one",
            {"watcher/0": Watcher()},
            Inbox(where),
            codec=Codec({Note}),
            transport=medium.transport(),
            watches=watches,
            presence=Presence("other"),
            incarnation=1,
        )
        transport, opening = medium.transport(), asyncio.create_task(one.open())
        delivery = Delivery(
            1,
            Codec({Note}),
            transport.send,
            lambda peer, parcels: None,
            lambda peer, parcels: heard.extend(message for _, _, message in parcels),
            lambda peer, known: None,
        )
        await transport.open("other", delivery.arrived)
        kinds = {HostHeartbeat, HostReport}
        async with asyncio.timeout(LIMIT_S):
            while not kinds <= {type(message) for message in heard}:
                await asyncio.sleep(0.01)
        assert not opening.done()
        assert {message.waits_for for message in heard if isinstance(message, HostReport)} <= {
            ("dead",),
            ("dead", "other"),
        }
        opening.cancel()
        await one.close()
        delivery.close()

    asyncio.run(scenario())


def test_a_host_without_room_for_its_journal_releases_nothing_and_goes_on_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volery.live.runtime.journal.STALL_S", 0.01)
    refused = [errno.ENOSPC] * 3

    async def scenario() -> None:
        async with at_work(60 * SECOND, tmp_path) as pair:
            one, journal = pair.hosts["one"], pair.hosts["one"]._journal
            assert journal is not None
            whole = journal._file.flush

            def flush() -> None:
                if refused:
                    number = refused.pop()
                    assert not released
                    raise OSError(number, os.strerror(number))
                whole()

            released: list[str] = []
            monkeypatch.setattr(journal, "_durability", "flush")
            monkeypatch.setattr(journal._file, "flush", flush)
            watcher = pair.watchers["watcher/0"]
            one._actions.append((released.append, ("an effect",)))
            one.inbox.post("watcher/0", Note("first"), "watcher/0")
            await watcher.until(lambda: "first" in watcher.heard)
            one.inbox.post("watcher/0", Note("second"), "watcher/0")
            await watcher.until(lambda: "second" in watcher.heard)
            assert (refused, released, one.failed) == ([], ["an effect"], None)

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [errno.EIO, errno.EBADF, errno.EFBIG])
def test_a_host_whose_journal_fails_for_another_reason_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def scenario() -> None:
        async with at_work(60 * SECOND, tmp_path) as pair:
            one, journal = pair.hosts["one"], pair.hosts["one"]._journal
            assert journal is not None

            def flush() -> None:
                raise OSError(number, os.strerror(number))

            monkeypatch.setattr(journal, "_durability", "flush")
            monkeypatch.setattr(journal._file, "flush", flush)
            one.inbox.post("watcher/0", Note("first"), "watcher/0")
            with pytest.raises(OSError, match=os.strerror(number)):
                await one.run()

    asyncio.run(scenario())
