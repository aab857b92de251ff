"""`python -m experiments`: figures, tables and findings of papers, run again and judged claim by claim."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer

from experiments.details import details
from experiments.experiment import FINDINGS, Experiment, experiments_folder, names, read_experiment, traces_folder
from experiments.findings import findings_page
from experiments.first_forms import append_first_forms
from experiments.ledger import judged_claims, listing, read_ledger
from experiments.notation import ours, verdict
from experiments.papers import INDEX, pages
from experiments.pictures import draw
from experiments.records import (
    VERDICTS_FILE,
    Record,
    judged_again,
    make_record,
    read_record,
    record_path,
    reusable,
    write_record,
)
from experiments.reproduction import Reproduction
from experiments.reruns import (
    SpotCheck,
    carried_record,
    checked_record,
    one_of_each,
    reproduce_again,
    reproduce_until_decided,
    spot_check,
)
from experiments.undecided import cheapest_first
from volery.cli.options import AsJson, Dask, Processes, SeedsMax, argument, declared, option
from volery.cli.output import INTERRUPTED, print_error, print_json, print_table, terminal
from volery.cli.progress import LiveProgress
from volery.core.errors import InputError
from volery.setting import option_of
from volery.study import LostRunError
from volery.study.spec import AutoSeeds, read_seeds

FINISHED_RUNS: Final = Path("results/reproduce")
STYLES: Final = {
    "reproduced": "green", "differs": "bold red", "holds on a stand-in": "cyan", "fails on a stand-in": "magenta",
    "of the program, not of the text": "bold red", "not decided": "yellow", "not decidable": "yellow",
    "not tried": "dim", "number on a stand-in": "dim", "our question": "dim", "by construction": "dim",
}  # fmt: skip

Chosen = Annotated[list[str] | None, argument("Experiments, see list; all where none is named.", "[NAME]...")]
Folder = Annotated[Path | None, option("Where the experiments are.", form="DIR", envvar="VOLERY_EXPERIMENTS")]
Traces = Annotated[
    Path | None, option("Where the traces are (default: ../shared/traces).", form="DIR", envvar="VOLERY_TRACES")
]
Finished = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Finished runs are kept here and never run again.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A first answer: few jobs, one seed; it is not recorded.")]
OnlyFinished = Annotated[
    bool, typer.Option("--finished", help="Run nothing: judge and record what is finished so far.")
]
NotDecided = Annotated[
    bool,
    typer.Option(
        "--not-decided",
        help="Claims that more seeds may decide, with the CPU time of their next look.",
    ),
]
SeedsAuto = Annotated[str | None, option("Add seeds to those of the file until claims are decided.", form="auto")]
BudgetS = Annotated[
    float | None,
    declared("budget_s", meaning="CPU time of all added runs of an experiment after which none begins, s."),
]
Runs = Annotated[int, typer.Option("--runs", metavar="N", help="Recorded runs of each experiment.", min=1)]
Carry = Annotated[
    bool,
    typer.Option(
        "--carry",
        help="One run of every architecture; where all agree, recorded runs count as runs of the code as it is.",
    ),
]

app = typer.Typer(
    help="The lab book: claims of published work, and the runs that judge them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class RunOptions(msgspec.Struct, frozen=True):
    """The options of a run that all experiments of a command share.

    Args:
        output: Folder of finished runs.
        limits: Limits of added seeds; None where none are added.
        quick: True for the cheap variant, which is not recorded.
        only_finished: True where nothing is run.
        places: Traces, processes and Dask cluster, as `experiments.reproduction.reproduce` takes them.
    """

    output: Path
    limits: AutoSeeds | None
    quick: bool
    only_finished: bool
    places: dict[str, Any]
    as_json: bool


@app.command("list")
def show_list(experiments: Folder = None, undecided: NotDecided = False, as_json: AsJson = False) -> None:
    """Show every experiment with its state, or the claims that more seeds may decide."""
    if undecided:
        _show_undecided(experiments_folder(experiments), as_json=as_json)
        return
    rows = listing(experiments_folder(experiments))
    if as_json:
        print_json([_listed(experiment, record, state) for experiment, record, state in rows])
        return
    cells = ((experiment.name, experiment.figure, experiment.title, state) for experiment, _, state in rows)
    print_table(("experiment", "of", "what", "state"), cells, bare=True)


def _show_undecided(folder: Path, *, as_json: bool) -> None:
    claims = cheapest_first(claim for _, claim in read_ledger(folder).undecided())
    if as_json:
        print_json(claims)
        return
    cells = (
        (
            f"{claim.claim}{f' [{claim.reading}]' if claim.reading else ''}{' (stand-in)' if claim.stand_in else ''}",
            f"{claim.seeds} to {claim.next_seeds}",
            "unknown" if claim.cpu_s is None else f"{claim.cpu_s:.1f}",
            claim.why,
        )
        for claim in claims
    )
    print_table(("claim", "seeds", "CPU s", "why"), cells, bare=True)


@app.command("run")
def run(
    experiment_names: Chosen = None,
    quick: Quick = False,
    finished: OnlyFinished = False,
    seeds: SeedsAuto = None,
    seeds_max: SeedsMax = None,
    budget_s: BudgetS = None,
    output: Finished = FINISHED_RUNS,
    experiments: Folder = None,
    traces: Traces = None,
    processes: Processes = 1,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Run experiments again and record them: claim, published, ours, verdict; and their pictures."""
    folder = experiments_folder(experiments)
    limits = _limits(seeds, seeds_max, budget_s)
    if limits is not None and (quick or finished):
        raise InputError("--seeds", "auto draws further seeds; leave out --quick and --finished")

    places = {"traces": traces_folder(folder, traces), "processes": processes, "dask": dask}
    options = RunOptions(output, limits, quick, finished, places, as_json)
    records = [_run(experiment, folder, options) for experiment in _read(folder, experiment_names)]
    if as_json:
        print_json({"records": records})


