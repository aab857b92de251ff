"""EASY (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001) against an independent one that decides once per instant."""

from __future__ import annotations

import gzip
from array import array
from pathlib import Path
from random import Random

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.limits import Limits
from volery.core.model import SECOND, Cluster, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.metrics import summarise
from volery.sim import Network, simulate
from volery.workload import load_workload, with_estimates

SIZE = 64
LOGS = Path(__file__).parents[3] / "shared" / "traces" / "swf"


def easy(arrival: list[Time], runs: list[Time], limits: list[Time], width: list[int], size: int = SIZE) -> list[Time]:
    """Starts of all jobs: ends and arrivals of one instant first, then one decision."""
    starts, queue, running, free, came = [-1] * len(runs), list[int](), dict[int, Time](), size, 0
    while came < len(runs) or running:
        now = min([starts[job] + runs[job] for job in running] + ([arrival[came]] if came < len(runs) else []))
        for job in [job for job in running if starts[job] + runs[job] <= now]:
            free += width[job]
            del running[job]
        while came < len(runs) and arrival[came] <= now:
            queue.append(came)
            came += 1
        while queue and width[queue[0]] <= free:
            free -= _start(queue.pop(0), now, starts, running, limits, width)
        if not queue:
            continue
        shadow, extra = _reservation(width[queue[0]], free, now, running, width)
        for job in queue[1:]:
            ends_before = now + limits[job] <= shadow
            if width[job] <= free and (ends_before or width[job] <= extra):
                extra -= 0 if ends_before else width[job]
                queue.remove(job)
                free -= _start(job, now, starts, running, limits, width)
    return starts


def _start(
    job: int, now: Time, starts: list[Time], running: dict[int, Time], limits: list[Time], width: list[int]
) -> int:
    starts[job], running[job] = now, now + limits[job]
    return width[job]


def _reservation(wanted: int, free: int, now: Time, running: dict[int, Time], width: list[int]) -> tuple[Time, int]:
    """When the head will have room by estimates, and how much more is free then."""
    ends = sorted((max(end, now + 1), width[job]) for job, end in running.items())
    for k, (at, given_back) in enumerate(ends):
        free += given_back
        if free >= wanted and (k + 1 == len(ends) or ends[k + 1][0] > at):
            return at, free - wanted
    raise AssertionError("it fits the empty machine")


def _workload(seed: int) -> tuple[Trace, list[int]]:
    """Whole seconds, so that ends and arrivals often fall into one instant."""
    stream = Random(seed)
    count, at, arrivals = 400, 0, []
    for _ in range(count):
        at += stream.choice((0, 0, 1, 3, 20)) * 1_000_000
        arrivals.append(at)
    runs = [stream.choice((5, 10, 20, 60, stream.randint(1, 200))) * 1_000_000 for _ in range(count)]
    width = [stream.choice((1, 2, 4, 8, 16, stream.randint(1, SIZE))) for _ in range(count)]
    trace = trace_of("easy", arrivals, [[run] for run in runs])
    sizes = sorted(set(width))
    trace = msgspec.structs.replace(
        trace,
        resources=("cpus",),
        requests=tuple([(size,) for size in sizes]),
        request=array("H", [sizes.index(size) for size in width]),
    )
    return trace, width


def _starts(trace: Trace, **parameters: str) -> list[Time]:
    cluster = Cluster((0,), (1,), "one", resources=("cpus",), capacities=((SIZE,),))
    return list(_records(trace, cluster, **parameters).start_us)


def _records(trace: Trace, cluster: Cluster, **parameters: str) -> Records:
    entry = lookup("backfill")
    deployment = entry.build(cluster, configure(entry, parameters), Streams(0))
    return simulate(deployment, trace, cluster, network=Network(delay_us=0))


@pytest.mark.parametrize("seed", range(5))
def test_every_start_is_that_of_an_easy_that_decides_once_per_instant(seed: int) -> None:
    trace, width = _workload(seed)
    durations = list(trace.duration_us)
    assert _starts(trace) == easy(list(trace.arrival_us), durations, durations, width)


def _log(name: str) -> list[tuple[int, int, int, int]]:
    """Submission, run time, processors and requested time of the jobs of a log that ran; read here alone."""
    with gzip.open(LOGS / name, "rt") as file:
        rows = [[int(float(word)) for word in line.split()[:9]] for line in file if line[0] != ";"]
    return [(row[1], row[3], row[7] if row[7] > 0 else row[4], row[8]) for row in rows if row[3] >= 0]


def _measures(submit: list[int], starts: list[int], runs: list[int]) -> tuple[float, float]:
    """Mean wait, seconds, and mean bounded slowdown (Feitelson et al., JSSPP 1997)."""
    waits = [start - at for start, at in zip(starts, submit, strict=True)]
    bounded = [max((wait + run) / max(run, 10), 1) for wait, run in zip(waits, runs, strict=True)]
    return sum(waits) / len(waits), sum(bounded) / len(bounded)


@pytest.mark.slow
@pytest.mark.skipif(not LOGS.is_dir(), reason="the logs (../shared/traces/swf) are not here")
@pytest.mark.parametrize(
    ("name", "processors", "limits", "estimates"),
    [
        ("SDSC-SP2-1998_first5000lines.swf.gz", 128, "enforce", "mean"),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, None, "exact"),
    ],
)
def test_waits_and_bounded_slowdown_of_a_log_are_those_of_the_textbook(
    name: str, processors: int, limits: Limits | None, estimates: str
) -> None:
    """SDSC-SP2 with its requested times as limits, NASA-iPSC, which has none, with its run times."""
    jobs = _log(name)
    submit, limit = [job[0] for job in jobs], [job[3] if limits else job[1] for job in jobs]
    runs = [min(job[1], at_most) for job, at_most in zip(jobs, limit, strict=True)]
    expected = easy(submit, runs, limit, [job[2] for job in jobs], processors)

    trace = with_estimates(load_workload(LOGS / name, limits=limits)[0], estimates, 0)
    cluster = Cluster((0,), (1,), "one", ("cpu_milli",), ((1000 * processors,),))
    records = _records(trace, cluster)
    found = summarise(
        records, cluster, architecture="", parameters={}, seed=0, cutoff_us=None, wall_s=0, cpu_s=0, peak_rss_mb=0
    )
    starts = [records.start_us[first] for first in trace.first[:-1]]
    assert [start // SECOND + submit[0] for start in starts] == expected
    wait_s, bounded_slowdown = _measures(submit, expected, runs)
    assert found.delay_s.mean == pytest.approx(wait_s, abs=1e-6)
    assert found.bounded_slowdown is not None
    assert found.bounded_slowdown.mean == pytest.approx(bounded_slowdown)


def test_deciding_after_each_end_of_an_instant_gives_other_starts() -> None:
    assert any(_starts(trace) != _starts(trace, backfilling="per-event") for trace, _ in map(_workload, range(5)))
