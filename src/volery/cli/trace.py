"""`volery trace`: look at a workload before running it, examine and convert public traces, or write a synthetic one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from volery.cli.options import (
    AsJson,
    Columns,
    JournalFolder,
    Only,
    Replace,
    TrFile,
    argument,
    checked_only,
    declared,
    option,
    trace_name,
)
from volery.cli.output import omission_rows, print_answer, print_json, print_omissions, print_table, terminal
from volery.core.errors import InputError
from volery.core.omissions import CHANGED, LEFT_OUT, WAITS
from volery.look.text import percent

if TYPE_CHECKING:
    from volery.core.trace import Trace
    from volery.live.runtime.journal_trace import Period
    from volery.workload.description import ConstraintUse, JobClass, LoadCurve, TraceDescription
    from volery.workload.doctor import Diagnosis
    from volery.workload.tr import Reading

SPARKLINE_POINTS = 60
UNITS_AT_ONCE = {"task-seconds": "slots", "core-seconds": "cores", "GPU-seconds": "GPUs"}
"""The unit of what is in use at one time, by the unit of work."""
NAMES_SHOWN = 8
"""Names of machines that a line lists."""
WORKERS = 10_000
"""The workers that the load is taken over where neither options nor the file name a number."""

trace_app = typer.Typer(help="Look at a workload, convert and examine traces, or write one.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Argument(
        metavar="IN",
        help="A trace of any known format; a folder of parquet parts; -: standard input.",
        callback=trace_name,
    ),
]
FormatName = Annotated[str | None, typer.Option("--format", help="Name of the format; told by the content without it.")]
RepairChoice = Annotated[
    list[str] | None,
    typer.Option("--repair", metavar="RULE=ACTION", help="What to do about a defect; repeatable."),
]
AnySource = Annotated[
    str,
    typer.Argument(
        metavar="FILE|SPEC|-",
        help="A trace of any known format, or syn:/poisson:/workflow:...",
        callback=trace_name,
    ),
]
LoadWorkers = Annotated[
    int | None,
    option(
        "Workers that the load is taken over: with the processors that the file states (MaxProcs of SWF), else of "
        "one slot or processor each, unless --machines or --capacity say more; 10,000 without all of these."
    ),
]
Cutoff = Annotated[float | None, typer.Option(help="Seconds; jobs with a larger mean task duration are long.")]


@trace_app.command("describe")
def describe_trace(
    source: AnySource,
    workers: LoadWorkers = None,
    cutoff: Cutoff = None,
    constraints: Annotated[str, declared("constraints", shown=True)] = "none",
    machines: Annotated[Path | None, declared("machines")] = None,
    capacity: Annotated[str, declared("capacity")] = "",
    slots: Annotated[int, declared("slots", shown=True)] = 1,
    reference_mhz: Annotated[int, declared("reference_mhz")] = 0,
    requests: Annotated[str, declared("requests", shown=True)] = "none",
    resources: Annotated[str, declared("resources")] = "",
    seed: Annotated[int, typer.Option(help="Of a spec and of the constraints.")] = 0,
    jobs: Annotated[int | None, declared("jobs")] = None,
    only: Only = "ran",
    columns: Columns = None,
    durations: Annotated[str, declared("durations", shown=True)] = "exact",
    arrivals: Annotated[str, declared("arrivals", shown=True)] = "exact",
    picture: Annotated[Path | None, typer.Option(help="Write the load curve as .png, .svg or .pdf.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print jobs, tasks, fanout, durations, span, load, the short/long split and oddities of a workload."""
    from volery import workload
    from volery.workload.description import describe_constraints, draw_load_curve
    from volery.workload.formats import stated_processors

    counted = workload.counted_resources(resources, capacity, machines) if requests == "none" else None
    trace, reading = workload.load_workload(
        source,
        seed=seed,
        durations=durations,
        arrivals=arrivals,
        job_count=jobs,
        only=checked_only(only),
        resources=counted,
        columns=columns,
    )

    if requests != "none":  # tasks ask for what the model draws
        trace, reading = workload.ask(trace, requests, seed), _without_requests(reading)
    stated = stated_processors(Path(source)) if trace.resources and not (capacity or machines) else None
    # A file that states its processors is one machine of that many.
    count = workers if workers is not None else 1 if stated else WORKERS

    cluster = workload.load_cluster(
        count,
        slots=slots,
        constraints=constraints,
        machines=machines,
        seed=seed,
        capacity=capacity,
        resources=trace.resources if capacity or machines else (),
        reference_mhz=reference_mhz,
    )

    load_cluster = cluster
    if trace.resources and not cluster.resources:
        load_cluster = workload.processors_alone(trace, count, stated)
    described = workload.describe(trace, count, cutoff, reading, load_cluster)

    constraint_use = describe_constraints(workload.constrain(trace, constraints, seed), cluster)
    if picture is not None:
        curve = workload.load_curve(trace, count, cluster=load_cluster)
        draw_load_curve(curve, f"{trace.name} on {count:,} workers", picture)

    if as_json:
        content: dict[str, Any] = msgspec.to_builtins(described)
        print_json(content | {"constraints": constraint_use, "picture": None if picture is None else str(picture)})
        return

    print_omissions(described.left_out)
    _print_description(described, constraint_use, workload.load_curve(trace, count, SPARKLINE_POINTS, load_cluster))
    if picture is not None:
        typer.echo(f"picture: {picture}")


