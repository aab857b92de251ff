"""One run: inputs, simulation, measures. `execute` is all of it, in whatever process it is called."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from volery import architectures, metrics, sim, workload
from volery.architectures import ConfiguredDesign
from volery.core.component import AMOUNTS, DEPENDENCIES, Deployment, Learning, role_of
from volery.core.errors import InputError, suggestion
from volery.core.features import GANGS, LIMITS, features_of, used_features
from volery.core.gangs import check_gang_placement, check_gang_racks
from volery.core.model import NEVER, SECOND, SUBMITTER, Cluster, Time
from volery.core.omissions import CHANGED, LEFT_OUT, WAITS, Omission, Omissions, machine_unit
from volery.core.records import Records
from volery.core.resources import check_vectors
from volery.core.streams import Streams
from volery.core.tags import check_heeded
from volery.core.trace import Trace
from volery.metrics import RunSummary
from volery.metrics.arrays import asked, view
from volery.metrics.explanations import explained
from volery.metrics.jobs import longest_wait_us
from volery.metrics.timeline import timeline
from volery.report.schema import TraceFacts
from volery.sim.faults import FaultPlan, crashes_of
from volery.study.outages import outage_plan
from volery.study.plan import CUTOFF_PARAMETER, code_digest, content_digest, inputs_key, takes_cutoff_of_trace
from volery.study.spec import FRAMES, HOSTS, RunSpec, is_synthetic
from volery.workload.clusters import in_order_of, parse_amounts, parse_variability

CURVE_POINTS = 1000


class RunOutcome(msgspec.Struct):
    """The measures and columns of a finished run.

    Args:
        jobs: columns per job: job, submit_s, tasks, unsatisfiable, ideal_s, jrt_s, delay_s, is_short,
            counted, wait_s.
        curve: the columns time_s, utilisation, waiting_tasks, refused_tasks.
        explained: decisions of schedulers that explain themselves, as the parts of `metrics.explanations.explained`;
            else empty.
        timeline: task runs with place and time, as the parts of `metrics.timeline.timeline`.
    """

    summary: RunSummary
    trace: TraceFacts
    jobs: dict[str, Any]
    curve: dict[str, Any]
    explained: dict[str, dict[str, Any]] = {}
    timeline: dict[str, dict[str, Any]] = {}


class Inputs(msgspec.Struct, frozen=True):
    """Trace and machines of a run."""

    trace: Trace
    cluster: Cluster
    facts: TraceFacts


Watch = Callable[[TraceFacts | sim.Progress], None]


_kept: dict[str, Inputs] = {}
"""The inputs of the run before, by key: runs of one seed follow each other and share them."""


def read_inputs(run: RunSpec) -> Inputs:
    """The trace with its task constraints, and the machines; read anew only where the run before had others.

    Raises:
        InputError: when a file cannot be read or says what it must not.
    """
    key = inputs_key(run)

    if key in _kept:
        inputs = _kept[key]
        return Inputs(inputs.trace, inputs.cluster, msgspec.structs.replace(inputs.facts, read_s=0.0))

    # One input is kept: the runs of a study that share theirs stand together.
    _kept.clear()
    began = time.perf_counter()
    trace, reading = _read_workload(run)
    trace = workload.deal_to_users(trace, run.users, run.seed)
    trace = workload.ask(workload.constrain(trace, run.constraints, run.seed), run.requests, run.seed)
    trace = workload.with_estimates(
        trace, run.estimates, run.seed, has_estimates=bool(reading and reading.has_estimates)
    )
    if run.blocks:
        trace = workload.with_blocks(trace, run.blocks, run.workers, run.racks, run.seed)

    cluster = workload.load_cluster(
        run.workers,
        slots=run.slots,
        constraints=run.constraints,
        machines=None if run.machines is None else Path(run.machines),
        seed=run.seed if run.population is None else run.population,
        resources=trace.resources,
        capacity=run.capacity,
        racks=run.racks,
        reference_mhz=run.reference_mhz,
    )

    if run.variability:
        cluster = msgspec.structs.replace(cluster, variability=parse_variability(run.variability, run.seed))
    # A machine of another speed would make fractions of seconds again.
    if cluster.speeds and run.durations == "whole-seconds":
        cluster = msgspec.structs.replace(cluster, tick_us=SECOND)

    left_out = reading.left_out if reading else None
    has_requests = run.requests == "none"
    if left_out is not None and not has_requests:  # tasks ask for what the model draws
        left_out = left_out.of(LEFT_OUT, WAITS, CHANGED)
    in_one_slot = None

    if run.slot_request:
        in_one_slot = larger_than_a_slot(trace, run.slot_request)
        trace, cluster = workload.as_slots(trace, cluster, run.slot_request, "slot_request")

    if run.load is not None and run.load_by == "machines":
        cluster = workload.machines_for(trace, cluster, run.load)
    elif run.load is not None:
        trace = workload.at_load(trace, cluster, run.load)

    facts = TraceFacts(
        trace.name,
        trace.digest(),
        trace.job_count,
        trace.task_count,
        time.perf_counter() - began,
        left_out,
        in_one_slot,
        workload.cutoff_of(trace),
        reading.unheeded if reading and has_requests else (),
        reading.limits if reading else None,
    )

    _kept[key] = Inputs(trace, cluster, facts)
    return _kept[key]


def _read_workload(run: RunSpec) -> tuple[Trace, workload.Reading | None]:
    """The run's trace as its file or spec has it, and what the reader found.

    Raises:
        InputError: it cannot be read, or states no limits to enforce.
    """
    trace, reading = workload.load_workload(
        run.trace,
        seed=run.seed,
        durations=run.durations,
        arrivals=run.arrivals,
        job_count=run.jobs,
        only=run.only,
        resources=resources_of_file(run),
        columns=run.columns,
        limits=run.limits,
        has_gangs=run.has_gangs,
    )
    if run.limits == "enforce" and (reading is None or reading.limits is None):
        raise InputError("limits", f"the trace {trace.name!r} states no limits; leave it out")
    return trace, reading


def resources_of_file(run: RunSpec) -> tuple[str, ...] | None:
    """The resources that tasks of the run's trace file ask for, as `workload.counted_resources` gives them.

    Raises:
        InputError: a name is no resource of a trace file, or the requests are not those of a file.
    """
    if not is_synthetic(run.trace) and run.requests == "none":
        return workload.counted_resources(run.resources, run.capacity, Path(run.machines) if run.machines else None)
    if run.resources:
        raise InputError("resources", "tasks have no requests of a trace file; leave it out, or name the file alone")
    return None


def with_cutoff(run: RunSpec, facts: TraceFacts) -> RunSpec:
    """The run with the cutoff that its trace gives, where the design takes one and was given none."""
    if facts.cutoff_s is None or not takes_cutoff_of_trace(run):
        return run
    return msgspec.structs.replace(run, parameters={**run.parameters, CUTOFF_PARAMETER: facts.cutoff_s})


def build(run: RunSpec, cluster: Cluster, design: ConfiguredDesign) -> Deployment:
    """The components of the run's design for its cluster.

    Raises:
        InputError: for parameters that do not fit the cluster, for example more partitions than workers.
    """
    architecture, config = design
    check_vectors(architecture.name, has_vectors=architecture.vectors, cluster=cluster)
    try:
        return architecture.build(cluster, config, Streams(run.seed))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(run.label or run.architecture, str(error)) from error


def chosen_design(run: RunSpec, cluster: Cluster) -> tuple[ConfiguredDesign, Omissions | None]:
    """The run's design with what earlier runs have taught it, and what is omitted of those."""
    design = architectures.choose(run.architecture, run.parameters)
    learning = design.architecture.capability(Learning) if run.history else None
    return learned(design, learning, run, cluster) if learning else (design, None)


