"""The web application of a recording: every page at any moment, for this machine alone."""

from __future__ import annotations

import re
import threading
import urllib.request

import pytest
from starlette.testclient import TestClient

from volery.core.errors import InputError
from volery.live.dashboard.frame import PageView
from volery.playback.pages import DESIGN, design_view, seconds
from volery.playback.recording import Recording
from volery.playback.server import PlaybackApp, PlaybackServer
from volery.playback.traced_runs import TracedRun


@pytest.fixture(scope="module")
def client(recording: Recording, traced: TracedRun) -> TestClient:
    def design() -> PageView:
        return design_view(
            traced.architecture, traced.deployment, "## Purpose\nA [link](x) and `code`.", lambda: "<svg/>"
        )

    return TestClient(PlaybackApp(recording, design).app(), base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/dashboard/jobs",
        "/dashboard/jobs/2",
        "/dashboard/jobs/2/tasks/0",
        "/dashboard/nodes",
        "/dashboard/users",
        DESIGN,
    ],
)
def test_every_page_has_the_bar_and_keeps_its_policy(client: TestClient, path: str) -> None:
    answer = client.get(path, params={"at": "4"})
    assert answer.status_code == 200
    assert 'id="scrub"' in answer.text
    assert 'value="4"' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "data-order" not in answer.text, "a recording takes no orders"


def test_the_home_page_has_the_messages_of_the_moment(client: TestClient) -> None:
    text = client.get("/", params={"at": "4"}).text
    assert re.findall(r"<h2>(Queues|Messages|Views of schedulers)</h2>", text) == [
        "Queues", "Messages", "Views of schedulers"
    ]  # fmt: skip
    assert "data-staging" in text
    assert "data-staging" not in client.get("/dashboard/nodes", params={"at": "4"}).text


def test_a_filter_by_name_finds_no_job(client: TestClient) -> None:
    assert "No such jobs." in client.get("/dashboard/jobs", params={"at": "4", "name": "train"}).text


def test_the_design_page_has_prose_flow_and_documentation(client: TestClient) -> None:
    text = client.get(DESIGN).text
    assert "<h2>Purpose</h2><p>A link and <code>code</code>.</p>" in text
    assert 'src="data:image/svg+xml;base64,' in text
    assert "<h2>Documentation of the module</h2>" in text


@pytest.mark.parametrize(
    ("path", "query", "status", "told"),
    [
        ("/dashboard/jobs", {"at": "soon"}, 422, "expected seconds since the beginning, as 12.5"),
        ("/dashboard/jobs", {"at": "inf"}, 422, "expected seconds"),
        ("/dashboard/jobs", {"sort": "x"}, 422, "query.sort"),
        ("/dashboard/jobs/99", {}, 404, "99"),
        ("/nowhere", {}, 404, "there is no such page"),
    ],
)
def test_what_is_wrong_is_told_on_a_page(
    client: TestClient, path: str, query: dict[str, str], status: int, told: str
) -> None:
    answer = client.get(path, params=query)
    assert answer.status_code == status
    assert told in answer.text
    assert 'id="scrub"' in answer.text


def test_other_hosts_are_refused(client: TestClient) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_a_recording_without_a_design_has_no_page_of_it(recording: Recording) -> None:
    client = TestClient(PlaybackApp(recording).app(), base_url="http://127.0.0.1")
    assert client.get(DESIGN).status_code == 404


def test_times_in_addresses_are_short_and_exact() -> None:
    assert [seconds(us) for us in (0, 1, 1_500_000, 12_000_000)] == ["0", "0.000001", "1.5", "12"]


def test_style_and_script_are_served_with_those_of_recordings(client: TestClient) -> None:
    assert ".film" in client.get("/dashboard/dashboard.css").text
    assert "scrub" in client.get("/dashboard/dashboard.js").text


def test_a_server_answers_at_its_address_until_it_is_stopped(recording: Recording) -> None:
    server = PlaybackServer(PlaybackApp(recording).app())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with urllib.request.urlopen(server.url, timeout=30) as answer:  # it listens from the beginning
            assert b'id="scrub"' in answer.read()
        port = int(server.url.rsplit(":", 1)[1].strip("/"))
        with pytest.raises(InputError, match="cannot listen there"):
            PlaybackServer(PlaybackApp(recording).app(), port)
    finally:
        server.stop()
        thread.join(30)
    assert not thread.is_alive()
