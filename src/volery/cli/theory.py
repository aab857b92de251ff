"""`volery theory`: closed forms that simulations are checked against, as a table and a picture, simulation beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from volery.cli.options import AsJson, option
from volery.cli.output import print_json, print_table
from volery.core.bounds import SECONDS_MAX
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.study.analytic_models import DelayPoint

MS_MAX: Final = 1000 * SECONDS_MAX
TASKS_FOR_A_PICTURE: Final = 400_000
CURVE_STEPS: Final = 60
GIVEN: Final = ("load", "workers", "jobs", "skips", "fanout", "probe_ratio", "choices")
"""Columns of a row that were asked for, not worked out."""


class Model(StrEnum):
    """The models of `volery theory`."""

    MM1 = "mm1"
    MMC = "mmc"
    PIGEON = "pigeon"
    SPARROW = "sparrow"
    CHOICES = "choices"
    DELAY = "delay"


def show_theory(
    model: Annotated[
        Model,
        typer.Argument(
            help="mm1, mmc: queues with exponential service. pigeon: Wang et al. 2019, equations 1 to 6, for a group. "
            "sparrow: its equation 4, jobs without queueing. choices: power of d choices, many servers. delay: "
            "locality of equal jobs under delay scheduling, and the wait for it per launch, at most.",
            show_default=False,
        ),
    ],
    load: Annotated[str, typer.Option(metavar="R,...", help="Offered loads, each below 1.")] = "0.5,0.8,0.9,0.95",
    workers: Annotated[str, typer.Option(metavar="N,...", help="Servers, or workers of a group.")] = "100",
    fanout: Annotated[int, typer.Option(metavar="F", help="Tasks of a job.", min=1)] = 100,
    mean_ms: Annotated[float, typer.Option(metavar="MS", help="Mean task duration.", min=0.001, max=MS_MAX)] = 100.0,
    choices: Annotated[int, typer.Option(metavar="D", help="Probes per task.", min=1)] = 2,
    jobs: Annotated[str, typer.Option(metavar="J,...", help="Equal jobs at once (delay).")] = "2,10,20,50",
    skips: Annotated[str, typer.Option(metavar="D,...", help="Offers that a job lets pass (delay).")] = "0,25",
    slots: Annotated[int, typer.Option(metavar="L", help="Slots of a machine (delay).", min=1)] = 1,
    replicas: Annotated[int, typer.Option(metavar="R", help="Of a task's input (delay).", min=1)] = 3,
    simulate: Annotated[
        int | None, option("Simulate so many tasks per row (default: 0; 400,000 for a picture).", form="TASKS", min=0)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(help="Draw analysis and simulation over the load, as .svg, .png or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what theory expects, waits and the probability that nothing waits, with simulation beside it."""
    loads = _numbers(load, "--load", float, lambda value: 0 <= value < 1, "a number from 0 to below 1")
    sizes = _numbers(workers, "--workers", int, lambda value: value >= 1, "a whole number from 1")

    if model is Model.DELAY:
        if picture is not None:
            raise InputError("--picture", "draws over the load, of which delay scheduling's analysis has none")
        counts = _numbers(jobs, "--jobs", int, lambda value: value >= 1, "a whole number from 1")
        skip_counts = _numbers(skips, "--skips", int, lambda value: value >= 0, "a whole number from 0")

        settings = [(n, slots, j, fanout, d, replicas, mean_ms) for n in sizes for j in counts for d in skip_counts]
        _show_delay(settings, simulate or 0, seed, as_json)
        return

    rows = [row for r in loads for row in _rows(model, r, sizes, fanout, mean_ms, choices)]
    if picture is not None and picture.suffix not in (".svg", ".png", ".pdf"):
        raise InputError("--picture", f"{picture.name!r} must end in .png, .svg or .pdf")

    tasks = simulate if simulate is not None else TASKS_FOR_A_PICTURE if picture is not None else 0
    simulated = [_simulated(model, row, fanout, mean_ms, choices, tasks, seed) if tasks else {} for row in rows]

    if picture is not None:
        grid = [row for load_at in _grid(loads) for row in _rows(model, load_at, sizes, fanout, mean_ms, choices)]
        _draw(model, rows, simulated, grid, picture)

    _tell(model, mean_ms, rows, simulated, picture, as_json)


def _tell(
    model: Model,
    mean_ms: float,
    rows: Sequence[dict[str, Any]],
    simulated: Sequence[dict[str, float]],
    picture: Path | None,
    as_json: bool,
) -> None:
    if as_json:
        joined_rows = [
            row | ({"simulated": simulated_values} if simulated_values else {})
            for row, simulated_values in zip(rows, simulated, strict=True)
        ]
        print_json({"model": model.value, "mean_ms": mean_ms, "rows": joined_rows, "picture": picture and str(picture)})
        return
    _print_rows([_beside(row, simulated_values) for row, simulated_values in zip(rows, simulated, strict=True)])

    if picture is not None:
        typer.echo(f"picture: {picture}")


