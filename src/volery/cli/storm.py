"""`volery storm`: randomised faults against the designs that claim to survive them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from volery.cli.options import AsJson, Processes
from volery.cli.output import print_answer, print_json, print_table
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.faults import Scenario

PROBLEM_SHOWN = 300
MINUTES_MAX = 60 * 24 * 366

T = TypeVar("T")


class _Verdict(msgspec.Struct, frozen=True):
    """The verdict on one storm."""

    architecture: str
    seed: int
    failure: str = ""
    kind: str = ""
    faults: int = 0
    tasks: int = 0
    killed: int = 0
    repeated: int = 0
    messages: int = 0
    digest: str = ""


def storm(
    architecture: Annotated[
        list[str] | None,
        typer.Option("--architecture", "-a", metavar="NAME", help="Which designs; all that bear more than repeats."),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="This storm only.", min=0)] = None,
    seeds: Annotated[int, typer.Option(metavar="K", help="Storms 0 to K - 1 of each design.", min=1)] = 100,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", help="Go on with further seeds for so long instead.", min=0.001, max=MINUTES_MAX),
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A scenario as `-o` writes it, instead of seeds.")
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What was done to real processes, as `make chaos` writes it.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the first failure, made small, here.")
    ] = None,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Draw faults from seeds, within what each design tolerates; demand safety and progress; status 1 on failure."""
    if scenario is not None or schedule is not None:
        _one(_scenario(scenario, schedule), as_json)
        return

    names = _names(architecture or [])
    numbers = range(seeds) if seed is None else range(seed, seed + 1)
    verdicts = []

    until = None if minutes is None or seed is not None else time.monotonic() + 60 * minutes

    for verdict in _storms(names, numbers, processes, until):
        verdicts.append(verdict)
        if verdict.failure and not as_json:
            typer.echo(f"{verdict.architecture}, seed {verdict.seed}: {verdict.failure[:PROBLEM_SHOWN]}")
            typer.echo(f"  volery storm --architecture {verdict.architecture} --seed {verdict.seed}")

    # A failure is made small where one storm, or a file for it, was asked for: shrinking runs it hundreds of times.
    first = next((verdict for verdict in verdicts if verdict.failure), None)
    small = None if first is None or (seed is None and output is None) else _small(first)

    if small is not None and output is not None:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(small), indent=1))

    if as_json:
        print_json({"storms": verdicts, "small": small})
    else:
        _print_table(names, verdicts)
        if small is not None:
            typer.echo("The smallest scenario found that fails alike:")
            typer.echo(msgspec.json.encode(small).decode())

    if first is not None:
        raise typer.Exit(1)


def _names(listed_names: Sequence[str]) -> list[str]:
    from volery import architectures

    for name in listed_names:
        architectures.lookup(name)

    return list(listed_names) or [
        name for name, entry in architectures.registry().items() if entry.conformance.fault_parameters
    ]


def _scenario(scenario: Path | None, schedule: Path | None) -> Scenario:
    from volery.faults import Scenario, Schedule

    if schedule is None:
        assert scenario is not None, "one of them is given"
        return _read(scenario, Scenario, "a scenario", "`volery storm -o`")
    if scenario is not None:
        raise InputError("--schedule", "is given beside --scenario; leave one out")
    return _read(schedule, Schedule, "a schedule", "`make chaos`").scenario()


def _read(path: Path, kind: type[T], described: str, writer: str) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}; give a file that {writer} wrote") from None
    except (msgspec.DecodeError, InputError) as error:
        raise InputError(str(path), f"is not {described}: {error}; give a file that {writer} wrote") from None


def _one(scenario: Scenario, as_json: bool) -> None:
    from volery.architectures import lookup

    lookup(scenario.architecture)
    verdict = _judge(scenario.architecture, scenario.seed, scenario)
    weathered = f"{verdict.architecture} weathers it: {verdict.tasks} tasks, digest {verdict.digest}"
    print_answer(verdict, as_json, verdict.failure or weathered)
    if verdict.failure:
        raise typer.Exit(1)


def _judge(name: str, seed: int, scenario: Scenario | None = None) -> _Verdict:
    from volery.architectures import lookup
    from volery.faults import Failure, draw, run_scenario

    architecture = lookup(name)
    try:
        outcome = run_scenario(architecture, scenario or draw(architecture, seed))
    except Failure as failure:
        return _Verdict(name, seed, str(failure), failure.kind)

    figures = (outcome.faults, outcome.tasks, outcome.killed, outcome.repeated, outcome.messages, outcome.digest)
    return _Verdict(name, seed, "", "", *figures)


def _small(verdict: _Verdict) -> Scenario:
    from volery.architectures import lookup
    from volery.faults import Failure, draw, run_scenario, shrink

    architecture = lookup(verdict.architecture)

    def fails(candidate: Scenario) -> bool:
        try:
            run_scenario(architecture, candidate)
        except Failure as failure:
            return failure.kind == verdict.kind
        return False

    return shrink(draw(architecture, verdict.seed), fails)


def _storms(names: Sequence[str], seeds: range, processes: int, until: float | None) -> Iterator[_Verdict]:
    """Verdicts in order; with `until`, range after range of seeds."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        while True:
            work = [(name, seed) for name in names for seed in seeds]
            columns = [name for name, _ in work], [seed for _, seed in work]
            yield from pool.map(_judge, *columns, chunksize=8) if pool is not None else map(_judge, *columns)
            if until is None or time.monotonic() >= until:
                return
            seeds = range(seeds.stop, seeds.stop + len(seeds))


def _print_table(names: Sequence[str], verdicts: Sequence[_Verdict]) -> None:
    rows = []
    for name in names:
        of = [verdict for verdict in verdicts if verdict.architecture == name]
        sums = [sum(getattr(verdict, field) for verdict in of) for field in ("faults", "tasks", "killed", "repeated")]
        rows.append((name, str(len(of)), *map(str, sums), str(sum(bool(verdict.failure) for verdict in of))))
    print_table(("design", "storms", "faults", "tasks", "attempts killed", "tasks run again", "failures"), rows)