class Driven(msgspec.Struct, frozen=True):
    """Records of a run, and what building and simulating took, seconds."""

    records: Records
    wall_s: float
    cpu_s: float


def drive(
    run: RunSpec,
    inputs: Inputs,
    design: ConfiguredDesign,
    deployment: Deployment | None = None,
    watch: Watch | None = None,
) -> Driven:
    """Simulate a run, with components of its own where none are given.

    Raises:
        InputError: for parameters that do not fit the cluster, or under which the design never answers.
    """
    wall = time.perf_counter()
    cpu = time.thread_time()
    links = {(sender, receiver): delay for (sender, receiver), delay in map(_link, run.links.items())}

    built = build(run, inputs.cluster, design) if deployment is None else deployment
    place = run.label or run.architecture
    check_heeded(inputs.trace, built, place)
    check_gang_placement(inputs.trace, built, place, may_hold=run.gangs == "hold")
    check_gang_racks(inputs.trace, built, inputs.cluster, place)

    try:
        records = sim.simulate(
            built,
            inputs.trace,
            inputs.cluster,
            network=sim.Network(run.delay_us, links, run.jitter_us),
            seed=run.seed,
            options=sim.Options(
                costs=run.costs,
                hosts=msgspec.convert(run.hosts, HOSTS),
                frames=msgspec.convert(run.frames, FRAMES),
                graphs=design.architecture.graphs,
                plan=_faults(run, built, inputs.trace.arrival_us),
                may_hold=run.gangs == "hold",
            ),
            progress=watch,
        )
    except sim.Deadlock as error:
        problem = f"deadlock: {error}. Give more machines, or take a design that starts gangs whole"
        raise InputError(run.label or run.architecture, problem) from error
    except sim.Stalled as error:
        problem = f"{error}. Change the design's parameters or the workload"
        raise InputError(run.label or run.architecture, problem) from error
    return Driven(records, time.perf_counter() - wall, time.thread_time() - cpu)


