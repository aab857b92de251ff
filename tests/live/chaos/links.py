"""Links between hosts and the broker that can be slow or cut: real sockets through a relay, or network namespaces.

Through a relay, bytes wait and connections stall, or are hung up on when that has lasted. Between namespaces, where
this is permitted, the kernel delays and loses packets (netem), or lets few of them pass where it knows no netem (tbf).
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

from volery.core.model import SECOND, Time

HANG_UP_US = 5 * SECOND
"""A link that was cut for longer has no connections any more when it is whole again."""
CHUNK_BYTES = 1 << 16
LOSS_PERCENT = 3
SLOW_RATE = ("rate", "200kbit", "burst", "8kb", "latency", "400ms")
BRIDGE = "10.213.77.1"
FIRST_ADDRESS = 10


class _Link:
    """One host's way to the broker."""

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.whole = asyncio.Event()
        self.whole.set()
        self.connections: set[asyncio.StreamWriter] = set()
        self.server: asyncio.Server | None = None
        self.port = 0


class Relay:
    """A port per host, in a thread of its own, and the broker behind all of them.

    Args:
        hosts: who has a link.
        port: of the broker.
    """

    def __init__(self, hosts: Iterable[str], port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._random = random.Random(0)
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay")
        self._thread.start()
        self._links: dict[str, _Link] = {}
        for host in hosts:
            self._links[host] = asyncio.run_coroutine_threadsafe(self._opened(), self._loop).result()

    def broker_of(self, host: str) -> tuple[str, int]:
        """Where the broker is, for a host."""
        return "127.0.0.1", self._links[host].port

    def words(self, host: str) -> list[str]:
        """What stands before the command of a host."""
        return []

    def slow(self, host: str, mean_us: Time) -> None:
        """What passes takes so much longer, on average, in either direction."""
        self._links[host].mean_s = mean_us / SECOND

    def cut(self, host: str) -> None:
        """Nothing passes."""
        self._loop.call_soon_threadsafe(self._links[host].whole.clear)

    def mend(self, host: str, after_us: Time) -> None:
        """All is well again, after so long."""
        link = self._links[host]
        link.mean_s = 0.0

        def mended() -> None:
            if not link.whole.is_set() and after_us > HANG_UP_US:
                for writer in link.connections:
                    writer.transport.abort()
            link.whole.set()

        self._loop.call_soon_threadsafe(mended)

    def close(self) -> None:
        """Hang up everywhere."""

        async def closing() -> None:
            for link in self._links.values():
                if link.server is not None:
                    link.server.close()
                for writer in link.connections:
                    writer.transport.abort()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(closing(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _opened(self) -> _Link:
        link = _Link()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(link, reader, writer)

        link.server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        link.port = link.server.sockets[0].getsockname()[1]
        return link

    async def _serve(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await link.whole.wait()
        try:
            beyond = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, beyond[1])
        link.connections.update(both)
        ways = [self._pump(link, reader, beyond[1]), self._pump(link, beyond[0], writer)]
        pumping = [self._loop.create_task(way) for way in ways]
        try:
            await asyncio.wait(pumping, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumping:
                task.cancel()
            link.connections.difference_update(both)
            for end in both:
                end.transport.abort()

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read as things come, write them when their time has come; both ends are lost together."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                due, chunk = await waiting.get()
                if (wait_s := due - self._loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                await link.whole.wait()
                if not chunk:
                    raise ConnectionResetError
                writer.write(chunk)
                await writer.drain()

        writing = self._loop.create_task(write())
        due = 0.0
        try:
            while True:
                chunk = b""
                with suppress(OSError):
                    chunk = await reader.read(CHUNK_BYTES)
                late_s = self._random.expovariate(1 / link.mean_s) if link.mean_s else 0.0
                due = max(due, self._loop.time() + late_s)
                waiting.put_nowait((due, chunk))
                if not chunk:
                    break
            with suppress(OSError):
                await writing
        finally:
            writing.cancel()


class Namespaces(Relay):
    """A network namespace per host, a bridge between them, and the broker on the bridge; the API's host has a relay.

    Args:
        hosts: as of Relay.
        port: of the broker, which listens on all addresses.
        outside: the hosts that have a relay instead.
    """

    def __init__(self, hosts: Iterable[str], port: int, outside: Sequence[str]) -> None:
        super().__init__(outside, port)
        self._name = f"vc{os.getpid() % 100_000}"
        self._numbers = {host: number for number, host in enumerate(set(hosts) - {*outside})}
        _ip("link", "add", f"{self._name}b", "type", "bridge")
        _ip("addr", "add", f"{BRIDGE}/24", "dev", f"{self._name}b")
        _ip("link", "set", f"{self._name}b", "up")
        for host, number in self._numbers.items():
            space, outer, inner = self._space(host), self._device(host), f"{self._name}i{number}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            _ip("link", "set", inner, "netns", space)
            _ip("link", "set", outer, "master", f"{self._name}b", "up")
            address = f"{BRIDGE.rpartition('.')[0]}.{FIRST_ADDRESS + number}/24"
            _ip("-n", space, "addr", "add", address, "dev", inner)
            _ip("-n", space, "link", "set", inner, "up")
            _ip("-n", space, "link", "set", "lo", "up")

    @staticmethod
    def permitted() -> bool:
        """Whether this may be done here."""
        if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
            return False
        name = f"vc{os.getpid() % 100_000}p"
        try:
            _ip("netns", "add", name)
            _ip("netns", "delete", name)
            _ip("link", "add", name, "type", "bridge")
            _ip("link", "delete", name)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _space(self, host: str) -> str:
        return f"{self._name}-{host}"

    def _device(self, host: str) -> str:
        return f"{self._name}o{self._numbers[host]}"

    def broker_of(self, host: str) -> tuple[str, int]:
        """On the bridge."""
        return (BRIDGE, self._port) if host in self._numbers else super().broker_of(host)

    def words(self, host: str) -> list[str]:
        """Enter the namespace."""
        return ["ip", "netns", "exec", self._space(host)] if host in self._numbers else []

    def slow(self, host: str, mean_us: Time) -> None:
        """Packets are late and some are lost, or few of them pass."""
        if host not in self._numbers:
            super().slow(host, mean_us)
            return
        add = ("tc", "qdisc", "add", "dev", self._device(host), "root")
        delay = f"{mean_us // 1000}ms"
        netem = ("netem", "delay", delay, delay, "loss", f"{LOSS_PERCENT}%")
        if subprocess.run([*add, *netem], capture_output=True, check=False).returncode:
            subprocess.run([*add, "tbf", *SLOW_RATE], capture_output=True, check=True)

    def cut(self, host: str) -> None:
        """Take the link down."""
        if host in self._numbers:
            _ip("link", "set", self._device(host), "down")
        else:
            super().cut(host)

    def mend(self, host: str, after_us: Time) -> None:
        """Take it up again, with no discipline."""
        if host not in self._numbers:
            super().mend(host, after_us)
            return
        _ip("link", "set", self._device(host), "up")
        delete = ["tc", "qdisc", "del", "dev", self._device(host), "root"]
        subprocess.run(delete, capture_output=True, check=False)  # there may be none

    def close(self) -> None:
        """Take everything away."""
        super().close()
        for host in self._numbers:
            with suppress(subprocess.CalledProcessError):
                _ip("link", "delete", self._device(host))
                _ip("netns", "delete", self._space(host))
        _ip("link", "delete", f"{self._name}b")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
