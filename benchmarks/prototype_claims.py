"""Claims about the prototypes of Pigeon (2019, section 5) and Megha (2021, section VI-F), and their verdicts.

A claim is judged on the lines of `benchmarks/prototypes.py`: each case is a run (or a pair of runs) and a percentile,
and the claim holds where all its cases hold. Bounds are the papers' own. Where a sentence names an order without a
number, the difference is at least 5 %, the least effect of the ledger (experiments/README.md); sameness is within 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

Line = dict[str, Any]
Cases = Iterator[tuple[str, bool]]

SHORT_BOUND, LONG_BOUND = 0.15, 0.05
EFFECT: Final = 1.05
CAUSE_BOUND: Final = 0.15
"""Of the mean: that of `make bench-calibration`."""
NAMES: Final = ("p50", "p90", "p99")

DIFFERENCES: Final = (
    "The differences between experiment and simulation are within 15% for short jobs and 5% for long jobs, mainly "
    "caused by the unaccounted processing overhead in the simulation."
)
SENSITIVE: Final = (
    "We find that the short job performance for Sparrow and Eagle are very sensitive to the number of schedulers in "
    "use (by changing the number of schedulers from 1 to 10)."
)
SAME: Final = "In contrast, Pigeon offers almost the same performance, regardless how many schedulers are used."
SPARROW: Final = (
    "As Sparrow does not distinguish between short and long jobs, it incurs up to 200 (10) times longer short job "
    "completion times ... than Pigeon (Eagle), although it offers up to 15% better long job completion times than "
    "both Pigeon and Eagle."
)
EAGLE: Final = "We also see that Pigeon provides significant performance gain for short jobs over Eagle."
LONG: Final = "Pigeon and Eagle achieve comparable performance for long jobs at all cluster loads."
STRETCHED: Final = (
    "Due to interference on worker nodes with co-located tasks, the tasks need to run for longer than the duration "
    "specified to consume the required resources."
)
HIGHER: Final = (
    "The allocation times recorded in the prototype were found to be higher than those recorded during the simulation."
)
HELD: Final = (
    "This results in the resources being held for longer, which consequently leads to larger allocation times in tasks "
    "that require resources on the same worker node."
)
HEAVIER: Final = (
    "The load from the google_19 workload is higher, causing greater resource contention and interference thereby "
    "leading to larger delays in the task completion times."
)


class Claim(NamedTuple):
    """A sentence of a paper, our reading of it, and the cases that decide it."""

    id: str
    section: str
    sentence: str
    says: str
    cases: Callable[[Sequence[Line]], Cases]


def _runs(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line["name"] == "run"]


def _label(line: Line, kind: str, at: int) -> str:
    return f"{line['trace']} {line['design']} {line['schedulers']}: {kind} {NAMES[at]}"


def near_lab(kind: str, bound: float) -> Callable[[Sequence[Line]], Cases]:
    """The lab's completion times are within the bound of the live ones, for each run and percentile."""

    def cases(lines: Sequence[Line]) -> Cases:
        for line in _runs(lines):
            for at, ratio in enumerate(line.get(kind, {}).get("ratio", ())):
                yield _label(line, kind, at), abs(ratio - 1) <= bound

    return cases


def pairs(lines: Sequence[Line], left: str, right: str) -> Iterator[tuple[Line, Line]]:
    """Runs of two designs under one trace with as many schedulers."""
    found = {(line["trace"], line["schedulers"], line["design"]): line for line in _runs(lines)}
    for (trace, schedulers, design), line in found.items():
        if design == left and (trace, schedulers, right) in found:
            yield line, found[trace, schedulers, right]


def normalised(kind: str, bound: float) -> Callable[[Sequence[Line]], Cases]:
    """Completion times over Pigeon's, as figure 11 draws them: the lab's are within the bound of the live ones."""

    def cases(lines: Sequence[Line]) -> Cases:
        for design in ("sparrow", "eagle"):
            for line, pigeon in pairs(lines, design, "pigeon"):
                for at in range(len(NAMES)) if kind in line and kind in pigeon else ():
                    ratio = line[kind]["ratio"][at] / pigeon[kind]["ratio"][at]
                    yield _label(line, kind, at), abs(ratio - 1) <= bound

    return cases


