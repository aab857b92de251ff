"""The prototypes of two papers, measured live and held against the lab: `python -m benchmarks.prototypes [--quick]`.

Pigeon (Wang et al., SoCC 2019, section 5) on 120 nodes, with Sparrow and Eagle beside it, under the authors' own
traces: NGO, made from Google's, and NYH, made from Yahoo's. For each trace, design and number of schedulers:

1. a federation with 120 nodes times itself under other work, then another replays the trace; tasks sleep, as theirs;
2. the lab plays the same run (submitted when it was, each task as long as it took) with the costs that all timed
   federations of this design have shown, under five seeds, the first of which is the live run's: its components draw
   the same numbers in the same order;
3. the 50th, 90th and 99th percentile of short and of long jobs' completion times are compared, lab / live. The lab
   without costs is given beside it: the paper explains its own differences by overhead that its simulator lacks.
   The ratios of the first seed alone were added after the first recorded run, and no claim is judged by them.

Then Megha (Thiyyakat et al., 2021, section VI-F, figure 12), where tasks burn processor time:
`benchmarks/colocation.py`. The last lines judge the claims of `benchmarks/prototype_claims.py`.

What differs from the papers, and why:

- One machine, and one process for all roles, instead of 130 and 128 cloud instances: no others are to be had. Messages
  cross no network, and ten schedulers have no more processors than one: live, their number can only change decisions.
- No Thrift, and no plug-in for Spark: Spark would add its own driver and executors to what is measured, and a generated
  RPC layer could not carry the messages of the lab. Tasks are timers, which is all that a sleeping task needs.
- No Gunicorn and no RabbitMQ (Megha): roles exchange messages without waiting for HTTP answers; in one process memory
  carries them, between processes NATS does.
- Time is scaled: arrivals, durations and the cutoff of 1 s are divided by one number, so that submissions take
  `--span` seconds. The load stays the same; overhead weighs as many times more as time is divided.
- The NYH traces have the arrivals of the NGO traces and three times their work: load 1.37 on 120 nodes for the trace of
  50 %. Here the arrivals of its first 1,500 jobs are stretched until their load is 50 %.
- The trace of 90 % is not public. W is infinite (weight 0), a tenth of the nodes is reserved for short jobs, as theirs.

Lines are JSON. Each run has the load average before and after it: other programs disturb it, though the federation runs
in real time where that is permitted (`benchmarks/calibration.py`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from benchmarks.calibration import realtime
from benchmarks.colocation import LEVELS, beyond_one, colocations
from benchmarks.prototype_claims import verdicts

from experiments.experiment import TRACES_VARIABLE, experiments_folder, traces_folder
from volery import metrics, sim
from volery.architectures import choose
from volery.cli.calibrate import timed_run
from volery.cli.generator import load_here
from volery.core.costs import HostCosts
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.trace import Trace
from volery.live.calibration import TimedHost, host_costs
from volery.live.config.federation import Federation, FederationFile, resolve
from volery.live.config.plan import FederationPlan
from volery.live.load import Loaded, as_lived, sped_up
from volery.workload import load_trace
from volery.workload.load import at_load

NODES: Final = 120
CUTOFF_S: Final = 1.0
LAB_SEEDS: Final = 5
PERCENTILES: Final = (50, 90, 99)
PACES: Final = tuple(
    f"poisson:load=0.5,workers={NODES},fanout=geometric:{fanout},mean={mean},jobs={jobs}"
    for fanout, mean, jobs in ((2, 0.2, 900), (20, 0.05, 500), (10, 0.1, 400))
)
"""Of calibration: as many jobs a second as the traces have, or more, for five to seven seconds each."""


class Work(NamedTuple):
    """A trace of the authors; load 0: as it is, else arrivals are stretched to it; jobs 0: all."""

    path: str
    load: float = 0.0
    jobs: int = 0


WORKS: Final = {
    "ngo_50": Work("tr/pigeon_NGO_trace50.tr.gz"),
    "ngo_70": Work("tr/pigeon_NGO_trace70.tr.gz"),
    "ngo_80": Work("tr/pigeon_NGO_trace80.tr.gz"),
    "nyh_50": Work("tr/pigeon_NYH_trace50.tr.gz", 0.5, 1_500),
}


class Design(NamedTuple):
    """A design as section 5 sets it: the parameter that counts its schedulers, and the others."""

    schedulers: str
    parameters: dict[str, Any]


DESIGNS: Final = {
    "pigeon": Design("distributors", {"groups": 3, "reserved": 4, "weight": 0}),
    "sparrow": Design("schedulers", {}),
    "eagle": Design("schedulers", {"short_part": 0.1}),
}


class Setting(NamedTuple):
    """How much is run; the defaults take about an hour."""

    works: Sequence[str] = tuple(WORKS)
    designs: Sequence[str] = tuple(DESIGNS)
    schedulers: Sequence[int] = (1, 2, 5, 10)
    span_s: float = 60.0
    jobs: int = 0
    nodes: int = NODES
    seed: int = 0


class Live(NamedTuple):
    """A live run: its plan, what came of it, and how much faster than the trace it was."""

    labels: dict[str, Any]
    plan: FederationPlan
    loaded: Loaded
    speedup: float


def federation_of(design: str, schedulers: int, setting: Setting, cutoff_s: float, folder: Path) -> Federation:
    """A federation in one process."""
    counted, parameters = DESIGNS[design]
    file = FederationFile(
        machines=[{"count": setting.nodes}],
        architecture=design,
        seed=setting.seed,
        reports=False,
        parameters=parameters | {counted: schedulers, "cutoff_s": cutoff_s},
        folder=str(folder.absolute()),
    )
    return resolve(file, Path(), choose)


def prepared(work: Work, folder: Path, setting: Setting) -> tuple[Trace, float]:
    """The trace with its times divided, and the divisor.

    Raises:
        InputError: the file is no trace.
    """
    trace = load_trace(folder / work.path, job_count=setting.jobs or work.jobs or None)
    if work.load:
        trace = at_load(trace, Cluster((0,) * setting.nodes, (1,) * setting.nodes), work.load)
    speedup = max(1.0, (trace.arrival_us[-1] - trace.arrival_us[0]) / SECOND / setting.span_s)
    return sped_up(trace, speedup), speedup


def timed(design: str, schedulers: int, setting: Setting, pace: int) -> TimedHost:
    """A federation that has timed itself under other work."""
    with tempfile.TemporaryDirectory() as folder, realtime():
        federation = federation_of(design, schedulers, setting, CUTOFF_S, Path(folder))
        jobs = setting.jobs or None
        return timed_run(federation, load_trace(PACES[pace % len(PACES)], seed=1 + pace, job_count=jobs), silent=True)


def live(name: str, design: str, schedulers: int, folder: Path, setting: Setting) -> Live:
    """Replay a trace against a federation."""
    trace, speedup = prepared(WORKS[name], folder, setting)
    labels = {"trace": name, "design": design, "schedulers": schedulers}
    before = os.getloadavg()[0]
    gc.collect()
    with tempfile.TemporaryDirectory() as kept:
        federation = federation_of(design, schedulers, setting, CUTOFF_S / speedup, Path(kept))
        with realtime():
            loaded = load_here(federation, trace, "sleep", lambda _: None)
    labels["load_average"] = [round(before, 1), round(os.getloadavg()[0], 1)]
    return Live(labels, federation.plan, loaded, speedup)


def completions_ms(records: Records, speedup: float) -> dict[str, list[float]]:
    """By class, the percentiles of job completion times; a class without jobs is left out."""
    table = metrics.job_table(records, round(CUTOFF_S / speedup * SECOND))
    found = {}
    for name, of_class in (("short", table.is_short), ("long", ~table.is_short)):
        times = table.jrt_us[of_class & table.measured]
        if times.size:
            found[name] = [float(value) / 1000 for value in np.percentile(times, PERCENTILES)]
    return found


def predicted(plan: FederationPlan, work: Trace, costs: HostCosts, seed: int) -> Records:
    """The same run in the lab."""
    sown = msgspec.structs.replace(plan, seed=seed)
    return sim.simulate(sown.build(), work, plan.cluster, options=sim.Options(hosts={"live": costs}))


def compared(run: Live, costs: HostCosts) -> dict[str, Any]:
    """A live run beside its prediction: medians over the lab's seeds, and how far these differ among each other."""
    work, free = as_lived(run.loaded.records), HostCosts({role: {} for role in costs.roles})
    came = completions_ms(run.loaded.records, run.speedup)
    seeds = range(run.plan.seed, run.plan.seed + LAB_SEEDS)
    labs = [completions_ms(predicted(run.plan, work, costs, seed), run.speedup) for seed in seeds]
    without = [completions_ms(predicted(run.plan, work, free, seed), run.speedup) for seed in seeds]
    line = {"name": "run", **run.labels, "speedup": round(run.speedup, 2)}
    line |= {"jobs": work.job_count, "tasks": work.task_count}
    line["utilisation"] = round(metrics.mean_utilisation(run.loaded.records, run.plan.cluster), 3)
    line["late_p99_ms"] = round(float(np.percentile(run.loaded.late_us, 99)) / 1000, 2)
    for name, live_ms in came.items():
        charged_ms, uncharged_ms = (np.array([lab[name] for lab in of]) for of in (labs, without))
        lab_ms, free_ms = np.median(charged_ms, axis=0), np.median(uncharged_ms, axis=0)
        line[name] = {
            "live_ms": _rounded(live_ms),
            "lab_ms": _rounded(lab_ms),
            "ratio": _rounded(lab_ms / live_ms),
            "ratio_least": _rounded(charged_ms.min(axis=0) / live_ms),
            "ratio_most": _rounded(charged_ms.max(axis=0) / live_ms),
            "ratio_same_seed": _rounded(charged_ms[0] / live_ms),
            "ratio_without_costs": _rounded(free_ms / live_ms),
            "ratio_without_costs_same_seed": _rounded(uncharged_ms[0] / live_ms),
        }
    return line


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 3) for value in values]


