"""Every design of the registry keeps the contract (DESIGN section 9); later designs join by being registered."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet
from tests.conformance.entries import EXCUSED, LONG, RARE, VARIANTS, entries, variant
from tests.conformance.mutants_flows import build_whole

from volery.architectures import configure, lookup
from volery.conformance import CHECKS, NonconformanceError
from volery.conformance.cases import all_cases, flow_cases, mixed_cases
from volery.conformance.interceptor import Echo
from volery.conformance.outcomes import demand_all_finished
from volery.conformance.verdict import run
from volery.core.events import MoreTasks, Submit
from volery.sim import Options

SLOW = ("check_labels_do_not_matter", "check_same_seed_same_digest")
"""Independent of parameters; the registry's own entries suffice."""
OF_ENTRIES = (
    "check_builds_share_nothing",
    "check_capacity_and_constraints",
    "check_codec_changes_nothing",
    "check_costly_roles_saturate",
    "check_done_is_said_once",
    "check_failed_tasks_are_over",
    "check_goes_quiet",
    "check_ignored_features_change_nothing",
    "check_link_delays",
    "check_locality",
    "check_messages_are_declared",
    "check_observing_changes_nothing",
    "check_submitting_again_when_done",
)
"""Seldom touched by parameters, or demanded by others in passing: for variants `make conformance` runs them."""
OF_WORKFLOWS = ("check_jitter_is_safe", "check_submitting_twice", "check_ties_are_safe")
"""`check_workflows` demands the same of variants in passing: with jitter, submitted twice, with ties shuffled."""
OF_THE_QUICK = (*OF_ENTRIES, *OF_WORKFLOWS, "check_every_task_finishes_once", "check_labels_do_not_matter",
                "check_repeated_messages", "check_same_seed_same_digest", "check_workflows")  # fmt: skip
"""For designs that take ten times as long as others `make conformance` runs these.

What `check_cancel` and `check_invariants`, which stay, leave untouched must run once and finish, too.
"""


def _seldom(name: str, check: str) -> bool:
    """Whether `make conformance` alone runs a check; policies of stages are cancelled alike, by their one scheduler."""
    of_variants = (*OF_ENTRIES, *OF_WORKFLOWS, *(("check_cancel",) if name.startswith("pipeline:") else ()))
    return name in RARE or check in (OF_THE_QUICK if name in LONG else of_variants if name in VARIANTS else ())


def _judged(names: Iterable[str], checks: Iterable[str]) -> list[ParameterSet]:
    pairs = itertools.product(names, checks)
    return [pytest.param(*pair, marks=pytest.mark.whole if _seldom(*pair) else ()) for pair in pairs]


@pytest.mark.parametrize(("name", "check"), _judged(entries(), CHECKS))
def test_the_design_keeps_the_contract(name: str, check: str) -> None:
    CHECKS[check](entries()[name])


@pytest.mark.parametrize(("name", "check"), _judged(VARIANTS, [check for check in CHECKS if check not in SLOW]))
def test_the_design_keeps_the_contract_under_other_parameters(name: str, check: str) -> None:
    if (name, check) in EXCUSED:
        with pytest.raises(NonconformanceError):
            CHECKS[check](variant(name))
        return
    CHECKS[check](variant(name))


@pytest.mark.parametrize("check", ["check_workflows", "check_cancel", "check_every_task_finishes_once"])
def test_a_design_may_take_workflows_whole(check: str) -> None:
    """docs/decisions/0012: it is told parents, and holds tasks back itself."""
    whole = msgspec.structs.replace(lookup("oracle"), name="whole", build=build_whole, vectors=False, graphs=True)
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
