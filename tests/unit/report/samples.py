"""Runs, differences and whole results folders made up for the tests of reports."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from volery.metrics import AllocationSummary, ClassSummary, Distribution, RunSummary, distribution
from volery.metrics.distribution import slowdown
from volery.statistics import ComparedMeans, paired_difference, paired_ratio

LABELS = ("megha", "pigeonc", "pigeonc:constraint_counting=published-code")
TEN = (
    "megha", "megha:gms=10,lms=10", "pigeon:weight=100000,weight_counting=published-code", "pigeonc", "sparrow",
    "sparrow:late_binding=false", "hawk", "eagle", "oracle", "central",
)  # fmt: skip
"""As many as a report must bear, some with long labels; to be run with `spread`."""
MEDIAN_S = {"megha": 0.0015, "pigeonc": 0.0025, LABELS[2]: 1.003}


def delays_s(label: str, seed: int, jobs: int = 400) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Delays around the label's median, some at the floor of 1.5 ms, a few very long."""
    random = np.random.default_rng([seed, *label.encode()])
    return np.maximum(0.0015, np.round(MEDIAN_S.get(label, 0.01) * random.lognormal(0.0, 1.5, jobs), 6))


def sample_run(label: str = "megha", seed: int = 0, *, classes: bool = True, unsatisfiable: int = 0) -> RunSummary:
    """A run whose delays are those of `delays_s`."""
    delays = delays_s(label, seed)
    ideal = np.full(len(delays), 10.0)
    half = len(delays) // 2

    def members(part: slice) -> ClassSummary:
        jrt, best = distribution(delays[part] + ideal[part]), distribution(ideal[part])
        return ClassSummary(
            len(delays[part]),
            distribution(delays[part]),
            jrt,
            best,
            slowdown(jrt, best),
            distribution(delays[part] / 10 + 1),
        )

    whole = members(slice(None))
    name, _, parameters = label.partition(":")
    part = Distribution(1000, 0.0005, 0.0004, 0.001, 0.001, 0.002, 0.02)
    return RunSummary(
        label=label, architecture=name, parameters=dict(p.split("=") for p in parameters.split(",") if p), seed=seed,
        trace="syn_250", workers=10_000, slots=10_000, cutoff_s=90.58 if classes else None,
        jobs=len(delays), tasks=500_000, unsatisfiable_tasks=unsatisfiable,
        delay_s=whole.delay_s, jrt_s=whole.jrt_s, worker_jrt_s=whole.jrt_s, ideal_s=whole.ideal_s,
        slowdown=whole.slowdown, slowdown_per_job=whole.slowdown_per_job,
        short=members(slice(half)) if classes else None, long=members(slice(half, None)) if classes else None,
        allocation_s=AllocationSummary(part, part, part, part, part),
        utilisation_mean=0.0249 + seed / 1e4, makespan_s=2001.0, messages=2_000_000, messages_per_task=4.0,
        counters={"inconsistencies": 12.0 + seed, "queue_length_max": 31.0}, digest=f"{seed:02x}" * 32,
        wall_s=2.4, cpu_s=2.2, tasks_per_cpu_s=227_272.7, peak_rss_mb=92.0,
    )  # fmt: skip


def sample_runs(seeds: int = 3, labels: tuple[str, ...] = LABELS, *, classes: bool = True) -> list[RunSummary]:
    """Every label under every seed."""
    return [sample_run(label, seed, classes=classes) for label in labels for seed in range(seeds)]


def spread(count: int, seeds: int = 3) -> list[RunSummary]:
    """The first of `TEN`, each with four times the delays of the one before; hybrids and Sparrow count probes."""
    found = []
    for place, label in enumerate(TEN[:count]):
        for seed in range(seeds):
            run = sample_run("megha", seed)

            def slower(part: Distribution, factor: float = 4.0**place) -> Distribution:
                names = ("mean", "p50", "p90", "p95", "p99", "max")
                return Distribution(part.count, **{name: getattr(part, name) * factor for name in names})

            assert run.short is not None
            assert run.long is not None
            probing = label.partition(":")[0] in ("sparrow", "hawk", "eagle")
            queue = "queued_reservations" if probing else "queued_tasks"
            counters = {f"{queue}_count": 4.0, f"{queue}_mean": 2.5 + seed, f"{queue}_max": 17.0}
            counters |= {"probes": 1e6, "stolen_probes": 1e5, "blocked_us": 3e9} if probing else {}
            found.append(msgspec.structs.replace(
                run, label=label, architecture=label.partition(":")[0], counters=counters, delay_s=slower(run.delay_s),
                messages_per_task=4.0,
                short=msgspec.structs.replace(run.short, delay_s=slower(run.short.delay_s)),
                long=msgspec.structs.replace(run.long, delay_s=slower(run.long.delay_s)),
            ))  # fmt: skip
    return found


