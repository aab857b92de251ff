"""Frames over a real broker: in order, whole, and between hosts that fit together only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.live.conftest import Server
from tests.live.federations import Federation, plan

from volery.architectures.hydra.recovery import IDS
from volery.architectures.megha.shares.messages import ATTEMPTS
from volery.core.errors import InputError
from volery.live.config.federation import layout_digest
from volery.live.runtime.host import Host, Superseded
from volery.live.runtime.mailboxes import Inbox
from volery.live.transport.broker import (
    CLAIM_S,
    DOUBT_S,
    INCARNATION_MAX,
    BrokerTransport,
    FrameAssembly,
    pieces,
)
from volery.live.transport.delivery import Codec, HostFrame
from volery.roles.recovery.channel import RENEWALS

LIMIT_S = 20


@given(frame=st.binary(max_size=40), payload_max=st.integers(2, 12))
def test_pieces_make_the_frame_again(frame: bytes, payload_max: int) -> None:
    assembly = FrameAssembly()
    cut = list(pieces(frame, payload_max))
    assert all(len(piece) <= payload_max for piece in cut)
    answers = [assembly.add(piece) for piece in cut]
    assert answers == [None] * (len(cut) - 1) + [frame]


def test_a_frame_without_its_beginning_is_dropped_and_the_next_one_is_whole() -> None:
    assembly = FrameAssembly()
    first, second = list(pieces(b"abcdef", 3)), list(pieces(b"ghijkl", 3))
    assert [assembly.add(piece) for piece in [*first[1:], *first[:2], *second]] == [None] * 6 + [b"ghijkl"]


def test_frames_arrive_whole_and_in_order(broker: str) -> None:
    sent = [b"x" * size + size.to_bytes(4) for size in (0, 1, 5_000_000, 7, 1_048_576, 1_048_575, 2_097_150)]

    async def scenario() -> None:
        heard: list[tuple[str, bytes]] = []
        complete = asyncio.Event()

        def on_frame(sender: str, frame: bytes) -> None:
            heard.append((sender, frame))
            if len(heard) == len(sent):
                complete.set()

        left, right = (BrokerTransport(broker, "frames", "same") for _ in range(2))
        await left.open("left", lambda sender, frame: None)
        await right.open("right", on_frame)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(left.meet(["right"], LIMIT_S), right.meet(["left"], LIMIT_S))
            for frame in sent:
                left.send("right", frame)
            await complete.wait()
        await left.close()
        await right.close()
        assert heard == [("left", frame) for frame in sent]

    asyncio.run(scenario())


def test_hosts_of_different_configurations_do_not_meet(broker: str) -> None:
    async def scenario() -> None:
        troubles: list[str] = []
        left = BrokerTransport(broker, "misfits", "one", troubles.append)
        right = BrokerTransport(broker, "misfits", "other", troubles.append)
        await left.open("left", lambda sender, frame: None)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(InputError, match="another configuration"):
                await right.open("right", lambda sender, frame: None)
        assert troubles, "the one that was there first says so, too"
        await left.close()
        await right.close()

    asyncio.run(scenario())


def test_a_host_whose_file_differs_only_in_hosts_is_refused(broker: str) -> None:
    async def scenario() -> None:
        troubles: list[str] = []
        left, right = (
            BrokerTransport(broker, "layouts", "same", troubles.append, layout_digest(layout))
            for layout in ({"gm": ["gm/0"], "lm": ["lm/0"]}, {"gm": ["gm/0", "lm/0"]})
        )
        await left.open("gm", lambda sender, frame: None)
        with pytest.raises(InputError, match=r"host gm has other \[hosts\] in its file; start all hosts with the same"):
            await right.open("lm", lambda sender, frame: None)
        assert any("host lm has other [hosts]" in trouble for trouble in troubles)
        earlier = BrokerTransport(broker, "layouts", "same", troubles.append)
        await earlier.open("lm", lambda sender, frame: None)
        assert not await earlier.meet(["gm"], LIMIT_S), "a host of the version before sends no digest"
        for one in (left, right, earlier):
            await one.close()

    asyncio.run(scenario())


def test_a_host_with_another_file_keeps_nobody_away_who_belongs_here(broker: str) -> None:
    """Its service manager may start it again and again."""

    async def scenario() -> None:
        troubles: list[str] = []
        there, back = (BrokerTransport(broker, "strangers", "same", troubles.append) for _ in range(2))
        await there.open("gm", lambda sender, frame: None)
        stranger = BrokerTransport(broker, "strangers", "other", lambda trouble: None)
        await stranger.connect("node")

        async def greet() -> None:
            while True:
                stranger._greet(wants_answer=True)
                await asyncio.sleep(0.01)

        greeting = asyncio.create_task(greet())
        await back.open("lm", lambda sender, frame: None)
        assert not await back.meet(["gm"], LIMIT_S)
        assert any("host node runs another configuration" in trouble for trouble in troubles)
        greeting.cancel()
        for one in (there, back, stranger):
            await one.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(3))
def test_a_host_that_waits_for_a_dead_one_ends_its_wait_though_a_hello_comes_at_its_end(
    broker: str, turns: int
) -> None:
    async def scenario() -> None:
        transport = BrokerTransport(broker, f"dead-{turns}", "same")
        await transport.open("lm", lambda sender, frame: None)

        async def greet_late() -> None:
            await asyncio.sleep(0.05)
            time.sleep(0.1)
            for _ in range(turns):
                await asyncio.sleep(0)
            transport._change.set()

        waiting = asyncio.create_task(transport.meet(["dead"], 0.1))
        greeting = asyncio.create_task(greet_late())
        done, _ = await asyncio.wait({waiting}, timeout=LIMIT_S)
        assert done, "it waits for ever"
        assert waiting.result() == {"dead"}
        await greeting
        await transport.close()

    asyncio.run(scenario())


def test_a_name_is_used_once(broker: str) -> None:
    async def scenario() -> None:
        first, second = (BrokerTransport(broker, "twice", "same", lambda trouble: None) for _ in range(2))
        await first.open("gm", lambda sender, frame: None)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(InputError, match="every host runs once"):
                await second.open("gm", lambda sender, frame: None)
            lm = BrokerTransport(broker, "twice", "same", lambda trouble: None)
            await asyncio.gather(first.meet(["lm"], LIMIT_S), lm.open("lm", lambda sender, frame: None))
        await lm.close()
        await first.close()
        await second.close()

    asyncio.run(scenario())


def test_only_a_host_itself_says_that_a_later_life_of_it_has_begun(broker: str) -> None:
    """Another host's frame that names one is refused; a process of the same name that has begun is believed."""
    where = {"gm/0": "gm", "node/0": "node"}

    def host(name: str, incarnation: int) -> Host:
        transport = BrokerTransport(broker, "lives", "same", lambda trouble: None)
        return Host(name, {}, Inbox(where), codec=Codec(()), transport=transport, incarnation=incarnation)

    async def scenario() -> None:
        gm, node = host("gm", 1), host("node", 1)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(gm.open(), node.open())
            gm.start()
            node.start()
            liar = BrokerTransport(broker, "lives", "same", lambda trouble: None)
            await liar.open("liar", lambda sender, frame: None)
            liar.send("gm", Codec(()).encode(HostFrame(1, 1, [], to=9)))
            while not gm.refused:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert gm.failed is None, "it believed another host"
            again = BrokerTransport(broker, "lives", "same", lambda trouble: None)
            again._holds = True  # it has claimed the name, and begun, while the first was stopped
            again._incarnation = 2
            await again.connect("gm")
            await again.open("gm", lambda sender, frame: None)
            await asyncio.sleep(DOUBT_S)
            liar.send("gm", Codec(()).encode(HostFrame(1, 2, [], to=2)))
            with pytest.raises(Superseded, match="incarnation 2"):
                await gm.run()
            again.begun(2, lambda incarnation: None)
            again_node = BrokerTransport(broker, "lives", "same", lambda trouble: None)
            again_node._holds = True
            await again_node.connect("node")
            await again_node.open("node", lambda sender, frame: None)
            again_node.begun(3, lambda incarnation: None)
            with pytest.raises(Superseded, match="incarnation 3"):
                await node.run()
        for one in (gm, node, liar, again, again_node):
            await one.close()

    asyncio.run(scenario())


