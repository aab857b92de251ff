"""The page of measures: every number and counter of a run, with its unit and its formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_type_hints

import msgspec

from docs.pages.structs import args, cell, kind, structs_in, summary
from volery.look.text import markdown_table

UNITS: Final = {
    "per_cpu_s": "1/s",
    "us": "us",
    "s": "s",
    "mb": "MB",
    "h": "h",
    "hours": "h",
}
"""Ends of names, and what they say; the longest that fits counts."""
COUNTS: Final = "count"
INTRODUCTION: Final = (
    "What `--json` and `summary.json` say of each run. Dots lead inside: `delay_s.p99`, `allocation_s.total.mean`. "
    "[Metrics](../metrics.md) explains the definitions and where they come from."
)
OF_COUNTERS: Final = (
    "Keys of `counters`. Which of them a run has depends on its design. What is measured is told as NAME_count, "
    "NAME_mean and NAME_max."
)
COUNTED: Final = {
    "alloc_starts": "tasks that started in room that was kept for their job (pipeline:alloc_s)",
    "attempts_lost": "attempts that ended with their machine, or lost against another copy",
    "attempts_unseated": "attempts that ran where the cluster, begun anew with less, had no place for them: ended",
    "blocked_us": "us for which tasks that are short by the design's cutoff waited while long ones held every slot",
    "boots": "machines provisioned after the beginning",
    "containers_released": "containers given back unused",
    "containers_void": "containers that had become worthless when they were to be used",
    "deadlines_given_up": "jobs whose deadline could not be met any more, and that went on as best effort",
    "gang_tasks_refused": "tasks of gangs that the empty cluster cannot hold at once: none of them ran",
    "external_placements": "tasks that a Global Master placed outside its own partitions",
    "inconsistencies": "placements that a Local Master refused",
    "inconsistencies_gmG_lmL": "those between one Global Master and one Local Master",
    "jobs_sharing": "jobs that got an even share because they were unlike their model",
    "jobs_simulated_anew": "jobs that were simulated anew because they were unlike their model",
    "masters": "masters of jobs that keep their room until the job is done (pipeline:J2=managed)",
    "monitor_messages": "messages to and from the monitor",
    "moved": "running tasks that were stopped to go on elsewhere, or to wait",
    "negotiated_constraints": "soft constraints that were dropped",
    "nodes_unconfirmed": "how often a restarted node had to wait for the other master of its cluster, which was lost",
    "overruns": "tasks that were ended because they ran much longer than estimated",
    "passed_over": "how often a job let others go first to wait for locality",
    "periods_arbitrated": "periods in which guarantees exceeded the cluster",
    "preemption_attempts": "preemptions that were asked for",
    "preemptions": "attempts that were ended for another user",
    "preemptions_denied": "preemptions that were refused: on a stale view, or the loser was due what it had",
    "reclaimed_ends": "tasks on reclaimed room that were ended because those who had reserved it used it",
    "reclaimed_starts": "tasks that started in room that is reserved and not used",
    "rejected_probes": "probes that workers with long tasks refused",
    "relaunches": "tasks that a Local Master launched again when their machine had failed (recovery=paper)",
    "reordered_tasks": "tasks taken before others because they ask for the scarcest constraint",
    "repartitions": "logical nodes lent from one partition to another",
    "reservations": "machines kept for tasks that were passed over",
    "shed_containers": "queued tasks that a node gave back because its load was beyond the limit",
    "stolen_probes": "reservations taken from another worker's queue",
    "submissions_rejected": "submissions that were refused, to come again",
    "tag_tasks_given_up": "tasks of jobs that were given up: too few were left of those near which they had to run",
    "tasks_resumed": "tasks of which a new master has a copy, so that a distributor named them and did not send them",
    "tasks_sent_again": "tasks of lost attempts that a distributor sent again",
    "update_entries": "units of which updates told",
    "updates": "status updates that Global Masters have heard",
    "vain_requests": "requests of workers that were answered without a task",
    "withdrawn_probes": "reservations that were withdrawn",
    "probes": "probes sent",
}
"""Name -> what is added up over a run."""
MEASURED: Final = {
    "crowded_workers": "workers with a crowded queue, when the monitor hears anything",
    "estimated_wait_us": "estimated wait of workers that report a change, us",
    "flow_paths": "paths that the solver sent flow along, per decision",
    "flow_scanned": "arcs that the built-in solver looked at, per decision",
    "locality_wait_us": "mean over the launches of a job of the time from being passed over to the launch, us; per job",
    "plan_gap_per_mille": "how much less a plan may be worth than the best, thousandths",
    "plan_jobs": "jobs per plan or flow",
    "plan_nodes": "nodes of the solver's search per plan",
    "plan_rounds": "changes of prices per plan that is made by prices",
    "plan_rows": "rows of the program, or nodes of the network",
    "plan_tasks": "tasks in the network",
    "plan_variables": "variables of the program, or arcs of the network",
    "queued_reservations": "others at the worker that asks for a job's first task",
    "queued_tasks": "tasks that wait at whom a job, or a batch of tasks that has to queue, comes to",
    "subcluster_imbalance_permille": "fullest less emptiest sub-cluster, used and wanted over slots, thousandths",
}
"""Name -> what is measured; a run tells NAME_count, NAME_mean and NAME_max."""


def measures() -> Iterator[str]:
    """All measures of a run, by the struct that holds them."""
    from volery.metrics import RunSummary

    yield from ("# Measures", "", INTRODUCTION, "")

    holders: list[type[msgspec.Struct]] = [RunSummary, *structs_in(RunSummary)]
    for struct in holders:
        yield from (f"## {struct.__name__}", "", cell(summary(struct)), "")
        yield from markdown_table(("key", "unit", "type", "definition"), _rows(struct))

    yield from ("## counters", "", OF_COUNTERS, "")
    for title, counters in (("What is added up over a run", COUNTED), ("What is measured", MEASURED)):
        yield from markdown_table((title, "meaning"), [(f"`{name}`", meaning) for name, meaning in counters.items()])


def _rows(struct: type[msgspec.Struct]) -> Iterator[tuple[str, ...]]:
    meanings = args(struct)
    hints = get_type_hints(struct)
    for name in struct.__struct_fields__:
        yield (
            f"`{name}`",
            unit(name, hints[name]),
            kind(hints[name]),
            cell(meanings.get(name, "")).replace("None", "null"),
        )


def unit(name: str, hint: Any) -> str:
    """The unit at the end of a name; whole numbers count something, and other numbers have none."""
    ends = (end for end in sorted(UNITS, key=len, reverse=True) if name.endswith(f"_{end}"))
    unit_of_name = next(ends, None)

    if unit_of_name is not None:
        return UNITS[unit_of_name]
    return COUNTS if hint is int and name != "seed" else ""
