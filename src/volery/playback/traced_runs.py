"""Runs under a tracer: a kept run repeated, the journals of a federation replayed, and the demonstration of Megha.

A results folder has no messages. So a kept run is repeated under a tracer, and its digest must be that of the folder.
Journals are replayed side by side in the order of time. The demonstration is a small cluster with a little work and a
machine that crashes. Only work and crash are staged: its captions are read from the messages of the components.
"""

from __future__ import annotations

import heapq
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from volery import architectures, sim
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.live.runtime.journal import RAISED
from volery.live.runtime.port import Effect
from volery.live.runtime.replay import Chain, Player, chains, cut_hosts, hosted, plan_of
from volery.playback.run_log import RecordingSource, RunLog, source_of
from volery.playback.tracer import Tracer
from volery.sim.faults import Crash, FaultPlan
from volery.study.plan import plan
from volery.study.results import ResultsFolder
from volery.study.runs import Watch, build, chosen_design, drive, read_inputs, with_cutoff

NAME: Final = "megha"
WORKERS: Final = 18
"""Three clusters, each with a partition of two machines per Global Master."""
PARAMETERS: Final[dict[str, Any]] = {
    "gms": 3,
    "lms": 3,
    "heartbeat_s": 2.0,
    "reliable": True,
    "detection_s": 0.3,
    "why": True,
}
WORK: Final = (
    (0.4, "ada", 3, 2.0),
    (1.6, "bob", 4, 5.0),
    (2.4, "eve", 9, 5.0),
    (2.9, "ada", 5, 5.0),
    (3.5, "bob", 9, 2.5),
    (6.0, "eve", 4, 2.0),
    (9.0, "ada", 3, 2.0),
)
"""Per job: arrival (seconds), user, number of tasks, and duration of each task (seconds)."""
CRASH: Final = Crash(round(6.5 * SECOND), "node/4", round(9.5 * SECOND))
LENGTH_US: Final[Time] = round(13.5 * SECOND)
PLAYED_S: Final = 15
"""The time in which the demonstration is played, without the pauses to read."""
DELAY_US: Final[Time] = 40_000
"""The delay of every message between components: as long as between continents on a bad day, to be seen."""


class TimeRange(msgspec.Struct, frozen=True):
    """The part of a run to record, seconds; None: from its beginning, to its end."""

    begin_s: float | None = None
    end_s: float | None = None

    def within(self, first_us: Time, last_us: Time) -> tuple[Time, Time]:
        """The bounds in microseconds.

        Raises:
            InputError: nothing of the part is within the run.
        """
        begin = first_us if self.begin_s is None else max(first_us, round(self.begin_s * SECOND))
        end = last_us if self.end_s is None else min(last_us, round(self.end_s * SECOND))
        span = f"it lasts from {first_us / SECOND:.3f} s to {last_us / SECOND:.3f} s"
        if begin >= last_us:
            raise InputError("--from", f"{begin / SECOND:g} s is after its end; {span}")
        if end <= first_us or end <= begin:
            raise InputError("--to", f"{end / SECOND:g} s is before its beginning; {span}")
        return begin, end

    @property
    def is_part(self) -> bool:
        """True where the recording ends before the run does."""
        return self.end_s is not None


WHOLE: Final = TimeRange()


class TracedRun(msgspec.Struct, frozen=True, eq=False):
    """The log of a run, and the run that it is of."""

    log: RunLog
    source: RecordingSource


def trace_run(
    folder: Path, label: str, seed: int, span_us: tuple[Time, Time], part: TimeRange = WHOLE, watch: Watch | None = None
) -> TracedRun:
    """Repeat a kept run under a tracer, which is slower and gives the same result.

    Args:
        span_us: beginning and end of the run.
        part: the time to record; the run is repeated to its end all the same, for its digest.
        watch: called with the facts of the input once, then with the progress of the run.

    Raises:
        InputError: there is no such run, an input is gone, or the digest is not that of the folder.
    """
    manifest = ResultsFolder(folder).manifest()
    spec = next((run.spec for run in plan(manifest.config) if (run.spec.label, run.spec.seed) == (label, seed)), None)
    recorded = next((run for run in manifest.runs if (run.label, run.seed) == (label, seed)), None)
    if spec is None or recorded is None:
        raise InputError(str(folder), f"holds no run {label!r} with seed {seed}")

    begin_us, end_us = part.within(*span_us)
    inputs = read_inputs(spec)
    spec = with_cutoff(spec, inputs.facts)
    if watch is not None:
        watch(inputs.facts)

    cluster = inputs.cluster
    design, _ = chosen_design(spec, cluster)
    deployment, captions = build(spec, cluster, design), design.architecture.captions()
    tracer = Tracer(begin_us, end_us, cluster.slots, deployment.machines, captions, part=part.is_part)
    deployment = tracer.on(deployment)

    if drive(spec, inputs, design, deployment, watch).records.digest() != recorded.digest:
        raise InputError(str(folder), f"{label}, seed {seed}, does not run as it did; `volery verify` says more")

    title, subtitle = f"{label}, seed {seed}", f"{len(cluster.slots):,} machines, Volery {manifest.volery_version}."
    return TracedRun(
        tracer.log(), source_of(title, subtitle, cluster, deployment, facts={"label": label, "seed": seed})
    )