def overhead(lines: Sequence[Line]) -> Cases:
    """Most of the difference between lab and live run is overhead: half of it or more goes when the lab charges it."""
    for trace in dict.fromkeys(line["trace"] for line in _runs(lines)):
        for kind in ("short", "long"):
            of = [line[kind] for line in _runs(lines) if line["trace"] == trace and kind in line]
            if of:
                left, whole = (
                    fmean(abs(ratio - 1) for line in of for ratio in line[name])
                    for name in ("ratio", "ratio_without_costs")
                )
                yield f"{trace} {kind}: {left:.2%} with costs, {whole:.2%} without", left <= whole / 2


def one_against_most(design: str, holds: Callable[[float], bool]) -> Callable[[Sequence[Line]], Cases]:
    """Live times of short jobs with one scheduler over those with the most."""

    def cases(lines: Sequence[Line]) -> Cases:
        runs = [line for line in _runs(lines) if line["design"] == design and "short" in line]
        for trace in dict.fromkeys(line["trace"] for line in runs):
            of = sorted((line for line in runs if line["trace"] == trace), key=lambda line: line["schedulers"])
            if of[0]["schedulers"] == 1 < of[-1]["schedulers"]:
                for at in range(len(NAMES)):
                    ratio = of[0]["short"]["live_ms"][at] / of[-1]["short"]["live_ms"][at]
                    yield f"{_label(of[0], 'short', at)}, {ratio:.2f} times {of[-1]['schedulers']}'s", holds(ratio)

    return cases


def live_order(kind: str, left: str, right: str, holds: Callable[[float], bool]) -> Callable[[Sequence[Line]], Cases]:
    """Live times of one design over another's, with the most schedulers, as in the paper's figure."""

    def cases(lines: Sequence[Line]) -> Cases:
        most = max((line["schedulers"] for line in _runs(lines)), default=0)
        for first, second in pairs(lines, left, right):
            for at in range(len(NAMES)) if first["schedulers"] == most and kind in first and kind in second else ():
                ratio = first[kind]["live_ms"][at] / second[kind]["live_ms"][at]
                yield f"{_label(first, kind, at)}, {ratio:.2f} times {right}'s", holds(ratio)

    return cases


def _levels(lines: Sequence[Line]) -> dict[str, Line]:
    return {line["level"]: line for line in lines if line["name"] == "colocation"}


def stretched(lines: Sequence[Line]) -> Cases:
    """Tasks that share a node take longer than asked, by the least effect."""
    for level, line in _levels(lines).items():
        if level != "alone":
            yield f"{level}: {line['stretch_p50']} times", line["stretch_p50"] >= EFFECT


def alone(lines: Sequence[Line]) -> Cases:
    """Tasks that have a node for themselves take as long as asked: what stretches others is co-location."""
    if "alone" in (found := _levels(lines)):
        yield f"alone: {found['alone']['stretch_p50']} times", found["alone"]["stretch_p50"] < EFFECT


def heavier(lines: Sequence[Line]) -> Cases:
    """The median execution delay is larger under the higher load."""
    found = _levels(lines)
    if "light" in found and "heavy" in found:
        light, heavy = (found[level]["execution_delay_ms"]["p50"] for level in ("light", "heavy"))
        yield f"heavy {heavy} ms, light {light} ms", heavy > EFFECT * light


def higher(lines: Sequence[Line]) -> Cases:
    """Allocation times are longer live than in a lab without interference."""
    for level, line in _levels(lines).items():
        for figure in ("mean", "p50") if level != "alone" else ():
            came, lab = line["allocation_ms"][figure], line["lab_as_asked_ms"][figure]
            yield f"{level}: {figure} {came} ms live, {lab} ms in the lab", came > EFFECT * lab


def held(lines: Sequence[Line]) -> Cases:
    """With the durations that were lived the lab's mean allocation time is the live one."""
    for level, line in _levels(lines).items():
        came, lab = line["allocation_ms"]["mean"], line["lab_as_lived_ms"]["mean"]
        yield f"{level}: mean {came} ms live, {lab} ms in the lab", abs(lab / came - 1) <= CAUSE_BOUND


def longer(ratio: float) -> bool:
    """By the least effect."""
    return ratio > EFFECT