def _without_requests(reading: Reading | None) -> Reading | None:
    """A report of what was read without the requests that the source does not state."""
    if reading is None or reading.left_out is None:
        return reading
    return msgspec.structs.replace(reading, left_out=reading.left_out.of(LEFT_OUT, WAITS, CHANGED), unheeded=())


@trace_app.command("synth")
def synthesise_trace(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="For example syn:250x2000 or mix:google,jobs=500.")],
    output: TrFile,
    seed: Annotated[int, typer.Option(help="Of the random streams.")] = 0,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic workload as a .tr file; reading it back gives the same workload."""
    from volery.workload import synthesize, write_tr

    trace = synthesize(spec, seed)
    write_tr(trace, output, force=force)

    content = {"file": str(output), "spec": spec, "seed": seed} | _counts(trace)
    print_answer(content, as_json, _written(output, trace))


def _counts(trace: Trace) -> dict[str, Any]:
    return {"jobs": trace.job_count, "tasks": trace.task_count, "digest": trace.digest()}


def _written(output: Path, trace: Trace) -> str:
    return f"{output}: {trace.job_count:,} jobs, {trace.task_count:,} tasks, digest {trace.digest()[:16]}"


@trace_app.command("convert")
def convert_trace(
    source: Source,
    output: Annotated[Path, typer.Option("-o", "--output", help="The table to write, OUT.parquet.")],
    form: FormatName = None,
    columns: Columns = None,
    repair: RepairChoice = None,
    without_parents: Annotated[
        bool, typer.Option("--without-parents", help="Leave out what tasks wait for, to run them as independent ones.")
    ] = False,
    without_submissions: Annotated[
        bool,
        typer.Option(
            "--without-submissions", help="Leave out when each task was submitted, to run them with their jobs."
        ),
    ] = False,
    far: Annotated[
        str | None,
        option(
            "How many times as long tasks last in a rack that holds their input, and elsewhere, as 1.5,2.",
            form="RACK,ANY",
        ),
    ] = None,
    only: Only = "ran",
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a trace of any known format as a canonical table, with the chosen repairs; the manifest lists them."""
    from volery.workload.convert import convert
    from volery.workload.doctor import choices

    conversion = convert(
        Path(source),
        output,
        form=form,
        columns=columns,
        chosen_repairs=choices(repair or []),
        parents=not without_parents,
        submissions=not without_submissions,
        only=checked_only(only),
        far_permille=None if far is None else _far_permille(far),
        force=force,
    )

    if as_json:
        print_json({"file": str(output), **msgspec.to_builtins(conversion)})
        return

    typer.echo(f"{output}: {conversion.rows:,} rows of {conversion.rows_read:,} from {conversion.format}")
    for repair_made in conversion.repairs:
        typer.echo(f"repaired: {repair_made.rule} by {repair_made.action} in {repair_made.rows:,} rows")

    for rule, rows in conversion.left.items():
        typer.echo(f"left:     {rule} in {rows:,} rows")

    for oddity, times in conversion.noticed.items():
        typer.echo(f"noticed:  {oddity}: {times:,}")


def _far_permille(text: str) -> tuple[int, int]:
    try:
        rack, any_where = (round(1000 * float(word)) for word in text.split(","))
    except (ValueError, OverflowError):
        rack = any_where = 0
    if min(rack, any_where) < 1:
        raise InputError("--far", f"{text!r} is not two factors above 0; write them as 1.5,2")
    return rack, any_where


