"""`python -m parity`: records runs of a real Slurm, and compares them with their replays in the lab."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from parity.page import PAGE, page
from parity.recording import record_run
from parity.records import FOLDER, recorded
from parity.results import Result, read_results, results, write_results
from parity.scenarios import SCENARIOS
from volery.cli.options import AsJson, Processes, argument, option
from volery.cli.output import INTERRUPTED, print_error, print_json, print_table
from volery.core.errors import InputError

SEEDS = (1, 2, 3, 4, 5)

Chosen = Annotated[list[str] | None, argument(f"Scenarios ({', '.join(SCENARIOS)}); default: all.", "[NAME]...")]
Seeds = Annotated[list[int] | None, option("Seed of a run, repeatable (default: 1 to 5).", "--seed", form="N")]
Records = Annotated[Path, typer.Option("--records", metavar="DIR", help="Folder of the records.", show_default=False)]
Port = Annotated[int | None, option("First port of the daemons (default: free ones).", form="N", min=1024, max=65_000)]
Kept = Annotated[Path | None, option("Folder for the logs and tables that Slurm itself writes.", form="DIR")]
JobCount = Annotated[int | None, option("Count of submissions, if not all.", "--jobs", form="N", min=2)]

app = typer.Typer(
    help="A real Slurm and the lab's, side by side on the same workloads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def chosen_scenarios(names: Sequence[str] | None) -> list[str]:
    """The scenarios of a command.

    Raises:
        InputError: for a name that none has.
    """
    for name in names or ():
        if name not in SCENARIOS:
            raise InputError(name, f"no scenario has this name; there are {', '.join(SCENARIOS)}")
    return list(names or SCENARIOS)


@app.command("record")
def record(
    names: Chosen = None,
    seeds: Seeds = None,
    processes: Processes = 1,
    port: Port = None,
    jobs: JobCount = None,
    keep: Kept = None,
    records: Records = FOLDER,
) -> None:
    """Run scenarios on a real Slurm, each for two to five minutes, and write their records."""
    if jobs is not None and records == FOLDER:
        problem = "a record of fewer jobs would take the place of a whole one; give --records, a folder of your own"
        raise InputError("--jobs", problem)
    runs = [(name, seed) for seed in seeds or SEEDS for name in chosen_scenarios(names)]
    if len(runs) == 1:
        name, seed = runs[0]
        made = record_run(name, seed, port=port, job_count=jobs, kept=keep and keep / f"{name}-{seed}")
        typer.echo(f"{made.write(records)}: {len(made.jobs)} jobs")
        return
    if port is not None:
        raise InputError("--port", f"{len(runs)} runs cannot share the ports; give one scenario and one --seed")

    options = [f"--records={records}", *([f"--keep={keep}"] if keep else []), *([f"--jobs={jobs}"] if jobs else [])]
    _run_at_once([[name, f"--seed={seed}", *options] for name, seed in runs], processes)


def _run_at_once(commands: list[list[str]], processes: int) -> None:
    """Record runs in processes of their own, some at once; all are ended with this one."""
    waiting, running, failed = list(commands), dict[str, subprocess.Popen[bytes]](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                words = waiting.pop(0)
                command = [sys.executable, "-m", "parity", "record", *words]
                running[" ".join(words[:2])] = subprocess.Popen(command, cwd=FOLDER.parents[1])
            for title, program in list(running.items()):
                if program.poll() is not None:
                    del running[title]
                    failed += [title] if program.returncode else []
            time.sleep(0.2)
    finally:
        for program in running.values():
            program.terminate()
        for program in running.values():
            program.wait()
    if failed:
        raise InputError(
            "record", f"{len(failed)} of {len(commands)} runs failed: {', '.join(failed)}; run these again"
        )


@app.command("compare")
def compare(names: Chosen = None, records: Records = FOLDER, as_json: AsJson = False) -> None:
    """Compare recorded runs with the lab's replay of them, and with a plain FIFO; no Slurm is needed."""
    rows = [result for name in chosen_scenarios(names) for result in results(recorded(name, records))]
    if as_json:
        print_json(rows)
        return
    heads = ("scenario", "seed", "jobs", "load", "waited %", "tau", "FIFO tau", "median s", "p95 s", "same nodes %")
    print_table(heads, map(_cells, rows), right=heads[1:])


def _cells(row: Result) -> tuple[str, ...]:
    facts, slurm, fifo = row.conditions, row.lab, row.fifo
    return (
        row.scenario, str(row.seed), str(facts.jobs), f"{facts.load:.2f}", f"{100 * facts.waited:.0f}",
        f"{slurm.tau:.3f}", f"{fifo.tau:.3f}", f"{slurm.median_s:.1f}", f"{slurm.p95_s:.1f}",
        f"{100 * slurm.same_nodes:.0f}",
    )  # fmt: skip


@app.command("page")
def write_page() -> None:
    """Replay all records, and write results.json and the page of the documentation."""
    write_results([result for name in SCENARIOS for result in results(recorded(name))])
    PAGE.write_text(page(read_results()), encoding="utf-8")
    typer.echo(str(PAGE))


def _end(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its status: 2 where what was given is wrong, or Slurm cannot be started."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _end)  # so that what was started is stopped, as after Ctrl-C
    try:
        app(args=words, prog_name="python -m parity", standalone_mode=True)
    except InputError as error:
        print_error(error.place, error.problem, as_json="--json" in words)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0)
