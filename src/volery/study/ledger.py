"""What is kept of a reproduced experiment: verdicts and aggregate numbers, small enough to be published."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

import volery
from volery.core.errors import InputError
from volery.study.claims import VERDICTS, Judgement
from volery.study.experiments import RESULTS, Experiment
from volery.study.measures import value
from volery.study.reproduce import Reproduction, full_label
from volery.study.results import replacing
from volery.study.sources import code_digest

VERDICTS_FILE: Final = "verdicts.json"
FACTS: Final = (
    "delay_s.p50", "delay_s.mean", "delay_s.p90", "delay_s.p99", "delay_s.max", "short.delay_s.p99", "long.delay_s.p99",
    "utilisation_mean", "messages_per_task", "unsatisfiable_tasks", "counters.inconsistencies",
    "counters.external_placements", "counters.update_entries",
)  # fmt: skip
"""What is kept of every architecture."""
INPUT_FACTS: Final = (
    "load.mean", "load.median", "load.p99", "constraint_load.highest.p99", "constraint_load.average.p99",
    "conflicts.waiting.mean", "conflicts.waiting.max", "conflicts.collisions.mean", "conflicts.collisions.max",
)  # fmt: skip
"""What is kept of every input that was measured."""
DIGITS: Final = 7


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric on a workload and a machine population: mean and range over seeds.

    Args:
        of: architecture with its reading; empty for a metric of the input.
        runs: how many values the mean is over.
    """

    workload: str
    population: str
    metric: str
    mean: float
    low: float
    high: float
    runs: int
    of: str = ""


class RunDigest(msgspec.Struct, frozen=True):
    """How one run came out: architecture with its reading, workload, population, seed, and the run's digest."""

    of: str
    workload: str
    population: str
    seed: int
    digest: str


class Check(msgspec.Struct, frozen=True):
    """Some runs of a record, run again by other code, came out as recorded.

    Args:
        code_sha256: of that code.
        date: when (UTC).
        runs: how many.
    """

    code_sha256: str
    date: str
    runs: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment gave.

    Args:
        experiment, title, figure: which.
        experiment_sha256: of what it says.
        code_sha256: of the sources that results depend on.
        digest: SHA-256 over the digests of all runs.
        date: when it was judged (UTC).
        quick: whether it was the cheap variant.
        complete: whether every run that has its input was finished, and every such input measured.
        runs: how many runs are finished.
        planned: how many there are, with their inputs here.
        missing: files that are not here.
        judgements: the verdicts.
        facts: what was measured.
        digests: of all finished runs, so that any of them can be checked.
        checked: the last check by code that has changed since.
    """

    experiment: str
    title: str
    figure: str
    experiment_sha256: str
    code_sha256: str
    volery_version: str
    digest: str
    date: str
    quick: bool
    complete: bool
    runs: int
    planned: int
    seeds: tuple[int, ...]
    populations: tuple[str, ...]
    missing: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    facts: tuple[Fact, ...]
    digests: tuple[RunDigest, ...] = ()
    checked: Check | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many verdicts of each kind."""
        found = Counter(judgement.verdict for judgement in self.judgements)
        return {verdict: found[verdict] for verdict in VERDICTS}


def make_record(found: Reproduction, *, quick: bool) -> Record:
    """Boil a reproduction down to what is kept of it."""
    experiment = found.experiment
    keys = sorted({run.key for runs in found.planned.runs.values() for run in runs})
    digests = [found.finished[key].summary.digest for key in keys if key in found.finished]
    return Record(
        experiment=experiment.name,
        title=experiment.title,
        figure=experiment.figure,
        experiment_sha256=content_sha256(experiment),
        code_sha256=code_digest(*experiment.architecture_names()),
        volery_version=volery.__version__,
        digest=hashlib.sha256("".join(sorted(digests)).encode()).hexdigest(),
        date=datetime.now(UTC).date().isoformat(),
        quick=quick,
        complete=found.complete,
        runs=len(digests),
        planned=len(keys),
        seeds=experiment.seeds,
        populations=tuple(population.label for population in experiment.population),
        missing=tuple(dict.fromkeys(missing.why for missing in found.planned.missing.values())),
        judgements=found.judgements(),
        facts=tuple(_facts(found)) if experiment.table else (),
        digests=tuple(
            RunDigest(*place, run.spec.seed, found.finished[run.key].summary.digest)
            for place, runs in found.planned.runs.items()
            for run in runs
            if run.key in found.finished
        ),
    )


