"""`volery reproduce`: the figures, tables and findings of papers, run again and judged claim by claim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volery.cli.options import AsJson, Dask, Processes, SeedsMax, argument, declared, option
from volery.cli.output import INTERRUPTED, print_json, print_table, terminal
from volery.cli.progress import LiveProgress
from volery.core.errors import InputError
from volery.setting import option_of

if TYPE_CHECKING:
    from volery.reproduction.experiments import Experiment
    from volery.reproduction.ledger import Record
    from volery.study.seeds import AutoSeeds

DEFAULT_FOLDER = Path("results/reproduce")
STYLES = {
    "reproduced": "green",
    "differs": "bold red",
    "holds on a stand-in": "cyan",
    "fails on a stand-in": "magenta",
    "by construction": "dim",
    "not decidable": "yellow",
    "not tried": "dim",
}

Finished = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Finished runs are kept here and never run again.")
]
Experiments = Annotated[Path | None, option("Where the experiments are.", form="DIR", envvar="VOLERY_EXPERIMENTS")]
Traces = Annotated[
    Path | None, option("Where the traces are (default: ../shared/traces).", form="DIR", envvar="VOLERY_TRACES")
]

Judge = Annotated[bool, typer.Option("--judge", help="Run nothing: judge the recorded values again; needs no trace.")]
SeedsAuto = Annotated[str | None, option("Add seeds to those of the file until claims are decided.", form="auto")]
BudgetS = Annotated[
    float | None,
    declared("budget_s", meaning="CPU time of all added runs of an experiment after which none begins, s."),
]
Check = Annotated[
    int | None,
    option("Run only N recorded runs again and compare digests; status 1 where one differs.", form="N", min=1),
]


def reproduce(
    name: Annotated[str | None, argument("An experiment, see --list.", "NAME")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every experiment, then write docs/papers.md.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Show every experiment with its state.")] = False,
    papers: Annotated[bool, typer.Option("--papers", help="Write docs/papers.md from the last runs.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first answer: few jobs, one seed; it is not recorded.")
    ] = False,
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing: judge and record what is finished so far.")
    ] = False,
    judge: Judge = False,
    seeds: SeedsAuto = None,
    seeds_max: SeedsMax = None,
    budget_s: BudgetS = None,
    check: Check = None,
    output: Finished = DEFAULT_FOLDER,
    experiments: Experiments = None,
    traces: Traces = None,
    processes: Processes = 1,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Run a paper's experiment again: claim, published, ours, verdict; and its pictures."""
    from volery.reproduction.experiments import experiments_folder, names, read_experiment, traces_folder

    folder = experiments_folder(experiments)
    if sum((name is not None, every, show_list, papers)) != 1:
        raise InputError("reproduce", "give one of NAME, --all, --list and --papers")
    if show_list:
        _print_list(folder, as_json)
        return
    if judge and (quick or finished or papers or check is not None):
        raise InputError("--judge", "judges recorded values; leave out --quick, --finished, --papers, --check")
    limits = _limits(seeds, seeds_max, budget_s, without=quick or finished or judge or papers or check is not None)
    found: list[Record] = []
    if not papers:
        chosen = names(folder) if every or name is None else [name]
        read = [read_experiment(folder, one) for one in chosen]
        where = traces_folder(folder, traces)
        if check is not None:
            _check(read, folder, where, check, processes, dask, as_json)
            return
        read = [experiment.cheap() for experiment in read] if quick else read
        if judge:
            found = _judge(read, folder, as_json, every=every)
        else:
            found = [
                _run(
                    experiment,
                    folder,
                    where,
                    output,
                    processes,
                    dask,
                    as_json,
                    quick=quick,
                    only_finished=finished,
                    limits=limits,
                )
                for experiment in read
            ]
    page = None
    if papers or (every and not quick):
        page = _write_page(folder)
    if as_json:
        print_json({"records": found} | ({"page": str(page)} if page else {}))
    elif page:
        typer.echo(f"page: {page}")