def _faults(run: RunSpec, deployment: Deployment, arrivals: Sequence[Time]) -> FaultPlan | None:
    """The crashes that the run names, or those of its outages."""
    if run.crashes and run.outages:
        raise InputError("outages", "crashes are given, too; give one of the two")
    if run.crashes:
        return crashes_of(run.crashes, "crashes")
    return outage_plan(run.outages, deployment, run.seed, arrivals[-1]) if run.outages and arrivals else None


class Execution(msgspec.Struct, frozen=True):
    """A finished run with all of it in memory: its input, its records, and their measures."""

    inputs: Inputs
    records: Records
    outcome: RunOutcome


def execute(run: RunSpec, watch: Watch | None = None) -> RunOutcome:
    """Run it and measure it; see `execution`."""
    return execution(run, watch).outcome


def execution(run: RunSpec, watch: Watch | None = None) -> Execution:
    """Run it, and keep its records.

    CPU time is that of building the components and simulating, with the objects for jobs and tasks, in this thread: a
    display that draws beside it does not count, and reading the trace is apart (`TraceFacts.read_s`). The peak of
    memory is this process's since the run began where the system can reset its mark (Linux), else since the process
    began.

    Args:
        watch: receives the input's size once, then the progress of the run, a few times a second.

    Raises:
        InputError: when the run's input is wrong.
    """
    gc.collect()  # a run is full of cycles: the one before would count into this one's peak
    _forget_peak()

    inputs = read_inputs(run)
    given_run, run = run, with_cutoff(run, inputs.facts)
    window = window_in(run, inputs.trace)
    design, history_left_out = chosen_design(run, inputs.cluster)  # the time of what it learns is not that of the run

    if watch is not None:
        watch(inputs.facts)
    driven = drive(run, inputs, design, watch=watch)
    records = driven.records

    peak_mb = peak_rss_mb()
    cutoff_us = None if run.cutoff_s is None else round(run.cutoff_s * SECOND)

    summary = metrics.summarise(
        records,
        inputs.cluster,
        architecture=run.architecture,
        parameters=given_run.parameters,
        seed=run.seed,
        cutoff_us=cutoff_us,
        wall_s=driven.wall_s,
        cpu_s=driven.cpu_s,
        peak_rss_mb=peak_mb,
        window=window,
    )

    summary = msgspec.structs.replace(
        summary,
        **_unheeded(run, inputs, design),
        are_gangs_tasks=run.are_gangs_tasks,
        starts_gangs=GANGS in used_features(*design),
        **_measured_as(run, inputs, window),
        left_out=inputs.facts.left_out,
        history_left_out=history_left_out,
        in_one_slot=inputs.facts.in_one_slot,
        unheeded_resources=inputs.facts.unheeded_resources,
        limits=summary.limits or inputs.facts.limits,
        never_ran=never_ran(records, inputs.trace, summary.unplaceable_tasks),
        cutoff_from_trace_s=None if run is given_run else inputs.facts.cutoff_s,
    )

    table = metrics.job_table(records, cutoff_us, is_paced=bool(inputs.cluster.speeds), window=window)
    times, fractions = metrics.utilisation(records, inputs.cluster, CURVE_POINTS)
    outcome = RunOutcome(
        summary,
        inputs.facts,
        job_columns(table) | {"wait_s": longest_wait_us(records) / SECOND},
        {
            "time_s": times / SECOND,
            "utilisation": fractions,
            "waiting_tasks": metrics.waiting_tasks(records, times),
            "refused_tasks": metrics.refused_tasks(records, times),
        },
        explained(records),
        timeline(records, inputs.cluster),
    )
    return Execution(inputs, records, outcome)


