"""Hostile input: whatever the description of the API allows and more, no 500; whatever a frame holds, no crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx2
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from tests.live.bench import LIMIT_S
from tests.live.serving import at_work

from volery.architectures import REGISTRY
from volery.conformance.protocol import examples
from volery.core.events import SUBMITTER_MESSAGES
from volery.live.service.authentication import TokenFile
from volery.live.transport.broker import FrameAssembly
from volery.live.transport.delivery import Codec, CodecError, HostFrame

QUICK: Final = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
NAMES: Final = (
    "<script>alert(1)</script>",
    "x" * 10_000,
    "\u202eevil",
    "\U0001f469\u200d\U0001f680",
    "a\x1b[31m",
    "\x00",
    "'; DROP TABLE jobs; --",
    "../../etc/passwd",
    "%s%n",
    "\u0645\u0631\u062d\u0628\u0627",
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its nodes run nothing: what is submitted must not be run here."""
    folder = tmp_path_factory.mktemp("fuzz")
    token, _ = TokenFile(folder).add("ada", "admin")
    with at_work(folder, machines=[{"count": 4, "labels": {"zone": "a"}}], parameters={"gms": 1, "lms": 1}) as url:
        yield url, token


@pytest.fixture
def http(federation: tuple[str, str]) -> Iterator[httpx2.Client]:
    url, token = federation
    headers = {"authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False) as client:
        yield client


@pytest.mark.slow
def test_the_api_bears_whatever_its_description_allows(federation: tuple[str, str]) -> None:
    """Every operation but the endless stream, with what fits its schema and with what does not."""
    url, token = federation
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    tried = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr] # our description is sound, else this fails
        if operation.path == "/events":
            continue
        cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode))

        @settings(QUICK, max_examples=12)
        @given(case=cases)
        def try_it(case: Any) -> None:
            response = case.call(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=LIMIT_S)
            case.validate_response(response, checks=[not_a_server_error])
            told = response.headers["content-type"][0] if response.headers.get("content-type") else ""
            assert response.status_code < 400 or told == "application/json", response.text

        try_it()
        tried += 1
    assert tried >= 12


BODIES: Final = (
    b"",
    b"[",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"null",
    b"1e999",
    b'"' + b"x" * 100_000,
    b"\xff\xfe",
    b'{"command":"\\ud800"}',
    b'{"command":"a\\u0000b"}',
    b'{"call":"!!!"}',
    b'{"command":"true","env":{"":""}}',
    b'{"command":"true","tasks":1e300}',
    b'{"command":"true","tasks":99999999999999999999}',
    b'{"command":"true","estimate_s":1e308}',
    b'{"command":"true","timeout_s":-1}',
    b'{"command":["true"],"tasks":1000000,"stdin":"' + b"x" * 1000 + b'"}',
    b'{"command":"true","constraints":["cores >= 99999999999999999999999"]}',
    b'{"command":"true","constraints":["label.zone in [' + b'\\"a\\",' * 100 + b'\\"b\\"]"]}',
    b'{"command":"true","outputs":["../x"]}',
    b'{"command":"true","request":{"x":-1}}',
)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_that_is_no_job_is_refused_with_its_place(http: httpx2.Client, body: bytes) -> None:
    answer = http.post("/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (201, 422), answer.text[:300]
    assert answer.status_code == 201 or answer.json()["error"]["place"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_hostile_names_are_refused_or_come_back_as_they_are(http: httpx2.Client, name: str) -> None:
    for field in ("name", "user", "key"):
        answer = http.post("/jobs", json={"command": "true", field: name})
        assert answer.status_code in (201, 422)
        if answer.status_code == 201:
            job = http.get(f"/jobs/{answer.json()['id']}").json()
            assert field == "key" or job[field] == name
        else:
            assert answer.json()["error"]["place"] == f"job.{field}"
    for query in ("state", "user", "reason", "since", "before", "limit"):
        assert http.get("/jobs", params={query: name}).status_code in (200, 422)
    metrics = http.get("/metrics").text.splitlines()
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in metrics)


CODEC: Final = Codec(REGISTRY["megha"].messages)
KINDS: Final = sorted({*REGISTRY["megha"].messages, *SUBMITTER_MESSAGES}, key=lambda kind: kind.__name__)
WHOLE: Final = tuple(
    CODEC.encode(HostFrame(1, number, [("gm/0", "lm/0", message)]))
    for number, kind in enumerate(KINDS, 1)
    for message in examples(kind)
)


@settings(QUICK, max_examples=400)
@given(encoded=st.binary(max_size=200))
@example(b"")
@example(b"\x01" + b"\x91" * 5_000)
@example(b"\x01" + b"\xdd\xff\xff\xff\xff")
@example(b"\x01\x93\x01\x01\x91\x93\xa1a\xa1b\xdd\xff\xff\xff\xff")
def test_bytes_that_are_no_frame_are_refused(encoded: bytes) -> None:
    demand_refused_or_read(encoded)


@settings(QUICK, max_examples=600)
@given(whole=st.sampled_from(WHOLE), at=st.integers(0, 10_000), by=st.binary(min_size=1, max_size=6), cut=st.booleans())
def test_a_frame_that_was_changed_on_its_way_is_refused_or_read(whole: bytes, at: int, by: bytes, cut: bool) -> None:
    at %= len(whole)
    demand_refused_or_read(whole[:at] + by + (b"" if cut else whole[at + len(by) :]))


def demand_refused_or_read(encoded: bytes) -> None:
    """What is read is a frame of known messages; anything else is refused by name."""
    try:
        frame = CODEC.decode(encoded)
    except CodecError:
        return
    for to, source, message in frame.parcels:
        assert isinstance(to, str)
        assert isinstance(source, str)
        assert isinstance(message, msgspec.Struct)


@settings(QUICK, max_examples=200)
@given(payloads=st.lists(st.binary(max_size=5), max_size=12))
def test_pieces_in_any_order_are_put_together_or_dropped(payloads: list[bytes]) -> None:
    assembly = FrameAssembly()
    for payload in payloads:
        found = assembly.add(payload)
        assert found is None or len(found) <= sum(map(len, payloads))
