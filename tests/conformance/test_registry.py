"""Every design of the registry keeps the contract (DESIGN section 9); later designs join by being registered."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet
from tests.conformance.entries import EXCUSED, VARIANTS, entries, variant, without
from tests.conformance.mutants_flows import build_whole
from tests.conformance.test_once import ONCE

from volery.architectures import configure, lookup
from volery.conformance import CHECKS, NonconformanceError
from volery.conformance.cases import all_cases, flow_cases, mixed_cases
from volery.conformance.outcomes import demand_all_finished
from volery.conformance.verdict import Echo, run
from volery.core.capabilities import Refusals
from volery.core.events import MoreTasks, Submit
from volery.sim import Options

OF_ENTRIES = ("check_labels_do_not_matter", "check_same_seed_same_digest")
"""Costly, and independent of parameters (but those that name machines): one entry of each family suffices."""
COSTLY = tuple(
    check
    for check in CHECKS
    if check
    not in {
        *OF_ENTRIES,
        "check_allocation_adds_up",
        "check_features_are_declared",
        "check_flow_is_declared",
        "check_gangs",
        "check_knowledge_is_honest",
        "check_lone_task_costs_its_hops",
        "check_messages_are_declared",
        "check_messages_survive_the_codec",
        "check_nobody_loses_what_it_is_due",
        "check_stages_exist",
        "check_unknown_messages_raise",
        "check_worker_queues_are_reported",
    }
)
"""Checks that run a dozen workloads or more: 0.1 to 2 CPU seconds each, where the others take some hundredths."""


def covering(families: Mapping[str, Sequence[str]], checks: Sequence[str]) -> set[tuple[str, str]]:
    """Pairs of a design and a check in which every family meets every check, and every design meets one.

    Checks are dealt in turn to the members of a family, as often as both demands need.
    """
    return {
        (members[k % len(members)], checks[k % len(checks)])
        for members in families.values()
        for k in range(max(len(checks), len(members)))
    }


def families() -> dict[str, list[str]]:
    """Entries and variants by the module of their build function: they are the same classes."""
    found: dict[str, list[str]] = {}
    for name in [*entries(), *VARIANTS]:
        found.setdefault(lookup(name.partition(":")[0]).build.__module__, []).append(name)
    return found


COVERED = covering(families(), COSTLY) | {
    (members[0], check) for members in families().values() for check in OF_ENTRIES
}


def _judged(names: Iterable[str], checks: Iterable[str]) -> list[ParameterSet]:
    """Pairs of a design and a check; `make conformance` alone runs the costly ones that are not in `COVERED`."""
    found = []
    for name, check in itertools.product(names, checks):
        is_covered = check not in (*COSTLY, *OF_ENTRIES) or (name, check) in COVERED
        found.append(pytest.param(name, check, marks=() if is_covered else pytest.mark.slow))
    return found


@pytest.mark.parametrize(("name", "check"), _judged(entries(), [check for check in CHECKS if check != ONCE]))
def test_the_design_keeps_the_contract(name: str, check: str) -> None:
    CHECKS[check](entries()[name])


@pytest.mark.parametrize(("name", "check"), _judged(VARIANTS, [check for check in CHECKS if check not in OF_ENTRIES]))
def test_the_design_keeps_the_contract_under_other_parameters(name: str, check: str) -> None:
    if (name, check) in EXCUSED:
        with pytest.raises(NonconformanceError):
            CHECKS[check](variant(name))
        return
    CHECKS[check](variant(name))


def test_every_family_meets_every_check_and_every_design_some() -> None:
    for members in families().values():
        assert {check for name, check in COVERED if name in members} == {*COSTLY, *OF_ENTRIES}
    assert {name for name, _ in COVERED} == {*entries(), *VARIANTS}
    assert covering({"a": ["a", "b", "c"]}, ["x"]) == {("a", "x"), ("b", "x"), ("c", "x")}
    assert covering({"a": ["a", "b"]}, ["x", "y"]) == {("a", "x"), ("b", "y")}


@pytest.mark.parametrize("check", ["check_workflows", "check_cancel", "check_every_task_finishes_once"])
def test_a_design_may_take_workflows_whole(check: str) -> None:
    """docs/decisions/0012: it is told parents, and holds tasks back itself."""
    whole = msgspec.structs.replace(
        lookup("oracle"), name="whole", build=build_whole, features={"constraints": "", "dependencies": ""}
    )
    CHECKS[check](whole)


def test_a_rejected_job_comes_again_and_is_finally_done() -> None:
    """`queue_max` is a role's decision; the submitter hears JobRejected and retries (DESIGN section 2)."""
    megha = lookup("megha")
    design = msgspec.structs.replace(megha, defaults=configure(megha, {"queue_max": 100, "gms": 2, "lms": 2}))
    rejections = 0
    for case in mixed_cases(seed=30) + flow_cases(seed=30):
        for interceptor in (None, Echo((Submit, MoreTasks))):
            records = run(design, case, options=Options(check=True), interceptor=interceptor)
            demand_all_finished(case, records)
            rejections += records.rejections
    assert rejections > 0


def test_a_task_that_a_design_refuses_without_declaring_it_is_missed() -> None:
    """Seed 10's burst has a long task that only a reserved worker of Pigeon suits."""
    pigeon = variant("pigeon:longer_cutoffs_s")
    CHECKS["check_late_timers_are_safe"](pigeon)
    with pytest.raises(NonconformanceError, match="never started"):
        CHECKS["check_late_timers_are_safe"](without(pigeon, Refusals))


def test_cases_hold_what_is_legal_and_easily_forgotten() -> None:
    cases = {case.name: case for case in all_cases()}
    mixed = cases["constrained"]
    sizes = [mixed.trace.first[j + 1] - mixed.trace.first[j] for j in range(mixed.trace.job_count)]
    assert 0 in sizes, "jobs without tasks"
    assert 0 in mixed.trace.duration_us, "tasks of duration 0"
    assert len(set(mixed.trace.arrival_us)) < mixed.trace.job_count, "equal arrivals"
    assert not all(mixed.satisfiable()), "tasks that fit no machine"
    assert max(mixed.cluster.slots) > 1, "machines with several slots"
    chunked = cases["chunks"].trace
    assert any(len(chunked.submission(job)) > 1 for job in range(chunked.job_count)), "jobs in chunks"
    burst = cases["burst"]
    assert burst.trace.task_count > 4 * burst.cluster.slot_count, "more work than slots"
    assert max(burst.trace.estimate_us) > 1_200_000_000 > min(burst.trace.estimate_us), "short and long jobs"