def test_two_processes_that_start_at_once_under_one_name_leave_one(broker: str) -> None:
    async def scenario() -> None:
        both = [BrokerTransport(broker, "at-once", "same", lambda trouble: None) for _ in range(2)]
        async with asyncio.timeout(LIMIT_S):
            ended = await asyncio.gather(*(one.claim("gm") for one in both), return_exceptions=True)
        assert sorted(type(one).__name__ for one in ended) == ["InputError", "int"], ended
        for one in both:
            await one.close()

    asyncio.run(scenario())


def test_a_host_that_has_lost_its_disk_learns_its_incarnation_from_its_peers(broker: str) -> None:
    """And only then: what another host sends never ends, or renumbers, one that runs."""
    codec, where = Codec(()), {"gm/0": "gm", "node/0": "node"}

    def transport() -> BrokerTransport:
        return BrokerTransport(broker, "disks", "same", lambda trouble: None)

    async def scenario() -> None:
        gm, node = (
            Host(name, {}, Inbox(where), codec=codec, transport=transport(), incarnation=incarnation)
            for name, incarnation in (("gm", 8), ("node", 2))
        )
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(gm.open(), node.open())
            gm.start()
            node.start()
            assert node._delivery is not None
            while not node._delivery.known_incarnation("gm"):
                await asyncio.sleep(0.01)
            with pytest.raises(InputError, match="every host runs once"):
                await transport().claim("gm", 1, ["node"])
            assert gm.failed is None, "a second process has ended the first"
            await gm.close()
            back = transport()
            assert await back.claim("gm", 1, ["node"]) == 9
            restored = transport()
            assert await restored.claim("node-2", 4, ["node"]) == 4, "of that one nobody has met any"
            back._remember("node", INCARNATION_MAX)
            assert back._met_incarnation == 8, "an absurd number is not taken"
            assert INCARNATION_MAX * max(IDS, RENEWALS, ATTEMPTS) < 1 << 63, "what designs count from it fits a message"
            await node.close()
        await back.close()
        await restored.close()

    asyncio.run(scenario())


