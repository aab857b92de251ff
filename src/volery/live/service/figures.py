"""Figures of a federation: a summary for programs and for the first page, and meters, which Prometheus reads as text.

The text format of Prometheus is version 0.0.4; names end in their unit. `telemetry` gives some of the meters to
OpenTelemetry.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol, get_args

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

import volery
from volery.core.model import SECOND, Address
from volery.live.service.job_service import JobService
from volery.live.service.queries import FederationView, JobQueries
from volery.live.service.reports import ended_of
from volery.live.service.requests import Operation, Traffic, as_json, principal
from volery.live.status import NodeState, NodeStatus, PairStatus

ALLOCATIONS: Final = 2_000
"""Tasks whose allocation times are counted."""

Percentile = Annotated[int, Meta(description="microseconds")]


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that the same component is in charge of."""

    name: Annotated[str, Meta(description="who is in charge; all: the design has no such component")]
    nodes: int
    drained: int
    lost: Annotated[int, Meta(description="that do not answer")] = 0
    slots: int
    usable: Annotated[int, Meta(description="slots of nodes that are neither drained nor lost")]
    running: int
    used: Annotated[int, Meta(description="tasks that run on usable slots; utilisation is used / usable")]


class AllocationPercentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Times from the submission of a task's job until its first attempt starts."""

    tasks: Annotated[int, Meta(description=f"of so many, at most {ALLOCATIONS:,}, of the jobs submitted last")]
    p50: Percentile
    p95: Percentile
    p99: Percentile


class FederationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The federation at a glance; figures of jobs are one's own for who is no operator, who gets no null ones."""

    nodes: int
    drained: int
    lost: Annotated[int, Meta(description="nodes that do not answer")]
    slots: int
    usable: Annotated[int, Meta(description="slots of nodes that are neither drained nor lost")]
    running: Annotated[int, Meta(description="tasks, of everybody")]
    used: Annotated[int, Meta(description="tasks that run on usable slots; utilisation is used / usable")]
    jobs_pending: int
    jobs_running: int
    tasks_pending: int
    clusters: tuple[ClusterStatus, ...]
    ended: Annotated[int | None, Meta(description="tasks, since the API has started; null: it may not be seen")] = None
    per_second: Annotated[
        float | None, Meta(description="tasks that ended, over the last minute; null: it may not be seen, or not yet")
    ] = None
    allocation: Annotated[
        AllocationPercentiles | None, Meta(description="null: it may not be seen, or nothing has run")
    ] = None
    views: Annotated[tuple[PairStatus, ...], Meta(description="of schedulers, where they report their decisions")] = ()


class Pacing(Protocol):
    def per_second(self, ended: int) -> float | None:
        """Tasks per second over the last minute, given how many have ended so far; None: too soon to tell."""


def summary_of(
    queries: FederationView,
    pace: Pacing,
    owners: Mapping[Address, Sequence[Address]],
    user: str | None,
    nodes: Sequence[NodeStatus],
) -> FederationSummary:
    """The federation as far as this host sees it.

    Args:
        owners: the components responsible for each node.
        user: user who sees figures of own jobs alone; None: figures of all jobs.
    """
    loads = queries.loads(user)
    summary = FederationSummary(
        **counts(nodes),
        jobs_pending=sum(load.jobs_pending for load in loads),
        jobs_running=sum(load.jobs_running for load in loads),
        tasks_pending=sum(load.tasks_pending for load in loads),
        clusters=clusters(nodes, owners),
    )

    # The rest would tell a user about the jobs of others.
    if user is not None:
        return summary

    ended = ended_of(queries.reports_by_state)
    return msgspec.structs.replace(
        summary,
        ended=ended,
        per_second=pace.per_second(ended),
        allocation=allocation(queries.allocations_us(ALLOCATIONS)),
        views=tuple(queries.views()),
    )


def in_order(name: str) -> tuple[tuple[int, str], ...]:
    """The key that sorts names with numbers by these numbers: lm/2 before lm/10."""
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]{1,18})", name))


USABLE: Final = ("in use", "short")
"""States of nodes that run tasks, and will run more."""


def counts(nodes: Sequence[NodeStatus]) -> dict[str, Any]:
    """Nodes, slots and what runs there, as fields of a status."""
    usable = [node for node in nodes if node.state in USABLE]
    return {
        "nodes": len(nodes),
        "drained": sum(node.drained for node in nodes),
        "lost": sum(node.lost for node in nodes),
        "slots": sum(node.slots for node in nodes),
        "usable": sum(node.slots for node in usable),
        "running": sum(node.running for node in nodes),
        "used": sum(node.running for node in usable),
    }


def clusters(nodes: Sequence[NodeStatus], owners: Mapping[Address, Sequence[Address]]) -> tuple[ClusterStatus, ...]:
    members_by_name: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        members_by_name.setdefault(", ".join(owners.get(node.address, ())) or "all", []).append(node)

    return tuple(
        ClusterStatus(
            name=name,
            **counts(members),
        )
        for name, members in sorted(members_by_name.items(), key=lambda item: in_order(item[0]))
    )


