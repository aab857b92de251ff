"""Figures of a federation in the text format of Prometheus, version 0.0.4; names end in their unit."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

import volery
from volery.core.model import SECOND
from volery.live.service.job_service import JobService
from volery.live.service.requests import Traffic
from volery.live.status import NodeState

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KIB: Final = 1024

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


Meter = tuple[str, str, str, Sequence[Sample]]
"""Name, type, meaning, samples."""


def exposition(service: JobService, traffic: Traffic, more: Iterable[Meter] = ()) -> str:
    """The meters of the service and of others; users appear while they have something under way."""
    loads, nodes, hosts = service.queries.loads(), service.queries.nodes(), service.queries.all_hosts()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    lines = [
        *_meter("volery_version", "gauge", "the version that runs", [({"version": volery.__version__}, 1)]),
        *_meter(
            "volery_jobs", "gauge", "jobs that have not ended",
            [({"state": "pending"}, sum(load.jobs_pending for load in loads)),
             ({"state": "running"}, sum(load.jobs_running for load in loads))],
        ),
        *_meter(
            "volery_user_tasks", "gauge", "tasks of users that have not ended",
            [({"user": load.user, "state": state}, count) for load in loads
             for state, count in (("pending", load.tasks_pending), ("running", load.tasks_running))],
        ),
        *_meter(
            "volery_attempts_total", "counter", "reports of nodes since the start, by what they say",
            [({"state": state}, count) for state, count in sorted(service.queries.told.items())],
        ),
        *_meter("volery_nodes", "gauge", "nodes", [
            ({"state": state}, sum(node.state == state for node in nodes)) for state in get_args(NodeState)
        ]),
        *_meter("volery_host_up", "gauge", "whether a host answers", [
            ({"host": host.name}, int(host.state == "up")) for host in hosts
        ]),
        *_meter("volery_host_last_heard_timestamp_seconds", "gauge", "when a host was last heard, Unix time", [
            ({"host": host.name}, host.heard_us / SECOND) for host in hosts if host.heard_us is not None
        ]),
        *_meter("volery_host_info", "gauge", "the version and the incarnation that a host runs", [
            ({"host": host.name, "hostname": host.hostname, "version": host.version,
              "incarnation": str(host.incarnation)}, 1) for host in hosts if host.version
        ]),
        *_meter("volery_slots", "gauge", "tasks that nodes run at once", [({}, sum(node.slots for node in nodes))]),
        *_meter(
            "volery_slots_usable", "gauge", "of these, on nodes that are neither drained nor lost",
            [({}, sum(node.slots for node in nodes if node.state == "in use"))],
        ),
        *_meter("volery_slots_taken", "gauge", "tasks that run", [({}, sum(node.running for node in nodes))]),
        *_meter("volery_commits_total", "counter", "batches written to the store", [({}, service.writer.commits)]),
        *_meter("volery_commit_seconds_total", "counter", "time that took", [({}, service.writer.commit_s)]),
        *_meter("volery_revision", "gauge", "of the last change", [({}, service.queries.revision)]),
        *_meter(
            "volery_http_requests_total", "counter", "requests answered",
            [({"method": method, "path": path, "status": str(status)}, count)
             for (method, path, status), count in sorted(traffic.answers.items())],
        ),
        *_meter(
            "volery_http_request_seconds_total", "counter", "time until the answer began",
            [({"method": method, "path": path}, seconds)
             for (method, path), seconds in sorted(traffic.seconds.items())],
        ),
        *_meter("volery_pages_open", "gauge", "pages of browsers that listen", [({}, traffic.pages_open)]),
        *_meter("volery_views_made_total", "counter", "views made for pages", [({}, traffic.views_made)]),
        *_meter("volery_view_cpu_seconds_total", "counter", "CPU time that took", [({}, traffic.views_cpu_s)]),
        *_meter(
            "process_cpu_seconds_total", "counter", "CPU time of this process", [({}, usage.ru_utime + usage.ru_stime)]
        ),
        *_meter("process_max_resident_bytes", "gauge", "most memory it had", [({}, usage.ru_maxrss * _KIB)]),
        *(line for meter in more for line in _meter(*meter)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _meter(name: str, kind: str, meaning: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        told = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{told}}} {value:.10g}" if type(value) is float else f"{name}{{{told}}} {value}")
    return lines


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
