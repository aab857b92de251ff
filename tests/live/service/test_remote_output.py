"""Output of tasks that ran on other hosts: asked for over the broker, in pieces, for those who may see the job."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from tests.live.commands import Serving, serving, volery
from tests.live.conftest import CALLS, RUN_AS
from tests.live.transport.test_tls import Guarded, guarded

from volery.core.model import SUBMITTER
from volery.live.client import Client
from volery.live.messages import OutputReply, OutputRequest
from volery.live.node.output import PIECE_BYTES_MAX, READS_MAX, OutputReader, read
from volery.live.node.runtime import Reporter

__all__ = ["guarded"]
LIMIT_S = 30
LINES = 90_000
"""More than two pieces."""


class Apart(NamedTuple):
    """A federation whose hosts share no folder: the API, the schedulers, the nodes."""

    url: str
    tokens: dict[str, str]
    hosts: dict[str, Serving]
    ca: str


@pytest.fixture(scope="module")
def apart(guarded: Guarded) -> Iterator[Apart]:
    with tempfile.TemporaryDirectory(prefix="volery-") as folder:  # pytest's own let no other account in
        base = Path(folder)
        base.chmod(0o755)
        yield from _apart(base, guarded)


def _apart(base: Path, guarded: Guarded) -> Iterator[Apart]:
    tls = guarded.authority.folder
    run_as = f'run_as = "{RUN_AS}"\ncalls = {CALLS}\n' if RUN_AS else ""
    for host in ("gm", "lm", "node", "api"):
        (base / host).mkdir()
        (base / host / "federation.toml").write_text(
            f'name = "apart"\nbroker = "{guarded.url}"\napi = "127.0.0.1:0"\nexecutor = "agent"\n{run_as}'
            f'broker_tls = {{ ca = "{tls}/ca.crt", certificate = "{tls}/{{host}}.crt", key = "{tls}/{{host}}.key" }}\n'
            f'tls = {{ certificate = "{tls}/api.crt", key = "{tls}/api.key" }}\n'
            "[parameters]\ngms = 1\nlms = 1\n[[machines]]\ncount = 2\n"
        )
    tokens = {
        user: json.loads(volery("token", "add", user, "-o", base / "api" / "federation", "--json"))["token"]
        for user in ("ada", "bob")
    }
    hosts = ("node", "gm", "lm", "api")
    with serving(*(["serve", host, "-c", str(base / host / "federation.toml")] for host in hosts)) as started:
        url = [one.ready() for one in started][-1]["api"]
        yield Apart(url, tokens, dict(zip(hosts, started, strict=True)), f"{tls}/ca.crt")
    assert not (base / "api" / "federation" / "tasks").exists(), "nothing ran where the API is"


@pytest.fixture
def client(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("VOLERY_CA", apart.ca)
    monkeypatch.setenv("VOLERY_API", apart.url)
    monkeypatch.setenv("VOLERY_TOKEN", apart.tokens["ada"])
    with Client(apart.url, apart.tokens["ada"]) as client:
        yield client


@pytest.mark.slow
def test_logs_of_another_host_are_whole_and_its_pieces_are_those_of_a_file(client: Client, apart: Apart) -> None:
    handle = client.submit({"command": f"seq {LINES}; echo wrong >&2"})
    assert handle.result(LIMIT_S).state == "done"
    whole = b"".join(b"%d\n" % number for number in range(1, LINES + 1))
    assert len(whole) > 2 * PIECE_BYTES_MAX
    assert client.logs(handle.id) == whole
    assert client.logs(handle.id, 0, "stderr") == b"wrong\n"
    assert client.logs(handle.id, 0, "stdout", 300_000) == whole[300_000:]
    assert volery("logs", str(handle.id)).encode() == whole
    with httpx2.Client(base_url=apart.url, verify=_trusting(apart.ca)) as http:
        place = f"/jobs/{handle.id}/tasks/0/logs"
        ada, bob = ({"authorization": f"Bearer {apart.tokens[user]}"} for user in ("ada", "bob"))
        part = http.get(place, headers={**ada, "range": "bytes=-7"})
        assert (part.status_code, part.content) == (206, whole[-7:])
        assert http.get(place, headers={**ada, "range": f"bytes={len(whole)}-"}).status_code == 416
        assert http.get(place, headers=bob).status_code == 404, "it is not bob's job"
        entered = http.post("/dashboard/session", json={"token": apart.tokens["ada"]}, headers={"origin": apart.url})
        assert entered.status_code < 400
        page = http.get(f"/dashboard/jobs/{handle.id}/tasks/0").text
        assert f"\n{LINES}\n" in page
        assert "wrong" in page
    assert "done" in volery("job", str(handle.id))


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_named_and_its_output_is_there_when_it_is_back(
    client: Client, apart: Apart
) -> None:
    handle = client.submit({"command": "echo kept"})
    assert handle.result(LIMIT_S).state == "done"
    apart.hosts["node"].running.send_signal(signal.SIGSTOP)
    try:
        with httpx2.Client(base_url=apart.url, verify=_trusting(apart.ca), timeout=LIMIT_S) as http:
            answer = http.get(
                f"/jobs/{handle.id}/tasks/0/logs", headers={"authorization": f"Bearer {apart.tokens['ada']}"}
            )
        assert answer.status_code == 504
        error = answer.json()["error"]
        assert error["place"].startswith("node/")
        assert "host node, which has the output, does not answer" in error["problem"]
    finally:
        apart.hosts["node"].running.send_signal(signal.SIGCONT)
    assert client.logs(handle.id) == b"kept\n"


@pytest.mark.slow
def test_only_the_submitter_is_answered_and_only_about_folders_of_attempts(tmp_path: Path) -> None:
    told: list[tuple[object, str]] = []
    reporter = Reporter("node", lambda what, source="": told.append((what, source)), outputs=tmp_path)
    (tmp_path / "3" / "7.0").mkdir(parents=True)
    (tmp_path / "3" / "7.0" / "stdout").write_text("secret")
    question = OutputRequest(1, f"{tmp_path}/3/7.0", "stdout", 2, 3)

    async def scenario() -> None:
        reporter.on_output_asked(question, "gm/0", 0)
        await asyncio.sleep(0.1)
        assert not told, "a scheduler has no business with output"
        reporter.on_output_asked(question, SUBMITTER, 0)
        while not told:
            await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert told == [(OutputReply(1, "here", 6, 0, b"cre"), "agent/node")]
    for folder, stream in ((f"{tmp_path}/3/../3/7.0", "stdout"), (str(tmp_path), "stdout"), ("3/7.0", "../stdout")):
        assert read(tmp_path, OutputRequest(2, folder, stream, 0, 9)).found == "not here"
    assert read(tmp_path, OutputRequest(3, "3/7.0", "stdout", 0, 1 << 40)).piece == b"secret"


@pytest.mark.slow
def test_a_host_reads_so_many_at_a_time(tmp_path: Path) -> None:
    told: list[OutputReply] = []

    async def scenario() -> None:
        reader = OutputReader(tmp_path, told.append)
        for number in range(READS_MAX + 1):
            reader.asked(OutputRequest(number, "1/1.0", "stdout", 0, 1))
        while len(told) <= READS_MAX:
            await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert [one.number for one in told if one.found == "busy"] == [READS_MAX]


def _trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)