def allocation(allocations_us: Sequence[int]) -> AllocationPercentiles | None:
    """Percentiles of microseconds, each the smallest that so many of a hundred do not exceed."""
    if not allocations_us:
        return None
    sorted_us = sorted(allocations_us)
    p50, p95, p99 = (sorted_us[max(0, -(-len(sorted_us) * q // 100) - 1)] for q in (50, 95, 99))
    return AllocationPercentiles(tasks=len(sorted_us), p50=p50, p95=p95, p99=p99)


def summary_operation(queries: JobQueries) -> Operation:
    async def summary(request: Request) -> Response:
        """The federation at a glance: use, throughput, allocation times, clusters, what schedulers' views are worth."""
        owners = await queries.owners()
        return as_json(summary_of(queries, queries.pace, owners, principal(request).sees, queries.nodes()))

    return Operation("GET", "/summary", summary, FederationSummary)


MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KIB: Final = 1024

Labels = Mapping[str, str]
Sample = tuple[Labels, float]
Meter = tuple[str, str, str, Sequence[Sample]]
"""Name, type, meaning, samples."""


def exposition(service: JobService, traffic: Traffic, other_meters: Iterable[Meter] = ()) -> str:
    """The meters of the service and of others; users appear while they have something under way."""
    meters = (*federation_meters(service.queries), *_service_meters(service, traffic), *other_meters)
    return "\n".join(line for meter in meters for line in _lines(*meter)) + "\n"


def federation_meters(queries: JobQueries) -> Iterator[Meter]:
    """Meters of jobs, attempts and nodes, for Prometheus and for OpenTelemetry."""
    loads, nodes = queries.loads(), queries.nodes()

    pending, running = sum(load.jobs_pending for load in loads), sum(load.jobs_running for load in loads)
    jobs = [({"state": "pending"}, pending), ({"state": "running"}, running)]
    yield "volery_jobs", "gauge", "jobs that have not ended", jobs
    attempts = [({"state": state}, count) for state, count in sorted(queries.reports_by_state.items())]
    yield "volery_attempts_total", "counter", "reports of nodes since the start, by what they say", attempts

    states = [({"state": state}, sum(node.state == state for node in nodes)) for state in get_args(NodeState)]
    yield "volery_nodes", "gauge", "nodes", states
    yield "volery_slots", "gauge", "tasks that nodes run at once", [({}, sum(node.slots for node in nodes))]
    usable = sum(node.slots for node in nodes if node.state in USABLE)
    yield "volery_slots_usable", "gauge", "of these, on nodes that are neither drained nor lost", [({}, usable)]
    yield "volery_slots_taken", "gauge", "tasks that run", [({}, sum(node.running for node in nodes))]


def _service_meters(service: JobService, traffic: Traffic) -> Iterator[Meter]:
    """Meters of users, hosts and the API itself, for Prometheus alone."""
    yield "volery_version", "gauge", "the version that runs", [({"version": volery.__version__}, 1)]
    tasks = [
        ({"user": load.user, "state": state}, count)
        for load in service.queries.loads()
        for state, count in (("pending", load.tasks_pending), ("running", load.tasks_running))
    ]
    yield "volery_user_tasks", "gauge", "tasks of users that have not ended", tasks

    hosts = service.queries.all_hosts()
    up = [({"host": host.name}, int(host.state == "up")) for host in hosts]
    yield "volery_host_up", "gauge", "whether a host answers", up
    waits = [
        ({"host": host.name, "for": peer}, 1) for host in hosts if host.state == "opening" for peer in host.waits_for
    ]
    yield "volery_host_waits", "gauge", "whether a host has not opened yet and waits for another", waits
    heard = [({"host": host.name}, host.heard_us / SECOND) for host in hosts if host.heard_us is not None]
    yield "volery_host_last_heard_timestamp_seconds", "gauge", "when a host was last heard, Unix time", heard
    incarnations = [
        ({"host": host.name} | {name: str(getattr(host, name)) for name in ("hostname", "version", "incarnation")}, 1)
        for host in hosts
        if host.version
    ]
    yield "volery_host_info", "gauge", "the version and the incarnation that a host runs", incarnations

    writer, usage = service.writer, resource.getrusage(resource.RUSAGE_SELF)
    yield "volery_commits_total", "counter", "batches written to the store", [({}, writer.commits)]
    yield "volery_commit_seconds_total", "counter", "time that took", [({}, writer.commit_s)]
    yield "volery_revision", "gauge", "of the last change", [({}, service.queries.revision)]
    answers = [
        ({"method": method, "path": path, "status": str(status)}, count)
        for (method, path, status), count in sorted(traffic.answers.items())
    ]
    yield "volery_http_requests_total", "counter", "requests answered", answers
    seconds = [
        ({"method": method, "path": path}, spent_s) for (method, path), spent_s in sorted(traffic.seconds.items())
    ]
    yield "volery_http_request_seconds_total", "counter", "time until the answer began", seconds
    yield "volery_pages_open", "gauge", "pages of browsers that listen", [({}, traffic.pages_open)]
    yield "volery_views_made_total", "counter", "views made for pages", [({}, traffic.views_made)]
    yield "volery_view_cpu_seconds_total", "counter", "CPU time that took", [({}, traffic.views_cpu_s)]
    cpu_s = usage.ru_utime + usage.ru_stime
    yield "process_cpu_seconds_total", "counter", "CPU time of this process", [({}, cpu_s)]
    yield "process_max_resident_bytes", "gauge", "most memory it had", [({}, usage.ru_maxrss * _KIB)]


def _lines(name: str, kind: str, meaning: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        label_text = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
        lines.append(
            f"{name}{{{label_text}}} {value:.10g}" if type(value) is float else f"{name}{{{label_text}}} {value}"
        )
    return lines


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