@app.command("judge")
def judge(experiment_names: Chosen = None, experiments: Folder = None, as_json: AsJson = False) -> None:
    """Judge recorded values again; nothing is run, and no trace is needed."""
    folder = experiments_folder(experiments)
    records = []
    for experiment in _read(folder, experiment_names):
        try:
            record = _judge(experiment, folder)
        except InputError as error:
            if experiment_names:
                raise
            typer.echo(f"left out: {error}", err=True)
            continue
        records.append(record)
        if not as_json:
            _print_table(experiment, record)
    if as_json:
        print_json({"records": records})


@app.command("check")
def check(
    experiment_names: Chosen = None,
    runs: Runs = 1,
    carry: Carry = False,
    experiments: Folder = None,
    traces: Traces = None,
    processes: Processes = 1,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Run some recorded runs again and compare digests; the status is 1 where one differs."""
    folder = experiments_folder(experiments)
    places = {"traces": traces_folder(folder, traces), "processes": processes, "dask": dask}
    checks = []
    for experiment in _read(folder, experiment_names):
        record = read_record(record_path(folder, experiment.name))
        if not experiment_names and (record is None or not record.digests):
            continue  # without runs there is nothing to check: it measures inputs alone
        spot = _check(experiment, record, folder, None if carry else runs, places, as_json)
        checks.append(spot)
        if carry:
            _carry(experiment, spot, folder, traces_folder(folder, traces))
    if as_json:
        print_json({"checked": checks})
    if any(spot.differing for spot in checks):
        raise typer.Exit(1)


@app.command("pages")
def write_pages(experiments: Folder = None) -> None:
    """Write docs/papers and docs/findings.md from the records, and every claim to build/papers/index.html."""
    folder = experiments_folder(experiments)
    root = folder.absolute().parent
    written = {root / "docs" / name: text for name, text in pages(folder).items()}
    if (folder / FINDINGS).exists():
        written[root / "docs" / "findings.md"] = findings_page(folder)
    written |= {root / "build" / "papers" / name: text for name, text in details(folder).items()}

    for path, text in written.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None
    typer.echo(f"pages: {root / 'docs' / INDEX}, {root / 'build' / 'papers' / 'index.html'}")


def _read(folder: Path, experiment_names: Sequence[str] | None) -> list[Experiment]:
    return [read_experiment(folder, name) for name in experiment_names or names(folder)]


def _limits(seeds: str | None, seeds_max: int | None, budget_s: float | None) -> AutoSeeds | None:
    """The limits that go with --seeds auto; None without it."""
    if seeds not in (None, "auto"):
        raise InputError(
            "--seeds", f"{seeds!r} is not auto; the first seeds of an experiment stand in its file, and auto adds more"
        )
    _, limits = read_seeds(1 if seeds is None else seeds, seeds_max, budget_s, option_of)
    return limits


def _run(experiment: Experiment, folder: Path, options: RunOptions) -> Record:
    """Run an experiment, print its table, draw its pictures and record its verdicts."""
    experiment = experiment.cheap() if options.quick else experiment
    earlier = None if options.quick else read_record(record_path(folder, experiment.name))
    reproduction = _reproduction(experiment, earlier, options)
    record = make_record(reproduction, quick=options.quick, earlier=earlier)
    if options.only_finished and earlier is not None:
        _check_nothing_is_lost(experiment, record, earlier)

    own_folder = options.output / experiment.name
    write_record(record, own_folder / VERDICTS_FILE)
    pictures = draw(reproduction) if reproduction.drawable else ()
    drawn = {own_folder / name: picture for name, picture in pictures}
    for path, picture in drawn.items():
        path.write_text(picture, encoding="utf-8")

    if not options.as_json:
        _print_table(experiment, record)
        for path in drawn:
            typer.echo(f"picture: {path}")
    if reproduction.interrupted:
        if options.as_json:
            print_json({"records": [record], "interrupted": True})
        else:
            stored = f"{record.runs} finished runs are kept in {options.output}"
            typer.echo(f"Interrupted; {stored}. The same command goes on.")
        raise typer.Exit(INTERRUPTED)

    is_worth_keeping = record.complete or (options.only_finished and reproduction.begun)
    if is_worth_keeping and not options.quick:
        write_record(record, record_path(folder, experiment.name))
        append_first_forms(folder, experiment, record)
    return record


def _check_nothing_is_lost(experiment: Experiment, record: Record, earlier: Record) -> None:
    """Refuse a record of finished runs in place of one that has more of them, where runs are still to come.

    Raises:
        InputError: the code or the file changed since the record was made, so that its runs are others now.
    """
    if not record.complete and record.runs < earlier.runs:
        problem = (
            f"{record.runs} runs are finished with the code and the file as they are, and the record has {earlier.runs}"
        )
        judge_it, run_it = (f"`python -m experiments {word} {experiment.name}`" for word in ("judge", "run"))
        raise InputError(
            f"experiment {experiment.name}", f"{problem}; {judge_it} judges those, {run_it} runs what is missing"
        )


def _reproduction(experiment: Experiment, earlier: Record | None, options: RunOptions) -> Reproduction:
    with LiveProgress(silent=options.as_json) as watcher:
        shared = {"folder": options.output, "watcher": watcher, **options.places}
        if options.limits is not None:
            return reproduce_until_decided(experiment, options.limits, recorded=reusable(experiment, earlier), **shared)
        return reproduce_again(experiment, earlier, only_finished=options.only_finished, **shared)


def _judge(experiment: Experiment, folder: Path) -> Record:
    """Judge the recorded values of an experiment again, and keep the verdicts.

    Raises:
        InputError: there is no record, or it cannot be judged again.
    """
    path = record_path(folder, experiment.name)
    record = read_record(path)
    if record is None:
        remedy = f"`python -m experiments run {experiment.name}` makes one"
        raise InputError(f"experiment {experiment.name}", f"has no record; {remedy}")
    judged = judged_again(experiment, record)
    if judged is not record:
        write_record(judged, path)
    append_first_forms(folder, experiment, judged)
    return judged


def _check(
    experiment: Experiment,
    record: Record | None,
    folder: Path,
    runs: int | None,
    places: dict[str, Any],
    as_json: bool,
) -> SpotCheck:
    """Run some recorded runs again, or one of every architecture; that they came out as recorded is noted."""
    chosen = one_of_each(record) if runs is None and record is not None else []
    with LiveProgress(silent=as_json) as watcher:
        spot = spot_check(experiment, record, runs or len(chosen), runs=chosen, watcher=watcher, **places)
    if record is not None and not spot.differing:
        confirmed = checked_record(experiment, record, spot)
        if confirmed is not record:
            write_record(confirmed, record_path(folder, experiment.name))

    if not as_json:
        agreed = spot.runs - len(spot.differing)
        typer.echo(f"{spot.experiment}: {agreed} of {spot.runs} runs come out as recorded ({spot.recorded} in all)")
        for row in spot.differing:
            typer.echo(f"  differs: {row.of} on {row.workload}, population {row.population}, seed {row.seed}")
    return spot


def _carry(experiment: Experiment, spot: SpotCheck, folder: Path, traces: Path) -> None:
    """Count recorded runs as runs of the code as it is, unless one that was run again came out otherwise."""
    path = record_path(folder, experiment.name)
    record = read_record(path)
    if record is not None and not spot.differing:
        write_record(carried_record(experiment, record, spot, traces), path)


def _print_table(experiment: Experiment, record: Record) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{experiment.figure}: {experiment.title}", style="bold")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 1, 0), show_edge=False)
    for heading, ratio in (("claim", 5), ("published", 2), ("ours", 5), ("verdict", 3)):
        table.add_column(heading, ratio=ratio, overflow="fold")
    for claim, judgement in judged_claims(experiment, record):
        reading = f" [{judgement.reading}]" if judgement.reading else ""
        values = Text("\n".join(ours(claim, judgement)))
        words = Text(verdict(judgement), style=STYLES[judgement.verdict])
        table.add_row(Text(claim.says + reading), Text(claim.published), values, words)

    console = terminal()
    console.print(table, highlight=False)
    if not record.complete:
        console.print(f"{record.runs} of {record.planned} runs are finished; without --finished the rest is run.")
    if record.stopped:
        looks = f"{len(record.looks)} look{'s' if len(record.looks) != 1 else ''}"
        last_look = f"the last at a confidence of {100 * record.looks[-1].confidence:.2f} %"
        console.print(f"Up to {len(record.seeds)} seeds, {looks}, {last_look}: {record.stopped}.", highlight=False)
    if record.quick:
        console.print("A first answer: few jobs and seeds; nothing was recorded.", style="dim")
    for missing in record.missing:
        console.print(Text(f"{missing}; give --traces DIR or set VOLERY_TRACES.", style="yellow"))


def _listed(experiment: Experiment, record: Record | None, state: str) -> dict[str, Any]:
    return {
        "name": experiment.name,
        "paper": experiment.paper,
        "figure": experiment.figure,
        "title": experiment.title,
        "state": state,
        "date": record.date if record else None,
        "code_sha256": record.code_sha256 if record else None,
        "checked": record.checked if record else None,
        "seeds": len(record.seeds) if record else 0,
        "former_rules": record.is_former if record else False,
        "verdicts": record.counts if record else {},
    }


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its status: 2 where what was given is wrong, 1 where a run was lost."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=words, prog_name="python -m experiments")
    except InputError as error:
        print_error(error.place, error.problem, as_json="--json" in words)
        sys.exit(2)
    except LostRunError as error:
        print_error("run", str(error), as_json="--json" in words)
        sys.exit(1)
    sys.exit(0)