def _limits(seeds: str | None, seeds_max: int | None, budget_s: float | None, *, without: bool) -> AutoSeeds | None:
    """The limits that go with --seeds auto; None without it."""
    from volery.study.seeds import read_seeds

    if seeds not in (None, "auto"):
        raise InputError(
            "--seeds", f"{seeds!r} is not auto; the first seeds of an experiment stand in its file, and auto adds more"
        )
    _, limits = read_seeds(1 if seeds is None else seeds, seeds_max, budget_s, option_of)
    if limits is None:
        return None
    if without:
        raise InputError(
            "--seeds", "auto draws further seeds; leave out --quick, --finished, --judge, --check, --papers"
        )
    return limits


def _judge(experiments: list[Experiment], folder: Path, as_json: bool, *, every: bool) -> list[Record]:
    """Judge the recorded values of each again; where all are asked for, those without any are named and left out."""
    from volery.reproduction.firstforms import append_first_forms
    from volery.reproduction.ledger import judged_again, read_record, record_path, write_record

    found = []
    for experiment in experiments:
        path = record_path(folder, experiment.name)
        record = read_record(path)
        try:
            if record is None:
                raise InputError(
                    f"experiment {experiment.name}", f"has no record; `volery reproduce {experiment.name}` makes one"
                )
            judged = judged_again(experiment, record)
        except InputError as error:
            if not every:
                raise
            typer.echo(f"left out: {error}", err=True)
            continue
        if judged is not record:
            write_record(judged, path)
        append_first_forms(folder, experiment, judged)
        found.append(judged)
        if not as_json:
            _print_table(experiment, judged)
    return found


def _check(
    experiments: list[Experiment],
    folder: Path,
    traces: Path,
    count: int,
    processes: int,
    dask: str | None,
    as_json: bool,
) -> None:
    """Run some recorded runs of each again; what came out as recorded is noted in the record."""
    from volery.reproduction.ledger import read_record, record_path, write_record
    from volery.reproduction.reruns import checked_record, spot_check

    found = []
    for experiment in experiments:
        path = record_path(folder, experiment.name)
        record = read_record(path)
        if len(experiments) > 1 and (record is None or not record.digests):
            continue  # without runs there is nothing to check: it measures inputs alone
        with LiveProgress(silent=as_json) as watcher:
            one = spot_check(experiment, record, count, traces=traces, processes=processes, dask=dask, watcher=watcher)
        found.append(one)
        if record is not None and not one.differing:
            confirmed = checked_record(experiment, record, one)
            if confirmed is not record:
                write_record(confirmed, path)
        if not as_json:
            agreed = one.runs - len(one.differing)
            typer.echo(f"{one.experiment}: {agreed} of {one.runs} runs come out as recorded ({one.recorded} in all)")
            for other in one.differing:
                typer.echo(
                    f"  differs: {other.of} on {other.workload}, population {other.population}, seed {other.seed}"
                )
    if as_json:
        print_json({"checked": found})
    if any(one.differing for one in found):
        raise typer.Exit(1)


