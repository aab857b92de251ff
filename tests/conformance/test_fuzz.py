"""Fuzzing: whatever the parameters and options, schedules are legal, or one clear error tells what is wrong."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.conformance import fuzzing
from tests.conformance.entries import VARIANTS

from volery.architectures import REGISTRY, configure, lookup
from volery.conformance.cases import Case
from volery.conformance.outcomes import demand_capacity, demand_constraints, demand_parents_first
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.locality import Pace
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.sim import Options, Progress, simulate

NAMES = [*REGISTRY, *(name for name in VARIANTS if not name.startswith(("quincy:", "firmament:")))]
BATCH = 25
BATCHES = int(os.environ.get("VOLERY_FUZZ_CASES", "2000")) // BATCH
LIMIT_S = 60
"""CPU seconds of a case: integer programs and flows take some."""
SERVING = {"serve", "up", "run-node", "watch", "browse", "federation", "host", "node", "broker", "top"}
"""Commands that go on until they are stopped: no time limit is demanded of them, only that they fail with one error."""
TEMPLATES: dict[tuple[str, ...], list[str]] = {
    ("compare",): ["oracle", "sparrow", "--trace", "syn:3x2", "--workers", "6"],
    ("trace", "describe"): ["syn:3x2"],
    ("trace", "synth"): ["syn:3x2", "-o", "made.tr"],
    ("theory",): ["mm1"],
    ("strl",): ["nCk(g, 1, 0, 1, 1)", "--set", "g=0-1"],
    ("stages",): ["omega"],
    ("architectures",): ["omega"],
    ("calibrate",): ["--architecture", "oracle", "--nodes", "2", "--trace", "syn:3x2"],
    ("storm",): ["--architecture", "sparrow", "--seed", "0"],
    ("why",): ["0", "--in", "made"],
    **{(name,): ["made"] for name in ("show", "report", "verify", "timeline")},
}
"""Arguments with which commands go on to their options."""


def _run(design: Architecture, case: Case, seed: int) -> Records:
    began = time.thread_time()

    def bounded(progress: Progress) -> None:
        assert time.thread_time() - began < LIMIT_S, f"no end within {LIMIT_S} s; {progress}"

    deployment = design.build(case.cluster, design.defaults, Streams(seed))
    options = Options(check=True, graphs=design.graphs)
    return simulate(deployment, case.trace, case.cluster, seed=seed, options=options, progress=bounded)


def _demand_legal(case: Case, records: Records) -> None:
    """What holds of every schedule, also where jobs are given up or gangs refused."""
    trace, first, satisfiable = case.trace, case.trace.first, case.satisfiable()
    pace, lost = Pace(trace, case.cluster), {one.task for one in records.lost}
    demand_capacity(case, records)
    demand_constraints(case, records)
    demand_parents_first(case, records)
    for job in range(trace.job_count):
        tasks = range(first[job], first[job + 1])
        never = [task for task in tasks if records.start_us[task] == NEVER]
        assert records.answered_us[job] != NEVER, f"job {job} was never answered"
        assert records.unsatisfiable[job] == len(never), f"job {job}: {never} never ran"
        for task in set(tasks) - set(never):
            start, finish = records.start_us[task], records.finish_us[task]
            assert satisfiable[task], f"task {task} fits no machine and ran"
            assert trace.arrival_us[job] <= start <= finish <= records.answered_us[job], f"task {task}"
            if task not in lost:
                assert finish - start == pace.attempt_us(task, trace.duration_us[task], records.worker[task])


@pytest.mark.parametrize(
    "batch", [pytest.param(k, marks=() if k < 1 else pytest.mark.slow) for k in range(max(1, BATCHES))]
)
def test_random_parameters_give_legal_schedules_and_the_same_again(batch: int) -> None:
    for number in range(BATCH):
        stream = Random(f"{fuzzing.SEED}/{batch}/{number}")
        told, design = fuzzing.design(stream, NAMES)
        case, seed = fuzzing.small_case(stream, design), stream.randrange(100)
        what = f"VOLERY_FUZZ_SEED={fuzzing.SEED}, batch {batch}, case {number}, run's seed {seed}: {told}"
        try:
            records = _run(design, case, seed)
            _demand_legal(case, records)
            again = _run(design, case, seed)
            assert records.digest() == again.digest(), "another digest"
        except InputError:
            continue  # parameters that do not go together, or with so small a cluster
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def _parameters() -> list[Any]:
    """Every design and parameter; presets of one configuration class are tried once."""
    seen: dict[tuple[type, str], str] = {}
    for name, entry in REGISTRY.items():
        for field in entry.defaults.__struct_fields__:
            seen.setdefault((type(entry.defaults), field), name)
    pairs = [(name, field) for (_, field), name in seen.items()]
    return [pytest.param(*pair, marks=() if k % 40 == 0 else pytest.mark.slow) for k, pair in enumerate(pairs)]


@pytest.mark.parametrize(("name", "field"), _parameters())
def test_extreme_values_of_a_parameter_run_or_are_refused_with_one_error(name: str, field: str) -> None:
    entry = lookup(name)
    stream = Random(f"{fuzzing.SEED}/{name}/{field}")
    _, limits = fuzzing.bounds(fuzzing.hints_of(entry)[field])
    refused: list[str] = []
    for value in (*fuzzing.EXTREMES, *limits.values(), *(limit + 1 for limit in limits.values())):
        try:
            config = configure(entry, {**entry.conformance.immediate, field: value})
            design = msgspec.structs.replace(entry, defaults=config)
            case = fuzzing.small_case(stream, design)
            _demand_legal(case, _run(design, case, 0))
        except InputError as error:
            refused.append(str(error))
        except Exception as error:
            raise AssertionError(f"{name}:{field}={value!r}: {type(error).__name__}: {error}") from error
    assert all("\n" not in told and len(told) < 600 for told in refused), refused


@pytest.mark.parametrize("name", REGISTRY)
def test_every_number_has_a_least_and_a_most_where_it_is_declared(name: str) -> None:
    for field, hint in fuzzing.hints_of(lookup(name)).items():
        kind, limits = fuzzing.bounds(hint)
        if kind in (int, float):
            assert {"ge", "gt"} & set(limits), f"{name}:{field} has no least value"
            assert {"le", "lt"} & set(limits), f"{name}:{field} has no greatest value"


def _options() -> list[Any]:
    found = [
        (" ".join(path), option)
        for path, command in fuzzing.commands()
        if not SERVING & set(path)
        for option, is_flag in fuzzing.options(command).items()
        if not is_flag
    ]
    return [pytest.param(path, option, marks=pytest.mark.slow) for path, option in found]


@pytest.mark.parametrize("option", ["--cutoff", "--delay-us", "--jitter-us", "--seeds", "--workers"])
def test_a_number_without_end_is_refused_with_one_error(option: str, tmp_path: Path) -> None:
    for value in ("inf", "nan", "9" * 30, "-1"):
        given = ["compare", *TEMPLATES["compare",], f"{option}={value}"]
        status, told = fuzzing.status_of(given, tmp_path, LIMIT_S)
        assert status == 2, f"{given}: {status}, {told[-500:]}"
        assert "Traceback" not in told, told[-1500:]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "option"), _options())
def test_extreme_values_of_an_option_run_or_are_refused_with_one_error(path: str, option: str, tmp_path: Path) -> None:
    words = path.split()
    if "made" in TEMPLATES.get(tuple(words), []):
        made = ["compare", "oracle", "--trace", "syn:3x2", "--workers", "6", "--seeds", "1", "-o", "made"]
        assert fuzzing.status_of(made, tmp_path, LIMIT_S)[0] == 0
    for value in fuzzing.EXTREMES:
        given = [*words, *TEMPLATES.get(tuple(words), []), f"{option}={value}"]
        status, told = fuzzing.status_of(given, tmp_path, LIMIT_S)
        assert status is not None, f"{given}: no end within {LIMIT_S} s"
        assert "Traceback" not in told, f"{given}: {told[-1500:]}"
        assert status in ((0, 2, 3) if words == ["compare"] else (0, 1, 2, 3)), f"{given}: {status}, {told[-500:]}"


def test_durations_whose_sum_leaves_64_bits_are_refused() -> None:
    """6,000 jobs of 2e9 s gave a utilisation of -0.52; one job of 10,000 such tasks a TypeError."""
    from volery.conformance.cases import trace_of

    cluster, long_us = Cluster.uniform(100), 2 * 10**9 * SECOND
    for jobs in ([[long_us]] * 6000, [[long_us] * 10_000]):
        case = Case("long", 0, trace_of("long", [0] * len(jobs), jobs), cluster)
        with pytest.raises(InputError, match=r"long: its tasks take .*e\+13 s together"):
            _run(lookup("sparrow"), case, 0)