def test_hosts_keep_the_mark_of_a_host_and_hand_it_to_its_next_incarnation(broker: str) -> None:
    async def scenario() -> None:
        first, keeper = (BrokerTransport(broker, "marks", "same") for _ in range(2))
        await keeper.open("keeper", lambda sender, frame: None)
        assert await first.claim("api", 1, ["keeper"]) == 1
        assert not first.kept_marks
        first.begun(1, lambda incarnation: None)
        for mark in (b"one", b"two"):
            first.announce(mark)
        await first.close()
        next_one, stranger = (BrokerTransport(broker, "marks", "same") for _ in range(2))
        await next_one.claim("api", 2, ["keeper"], patient=True)
        assert next_one.kept_marks == {"keeper": b"two"}
        next_one.announce(b"three")
        await stranger.claim("other", 1, ["keeper"])
        assert not stranger.kept_marks, "a mark is for its own host"
        for transport in (next_one, stranger, keeper):
            await transport.close()

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def test_a_patient_claim_waits_for_a_peer_that_is_slow_and_no_longer_than_its_limit(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr("volery.live.transport.broker.CLAIM_FIRST_S", LIMIT_S)
        keeper, first = (BrokerTransport(broker, "patience", "same") for _ in range(2))
        claiming = loop.create_task(first.claim("api", 7, ["keeper"], patient=True))
        await asyncio.sleep(2 * CLAIM_S)
        assert not claiming.done(), "the peer may keep a mark"
        await keeper.open("keeper", lambda sender, frame: None)
        assert await claiming == 7
        await first.close()
        alone = BrokerTransport(broker, "patience", "same")
        monkeypatch.setattr("volery.live.transport.broker.CLAIM_FIRST_S", 3 * CLAIM_S)
        began = loop.time()
        await alone.claim("api", 8, ["keeper", "gone for good"], patient=True)
        assert loop.time() - began >= 3 * CLAIM_S
        for transport in (alone, keeper):
            await transport.close()

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def test_a_host_that_runs_as_an_earlier_incarnation_than_its_peer_has_met_logs_what_to_do(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its peer could not answer when it started: it goes on, and its log tells why nothing comes of it."""
    where = {"gm/0": "gm", "node/0": "node"}

    async def scenario() -> None:
        def host(name: str, incarnation: int) -> Host:
            transport = BrokerTransport(broker, "late", "same", lambda trouble: None)
            return Host(name, {}, Inbox(where), codec=Codec(()), transport=transport, incarnation=incarnation)

        gm, node = host("gm", 1), host("node", 1)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(gm.open(), node.open())
            assert node._delivery is not None
            node._delivery._line("gm").incarnation = 8
            gm.start()
            while not gm.refused:
                await asyncio.sleep(0.01)
        assert gm.failed is None
        await gm.close()
        await node.close()

    asyncio.run(scenario())
    assert "incarnation 8 of this host, which runs as incarnation 1; restart this host" in caplog.text


def test_without_a_broker_the_fix_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(InputError, match="nats-server"):
            await BrokerTransport("nats://127.0.0.1:1", "f", "c").open("gm", lambda sender, frame: None)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["megha", "pigeon"])
def test_a_federation_over_the_broker_runs_jobs_to_the_end(name: str, broker: str) -> None:
    async def scenario() -> None:
        run = plan(name)
        async with Federation(run, transport=lambda: BrokerTransport(broker, f"jobs-{name}", "same")) as federation:
            for size in (1, 30, 0, 40):
                federation.submit(size)
            await federation.until_done(4)

    asyncio.run(scenario())


def test_a_broker_that_was_restarted_is_used_again_and_the_loss_is_told(mortal_broker: Server) -> None:
    async def scenario() -> None:
        heard: list[bytes] = []
        troubles: list[str] = []
        changed = asyncio.Event()

        def on_frame(sender: str, frame: bytes) -> None:
            heard.append(frame)
            changed.set()

        def on_trouble(trouble: str) -> None:
            troubles.append(trouble)
            changed.set()

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                changed.clear()
                await changed.wait()

        left = BrokerTransport(mortal_broker.url, "restart", "same", on_trouble)
        right = BrokerTransport(mortal_broker.url, "restart", "same", on_trouble)
        await left.open("left", lambda sender, frame: None)
        await right.open("right", on_frame)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(left.meet(["right"], LIMIT_S), right.meet(["left"], LIMIT_S))
            left.send("right", b"before")
            await until(lambda: heard == [b"before"])
            mortal_broker.kill()
            await until(lambda: sum("is lost" in trouble for trouble in troubles) == 2)
            await asyncio.to_thread(mortal_broker.start)
            await asyncio.gather(left.meet(["right"], LIMIT_S), right.meet(["left"], LIMIT_S))
            while b"after" not in heard:
                left.send("right", b"after")
                await asyncio.sleep(0.05)
        await left.close()
        await right.close()

    asyncio.run(scenario())
