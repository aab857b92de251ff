"""The files of a results folder and the columns of its tables, with units: what the documentation says of them."""

from __future__ import annotations

from typing import Final

FILES: Final = {
    "manifest.json": "what was run: code, study, trace, cluster, one line per finished run with its digest",
    "summary.json": "`runs`: the measures of every finished run; `differences`: the baseline with the others, over "
    "seeds; `on_days_like_this`: the same job by job, in runs of the first seed",
    "jobs.parquet": "a row per job and run",
    "utilisation.parquet": "a row per interval and run: utilisation, tasks that wait, and refused placements",
    "task_runs.parquet": "a row per attempt of runs that are small enough: at most 2,000 attempts on 200 lanes",
    "heat.parquet": "a row per group of machines and interval of larger runs",
    "constraint_load.parquet": "demand and load per constraint, where constraints are used",
    "conflicts.parquet": "scheduling conflicts over time of an idealised schedule, where constraints are used",
    "stage_times.json": "what `--profile stages` has measured",
    "flows.json": "who says what to whom in each architecture that was compared",
    "report.html": "all of it to read, in one file without network",
    "runs": "`KEY.json`: one finished run, `KEY.npz`: its columns; `KEY.load`, `KEY.conflicts`: of an input",
    ".lock": "held by the one study that writes here",
}
_RUN: Final = {
    "run": "key of the run, as in the manifest",
    "architecture": "registry name",
    "label": "what tables call runs that differ in the seed alone",
    "seed": "of all random streams",
    "trace": "the workload as the study names it; further axes that vary follow as columns of their own",
    "workers": "machines of the setting",
}
_OF_SECONDS: Final = ("mean", "p50", "p95", "p99")
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "jobs.parquet": _RUN
    | {
        "job": "its place in the trace, from 0",
        "submit_s": "submission, s since the run began",
        "tasks": "how many it has",
        "unsatisfiable": "tasks that never ran, because they fit no machine or were given up",
        "ideal_s": "ideal JRT, s: the longest task that ran, or the critical path; null where none ran",
        "jrt_s": "job response time, s: answer - submission; null where there was no answer",
        "delay_s": "jrt_s - ideal_s, s; null where there was no answer",
        "is_short": "whether its estimate is at most the cutoff; false for all without a cutoff",
        "counted": "whether it counts: it was submitted within the measurement window; true for all without one",
        "wait_s": "longest time for which one of its tasks was ready and had not started, s; null where none did",
    },
    "utilisation.parquet": _RUN
    | {
        "time_s": "beginning of the interval, s since the run began",
        "utilisation": "mean over the interval of what is in use / what there is, 0 to 1; of the resource used most",
        "waiting_tasks": "mean over the interval of tasks that could start and have not; null in old runs",
        "refused_tasks": "placements that were refused in the interval; null where the run tells of none",
    },
    "task_runs.parquet": _RUN
    | {
        "task": "its number in the trace, from 0",
        "job": "that it belongs to, from 0",
        "machine": "where it ran, from 0",
        "lane": "the lowest of the machine's lanes that was free when the attempt began",
        "lanes": "of this machine: one per slot; with amounts of resources as many as tasks ran there at once",
        "start_us": "us since the run began",
        "finish_us": "us since the run began",
        "attempt": "0 is the first",
        "killed": "whether the attempt was ended before its time",
        "share": "1 / slots, or the dominant share of the machine, 0 to 1",
    },
    "heat.parquet": _RUN
    | {
        "machine": "the first of the group",
        "machines": "how many stand in it",
        "begin_us": "of the interval, us since the run began",
        "end_us": "likewise",
        "percent": "exact mean of what was in use, rounded, 0 to 100",
    },
    "constraint_load.parquet": {
        "trace": "name of the input",
        "workers": "machines of the setting; a column `load` follows where the study sets one",
        "seed": "that drew constraints",
        "constraint": "its number, from 0",
        "mean": "over seconds: tasks that need it / machines that have it, when every task starts on arrival",
        "median": "likewise",
        "p95": "likewise",
        "p99": "likewise",
    },
    "conflicts.parquet": {
        "trace": "name of the input",
        "workers": "machines of the setting; a column `load` follows where the study sets one",
        "seed": "that drew constraints",
        "begin_s": "of the interval, whole s since the run began",
        "end_s": "likewise",
        "waiting": "mean over the seconds of the interval: tasks that no schedule can run at once with the others",
        "waiting_max": "of the worst second of the interval",
        "collisions": "mean: expected tasks that find their slot taken when each draws one that it fits",
        "collisions_max": "likewise",
    }
    | {f"{kind}_{name}": "of all seconds of the input" for kind in ("waiting", "collisions") for name in _OF_SECONDS},
}
