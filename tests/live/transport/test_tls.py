"""Certificates: the API over HTTPS, and a real broker that lets in hosts that have one, and only as themselves."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.certificates import Authority
from tests.live.commands import serving, volery
from tests.live.conftest import Server

from volery.cli.federation import choose
from volery.core.errors import InputError
from volery.live.assembly import running
from volery.live.client import Client
from volery.live.config.federation import read_federation
from volery.live.config.tls import BrokerAccess, BrokerTls
from volery.live.transport.broker import BrokerTransport

LIMIT_S = 20
HOSTS = ("gm", "lm", "node", "api")
MACHINES = "[parameters]\ngms = 1\nlms = 1\n[[machines]]\ncount = 4\n"


class Guarded(NamedTuple):
    """A broker that asks for certificates, and what signs them."""

    url: str
    authority: Authority


def permissions(host: str) -> str:
    """What the broker lets a host do, as in the how-to: speak in its own name, and hear what is for it."""
    return (
        f'{{ user: "CN={host}", permissions: {{ publish: ["volery.*.to.*.{host}", "volery.*.hello.{host}"], '
        f'subscribe: ["volery.*.to.{host}.*", "volery.*.hello.*"] }} }}'
    )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, broker_program: str) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("broker")
    authority = Authority(folder / "tls")
    for name in ("broker", *HOSTS):
        authority.sign(name)
    config = folder / "nats.conf"
    config.write_text(
        f'tls {{ cert_file: "{authority.of("broker.crt")}", key_file: "{authority.of("broker.key")}", '
        f'ca_file: "{authority.of("ca.crt")}", verify_and_map: true }}\n'
        f"authorization {{ users: [ {', '.join(map(permissions, HOSTS))} ] }}\n"
    )
    server = Server(broker_program, "-c", str(config))
    yield Guarded(server.url.replace("nats://", "tls://"), authority)
    server.kill()


def access(guarded: Guarded, name: str = "{host}", ca: str = "ca.crt") -> BrokerAccess:
    return BrokerAccess(
        guarded.url, BrokerTls(ca=ca, certificate=f"{name}.crt", key=f"{name}.key"), base=guarded.authority.folder
    )


def play(transport: BrokerTransport, host: str) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S):
            await transport.open(host, lambda sender, frame: None)
            await transport.close()

    asyncio.run(scenario())


def test_only_hosts_with_a_certificate_get_to_the_broker(guarded: Guarded, tmp_path: Path) -> None:
    play(BrokerTransport(access(guarded), "f", "c"), "gm")
    stranger = Authority(tmp_path / "tls")
    stranger.sign("gm")
    folder = stranger.folder
    mine = BrokerTls(ca=guarded.authority.of("ca.crt"), certificate="gm.crt", key="gm.key")
    with pytest.raises(InputError, match="do not trust each other"):
        play(BrokerTransport(BrokerAccess(guarded.url, mine, base=folder), "f", "c"), "gm")
    with pytest.raises(InputError, match="do not trust each other"):
        play(BrokerTransport(BrokerAccess(guarded.url, BrokerTls(ca="ca.crt"), base=folder), "f", "c"), "gm")
    with pytest.raises(InputError, match="do not trust each other"):
        play(BrokerTransport(BrokerAccess(guarded.url, BrokerTls(ca=guarded.authority.of("ca.crt"))), "f", "c"), "gm")


def test_a_host_cannot_speak_as_another(guarded: Guarded) -> None:
    """What the node's certificate lets it send never has the Global Master for a sender."""

    async def scenario() -> None:
        heard: list[tuple[str, bytes]] = []
        troubles: list[str] = []
        arrived = asyncio.Event()

        def on_frame(sender: str, frame: bytes) -> None:
            heard.append((sender, frame))
            arrived.set()

        lm = BrokerTransport(access(guarded), "f", "c")
        honest = BrokerTransport(access(guarded), "f", "c")
        forger = BrokerTransport(access(guarded, "node"), "f", "c", troubles.append)
        async with asyncio.timeout(LIMIT_S):
            await lm.open("lm", on_frame)
            await forger.open("gm", lambda sender, frame: None)
            forger.send("lm", b"forged")
            await honest.open("node", lambda sender, frame: None)
            honest.send("lm", b"true")
            await arrived.wait()
            await asyncio.sleep(0.1)
            for transport in (forger, honest, lm):
                await transport.close()
        assert heard == [("node", b"true")]
        assert any("ermissions" in trouble for trouble in troubles)

    asyncio.run(scenario())


