"""What the conformance tests judge: the registry as it stands, and ours under parameters that change the path."""

from __future__ import annotations

import msgspec

from volery.architectures import configure, lookup, registry
from volery.core.component import Architecture

VARIANTS: dict[str, dict[str, str | tuple[int, ...]]] = {
    "megha:updates=snapshots": {"heartbeat_s": "0.5"},
    "megha:completion_notice=twice": {"heartbeat_s": "0.3"},
    "megha:eager_retry=false": {},
    "megha:match=min-constraints": {"gms": "3", "lms": "2", "batch_max": "3", "heartbeat_s": "0.05"},
    "central:match=min-constraints": {},
    "megha-2021:match=random": {"updates": "deltas", "batch_max": "100", "heartbeat_s": "0.5", "gms": "2"},
    "megha-2021:match=best-fit": {"eager_retry": "false", "rescheduling": "head", "heartbeat_s": "0.2"},
    "megha-2021:completion_notice=twice": {"updates": "deltas", "repartition": "false", "lms": "2"},
    "megha-2021:shares=a:1+b:2+c:1": {"gms": "2", "lms": "2", "heartbeat_s": "0.05"},
    "megha-2021:preempted=keep": {
        "shares": "c:3+org:2(a:1+b:4)",
        "updates": "deltas",
        "batch_max": "10",
        "heartbeat_s": "0.1",
        "eager_retry": "false",
    },
    "pigeon:groups=4": {"reserved": "1", "weight": "3", "match": "min-constraints"},
    "pigeon:weight=0": {"groups": "3", "reserved": "0"},
    "pigeon:group_sizes": {"group_sizes": (4, 16, 30), "reserved": "2"},
    "oracle:order=drf": {"shares": "a:3+b:1"},
    "oracle:order=hdrf": {"shares": "a:3+org:2(b:1+c:4)"},
    "sparrow:late_binding=false": {"queue": "fair"},
    "sparrow:sampling=per-task": {"schedulers": "3", "cancellation": "false", "replacement": "true"},
    "sparrow:queue=priority": {"schedulers": "1", "probe_ratio": "1.05", "constrained_ratio": "4"},
    "hawk:stealing=random": {
        "steal_after_vain": "false",
        "schedulers": "2",
        "steal_free": "true",
        "cutoff_s": "0.2",
        "estimate_high": "3",
    },
    "hawk:short_placement=least-wait": {"stale_s": "8", "stealing": "off", "short_part": "0"},
    "eagle:sharing=ideal": {"order": "fifo", "cutoff_s": "0.2"},
    "eagle:order=srpt": {"cutoff_s": "0.2", "schedulers": "1", "rounds": "1", "short_part": "0.4"},
    "megha:reliable=true": {"gms": "3", "lms": "2", "heartbeat_s": "0.5"},
    "pigeon:reliable=true": {"groups": "4", "reserved": "1", "distributors": "3"},
    "sparrow:reliable=true": {},
    "eagle:reliable=true": {"cutoff_s": "0.2"},
    "phoenix:heartbeat_s=0.02": {"crv_threshold": "0.02", "wait_load": "0", "cutoff_s": "0.2", "schedulers": "2"},
    "phoenix:reorder_max=1": {"crv_threshold": "0", "wait_load": "0.1", "heartbeat_s": "0.1", "order": "fifo"},
    "tetrisched:solver=greedy": {"plan_ahead_s": "8", "jobs_max": "5"},
    "tetrisched:heterogeneity=false": {"gangs": "false"},
    "alsched:solver=greedy": {"constraints": "hard"},
    "pigeonc:constraint_counting=published-code": {"groups": "5", "weight": "2", "weight_counting": "published-code"},
}

EXCUSED = {
    (
        "sparrow:late_binding=false",
        "check_allocation_adds_up",
    ): "it waits for all answers, served in turn",
}
"""What a variant cannot keep by its very design, and why."""


def variant(name: str) -> Architecture:
    """A registry entry with other defaults, named after what it is about."""
    base, _, first = name.partition(":")
    key, equals, value = first.partition("=")
    given = {**({key: value} if equals else {}), **VARIANTS[name]}
    entry = lookup(base)
    prompt = {parameter: value for parameter, value in entry.prompt.items() if parameter not in given}
    return msgspec.structs.replace(entry, name=name, defaults=configure(entry, given), prompt=prompt)


def entries() -> dict[str, Architecture]:
    """All registry entries."""
    return registry()