def demonstration(part: TimeRange = WHOLE) -> TracedRun:
    """Run the demonstration under a tracer.

    Raises:
        InputError: nothing of the part is within it.
    """
    begin_us, end_us = part.within(0, LENGTH_US)
    architecture, config = architectures.choose(NAME, PARAMETERS)
    cluster = Cluster.uniform(WORKERS)
    deployment = architecture.build(cluster, config, Streams(0))
    captions, crashes = architecture.captions(), ((CRASH.at_us, CRASH.address),)
    tracer = Tracer(begin_us, end_us, cluster.slots, deployment.machines, captions, crashes, part.is_part)
    deployment = tracer.on(deployment)
    options = sim.Options(plan=FaultPlan(crashes=(CRASH,)))
    sim.simulate(deployment, work(), cluster, network=sim.Network(DELAY_US), options=options)

    title = "how Megha works"
    subtitle = f"{WORKERS} machines, 3 clusters, 3 Global Masters; a little work, and a crash."
    facts = {"label": title}
    return TracedRun(tracer.log(), source_of(title, subtitle, cluster, deployment, lasts_s=PLAYED_S, facts=facts))


def work() -> Trace:
    first, durations = [0], array("q")
    for _, _, tasks, takes_s in WORK:
        durations.extend([round(takes_s * SECOND)] * tasks)
        first.append(len(durations))
    arrivals = array("q", [round(at_s * SECOND) for at_s, *_ in WORK])
    estimates = array("q", [round(takes_s * SECOND) for *_, takes_s in WORK])
    return Trace("demonstration", arrivals, array("q", first), durations, estimates, user=tuple(w[1] for w in WORK))


PROGRESS_S: Final = 0.2
Moved = Callable[[Time, Time, Time, int], None]
"""Called several times a second with the beginning and the end of the replay, the time, and the number of events."""


def trace_journals(paths: Sequence[Path], part: TimeRange = WHOLE, moved: Moved | None = None) -> TracedRun:
    """Replay the journals of a federation under a tracer, with times that are aligned by wall clocks.

    Args:
        part: the time to record; later events are not replayed.

    Raises:
        InputError: a file is no journal, is of another federation or version than the first, or does not replay; or no
            host has handled an event.
    """
    readers = chains(paths)
    header, place = readers[0].header, str(readers[0].path)
    for reader in readers:
        if reader.header.configuration != header.configuration:
            raise InputError(str(reader.path), f"is of another federation than {place}; give those of one")

    origin_us = min(reader.header.origin_unix_us for reader in readers)
    offsets_us = [reader.header.origin_unix_us - origin_us for reader in readers]
    spans = [
        (times[0] + offset_us, times[1] + offset_us)
        for reader, offset_us in zip(readers, offsets_us, strict=True)
        if (times := reader.times()) is not None
    ]
    if not spans:
        raise InputError(place, "holds no event: the host ended before it began")

    first_us, last_us = min(first for first, _ in spans), max(last for _, last in spans)
    begin_us, end_us = part.within(first_us, last_us)
    federation_plan = plan_of(header, architectures.lookup, place)
    cluster, deployment = header.cluster, federation_plan.build()
    captions = federation_plan.architecture.captions()
    tracer = Tracer(begin_us, end_us, cluster.slots, deployment.machines, captions, part=part.is_part)

    reported_s, events = time.monotonic(), 0
    turns = (_turns(reader, offset_us, tracer) for reader, offset_us in zip(readers, offsets_us, strict=True))
    for now, feed in heapq.merge(*turns, key=lambda turn: turn[0]):
        if now > end_us:
            break
        events += feed()
        if moved is not None and time.monotonic() - reported_s > PROGRESS_S:
            reported_s = time.monotonic()
            moved(first_us, end_us, now, events)

    hosts, cut = sorted({reader.header.host for reader in readers}), cut_hosts(readers)
    subtitle = f"{len(cluster.slots):,} machines, journals of {len(hosts)} host{'s' if len(hosts) > 1 else ''}"
    subtitle += f"; the first files of {', '.join(cut)} are no longer kept" if cut else ""
    title = f"{header.federation}, {header.architecture}"
    facts = {"federation": header.federation, "hosts": hosts, "events": events, "cut": list(cut)}
    source = source_of(title, subtitle, cluster, deployment, origin_us=origin_us, facts=facts)
    return TracedRun(tracer.log(), source)


def _turns(reader: Chain, offset_us: Time, tracer: Tracer) -> Iterator[tuple[Time, Callable[[], int]]]:
    """The turns of a host: the time of each since the first host's time 0, and a function that replays it.

    Args:
        offset_us: the time 0 of the host.
    """
    header = reader.header
    plan_of_host = plan_of(header, architectures.lookup, str(reader.path))
    effects: list[Effect] = []
    components, problems = hosted(reader, plan_of_host, effects)
    player: Player | None = None

    def feed(now: Time, entries: Sequence[tuple[Address, Address, Any, int]]) -> int:
        nonlocal player
        # The tracer sees a host from its first event on: what was before belongs to the host's earlier incarnation.
        if player is None:
            if header.incarnation > 1:
                tracer.happened(offset_us, f"{header.host} begins anew.")
            tracer.watch(components, offset_us)
            player = Player(components, problems, effects)
        for address, source, event, expected in entries:
            if expected == RAISED:
                break  # the last entry of a host that failed
            if player.feed(address, source, event, now) != expected:
                raise InputError(str(reader.path), "does not replay; `volery replay` shows where")
            player.effects.clear()
        return len(entries)

    for now, entries in reader.turns(plan_of_host.architecture.messages):
        yield now + offset_us, partial(feed, now, entries)