def test_a_federation_with_certificates_everywhere(guarded: Guarded, tmp_path: Path) -> None:
    """Each role its own process and certificate, the API over HTTPS, and tokens."""
    tls = guarded.authority.folder
    config = tmp_path / "federation.toml"
    config.write_text(
        f'name = "safe"\nbroker = "{guarded.url}"\napi = "127.0.0.1:0"\nexecutor = "instant"\n'
        f'broker_tls = {{ ca = "{tls}/ca.crt", certificate = "{tls}/{{host}}.crt", key = "{tls}/{{host}}.key" }}\n'
        f'tls = {{ certificate = "{tls}/api.crt", key = "{tls}/api.key" }}\n' + MACHINES
    )
    token = json.loads(volery("token", "add", "ada", "-o", tmp_path / "federation", "--json"))["token"]
    with serving(*(["serve", host, "-c", str(config)] for host in HOSTS)) as started:
        said = [one.ready() for one in started][-1]
        assert (said["api"][:8], said["tokens"]) == ("https://", True)
        with pytest.MonkeyPatch.context() as environment:
            with Client(said["api"], token) as client, pytest.raises(InputError, match="is not trusted"):
                client.jobs()
            environment.setenv("VOLERY_CA", f"{tls}/ca.crt")
            with Client(said["api"], token) as client:
                assert client.submit({"command": "true", "tasks": 3}).result(LIMIT_S).state == "done"
            with Client(said["api"], "") as client, pytest.raises(InputError, match="bearer token is needed"):
                client.jobs()
        errors = [one.stop() for one in started]
        assert [status for status, _ in errors] == [0] * len(HOSTS), errors
        assert token not in "".join(text for _, text in errors)
    for path in (tmp_path / "federation").rglob("*"):
        assert path.is_dir() or token.encode() not in path.read_bytes(), path


def test_a_broker_with_a_password(broker_program: str, tmp_path: Path) -> None:
    secret = tmp_path / "login.toml"
    secret.write_text('user = "volery"\npassword = "opensesame"\n')
    config = tmp_path / "nats.conf"
    config.write_text('authorization { user: "volery", password: "opensesame" }\n')
    server = Server(broker_program, "-c", str(config))
    try:
        with pytest.raises(InputError, match="refuses this host"):
            play(BrokerTransport(server.url, "f", "c"), "gm")
        secret.chmod(0o644)
        with pytest.raises(InputError, match="open to others; chmod 600"):
            play(BrokerTransport(BrokerAccess(server.url, login=secret), "f", "c"), "gm")
        secret.chmod(0o600)
        play(BrokerTransport(BrokerAccess(server.url, login=secret), "f", "c"), "gm")
        secret.write_text('pasword = "x"\n')
        with pytest.raises(InputError, match="pasword"):
            play(BrokerTransport(BrokerAccess(server.url, login=secret), "f", "c"), "gm")
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('tls = { certificate = "none.crt", key = "none.key" }', "none.key: cannot be read"),
        ('tls = { certificate = "a" }', "key"),
        ('broker = "nats://me:secret@127.0.0.1:4222"', "a password does not belong into a URL"),
        ('api = "0.0.0.0:0"', "whoever reaches it could run commands"),
        ('run_as = "nobody-of-that-name"', "nobody-of-that-name"),
        ('run_as = "root"', "root"),
    ],
)
def test_what_is_not_safe_does_not_start(lines: str, said: str, tmp_path: Path) -> None:
    lines += "" if lines.startswith("api") else '\napi = "127.0.0.1:0"'
    lines += "" if lines.startswith("run_as") else '\nexecutor = "instant"'
    with pytest.raises(InputError) as refused:
        start(tmp_path, f"{lines}\n{MACHINES}")
    answer = f"{refused.value.place}: {refused.value.problem}"
    assert said in answer
    assert "secret" not in answer


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_does_not_run_tasks_without_being_told_as_whom(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run_as: this host runs as root, and tasks never do"):
        start(tmp_path, f'api = "127.0.0.1:0"\n{MACHINES}')


def start(folder: Path, content: str) -> None:
    """Start a federation in this process, and end it."""
    config = folder / "federation.toml"
    config.write_text(content)

    async def scenario() -> None:
        async with running(read_federation(config, choose)):
            pass

    asyncio.run(scenario())
