"""Jobs as OpenTelemetry has them, with the exporters that keep everything in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.live.serving import at_work

from volery.architectures import choose
from volery.core.errors import InputError
from volery.live.client import Client
from volery.live.config.federation import FederationFile, resolve
from volery.live.frontend import job_tracer
from volery.live.service import telemetry
from volery.live.service.store import JobStore

COLLECTOR = "http://127.0.0.1:4318/"


class Kept:
    """What would have left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        monkeypatch.setattr(telemetry, "exporters", self._exporters)
        self.endpoint = ""

    def _exporters(self, endpoint: str) -> tuple[SpanProcessor, MetricReader]:
        self.endpoint = endpoint
        return SimpleSpanProcessor(self._spans), self._reader

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def figures(self) -> dict[str, list[tuple[float, dict[str, Any]]]]:
        found: dict[str, list[tuple[float, dict[str, Any]]]] = {}
        read = self._reader.get_metrics_data()
        assert read is not None
        for metric in read.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                value = getattr(point, "value", None)
                shown = dict(point.attributes or {})
                found.setdefault(metric.name, []).append(
                    (getattr(point, "count", 0) if value is None else value, shown)
                )
        return found


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def wait(client: Client, number: int) -> None:
    for _ in client.events(number, after=0):
        pass


def test_a_job_is_a_span_and_each_attempt_one_within(kept: Kept, tmp_path: Path) -> None:
    given: dict[str, Any] = {"machines": [{"count": 4}], "parameters": {"gms": 1, "lms": 2}, "executor": "sleep"}
    with at_work(tmp_path, telemetry=COLLECTOR, **given) as url, Client(url) as client:
        first = client.send({"command": "true", "tasks": 6, "estimate_s": 0.1, "name": "six", "user": "ada"})
        wait(client, first.id)
        figures = kept.figures()
        taken = client.send({"command": "true", "estimate_s": 60, "tasks": 1})
        for change in client.events(taken.id, after=0):
            if getattr(change, "running", 0) == 1:
                client.cancel(taken.id)
        gone = client.job(taken.id)
    assert kept.endpoint == "http://127.0.0.1:4318"
    jobs = {attributes(span)["volery.job"]: span for span in kept.spans("job")}
    assert sorted(jobs) == [first.id, taken.id]
    done, cancelled = (attributes(jobs[number]) for number in (first.id, taken.id))
    assert (done["volery.name"], done["volery.user"], done["volery.state"], done["volery.finished"]) == (
        "six",
        "ada",
        "done",
        6,
    )
    assert (cancelled["volery.state"], cancelled["volery.reason"]) == ("cancelled", gone.reason)
    assert jobs[taken.id].status.status_code is StatusCode.ERROR
    within = [span for span in kept.spans("attempt") if span.parent == jobs[first.id].context]
    assert sorted(attributes(span)["volery.task"] for span in within) == list(range(6))
    for span in within:
        assert [event.name for event in span.events] == ["queued", "launched", "ended"]
        queued, launched, ended = (event.timestamp for event in span.events)
        assert span.start_time == queued == jobs[first.id].start_time
        assert span.end_time == ended
        assert queued <= launched < ended
        assert str(attributes(span)["volery.node"]).startswith("node/")
    waited = sum(span.events[1].timestamp - span.events[0].timestamp > 90_000_000 for span in within)
    assert waited == 2, "four slots"
    (killed,) = [span for span in kept.spans("attempt") if span.parent == jobs[taken.id].context]
    assert attributes(killed)["volery.state"] == "killed"
    assert killed.status.status_code is StatusCode.ERROR
    assert figures["volery.slots"] == figures["volery.slots_usable"] == [(4, {})]
    assert (4, {"state": "in use"}) in figures["volery.nodes"]
    assert (0, {"state": "lost"}) in figures["volery.nodes"]
    assert figures["volery.task.duration"] == [(6, {"state": "finished"})]
    assert figures["volery.jobs"] == [(0, {"state": "pending"}), (0, {"state": "running"})]


def test_a_second_attempt_was_queued_when_the_first_had_ended(kept: Kept, tmp_path: Path) -> None:
    """Two users with a half each: what the one has beyond that is taken from it and starts anew."""
    parameters = {"gms": 2, "lms": 2, "shares": "ada:1+bob:1", "heartbeat_s": 0.05}
    given: dict[str, Any] = {"machines": [{"count": 4}], "parameters": parameters, "executor": "sleep"}
    with at_work(tmp_path, telemetry=COLLECTOR, **given) as url, Client(url) as client:
        first = client.send({"command": "true", "tasks": 4, "estimate_s": 0.6, "user": "ada"})
        for change in client.events(first.id, after=0):
            if getattr(change, "running", 0) == 4:
                break
        second = client.send({"command": "true", "estimate_s": 0.1, "user": "bob"})
        wait(client, second.id)
        wait(client, first.id)
    (job,) = [span for span in kept.spans("job") if attributes(span)["volery.user"] == "ada"]
    attempts = [span for span in kept.spans("attempt") if span.parent == job.context]
    assert len(attempts) == 5
    (anew,) = [span for span in attempts if attributes(span)["volery.attempt"] == 1]
    (lost,) = [span for span in attempts if attributes(span)["volery.state"] == "killed"]
    assert attributes(lost)["volery.task"] == attributes(anew)["volery.task"]
    assert anew.start_time == lost.end_time
    assert attributes(anew)["volery.state"] == "finished"


def test_it_is_off_by_default_and_then_nobody_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("volery.live.service.telemetry")]:
        monkeypatch.delitem(sys.modules, name)
    with at_work(tmp_path, machines=[{"count": 1}], parameters={"gms": 1, "lms": 1}):
        assert "volery.live.service.telemetry" not in sys.modules


def test_what_it_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def federation(endpoint: str) -> object:
        file = FederationFile(machines=[{"count": 3}], folder=str(tmp_path), telemetry=endpoint)
        return job_tracer(resolve(file, Path(), choose), JobStore(tmp_path / f"{len(endpoint)}.sqlite"))

    with pytest.raises(InputError, match="no address of a collector"):
        federation("127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "volery.live.service.telemetry", None)
    monkeypatch.delattr("volery.live.service.telemetry")
    with pytest.raises(InputError, match=r"pip install -e '\.\[otel\]'"):
        federation(COLLECTOR)
