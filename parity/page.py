"""The page of the documentation: the results of each scenario, and the reasons for what they leave."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from parity.comparison import FIFO_TAU_MOST, MEDIAN_MOST_S, TAU_LEAST
from parity.results import Result
from parity.scenarios import CPUS, INTERVAL_S, NODES, SCENARIOS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "parity.md"
TEXT = Path(__file__).parent / "page.md"
HEADS = (
    "scenario", "seeds", "tau", "plain FIFO: tau", "median error, s", "95th percentile, s", "same nodes, %", "verdict",
)  # fmt: skip
FACT_HEADS = (
    "scenario", "jobs", "load", "waited, %", "attempts preempted", "overhead of a start, ms (most)", "longest pass, ms",
)  # fmt: skip


def page(rows: Sequence[Result]) -> str:
    """The page: page.md with its tables filled in."""
    text = TEXT.read_text(encoding="utf-8")
    words = {
        "<!-- results -->": _table(HEADS, [_figures(name, of) for name, of in _by_scenario(rows)]),
        "<!-- conditions -->": _table(FACT_HEADS, [_facts(name, of) for name, of in _by_scenario(rows)]),
        "NODES": str(NODES),
        "CPUS": str(CPUS),
        "INTERVAL": f"{INTERVAL_S} s",
        "VERSION": ", ".join(sorted({row.slurm for row in rows})),
        "SEEDS": str(max(len(of) for _, of in _by_scenario(rows))),
    }
    for mark, value in words.items():
        text = text.replace(mark, value)
    return text


def _by_scenario(rows: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    return [(name, of) for name in SCENARIOS if (of := [row for row in rows if row.scenario == name])]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _figures(name: str, of: Sequence[Result]) -> list[str]:
    """The mean over seeds, and the least and the largest of them."""
    return [
        f"`{name}`: {SCENARIOS[name].title}",
        ", ".join(str(row.seed) for row in of),
        _spread(of, lambda row: row.lab.tau, 3),
        _spread(of, lambda row: row.fifo.tau, 2),
        _spread(of, lambda row: row.lab.median_s, 2),
        _spread(of, lambda row: row.lab.p95_s, 1),
        _spread(of, lambda row: 100 * row.lab.same_nodes, 0),
        verdict(name, of),
    ]


def verdict(name: str, of: Sequence[Result]) -> str:
    """Whether every seed of a scenario keeps the bounds, and which bound it does not."""
    if name != "fifo" and max(row.fifo.tau for row in of) >= FIFO_TAU_MOST:
        return "shows nothing"
    short = [word for word, is_kept in (
        ("order", min(row.lab.tau for row in of) >= TAU_LEAST),
        ("starts", max(row.lab.median_s for row in of) <= MEDIAN_MOST_S),
    ) if not is_kept]  # fmt: skip
    return f"misses: {', '.join(short)}" if short else "holds"


def _facts(name: str, of: Sequence[Result]) -> list[str]:
    overhead_most_ms = max(row.conditions.overhead_most_ms for row in of)
    return [
        f"`{name}`",
        _spread(of, lambda row: row.conditions.jobs, 0),
        _spread(of, lambda row: row.conditions.load, 2),
        _spread(of, lambda row: 100 * row.conditions.waited, 0),
        _spread(of, lambda row: row.conditions.preempted, 0),
        f"{statistics.median(row.conditions.overhead_ms for row in of):.0f} ({overhead_most_ms:.0f})",
        f"{max(row.conditions.loop_most_ms for row in of):.0f}",
    ]


def _spread(of: Sequence[Result], value: Callable[[Result], float], digits: int) -> str:
    values = [value(row) for row in of]
    low, mean, high = (f"{number:.{digits}f}" for number in (min(values), statistics.fmean(values), max(values)))
    return mean if low == high else f"{mean} ({low} to {high})"