def measured(setting: Setting, folder: Path) -> Iterator[dict[str, Any]]:
    """A line per run; those of a design come when all of its federations have been timed."""
    for design in setting.designs:
        hosts: list[TimedHost] = []
        runs: list[Live] = []
        for name in setting.works:
            for schedulers in setting.schedulers:
                hosts.append(timed(design, schedulers, setting, len(hosts)))
                runs.append(live(name, design, schedulers, folder, setting))
        costs = host_costs(hosts)
        del hosts
        yield from (compared(run, costs) for run in runs)


def missing(setting: Setting, folder: Path) -> list[Path]:
    """The traces that are not there."""
    return [folder / WORKS[name].path for name in setting.works if not (folder / WORKS[name].path).is_file()]


def at_least(least: float, kind: type[int] | type[float]) -> Callable[[str], Any]:
    """A number of the command line that is not below the least, and finite."""

    def number(word: str) -> float:
        if not least <= (found := kind(word)) < float("inf"):
            raise argparse.ArgumentTypeError(f"{word} is below {least:g} or no finite number")
        return found

    number.__name__ = kind.__name__
    return number


def given_setting(words: Sequence[str] | None) -> tuple[Setting, argparse.Namespace]:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual, count = Setting(), at_least(1, int)
    quick = "300 jobs of the first trace in five seconds, with 1 and 10 schedulers, and shorter tasks that burn"
    parser.add_argument("--quick", action="store_true", help=f"{quick}; five minutes")
    parser.add_argument("--works", nargs="+", choices=[*WORKS], default=usual.works, help="traces; default all")
    parser.add_argument("--designs", nargs="*", choices=[*DESIGNS], default=usual.designs, help="default all")
    parser.add_argument(
        "--levels", nargs="*", choices=[*LEVELS], default=[*LEVELS], help="of Megha's tasks; default all"
    )
    parser.add_argument("--schedulers", nargs="+", type=count, default=usual.schedulers)
    span = "seconds that the submissions of a run take"
    parser.add_argument("--span", type=at_least(0.1, float), default=usual.span_s, help=span)
    parser.add_argument("--nodes", type=count, default=usual.nodes)
    seed = "of the live components' random draws"
    parser.add_argument("--seed", type=at_least(0, int), default=usual.seed, help=seed)
    parser.add_argument("--traces", type=Path, help="folder of the traces; default VOLERY_TRACES, or ../shared/traces")
    given = parser.parse_args(words)
    setting = Setting(given.works, given.designs, given.schedulers, given.span, nodes=given.nodes, seed=given.seed)
    if given.quick:
        setting = setting._replace(works=given.works[:1], schedulers=(1, 10), span_s=5.0, jobs=300)
    return setting, given


def main(words: Sequence[str] | None = None) -> None:
    """Measure."""
    setting, given = given_setting(words)
    folder = traces_folder(experiments_folder(), given.traces)
    if setting.designs and (absent := missing(setting, folder)):
        print(f"{absent[0]} is not there; give --traces DIR or set {TRACES_VARIABLE}.", file=sys.stderr)
        sys.exit(2)
    if given.levels and beyond_one(given.levels):
        problem = "a task that burns has one thread, and six nodes of this machine are too large for it"
        print(f"{problem}; run it under `taskset --cpu-list 0-7`, or give --levels.", file=sys.stderr)
        sys.exit(2)
    with realtime() as alone:
        system = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    header = system | {"realtime": alone, "nodes": setting.nodes, "span_s": setting.span_s, "seed": setting.seed}
    print(json.dumps(header), flush=True)
    lines = []
    try:
        for part in (measured(setting, folder), colocations(given.levels, quick=given.quick)):
            for line in part:
                lines.append(line)
                print(json.dumps(line), flush=True)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    for verdict in verdicts(lines):
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
