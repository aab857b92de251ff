"""A federation at a glance: the first figures of the live page, for programs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Protocol

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from volery.core.model import Address
from volery.live.service.history import ended_of
from volery.live.service.openapi import Operation
from volery.live.service.queries import JobQueries
from volery.live.service.requests import as_json, principal
from volery.live.service.view import FederationView
from volery.live.status import NodeStatus, PairStatus

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
    """From the submission of a task's job until its first attempt starts."""

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
    queries: FederationView, pace: Pacing, owners: Mapping[Address, Sequence[Address]], user: str | None,
    nodes: Sequence[NodeStatus],
) -> FederationSummary:  # fmt: skip
    """The federation as far as this host sees it.

    Args:
        owners: the components responsible for each node.
        user: who sees figures of their own jobs alone; None: those of all.
    """
    loads = queries.loads(user)
    known = FederationSummary(
        **counts(nodes), jobs_pending=sum(load.jobs_pending for load in loads),
        jobs_running=sum(load.jobs_running for load in loads),
        tasks_pending=sum(load.tasks_pending for load in loads), clusters=clusters(nodes, owners),
    )  # fmt: skip
    if user is not None:
        return known
    ended = ended_of(queries.told)
    return msgspec.structs.replace(
        known, ended=ended, per_second=pace.per_second(ended),
        allocation=allocation(queries.allocations_us(ALLOCATIONS)), views=tuple(queries.views()),
    )  # fmt: skip


def in_order(name: str) -> tuple[tuple[int, str], ...]:
    """By what names are sorted whose numbers count as numbers: lm/2 before lm/10."""
    return tuple((int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]{1,18})", name))


def counts(nodes: Sequence[NodeStatus]) -> dict[str, Any]:
    """Nodes, slots and what runs there, as fields of a status."""
    usable = [node for node in nodes if node.state == "in use"]
    return {
        "nodes": len(nodes), "drained": sum(node.drained for node in nodes), "lost": sum(node.lost for node in nodes),
        "slots": sum(node.slots for node in nodes), "usable": sum(node.slots for node in usable),
        "running": sum(node.running for node in nodes), "used": sum(node.running for node in usable),
    }  # fmt: skip


def clusters(nodes: Sequence[NodeStatus], owners: Mapping[Address, Sequence[Address]]) -> tuple[ClusterStatus, ...]:
    """Nodes by who is in charge of them."""
    found: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        found.setdefault(", ".join(owners.get(node.address, ())) or "all", []).append(node)
    return tuple(
        ClusterStatus(
            name=name, **counts(members),
        )
        for name, members in sorted(found.items(), key=lambda item: in_order(item[0]))
    )  # fmt: skip


def allocation(found: Sequence[int]) -> AllocationPercentiles | None:
    """Percentiles of microseconds, each the smallest that so many of a hundred do not exceed."""
    if not found:
        return None
    ordered = sorted(found)
    p50, p95, p99 = (ordered[max(0, -(-len(ordered) * q // 100) - 1)] for q in (50, 95, 99))
    return AllocationPercentiles(tasks=len(ordered), p50=p50, p95=p95, p99=p99)


def summary_operation(queries: JobQueries) -> Operation:
    """The summary as an operation."""
    owners: dict[Address, tuple[Address, ...]] = {}

    async def summary(request: Request) -> Response:
        """The federation at a glance: use, throughput, allocation times, clusters, what schedulers' views are worth."""
        if not owners:  # it never changes, and takes seconds where there are ten thousand nodes
            owners.update(await asyncio.to_thread(queries.partitions))
        return as_json(summary_of(queries, queries.pace, owners, principal(request).sees, queries.nodes()))

    return Operation("GET", "/summary", summary, FederationSummary)