def same(ratio: float) -> bool:
    """Within the least effect."""
    return 1 / EFFECT <= ratio <= EFFECT


def at_most(bound: float) -> Callable[[float], bool]:
    """A bound that the source names."""
    return lambda ratio: ratio <= bound


CLAIMS: Final = (
    Claim(
        "short-near-lab",
        "5",
        DIFFERENCES,
        "short jobs: the lab with costs is within 15 % of the live run",
        near_lab("short", SHORT_BOUND),
    ),
    Claim(
        "long-near-lab",
        "5",
        DIFFERENCES,
        "long jobs: the lab with costs is within 5 % of the live run",
        near_lab("long", LONG_BOUND),
    ),
    Claim(
        "short-near-lab-normalised",
        "5",
        DIFFERENCES,
        "short jobs, over Pigeon's: lab within 15 % of live",
        normalised("short", SHORT_BOUND),
    ),
    Claim(
        "long-near-lab-normalised",
        "5",
        DIFFERENCES,
        "long jobs, over Pigeon's: lab within 5 % of live",
        normalised("long", LONG_BOUND),
    ),
    Claim("overhead", "5", DIFFERENCES, "charging costs removes half or more of the lab's mean difference", overhead),
    Claim(
        "sparrow-schedulers",
        "5",
        SENSITIVE,
        "live, Sparrow's short jobs take longer with 1 scheduler than with 10",
        one_against_most("sparrow", longer),
    ),
    Claim(
        "eagle-schedulers",
        "5",
        SENSITIVE,
        "live, Eagle's short jobs take longer with 1 scheduler than with 10",
        one_against_most("eagle", longer),
    ),
    Claim(
        "pigeon-schedulers",
        "5",
        SAME,
        "live, Pigeon's short jobs take as long with 1 distributor as with 10",
        one_against_most("pigeon", same),
    ),
    Claim(
        "sparrow-short",
        "5",
        SPARROW,
        "live, Sparrow's short jobs take longer than Pigeon's",
        live_order("short", "sparrow", "pigeon", longer),
    ),
    Claim(
        "sparrow-short-bound",
        "5",
        SPARROW,
        "live, at most 200 times as long",
        live_order("short", "sparrow", "pigeon", at_most(200)),
    ),
    Claim(
        "sparrow-over-eagle",
        "5",
        SPARROW,
        "live, Sparrow's short jobs take longer than Eagle's",
        live_order("short", "sparrow", "eagle", longer),
    ),
    Claim(
        "sparrow-over-eagle-bound",
        "5",
        SPARROW,
        "live, at most 10 times as long",
        live_order("short", "sparrow", "eagle", at_most(10)),
    ),
    Claim(
        "eagle-short",
        "5",
        EAGLE,
        "live, Eagle's short jobs take longer than Pigeon's",
        live_order("short", "eagle", "pigeon", longer),
    ),
    Claim(
        "eagle-long",
        "5",
        LONG,
        "live, Eagle's long jobs take as long as Pigeon's",
        live_order("long", "eagle", "pigeon", same),
    ),
    Claim("stretched", "VI-F", STRETCHED, "tasks that share a node take at least 5 % longer than asked", stretched),
    Claim("alone", "VI-F", STRETCHED, "tasks that have a node for themselves do not", alone),
    Claim("heavier", "VI-F", HEAVIER, "the median execution delay is larger at load 90 % than at 50 %", heavier),
    Claim(
        "higher", "VI-F", HIGHER, "allocation times of tasks that share nodes are longer live than in the lab", higher
    ),
    Claim(
        "held", "VI-F", HELD, "with lived durations the lab's mean allocation time is within 15 % of the live one", held
    ),
)


def verdicts(lines: Sequence[Line]) -> Iterator[Line]:
    """A line per claim: in how many of its cases it holds, and those in which it fails."""
    for claim in CLAIMS:
        cases = [*claim.cases(lines)]
        failed = [label for label, holds in cases if not holds]
        verdict = "not decidable" if not cases else "fails" if failed else "holds"
        said = {"section": claim.section, "says": claim.says, "sentence": claim.sentence}
        yield {"name": "claim", "id": claim.id, "verdict": verdict, "cases": len(cases), "failed": failed, **said}
