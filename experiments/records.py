"""The records of reproduced experiments: verdicts and aggregate numbers, small enough to be published."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

import volery
from experiments.claims import VERDICTS, Judgement
from experiments.experiment import RESULTS, Experiment
from experiments.measures import SETTLED
from experiments.reproduction import Reproduction
from experiments.values import (
    COUNTERS,
    FACTS,
    INPUT_FACTS,
    Absent,
    InputValues,
    Kept,
    RunDigest,
    ValueTable,
    full_label,
)
from volery.core.errors import InputError
from volery.metrics.windows import SettledWindow
from volery.statistics import InterimLook
from volery.study.plan import code_digest
from volery.study.results import replacing

VERDICTS_FILE: Final = "verdicts.json"
SHORT: Final = 8
"""Digits of a code digest that are shown."""
DIGITS: Final = 7
RULES: Final = 3
"""Goes up when the rules of judging change; a record with a lower number waits for `judge`."""
KEEPS_VALUES: Final = 2
"""A record of earlier rules than these keeps no values that could be judged again."""
JUDGED_FIELDS: Final = ("stands_for", "is_source")
"""What a workload says for its judgement alone; its runs are the same without."""


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


class Check(msgspec.Struct, frozen=True):
    """Some runs of a record, run again by other code, came out as recorded."""

    code_sha256: str
    date: str
    runs: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an experiment: verdicts, values and digests.

    Args:
        experiment_sha256: Hash of what the experiment's file says.
        runs_sha256: Hash of the part of it that the runs depend on.
        code_sha256: Hash of the sources that results depend on.
        digest: SHA-256 over the digests of all runs.
        date: Day of the record (UTC).
        judged: Day of its judgement, if later.
        rules: Number of the rules of judging.
        quick: whether it was the cheap variant.
        complete: whether every run that has its input was finished, and every such input measured.
        runs: how many runs are finished.
        planned: how many there are, with their inputs here.
        seeds: all that were drawn, in this order; not every place has all of them.
        looks: Looks at the claims, with the confidence of each.
        stopped: why no further seed was drawn; empty where none was asked for.
        metrics, input_metrics: Metrics whose values are kept.
        digests: all finished runs, so that any of them can be checked, with their values.
        inputs: the values of all measured inputs.
        absent: the places whose files are not here.
        settled: the window of the settled measures among the values.
        checked: the last check by code that has changed since.
        carried: the check after which runs of earlier code counted as runs of its code; None where there are none.
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
    carried: Check | None = None
    runs_sha256: str = ""
    judged: str = ""
    rules: int = 0
    looks: tuple[InterimLook, ...] = ()
    stopped: str = ""
    metrics: tuple[str, ...] = ()
    input_metrics: tuple[str, ...] = ()
    inputs: tuple[InputValues, ...] = ()
    absent: tuple[Absent, ...] = ()
    settled: SettledWindow | None = None

    @property
    def is_former(self) -> bool:
        """True if the record was judged by former rules."""
        return self.rules < RULES

    @property
    def table(self) -> ValueTable | None:
        """The values that it keeps; None in a record of the first rules."""
        if self.rules < KEEPS_VALUES:
            return None
        return ValueTable(
            metrics=self.metrics,
            input_metrics=self.input_metrics,
            runs=self.digests,
            inputs=self.inputs,
            absent=self.absent,
        )

    @property
    def counts(self) -> dict[str, int]:
        """The number of verdicts of each kind."""
        counts = Counter(judgement.verdict for judgement in self.judgements)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    def judgements_of(self, claim: str) -> list[Judgement]:
        """The judgements of a claim, one per reading and kind of workload; none where it is newer than the record."""
        return [judgement for judgement in self.judgements if judgement.claim == claim]


def make_record(reproduction: Reproduction, *, quick: bool, earlier: Record | None = None) -> Record:
    """Boil a reproduction down to what is kept of it.

    Args:
        reproduction: Experiment as far as it was run.
        quick: whether it was the cheap variant.
        earlier: Record of which it took values in place of new runs.
    """
    experiment, table = reproduction.experiment, reproduction.table()
    planned = {run.key for runs in reproduction.planned.runs.values() for run in runs}
    digests = {row.key: row.digest for row in table.runs}
    return Record(
        experiment=experiment.name,
        title=experiment.title,
        figure=experiment.figure,
        experiment_sha256=content_sha256(experiment),
        runs_sha256=runs_sha256(experiment),
        code_sha256=code_digest(*experiment.architecture_names()),
        volery_version=volery.__version__,
        digest=hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest(),
        date=_today(),
        rules=RULES,
        quick=quick,
        complete=reproduction.complete,
        runs=len(digests),
        planned=len(planned),
        seeds=reproduction.seeds,
        looks=reproduction.looks,
        stopped=reproduction.stopped,
        populations=tuple(population.label for population in experiment.population),
        missing=tuple(dict.fromkeys(place.why for place in table.absent)),
        judgements=table.judgements(experiment, reproduction.looks, reproduction.seeds),
        facts=tuple(_facts(experiment, table)) if experiment.table else (),
        metrics=table.metrics,
        input_metrics=table.input_metrics,
        digests=table.runs,
        inputs=table.inputs,
        absent=table.absent,
        settled=experiment.settled,
        carried=earlier.carried if earlier is not None and reproduction.recorded_runs() else None,
    )


def reusable(experiment: Experiment, record: Record | None) -> ValueTable | None:
    """Return the recorded values that the experiment may take in place of new ones, if there are any.

    A key tells whether a run is the same. Two things are in no key: the window of settled measures, and the code that
    measures an input. Where one of them changed, the values that depend on it are left out.
    """
    table = record.table if record is not None else None
    if record is None or table is None:
        return None
    if record.code_sha256 != code_digest(*experiment.architecture_names()):
        table = msgspec.structs.replace(table, inputs=())
    if record.settled != experiment.settled and any(metric.startswith(f"{SETTLED}.") for metric in table.metrics):
        table = msgspec.structs.replace(table, runs=())
    return table


def judged_again(experiment: Experiment, record: Record) -> Record:
    """The record with its claims judged by the experiment and the rules as they are now; nothing is run.

    Raises:
        InputError: the record keeps no values, or the runs of the experiment are others now.
    """
    place, table = f"experiment {experiment.name}", record.table
    remedy = f"`python -m experiments run {experiment.name}` runs it"
    if table is None:
        raise InputError(place, f"was judged by the first rules, and its record keeps no value of a run; {remedy}")
    if record.runs_sha256 != runs_sha256(experiment):
        raise InputError(place, f"names other runs than its record; {remedy}")
    judged = msgspec.structs.replace(
        record,
        title=experiment.title,
        figure=experiment.figure,
        experiment_sha256=content_sha256(experiment),
        judgements=table.judgements(experiment, record.looks, record.seeds),
        facts=tuple(_facts(experiment, table)) if experiment.table else (),
        rules=RULES,
    )
    return record if judged == record else msgspec.structs.replace(judged, judged=_today())


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def content_sha256(experiment: Experiment) -> str:
    """SHA-256 of what an experiment says, whatever its file looks like.

    Only what differs from a default counts: a new field of ours, with a default, changes no experiment.
    """
    return sha256_of(said(msgspec.structs.replace(experiment, folder="")))


def runs_sha256(experiment: Experiment) -> str:
    """SHA-256 of what an experiment says of its runs; claims and tables may change without another run."""
    content = said(experiment)
    for workload in content["workload"]:
        for field in JUDGED_FIELDS:
            workload.pop(field, None)
    names = ("workload", "population", "architectures", "network", "seeds", "unseeded", "settled")
    return sha256_of({name: content[name] for name in names if name in content})


def sha256_of(content: Any) -> str:
    """SHA-256 of plain tables, whatever the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def said(content: Any) -> Any:
    """Plain tables of all that differs from its default."""
    if isinstance(content, msgspec.Struct):
        return {
            field.name: said(getattr(content, field.name))
            for field in _fields(type(content))
            if field.required or getattr(content, field.name) != _default(field)
        }
    if isinstance(content, Mapping):
        return {key: said(inner) for key, inner in content.items()}
    return [said(inner) for inner in content] if isinstance(content, list | tuple) else content


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Of a class; msgspec compiles its annotations each time that it is asked."""
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def _facts(experiment: Experiment, table: ValueTable) -> Iterator[Fact]:
    """Metrics over the seeds that all architectures of a place have, so that claims with added seeds shift none."""
    rows: dict[tuple[str, str, str], list[RunDigest]] = {}
    for row in table.runs:
        rows.setdefault((row.of, row.workload, row.population), []).append(row)
    for workload in experiment.workload:
        for population in experiment.population:
            place = (workload.label, population.label)
            runs_by_label = {
                full_label(label, reading): (label, rows.get((full_label(label, reading), *place), []))
                for label, reading, _ in experiment.variants()
            }
            drawn = [
                {row.seed for row in runs} for label, runs in runs_by_label.values() if label not in experiment.unseeded
            ]
            common = set.intersection(*filter(None, drawn)) if any(drawn) else set()
            for of, (label, runs) in runs_by_label.items():
                shared = [row for row in runs if row.seed in common or label in experiment.unseeded]
                for metric in filter(table.metrics.__contains__, experiment.columns or FACTS):
                    number = table.metrics.index(metric)
                    yield from _fact(place, of, metric, [row.values[number] for row in shared])
            inputs = [row for row in table.inputs if (row.workload, row.population) == place]
            for metric in filter(table.input_metrics.__contains__, INPUT_FACTS):
                number = table.input_metrics.index(metric)
                yield from _fact(place, "", metric, [row.values[number] for row in inputs])


def _fact(place: tuple[str, str], of: str, metric: str, measured: Sequence[Kept]) -> Iterator[Fact]:
    if metric.startswith(COUNTERS) and any(one is not None for one in measured):
        measured = [value or 0.0 for value in measured]  # a counter of what never happened is not in the summary
    by_run = [value if isinstance(value, tuple) else (value,) for value in measured]
    values = [value for repetitions in by_run for value in repetitions if value is not None]
    if values:
        array = np.asarray(values)
        mean, low, high = (float(f"{one:.{DIGITS}g}") for one in (array.mean(), array.min(), array.max()))
        yield Fact(*place, metric, mean, low, high, len(values), of)


def record_path(experiments: Path, name: str) -> Path:
    """The file of an experiment's record."""
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
    """Tell when an experiment was run, with which seeds, code and verdicts, and what has changed since."""
    if record is None:
        return "not run"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in record.counts.items() if count)
    progress = "run" if record.complete else f"partly run ({record.runs} of {record.planned} runs)"
    seeds = f"{len(record.seeds)} seed{'s' if len(record.seeds) != 1 else ''}"
    words = [f"{progress} on {record.date} with {seeds} and code {record.code_sha256[:SHORT]}: {counts}"]
    if record.is_former:
        words.append("judged by former rules")
    if record.experiment_sha256 != content_sha256(experiment):
        words.append("the experiment changed since")
    words.append(_today_code(code_digest(*experiment.architecture_names()), record))
    if record.carried is not None:
        words.append(f"runs of earlier code are among them, of which {record.carried.runs} came out the same again")
    return "; ".join(part for part in words if part)


def _today_code(code: str, record: Record) -> str:
    """The check that a record holds for the present code; empty where that code made it."""
    checked = record.checked
    if record.code_sha256 == code:
        return ""
    if checked is not None and checked.code_sha256 == code:
        return f"the code changed since, and {checked.runs} of {record.runs} runs were run again with it: same digests"
    return "the code changed since, and no run was run again with it"