@trace_app.command("doctor")
def examine_trace(
    source: Source,
    form: FormatName = None,
    columns: Columns = None,
    repair: RepairChoice = None,
    only: Only = "ran",
    as_json: AsJson = False,
) -> None:
    """Name the defects of a trace with counts and first places; status 1 if one is left without a chosen repair."""
    from volery.workload.doctor import choices, examine

    diagnosis = examine(Path(source), form, choices(repair or []), checked_only(only), columns)
    if as_json:
        print_json({**msgspec.to_builtins(diagnosis), "unanswered": diagnosis.unanswered})
    else:
        _print_diagnosis(diagnosis)

    if diagnosis.unanswered:
        raise typer.Exit(1)


@trace_app.command("columns")
def propose_columns(source: Source, as_json: AsJson = False) -> None:
    """Print a map of a table's columns as TOML, made from names and first rows, to edit and give to --columns."""
    from volery.workload.formats import fitting
    from volery.workload.formats.columns import MAPS, proposed_map
    from volery.workload.formats.source import head_of

    path = Path(source)
    form = fitting(path)
    if form is not None and form not in MAPS:
        raise InputError(str(path), f"is a trace of the format {form.name}, which is read without a map; name it alone")

    proposal = proposed_map(path, head_of(path))
    print_answer(msgspec.to_builtins(proposal), as_json, proposal.text.rstrip())


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    print_omissions(diagnosis.left_out)
    typer.echo(f"{diagnosis.source}: {diagnosis.rows:,} rows of {diagnosis.format}")

    for finding in diagnosis.findings:
        answer = (
            f"chosen: {finding.chosen}"
            if finding.chosen
            else f"choose --repair {finding.rule}={'|'.join(finding.actions)}"
        )
        typer.echo(f"{finding.rule}: {finding.meaning}: {finding.rows:,}; {answer}")
        head, *other_places = finding.first
        typer.echo(f"  first: {', '.join([head, *(place.rpartition(':')[2] for place in other_places)])}")

    if never_known := [name for name, rows in diagnosis.unknown.items() if rows == diagnosis.rows]:
        typer.echo(f"unknown: {', '.join(never_known)}")
    for name, rows in diagnosis.unknown.items():
        if rows < diagnosis.rows:
            typer.echo(f"unknown: {name} in {rows:,} rows")

    for oddity, times in diagnosis.noticed.items():
        typer.echo(f"noticed: {oddity}: {times:,}")
    for remark in diagnosis.remarks:
        typer.echo(f"remark:  {remark}")

    if diagnosis.left_out is not None and diagnosis.left_out.reasons:
        for name, shown in omission_rows(diagnosis.left_out):
            typer.echo(f"{name}: {shown}")

    if not diagnosis.findings:
        typer.echo("no defects")