def content_sha256(experiment: Experiment) -> str:
    """SHA-256 of what an experiment says, whatever its file looks like."""
    said = msgspec.structs.replace(experiment, folder="")
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


def _facts(found: Reproduction) -> Iterator[Fact]:
    experiment = found.experiment
    for workload in experiment.workload:
        for population in experiment.population:
            place = (workload.label, population.label)
            for label, reading, _ in experiment.variants():
                of = full_label(label, reading)
                runs = found.planned.runs.get((of, *place), [])
                for metric in experiment.columns or FACTS:
                    if metric.startswith("counters.") and not any(
                        metric.partition(".")[2] in one.counters for one in found.summaries(runs)
                    ):
                        continue
                    yield from _fact(place, of, metric, found.values(metric, runs))
            inputs = found.measured.get(place, [])
            for metric in INPUT_FACTS:
                if not metric.startswith("conflicts.") or all(one.conflicts for one in inputs):
                    yield from _fact(place, "", metric, [value(one, metric) for one in inputs])


def _fact(place: tuple[str, str], of: str, metric: str, measured: Sequence[float | None]) -> Iterator[Fact]:
    values = [one for one in measured if one is not None]
    if values:
        array = np.asarray(values)
        mean, low, high = (float(f"{one:.{DIGITS}g}") for one in (array.mean(), array.min(), array.max()))
        yield Fact(*place, metric, mean, low, high, len(values), of)


def record_path(experiments: Path, name: str) -> Path:
    """Where the ledger keeps an experiment."""
    return experiments / RESULTS / f"{name}.json"


def write_record(record: Record, path: Path) -> None:
    """Write a record as JSON, one line per fact and per case, so that a change of numbers reads well.

    Raises:
        InputError: when it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(path.parent), f"cannot be written: {error.strerror}") from None
    fields = msgspec.to_builtins(record)
    lines = ",\n".join(f" {_line(key)}: {_lines(content)}" for key, content in fields.items())
    with replacing(path) as unfinished:
        unfinished.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _line(content: Any) -> str:
    return msgspec.json.encode(content).decode()


def _lines(content: Any) -> str:
    if not (isinstance(content, list | tuple) and content and isinstance(content[0], dict)):
        return _line(content)
    rows = []
    for entry in content:
        cases = entry.get("cases")
        if not cases:
            rows.append(f"  {_line(entry)}")
            continue
        head = _line({key: inner for key, inner in entry.items() if key != "cases"})[:-1]
        inner = ",\n".join(f"    {_line(case)}" for case in cases)
        rows.append(f'  {head}, "cases": [\n{inner}\n  ]}}')
    return "[\n" + ",\n".join(rows) + "\n ]"


def read_record(path: Path) -> Record | None:
    """A record, or None where none was written.

    Raises:
        InputError: when it is damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}; delete it and run the experiment again") from None


def state(experiment: Experiment, record: Record | None) -> str:
    """In a few words: not run, or when and with which verdicts, and what has changed since."""
    if record is None:
        return "not run"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in record.counts.items() if count)
    code, checked = code_digest(*experiment.architecture_names()), record.checked
    changed = [
        what
        for what, then, now in (
            ("the experiment", record.experiment_sha256, content_sha256(experiment)),
            ("the code", record.code_sha256, code),
        )
        if then != now
    ]
    since = f"; {' and '.join(changed)} changed since" if changed else ""
    if checked is not None and record.code_sha256 != code == checked.code_sha256:
        since += f", {checked.runs} of {record.runs} runs were checked then: same digests"
    how = "run" if record.complete else f"partly run ({record.runs} of {record.planned} runs)"
    return f"{how} on {record.date}: {counts}{since}"
