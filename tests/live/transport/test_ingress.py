"""What a host with a certificate may not say is refused at the door of the receiver, which goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.live.federations import Federation, plan

from volery.architectures import configure, lookup
from volery.architectures.megha.messages import Withdraw
from volery.core.events import JobDone
from volery.core.model import Cluster, Message
from volery.live.config.plan import FederationPlan
from volery.live.runtime.replay import replay
from volery.live.transport.broker import BrokerTransport
from volery.roles.recovery.channel import RENEWALS, Frame

LIMIT_S = 20
NONSENSE = {
    "no handler": ("lm/0", JobDone(1), "node/0"),
    "not of that host": ("lm/0", Withdraw((1,)), "gm/0"),
    "of nobody": ("lm/0", Withdraw((1,)), "gm/9"),
    "to nobody": ("lm/9", Withdraw((1,)), "node/0"),
}
FIRST = RENEWALS  # the session of a first incarnation
INSIDE = {
    "unreadable": ("lm/0", Frame(FIRST, FIRST, 0, 0, b"\xc1"), "node/0"),
    "of no type": ("lm/0", Frame(FIRST, FIRST, 0, 0, msgspec.msgpack.encode(["Nonsense", 1])), "node/0"),
    "for others": ("lm/0", Frame(FIRST, FIRST, 0, 0, msgspec.msgpack.encode(["Kill", 1])), "node/0"),
}


@pytest.mark.parametrize("reliable", [False, True], ids=["plain", "reliable"])
def test_nonsense_is_refused_and_counted_and_logged_once_and_jobs_go_on(
    reliable: bool, broker: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = plan("megha")
    if reliable:
        architecture = lookup("megha")
        config = configure(architecture, {"gms": 2, "lms": 2, "heartbeat_s": 0.05, "reliable": True})
        run = FederationPlan(architecture, config, Cluster.uniform(12), seed=7)
    nonsense: dict[str, tuple[str, Message, str]] = NONSENSE | (INSIDE if reliable else {})

    async def scenario() -> None:
        def transport() -> BrokerTransport:
            return BrokerTransport(broker, f"door-{reliable}", "same")

        async with Federation(run, transport=transport, journal=tmp_path) as federation:
            lm, node = federation.hosts["lm"], federation.hosts["node"]
            federation.submit(3)
            await federation.until_done(1)
            node.inbox.host_of["lm/9"] = "lm"  # type: ignore[index] # it is a dict
            for what in nonsense.values():
                node.inbox.post(*what)
            async with asyncio.timeout(LIMIT_S):
                while lm.refused < len(nonsense):
                    await asyncio.sleep(0.01)
            federation.submit(30)
            await federation.until_done(2)
            assert lm.refused == len(nonsense)
            assert [host.failed for host in federation.hosts.values()] == [None] * len(federation.hosts)

    asyncio.run(scenario())
    said = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert said == [
        "host lm rejected a message from host node (further rejections are not logged): lm/0 takes no JobDone",
    ]
    found = replay(tmp_path / "lm-1.journal", lookup)
    assert found.difference is None
    assert found.events > len(nonsense)


def test_what_no_host_of_this_process_takes_still_ends_it() -> None:
    """A message that a design sends itself and nobody takes is a fault of the design, which must not be passed over."""

    async def scenario() -> None:
        federation = Federation(plan("megha"))
        async with federation:
            host = federation.hosts["all"]
            host.inbox.post("lm/0", JobDone(1), "node/0")
            with pytest.raises(TypeError, match="does not receive JobDone"):
                async with asyncio.timeout(LIMIT_S):
                    await host.run()

    asyncio.run(scenario())