def _print_description(described: TraceDescription, use: ConstraintUse | None, curve: LoadCurve) -> None:
    from rich.table import Table

    from volery.workload.description import sparkline

    table = Table(title=described.name, show_header=False, title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    row_makers = (_size_rows, _workflow_rows, _class_rows, _left_out_rows, _oddity_rows)
    sections = [*(rows(described) for rows in row_makers), _constraint_rows(use)]

    for rows in filter(None, sections):
        table.add_section()
        for name, shown in rows:
            table.add_row(name, shown)

    terminal().print(table)

    peak = percent(float(curve.running.max()))
    typer.echo(f"running load, 0 to {curve.time_s[-1]:,.0f} s, if every task started on arrival; peak {peak}:")
    typer.echo(f"|{sparkline(curve)}|")


def _rounded(seconds: float) -> str:
    """Four digits, without an exponent where durations are long."""
    return f"{seconds:,.0f}" if seconds >= 1000 else f"{seconds:.4g}"


def _exact(seconds: float) -> str:
    """The seconds to the microsecond, without zeros at the end."""
    return f"{seconds:,.6f}".rstrip("0").rstrip(".")


def _size_rows(described: TraceDescription) -> list[tuple[str, str]]:
    d = described
    load = "none: all jobs arrive at once" if d.load is None else f"{d.load:.4f}"

    unit = UNITS_AT_ONCE.get(d.work_unit, d.work_unit.removesuffix("-seconds"))
    machines = f"{d.workers:,} worker{'s' if d.workers > 1 else ''}"
    if d.offered != d.workers:
        machines += f" of {_exact(d.offered)} {unit} together"

    return [
        ("jobs", f"{d.jobs:,}"),
        ("tasks", f"{d.tasks:,}"),
        ("tasks per job, mean", f"{d.fanout_mean:,.2f}"),
        ("tasks per job, max", f"{d.fanout_max:,}"),
        ("task duration, mean (s)", _rounded(d.duration_mean_s)),
        ("task duration, p50 (s)", _rounded(d.duration_p50_s)),
        ("task duration, p99 (s)", _rounded(d.duration_p99_s)),
        ("task duration, max (s)", _exact(d.duration_max_s)),
        (f"work ({d.work_unit})", f"{d.work:,.0f}"),
        ("span of arrivals (s)", _exact(d.span_s)),
        (f"load at {machines}", load),
        (f"peak demand ({unit})", _exact(d.peak_demand)),
    ]


def _workflow_rows(described: TraceDescription) -> list[tuple[str, str]]:
    workflows = described.workflows
    if workflows is None:
        return []
    return [
        ("workflows", f"{workflows.jobs:,} of {workflows.tasks:,} tasks that wait {workflows.waits:,} times"),
        ("their depth (tasks), mean, max", f"{workflows.depth_mean:,.2f}, {workflows.depth_max:,}"),
        ("their width (tasks), mean, max", f"{workflows.width_mean:,.2f}, {workflows.width_max:,}"),
        (
            "their critical path (s), mean, max",
            f"{_rounded(workflows.critical_path_mean_s)}, {_exact(workflows.critical_path_max_s)}",
        ),
    ]


def _class_rows(described: TraceDescription) -> list[tuple[str, str]]:
    if described.short is None or described.long is None:
        return []

    def shown(part: JobClass) -> str:
        return f"{part.jobs:,} ({percent(part.job_share)}) with {percent(part.work_share)} of the work"

    cutoff = f"{_exact(described.cutoff_s or 0)} s"
    return [(f"short jobs (up to {cutoff})", shown(described.short)), ("long jobs", shown(described.long))]


def _left_out_rows(described: TraceDescription) -> list[tuple[str, str]]:
    rows = omission_rows(described.left_out) if described.left_out is not None else []
    if described.unheeded_resources:
        rows.append(("requests that do not count (--resources)", ", ".join(described.unheeded_resources)))
    return rows


def _oddity_rows(described: TraceDescription) -> list[tuple[str, str]]:
    oddities = described.oddities
    counts = [
        ("jobs that arrive with the one before", oddities.equal_arrivals),
        ("tasks of zero duration", oddities.zero_durations),
        ("means that disagree with the durations", oddities.wrong_means),
        ("rows not in order of arrival (sorted)", oddities.unsorted_rows),
        ("blank lines", oddities.blank_lines),
    ]

    rows = [(name, f"{count:,}") for name, count in counts if count]
    if oddities.first_arrival_s:
        rows.append(("first arrival in the file (s), here 0", _exact(oddities.first_arrival_s)))

    return rows


def _constraint_rows(use: ConstraintUse | None) -> list[tuple[str, str]]:
    if use is None:
        return []
    return [
        ("constraints per task, mean", f"{use.constraints_per_task:.3f}"),
        ("tasks without constraints", f"{use.unconstrained_tasks:,}"),
        ("machines that can run a task, mean", percent(use.eligible_share)),
        ("tasks that no machine can run", f"{use.unsatisfiable_tasks:,}"),
    ]


@trace_app.command("machines")
def list_machines(
    source: Annotated[
        Path,
        argument("A slurm.conf, or output of sinfo, scontrol show nodes --json or kubectl get nodes -o json.", "FILE"),
    ],
    output: Annotated[
        Path | None,
        option("The file of machines to write; without it, they are listed alone.", "-o", "--output", form="OUT.csv"),
    ] = None,
    partition: Annotated[str, option("Partition of Slurm whose machines are taken.", form="NAME")] = "",
    down: Annotated[
        bool, typer.Option("--down", help="Take machines that are down, drained or cordoned, too.")
    ] = False,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Turn a cluster as Slurm or Kubernetes states it into a file of machines, and account for each line."""
    from volery.workload.clusters import read_inventory
    from volery.workload.inventory import columns_of, machine_count, offer_text, write_machines

    inventory = read_inventory(source)
    machines = inventory.working(source, partition, down=down)
    if output is not None:
        write_machines(machines, output, force=force)

    idle = [listed for listed in inventory.machines if listed.state and listed not in machines]
    offers = {name: sum(listed.amounts.get(name, 0) for listed in machines) for name in columns_of(machines)}
    if as_json:
        content = {"form": inventory.form, "file": output and str(output), "machines": machines, "offers": offers}
        print_json(content | {"left_out": idle, "lines": inventory.uses})
        return

    for use in inventory.uses:
        typer.echo(use.text())
    for state in dict.fromkeys(listed.state for listed in idle):
        names = [listed.name for listed in idle if listed.state == state]
        more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
        typer.echo(f"left out: {machine_count(len(names))}, {state}: {', '.join(names[:NAMES_SHOWN])}{more}")
    total = ", ".join(offer_text(name, amount) for name, amount in offers.items())
    typer.echo(f"{output or source}: {machine_count(len(machines))} with {total} together")
    if output is not None:
        typer.echo(f"try:  volery compare oracle backfill --trace TRACE --workers {len(machines)} --machines {output}")


@trace_app.command("anonymise")
def anonymise_trace(
    source: Source,
    output: Annotated[Path, typer.Option("-o", "--output", help="The table to write, OUT.parquet.")],
    key: Annotated[
        Path | None,
        option(
            "File with the key in hexadecimal digits; without it a key is made, and printed this once.", form="FILE"
        ),
    ] = None,
    shift_days: Annotated[int, typer.Option(help="Days by which all times become later.")] = 0,
    form: FormatName = None,
    columns: Columns = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a trace as a table without names: users, groups, partitions, jobs and tasks become keyed hashes."""
    from volery.workload.pseudonyms import anonymise, new_key, read_key

    chosen_key = new_key() if key is None else read_key(key)
    pseudonyms = anonymise(
        Path(source), output, chosen_key, form=form, columns=columns, shift_days=shift_days, force=force
    )
    if as_json:
        printed_key = chosen_key if key is None else None
        print_json({"file": str(output), **msgspec.to_builtins(pseudonyms), "key": printed_key})
        return

    counts = ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in pseudonyms.names.items())
    typer.echo(f"{output}: {pseudonyms.rows:,} rows; keyed hashes of all ids" + (f" and of {counts}" if counts else ""))
    shift = f"; times are {pseudonyms.shift_days:+,} days off" if pseudonyms.shift_days else ""
    typer.echo(f"stays: {', '.join(pseudonyms.stays)}{shift}; who knows when a job ran may recognise it")
    if key is None:
        typer.echo(f"key:   {chosen_key}")
        typer.echo("keep the key in a file: with --key FILE the same names get the same hashes; do not send it along")


@trace_app.command("from-journal")
def trace_from_journal(
    place: JournalFolder,
    output: TrFile,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Turn a live period into a trace for the lab, and print the times of its messages and decisions."""
    from volery.architectures import lookup
    from volery.live.runtime.journal_trace import read_period
    from volery.live.runtime.replay import journals
    from volery.workload import write_tr

    period = read_period(journals(place), output.name, lookup)

    write_tr(period.trace, output, force=force)
    if as_json:
        content: dict[str, Any] = msgspec.structs.asdict(period)
        trace = content.pop("trace")
        print_json({"file": str(output)} | _counts(trace) | content)
    else:
        _print_period(period, output)


def _print_period(period: Period, output: Path) -> None:
    hops = (
        (hop.sender, hop.receiver, f"{hop.count:,}", f"{hop.mean_us:,.1f}", f"{hop.p50_us:,}", f"{hop.p99_us:,}")
        for hop in period.hops
    )

    heads = ("messages", "mean", "p50", "p99")
    if period.hops:
        title = "Messages between hosts, from turn to turn (us)"
        print_table(("from", "to", *heads), hops, title=title, right=heads)

    decisions = ((decision.role, f"{decision.events:,}", f"{decision.mean_us:,.1f}") for decision in period.decisions)
    title = "Handlers, played again here (us)"
    print_table(("role", "events", "mean"), decisions, title=title, right=("events", "mean"))

    typer.echo(_written(output, period.trace))
    if period.cut:
        typer.echo(f"the first files of {', '.join(period.cut)} are no longer kept; jobs of that time are left out")

    for count, left_out in (
        (period.unfinished_tasks, "tasks that never finished are left out"),
        (period.constrained_tasks, "tasks had placement constraints, which a .tr file does not hold"),
        (period.cancelled_jobs, "jobs were given up; of them the trace holds what has finished"),
    ):
        if count:
            typer.echo(f"note: {count:,} {left_out}")

    slots = f" --slots {period.slots // period.workers}" if period.slots > period.workers else ""
    typer.echo(f"try:  volery compare {_choice(period)} --trace {output} --workers {period.workers}{slots}")


def _choice(period: Period) -> str:
    """The architecture as `volery compare` takes it, with the parameters that differ from its defaults."""
    from volery.architectures import lookup

    defaults = msgspec.to_builtins(lookup(period.architecture).defaults)
    changed_parameters = {name: value for name, value in period.parameters.items() if value != defaults.get(name)}
    return period.architecture + "".join(
        f"{',' if number else ':'}{name}={value}" for number, (name, value) in enumerate(changed_parameters.items())
    )