def sample_differences(runs: list[RunSummary]) -> list[ComparedMeans]:
    """The first label against each other."""
    by_label: dict[str, list[RunSummary]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    first, *others = by_label
    found = []
    for other in others:
        for jobs in ("all", "short", "long"):
            for quantity, statistic in (("median delay", "p50"), ("mean delay", "mean"), ("p99 delay", "p99")):
                a, b = (
                    [
                        getattr((run if jobs == "all" else getattr(run, jobs)).delay_s, statistic)
                        for run in by_label[label]
                    ]
                    for label in (first, other)
                )
                mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
                found.append(ComparedMeans(first, other, jobs, quantity, "s", mean_a, mean_b, paired_ratio(a, b)))
        utilisations = [[run.utilisation_mean for run in by_label[label]] for label in (first, other)]
        means = [sum(values) / len(values) for values in utilisations]
        found.append(
            ComparedMeans(
                first,
                other,
                "all",
                "mean utilisation",
                "",
                means[0],
                means[1],
                paired_difference(utilisations[0], utilisations[1]),
            )
        )
    return found


def write_sample(folder: Path, runs: list[RunSummary] | None = None, *, constraints: bool = True) -> Path:
    """A results folder as a study leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = sample_runs() if runs is None else runs
    differences = sample_differences(runs) if all(run.short for run in runs) else []
    lines = [
        {"key": f"{i:064x}", "architecture": run.architecture, "parameters": run.parameters, "label": run.label,
         "seed": run.seed, "digest": run.digest, "trace_sha256": "ab" * 32} for i, run in enumerate(runs)
    ]  # fmt: skip
    manifest = {
        "format": 1, "volery_version": "0.1.0", "code_sha256": "cd" * 32, "python": "3.11.9", "numpy": "2.4",
        "created": "2026-01-02T03:04:05+00:00",
        "command": "volery compare megha pigeonc --trace syn_250.0.tr.gz --workers 10000",
        "config": {"name": "sample", "axes": {"trace": ["syn_250.0.tr.gz"], "workers": [10000]}},
        "trace": {"name": "syn_250", "sha256": "ab" * 32, "jobs": 2000, "tasks": 500_000, "read_s": 1.0},
        "cluster": {"workers": 10_000, "slots": 1, "constraints": "sharma2011", "machines": None},
        "seeds": sorted({run.seed for run in runs}), "planned": len(runs), "runs": lines,
    }  # fmt: skip
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    (folder / "summary.json").write_bytes(msgspec.json.encode({"runs": runs, "differences": differences}))
    jobs, curves = [], []
    for i, run in enumerate(runs):
        delays = delays_s(run.label, run.seed)
        count = len(delays)
        named: dict[str, list[str | int]] = {
            "run": [f"{i:064x}"],
            "architecture": [run.architecture],
            "label": [run.label],
            "seed": [run.seed],
        }
        delays[-1] = -1e-6
        jrt = np.where(delays < 0, delays, delays + 10)
        jobs.append(pa.table({key: value * count for key, value in named.items()} | {
            "job": np.arange(count), "submit_s": np.arange(count) * 1.0, "tasks": [250] * count,
            "unsatisfiable": [0] * count, "ideal_s": [10.0] * count, "jrt_s": jrt,
            "delay_s": delays,
            "is_short": np.arange(count) < count // 2,
        }))  # fmt: skip
        times = np.linspace(0, 2000, 200, endpoint=False)
        level = 0.5 + 0.3 * np.sin(times / 300 + i) + np.random.default_rng(i).normal(0, 0.02, 200)
        refused = np.where(times % 100 == 0, 5.0 * (i + 1), 0.0) if run.label == "megha" else times * np.nan
        curve = {"time_s": times, "utilisation": level, "refused_tasks": refused}
        curves.append(pa.table({key: value * 200 for key, value in named.items()} | curve))
    parquet.write_table(pa.concat_tables(jobs), folder / "jobs.parquet")
    parquet.write_table(pa.concat_tables(curves), folder / "utilisation.parquet")
    if constraints:
        load = np.linspace(0.01, 0.2, 21)
        columns = {"trace": ["syn_250"] * 21, "workers": [10_000] * 21, "seed": [0] * 21, "constraint": np.arange(21.0)}
        parquet.write_table(
            pa.table(columns | {"mean": load, "median": load * 0.9, "p95": load * 1.3, "p99": load * 1.5}),
            folder / "constraint_load.parquet",
        )
        parquet.write_table(conflict_rows(), folder / "conflicts.parquet")
    return folder


def conflict_rows(title: str = "syn_250", workers: int = 10_000) -> pa.Table:
    """Conflicts of 50 intervals of 40 s."""
    begin = np.arange(50.0) * 40
    waiting, collisions = begin % 7, 5 + begin % 3
    columns = {
        "trace": [title] * 50, "workers": [workers] * 50, "seed": [0] * 50, "begin_s": begin, "end_s": begin + 40,
        "waiting": waiting, "waiting_max": waiting + 2, "collisions": collisions, "collisions_max": collisions + 1,
    }  # fmt: skip
    for name, values in (("waiting", waiting), ("collisions", collisions)):
        columns |= {f"{name}_mean": [float(values.mean())] * 50, f"{name}_p50": [float(np.median(values))] * 50}
        columns |= {f"{name}_p95": [float(values.max())] * 50, f"{name}_p99": [float(values.max() + 0.5)] * 50}
    return pa.table(columns)
