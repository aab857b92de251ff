"""Jobs as OpenTelemetry has them: a span per job, in it a span per attempt of a task, and figures of the federation.

An attempt's span lasts from when it was queued (its job's submission, or the end of the attempt before) until it ended,
with the events `queued`, `launched` and `ended`. Spans leave in batches from a thread of their own; what does not fit
its queue is dropped there, and nothing here waits. A job service that is not traced pays nothing.

This is the only file that knows OpenTelemetry. Spans of jobs that an API finds after a restart begin with their
submission, but what ran before has no span in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

import volery
from volery.core.model import SECOND, JobId, TaskId, Time
from volery.live.clock import in_background
from volery.live.messages import TaskReport, identity_of, number_of
from volery.live.service.figures import federation_meters
from volery.live.service.queries import JobQueries
from volery.live.service.store import JobStore
from volery.live.status import JobStatus

REFRESH_S: Final = 5.0
"""Time between two reads of the figures; exporters take the last ones, in their own thread."""
TIMEOUT_S: Final = 5.0
"""Longest wait for a collector that does not answer, which also delays the end of the API."""
_NS: Final = 1000


def exporters(endpoint: str) -> tuple[SpanProcessor, MetricReader]:
    spans = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=TIMEOUT_S)
    figures = OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=TIMEOUT_S)
    return BatchSpanProcessor(spans), PeriodicExportingMetricReader(figures)


class _JobSpan:
    """A job whose span is open.

    Attributes:
        within: context of its attempts.
        first_task: number of its first task.
        queued_us: task -> time at which its next attempt was queued; a task without one was queued with its job.
    """

    __slots__ = ("first_task", "queued_us", "span", "submitted_us", "within")

    def __init__(self, span: Span, within: Context, first_task: TaskId, submitted_us: Time) -> None:
        self.span = span
        self.within = within
        self.first_task = first_task
        self.submitted_us = submitted_us
        self.queued_us: dict[TaskId, Time] = {}


class JobTracer:
    """Follows a job service: its jobs become spans, and its meters figures of OpenTelemetry.

    Args:
        name: name of the federation.
    """

    def __init__(self, name: str, store: JobStore, spans: SpanProcessor, reader: MetricReader) -> None:
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        resource = Resource.create({"service.name": "volery", "service.instance.id": name})
        self._tracers = TracerProvider(resource=resource)
        self._tracers.add_span_processor(spans)
        self._meters = MeterProvider([reader], resource)
        self._tracer = self._tracers.get_tracer("volery", volery.__version__)
        self._jobs: dict[JobId, _JobSpan] = {}
        self._attempts: dict[tuple[TaskId, int], tuple[Span, Time]] = {}
        self._figures: dict[str, list[Observation]] = {}

        self._meter = self._meters.get_meter("volery", volery.__version__)
        self._took = self._meter.create_histogram("volery.task.duration", "s", "of attempts that have ended")

    def open(self, queries: JobQueries) -> None:
        self._tasks = [
            in_background(self._follow(queries, queries.revision), "the export of traces"),
            in_background(self._refresh(queries), "the export of metrics"),
        ]

    async def _follow(self, queries: JobQueries, last_revision: int) -> None:
        async for batch in queries.feed.follow(last_revision).batches(REFRESH_S):
            for change in batch.changes:
                if isinstance(change.status, JobStatus) and change.status.ended:
                    self._end(change.status)

    async def _refresh(self, queries: JobQueries) -> None:
        while True:
            self._look(queries)
            await asyncio.sleep(REFRESH_S)

    def _look(self, queries: JobQueries) -> None:
        """Read the meters of Prometheus that OpenTelemetry has too: `volery_slots` is `volery.slots` here."""
        loads = queries.loads()
        states = ("pending", "running")
        tasks = [({"state": state}, sum(getattr(load, f"tasks_{state}") for load in loads)) for state in states]
        meters = (*federation_meters(queries), ("volery_tasks", "gauge", "tasks that have not ended", tasks))

        for name, kind, meaning, samples in meters:
            figure = name.removesuffix("_total").replace("_", ".", 1)
            is_new = figure not in self._figures
            self._figures[figure] = [Observation(value, labels) for labels, value in samples]
            if is_new:
                meter = self._meter
                create: Callable[..., object] = (
                    meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
                )
                create(figure, [partial(self._observed, figure)], description=meaning)

    def _observed(self, figure: str, _: CallbackOptions) -> Iterable[Observation]:
        return self._figures[figure]

    def on_report(self, report: TaskReport) -> None:
        """Add the report of an attempt to the span of its job."""
        number = number_of(report.job)
        job = self._jobs.get(number) or self._begun(number)
        key = (report.task, report.attempt)
        at_ns = report.at_unix_us * _NS
        if job is None or identity_of(number, job.first_task) != report.job:
            return

        if report.state == "running":
            if key not in self._attempts:  # it may be reported again
                self._attempts[key] = (self._launched(job, report, at_ns), report.at_unix_us)
        elif key in self._attempts:
            span, started_us = self._attempts.pop(key)

            # A host that was started again may have another clock than the one that gave the start.
            took_us = max(0, report.at_unix_us - started_us)
            _end_attempt(span, report, (started_us + took_us) * _NS)
            self._took.record(took_us / SECOND, {"state": report.state})
            if report.state != "finished":
                job.queued_us[report.task] = report.at_unix_us

    def _launched(self, job: _JobSpan, report: TaskReport, at_ns: int) -> Span:
        queued_ns = job.queued_us.pop(report.task, job.submitted_us) * _NS
        attributes: dict[str, str | int] = {
            "volery.task": report.task - job.first_task,
            "volery.attempt": report.number,
            "volery.node": report.node,
        }

        span = self._tracer.start_span("attempt", job.within, attributes=attributes, start_time=queued_ns)
        span.add_event("queued", timestamp=queued_ns)
        span.add_event("launched", timestamp=at_ns)

        return span

    def _begun(self, number: JobId) -> _JobSpan | None:
        status = self._store.job(number)
        first_task = self._store.first_task(number)
        if status is None or first_task is None:
            return None

        attributes: dict[str, str | int] = {
            "volery.job": number,
            "volery.name": status.name,
            "volery.user": status.user,
            "volery.tasks": status.tasks,
        }

        span = self._tracer.start_span("job", attributes=attributes, start_time=status.submitted_us * _NS)
        job = self._jobs[number] = _JobSpan(span, set_span_in_context(span), first_task, status.submitted_us)
        return job

    def _end(self, status: JobStatus) -> None:
        """Close the span of a job whose end is stored."""
        job = self._jobs.get(status.id) or self._begun(status.id)
        if job is None:
            return

        del self._jobs[status.id]
        counts = {f"volery.{name}": getattr(status, name) for name in ("finished", "failed", "killed", "unsatisfiable")}
        job.span.set_attributes({"volery.state": status.state, "volery.reason": status.reason, **counts})
        if status.state != "done":
            job.span.set_status(Status(StatusCode.ERROR, status.reason))

        assert status.ended_us is not None
        job.span.end(status.ended_us * _NS)

    def stop(self) -> None:
        """Follow nothing more; call it before the store is closed."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        """Export what there is; may take some seconds where no collector answers."""
        attempts = [span for span, _ in self._attempts.values()]
        for span in (*attempts, *(job.span for job in self._jobs.values())):
            span.set_attribute("volery.reason", "the API was closed")
            span.end()

        self._tracers.shutdown()
        self._meters.shutdown()


def _end_attempt(span: Span, report: TaskReport, at_ns: int) -> None:
    span.set_attributes({"volery.state": report.state, "volery.reason": report.reason})
    if report.exit_code is not None:
        span.set_attribute("volery.exit_code", report.exit_code)
    if report.state != "finished":
        span.set_status(Status(StatusCode.ERROR, report.reason or report.state))
    span.add_event("ended", timestamp=at_ns)
    span.end(at_ns)