def _show_delay(
    settings: Sequence[tuple[int, int, int, int, int, int, float]], simulate: int, seed: int, as_json: bool
) -> None:
    """Print the analysis of delay scheduling, with simulation beside it where that is asked for."""
    from volery.study.analytic_models import DelayPoint, simulate_delay

    points = [DelayPoint(*setting) for setting in settings]
    simulated = [simulate_delay(point, simulate, seed) if simulate else {} for point in points]
    _tell(Model.DELAY, points[0].mean_ms, [_delay_row(point) for point in points], simulated, None, as_json)


def _delay_row(point: DelayPoint) -> dict[str, Any]:
    from volery import theory

    sticky = theory.sticky_locality(point.jobs, point.replicas, point.slots)
    waiting = theory.delay_locality(point.fanout, point.skips, point.replicas, point.workers)
    return {
        "workers": point.workers,
        "jobs": point.jobs,
        "skips": point.skips,
        "locality": max(sticky, waiting),
        "wait_ms": theory.delay_wait(point.skips, point.mean_ms, point.workers * point.slots),
    }


def _numbers(
    text: str, option: str, kind: Callable[[str], Any], fits: Callable[[Any], bool], allowed: str
) -> list[Any]:
    numbers = []

    for word in text.split(","):
        try:
            value = kind(word)
        except ValueError:
            raise InputError(option, f"{word!r} is not {allowed}") from None

        if not fits(value):
            raise InputError(option, f"{word} is not {allowed}")
        numbers.append(value)

    return numbers


def _rows(
    model: Model, load: float, sizes: Sequence[int], fanout: int, mean_ms: float, choices: int
) -> list[dict[str, Any]]:
    """One row per load, and per number of workers where the model has one."""
    from volery import theory

    base: dict[str, Any] = {"load": load}

    if model is Model.MM1:
        rate = load / mean_ms
        return [base | {"wait_ms": theory.mm1_wait(rate, mean_ms), "response_ms": theory.mm1_response(rate, mean_ms)}]

    if model is Model.SPARROW:
        zero = theory.sparrow_job_zero_queue(load, fanout, choices)
        return [base | {"fanout": fanout, "probe_ratio": choices, "job_never_waits": zero}]

    if model is Model.CHOICES:
        response = theory.power_of_choices_response(load, choices, mean_ms)
        return [base | {"choices": choices, "response_ms": response, "wait_ms": response - mean_ms}]

    rows = []
    for size in sizes:
        row = base | {"workers": size}
        if model is Model.MMC:
            row["waits"] = theory.erlang_c(size, load)
            row["wait_ms"] = theory.mmc_wait(size, size * load / mean_ms, mean_ms)
        else:
            row["task_never_waits"] = theory.pigeon_task_zero_queue(size, load)
            row["task_wait_ms"] = theory.pigeon_task_wait(size, load, mean_ms)
            row["job_never_waits_equal_tasks"] = theory.pigeon_job_zero_queue(size, load, fanout)
            row["job_not_delayed_exponential_tasks"] = theory.pigeon_job_zero_queue_exponential(size, load, mean_ms)

        rows.append(row)
    return rows


def _simulated(
    model: Model, row: dict[str, Any], fanout: int, mean_ms: float, choices: int, tasks: int, seed: int
) -> dict[str, float]:
    from volery.study.analytic_models import AnalysisPoint, simulate_point

    point = AnalysisPoint(row["load"], row.get("workers", 1), fanout, mean_ms, choices)
    return simulate_point(model.value, point, tasks, seed)


def _beside(row: dict[str, Any], simulated_values: dict[str, float]) -> dict[str, Any]:
    """Each simulated value in a column behind that of theory."""
    columns: dict[str, Any] = {}

    for name, value in row.items():
        columns[name] = value
        if name in simulated_values:
            columns[f"{name} (simulated)"] = simulated_values[name]

    return columns


def _grid(loads: Sequence[float]) -> list[float]:
    """Loads close enough for a smooth curve, those that were asked for among them."""
    low, high = min(loads), max(loads)
    return sorted({*loads, *(low + (high - low) * step / CURVE_STEPS for step in range(CURVE_STEPS + 1))})


def _draw(
    model: Model,
    rows: Sequence[dict[str, Any]],
    simulated: Sequence[dict[str, float]],
    grid: Sequence[dict[str, Any]],
    path: Path,
) -> None:
    """Probabilities and times over the load, one line per quantity and number of workers."""
    from volery.report.axes import AnalysisLine, draw_analysis

    panels: dict[str, list[AnalysisLine]] = {}

    quantities = [name for name in rows[0] if name not in GIVEN]
    sizes = list(dict.fromkeys(row.get("workers") for row in rows))
    for name in quantities:
        for size in sizes:
            label = name.removesuffix("_ms").replace("_", " ") + (f", {size} workers" if size is not None else "")
            curve = tuple((row["load"], row[name]) for row in grid if row.get("workers") == size)
            marks = tuple(
                (row["load"], simulated_values[name])
                for row, simulated_values in zip(rows, simulated, strict=True)
                if name in simulated_values and row.get("workers") == size
            )

            panel = "time (ms)" if name.endswith("_ms") else "probability"
            panels.setdefault(panel, []).append(AnalysisLine(label, curve, marks))

    draw_analysis(panels, path, title=f"{model.value}: analysis (lines), simulation (circles)")


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    cells = ([f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows)
    print_table([name.replace("_", " ") for name in rows[0]], cells)