def window_in(run: RunSpec, trace: Trace) -> metrics.Window | None:
    """The measurement window of a run on its trace; None where all jobs count.

    Raises:
        InputError: no job of the trace was submitted within it.
    """
    return metrics.window_of(metrics.submissions_us(trace), run.warmup, run.window)


def _measured_as(run: RunSpec, inputs: Inputs, window: metrics.Window | None) -> dict[str, Any]:
    """The load of the run, and how it was set and measured."""
    return {
        "load": workload.offered_load(inputs.trace, inputs.cluster),
        "load_by": "" if run.load is None else run.load_by,
        "estimates": run.estimates,
        "window": metrics.window_summary(window, metrics.submissions_us(inputs.trace)),
    }


def _unheeded(run: RunSpec, inputs: Inputs, design: ConfiguredDesign) -> dict[str, Any]:
    """The features of the workload that the run's architecture ignores, leaves to the driver, or does not declare."""
    converted_features = [AMOUNTS] if run.slot_request else []  # slots are all that is left of them

    present = [*features_of(inputs.trace), *converted_features]
    if not design.architecture.features:
        return {"declares": False}

    used = used_features(*design)
    used -= {AMOUNTS} if run.slot_request else set()

    ignored = [feature for feature in present if feature not in used]
    kept_by_driver = tuple(feature for feature in ignored if feature in (DEPENDENCIES, LIMITS))
    return {
        "ignores": tuple(feature for feature in ignored if feature not in kept_by_driver),
        "kept_by_driver": kept_by_driver,
    }


def job_columns(table: metrics.JobTable) -> dict[str, Any]:
    """The columns of jobs.parquet that come from the run itself; times in seconds."""
    return {
        "job": table.job,
        "submit_s": table.submit_us / SECOND,
        "tasks": table.tasks,
        "unsatisfiable": table.unsatisfiable,
        "ideal_s": table.ideal_us / SECOND,
        "jrt_s": table.jrt_us / SECOND,
        "delay_s": table.delay_us / SECOND,
        "is_short": table.is_short,
        "counted": table.counted,
    }


def rehearse(run: RunSpec) -> frozenset[str]:
    """Build the run's components on a cluster of its size and throw them away: wrong parameters show before any run.

    Returns:
        The roles of the architecture, the submitter's among them.

    Raises:
        InputError: for parameters that do not fit the cluster.
    """
    cluster = workload.load_cluster(run.workers, slots=run.slots, capacity="" if run.slot_request else run.capacity)
    design = architectures.choose(run.architecture, run.parameters)
    return frozenset(role_of(address) for address in build(run, cluster, design).components) | {SUBMITTER}


def check_roles(run: RunSpec, roles: frozenset[str]) -> None:
    """Refuse a link delay or a cost for a role that no architecture of the study has, and a role on two processors.

    Hosts may have further roles: one measurement serves several architectures.

    Raises:
        InputError: naming the role and what it may have meant.
    """
    named = [("links", role) for link in run.links.items() for role in _link(link)[0]]
    named += [("costs", role) for role in run.costs]

    for place, role in named:
        if role not in roles:
            raise InputError(place, f"no architecture here has the role {role!r}{suggestion(role, roles)}")

    host_of: dict[str, str] = {}
    for host, costs in msgspec.convert(run.hosts, HOSTS).items():
        if roles.isdisjoint(costs.roles):
            raise InputError(f"hosts.{host}", f"no architecture here has any of its roles, {', '.join(costs.roles)}")
        for role in costs.roles:
            if role in host_of or role in run.costs:
                other_place = f"on host {host_of[role]}" if role in host_of else "in costs"
                raise InputError(f"hosts.{host}", f"{role!r} stands {other_place}, too; leave one out")
            host_of[role] = host


def _link(entry: tuple[str, int]) -> tuple[tuple[str, str], int]:
    """("lm:node", 1000) as (("lm", "node"), 1000)."""
    name, delay = entry
    sender, colon, receiver = name.partition(":")
    if not (sender and colon and receiver):
        raise InputError("links", f"{name!r} is not SENDER:RECEIVER, as lm:node")
    return (sender, receiver), delay


def _forget_peak() -> None:
    """Reset the kernel's mark of this process's peak memory (Linux: proc(5), clear_refs 5) where that is allowed."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss_mb() -> float:
    """Largest resident memory since the mark was reset, in MB of 10^6 bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