def _run(
    experiment: Experiment,
    folder: Path,
    traces: Path,
    output: Path,
    processes: int,
    dask: str | None,
    as_json: bool,
    *,
    quick: bool,
    only_finished: bool,
    limits: AutoSeeds | None,
) -> Record:
    """Run one, print its table, draw its pictures and record its verdicts."""
    from volery.reproduction.firstforms import append_first_forms
    from volery.reproduction.ledger import VERDICTS_FILE, make_record, read_record, record_path, reusable, write_record
    from volery.reproduction.pictures import draw
    from volery.reproduction.reruns import reproduce_again, reproduce_until_decided

    earlier = None if quick else read_record(record_path(folder, experiment.name))
    with LiveProgress(silent=as_json) as watcher:
        common: dict[str, Any] = {
            "folder": output,
            "traces": traces,
            "processes": processes,
            "dask": dask,
            "watcher": watcher,
        }
        if limits is not None:
            found = reproduce_until_decided(experiment, limits, kept=reusable(experiment, earlier), **common)
        else:
            found = reproduce_again(experiment, earlier, only_finished=only_finished, **common)
    record = make_record(found, quick=quick)
    own = output / experiment.name
    write_record(record, own / VERDICTS_FILE)
    pictures = []
    for file, picture in draw(found) if found.drawable else ():
        pictures.append(own / file)
        pictures[-1].write_text(picture, encoding="utf-8")
    if not as_json:
        _print_table(experiment, record)
        for path in pictures:
            typer.echo(f"picture: {path}")
    if found.interrupted:
        if as_json:
            print_json({"records": [record], "interrupted": True})
        else:
            typer.echo(f"Interrupted; {record.runs} finished runs are kept in {output}. The same command goes on.")
        raise typer.Exit(INTERRUPTED)
    if (record.complete or (only_finished and found.begun)) and not quick:
        write_record(record, record_path(folder, experiment.name))
        append_first_forms(folder, experiment, record)
    return record


def _print_table(experiment: Experiment, record: Record) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from volery.reproduction.notation import ours, verdict
    from volery.reproduction.papers import judged

    table = Table(
        title=Text(f"{experiment.figure}: {experiment.title}", style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 1, 0),
        show_edge=False,
    )
    for heading, ratio in (("claim", 5), ("published", 2), ("ours", 5), ("verdict", 3)):
        table.add_column(heading, ratio=ratio, overflow="fold")
    for claim, judgement in judged(experiment, record):
        says = f"{claim.says} [{judgement.reading}]" if judgement.reading else claim.says
        table.add_row(
            Text(says),
            Text(claim.published),
            Text("\n".join(ours(claim, judgement))),
            Text(verdict(judgement), style=STYLES[judgement.verdict]),
        )
    console = terminal()
    console.print(table, highlight=False)
    if not record.complete:
        console.print(f"{record.runs} of {record.planned} runs are finished; without --finished the rest is run.")
    if record.stopped:
        looks = f"{len(record.looks)} look{'s' if len(record.looks) != 1 else ''}"
        last = f"the last at a confidence of {100 * record.looks[-1].confidence:.2f} %"
        console.print(f"Up to {len(record.seeds)} seeds, {looks}, {last}: {record.stopped}.", highlight=False)
    if record.quick:
        console.print("A first answer: few jobs and seeds; nothing was recorded.", style="dim")
    for missing in record.missing:
        console.print(Text(f"{missing}; give --traces DIR or set VOLERY_TRACES.", style="yellow"))


def _print_list(folder: Path, as_json: bool) -> None:
    from volery.reproduction.papers import listing

    found = listing(folder)
    if as_json:
        print_json([_listed(experiment, record, state) for experiment, record, state in found])
        return
    rows = ((experiment.name, experiment.figure, experiment.title, state) for experiment, _, state in found)
    print_table(("experiment", "of", "what", "state"), rows, bare=True)


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


def _write_page(folder: Path) -> Path:
    """Write docs/papers.md and docs/papers beside the folder of experiments, and docs/findings.md.

    Claims that have a record and no first form get one before.
    """
    from volery.reproduction.experiments import FINDINGS, names, read_experiment
    from volery.reproduction.findings import findings_page
    from volery.reproduction.firstforms import append_first_forms
    from volery.reproduction.ledger import read_record, record_path
    from volery.reproduction.papers import pages

    for name in names(folder):
        record = read_record(record_path(folder, name))
        for claim in append_first_forms(folder, read_experiment(folder, name), record) if record else []:
            typer.echo(f"first form kept: {claim}", err=True)
    told = findings_page(folder) if (folder / FINDINGS).exists() else {}
    docs = folder.absolute().parent / "docs"
    for name, text in {**pages(folder), **told}.items():
        path = docs / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None
    return docs / "papers.md"