NEVER_RAN = "no machine can run them, or a scheduler gave them up"
NO_MACHINE = "no machine can run them"
LARGER = "ask for more than one slot"
PLACE = "slot_request"


def never_ran(records: Records, trace: Trace, unplaceable_tasks: int = 0) -> Omissions | None:
    """Tasks that never started; None where all did.

    Args:
        unplaceable_tasks: number of tasks that fit no machine.
    """
    members = view(records.start_us) == NEVER
    return _of_tasks(trace, members, NO_MACHINE if members.sum() == unplaceable_tasks else NEVER_RAN)


def larger_than_a_slot(trace: Trace, slot_request: str) -> Omissions | None:
    """Tasks that ask for more than a slot holds; None where none does, or where tasks ask for nothing.

    Args:
        slot_request: the amounts that one slot stands for, as `cpu_milli=1000,memory_mb=256`.

    Raises:
        InputError: the amounts are wrong.
    """
    if not trace.resources:
        return None

    slot = in_order_of(trace.resources, parse_amounts(slot_request, PLACE), PLACE)
    larger = [
        any(amount > slot_amount > 0 for amount, slot_amount in zip(request, slot, strict=True))
        for request in trace.requests
    ]
    return _of_tasks(trace, np.array(larger, np.bool_)[view(trace.request)], LARGER)


def _of_tasks(trace: Trace, members: NDArray[np.bool_], reason: str) -> Omissions | None:
    """These tasks of a trace, counted for one reason; None where there are none."""
    if not members.any():
        return None
    unit, scale = machine_unit(trace.resources)
    machine_time = view(trace.duration_us).astype(np.float64) * (scale / SECOND)

    if trace.resources:
        machine_time *= asked(trace, 0)

    per_job = np.add.reduceat(members, view(trace.first)[:-1], dtype=np.int64)
    sizes = np.diff(view(trace.first))

    total, lost = float(machine_time.sum()), float(machine_time[members].sum())
    omission = Omission(
        reason, int(np.count_nonzero(per_job)), int(members.sum()), lost, lost / total if total else 0.0
    )
    return Omissions(
        trace.job_count, trace.task_count, total, unit, int(np.count_nonzero(per_job == sizes)), (omission,)
    )


HISTORY = "history"
"""The stream from which the seed of earlier runs is drawn."""
_learned: dict[tuple[Any, ...], tuple[Any, Omissions | None]] = {}
"""The last lesson, and the omissions from the earlier runs; variants of a design under one seed share both."""


def learned(
    design: ConfiguredDesign, learning: Learning, run: RunSpec, cluster: Cluster
) -> tuple[ConfiguredDesign, Omissions | None]:
    """The design with the parameter that it has learned from earlier runs, and what is omitted of these.

    They are scheduled by the design with its defaults, on the run's machines, under its delay, so that all variants
    have seen the same.

    Raises:
        InputError: the earlier runs cannot be read.
    """
    architecture, config = design
    by = tuple([getattr(config, name) for name in learning.by])
    # Two calls of one program may give the same name to different designs.
    code = code_digest(architecture.name)
    key = (architecture.name, code, by, content_digest(run.history), inputs_key(run), run.delay_us)
    if key not in _learned:
        _learned.clear()
        network = sim.Network(run.delay_us)
        options = sim.Options(graphs=architecture.graphs)

        def simulate(deployment: Deployment, trace: Trace, machines: Cluster) -> Records:
            return sim.simulate(deployment, trace, machines, network=network, seed=run.seed, options=options)

        streams = Streams(run.seed)
        seed = streams.number(HISTORY)
        earlier, reading = workload.load_workload(
            run.history,
            seed=seed,
            durations=run.durations,
            arrivals=run.arrivals,
            only=run.only,
            limits=run.limits,
            has_gangs=run.has_gangs and GANGS in used_features(*design),
        )

        if run.slot_request:  # each of its tasks takes a slot, as those of the run do
            earlier = msgspec.structs.replace(earlier, resources=(), requests=(), request=earlier.request[:0])

        records = simulate(architecture.build(cluster, architecture.defaults, streams), earlier, cluster)
        _learned[key] = learning.learn(config, records, simulate), reading.left_out if reading else None

    lesson, omissions = _learned[key]
    return design._replace(config=msgspec.structs.replace(config, **{learning.parameter: lesson})), omissions
