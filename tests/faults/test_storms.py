"""Every design weathers the storms that it says it bears; seeds that have failed once are never left out."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from volery.architectures import lookup, registry
from volery.core.component import FAULT_CLASSES, Architecture, role_of
from volery.faults import Scenario, draw, run_scenario
from volery.faults.scenario import HEAL_US

SEEDS = {"megha": 120, "megha-2021": 120, "central": 60, "pigeon": 120, "pigeonc": 60, "hydra": 60}
OTHERS = 25
"""Seeds of a design; `make test` takes the first dozens of them, `make storm` 2,000 of each family."""
BATCH = 20
KEPT = [
    (entry["architecture"], seed)
    for entry in tomllib.loads((Path(__file__).parent / "kept.toml").read_text())["kept"]
    for seed in entry["seeds"]
]
BEARING = [name for name, entry in registry().items() if entry.conformance.fault_parameters]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        pytest.param(name, first, marks=pytest.mark.slow if first >= 2 * BATCH else ())
        for name in BEARING
        for first in range(0, SEEDS.get(name, OTHERS), BATCH)
    ],
)
def test_the_design_weathers_what_it_says_it_bears(name: str, first: int) -> None:
    architecture = lookup(name)
    for seed in range(first, min(first + BATCH, SEEDS.get(name, OTHERS))):
        run_scenario(architecture, draw(architecture, seed))


@pytest.mark.parametrize("name", ["megha", "megha-2021"])
def test_no_task_is_lost_where_megha_recovers_and_preempts_as_printed(name: str) -> None:
    megha = lookup(name)
    shared = {"preemption": "paper", "turns": "round-robin"}
    for seed in range(8):
        scenario = draw(megha, seed)
        printed = {"recovery": "paper", "match": "first"} | (shared if scenario.parameters.get("shares") else {})
        run_scenario(megha, msgspec.structs.replace(scenario, parameters={**scenario.parameters, **printed}))


@pytest.mark.parametrize(("name", "seed"), KEPT)
def test_a_seed_that_has_failed_once_fails_no_more(name: str, seed: int) -> None:
    run_scenario(lookup(name), draw(lookup(name), seed))


def test_a_seed_names_one_scenario_and_one_outcome() -> None:
    megha = lookup("megha")
    again = msgspec.json.decode(msgspec.json.encode(draw(megha, 7)), type=Scenario)
    assert again == draw(megha, 7)
    assert run_scenario(megha, again) == run_scenario(megha, draw(megha, 7))


def classes_of(architecture: Architecture, scenario: Scenario) -> set[str]:
    """The fault classes that a scenario holds."""
    plan = scenario.plan
    found = {f"{'crash' if crash.back_us <= HEAL_US else 'gone'}:{role_of(crash.address)}" for crash in plan.crashes}
    found |= {"partition"} if plan.partitions else set()
    for name, field in (("loss", "drop"), ("duplication", "repeat"), ("delay", "delay")):
        found |= {name} if any(getattr(each, field) for each in plan.messages) else set()
    return found


@pytest.mark.parametrize("name", BEARING)
def test_storms_hold_all_that_the_design_bears_and_nothing_else(name: str) -> None:
    architecture = lookup(name)
    drawn = set().union(*(classes_of(architecture, draw(architecture, seed)) for seed in range(60)))
    assert drawn == architecture.conformance.tolerates
    assert all(fault.startswith(("crash:", "gone:")) or fault in FAULT_CLASSES for fault in drawn)


def test_faults_end_before_progress_is_demanded() -> None:
    plan = draw(lookup("megha"), 929).plan
    ends = [each.end_us for each in plan.messages] + [each.end_us for each in plan.partitions]
    ends += [crash.back_us for crash in plan.crashes]
    assert ends
    assert max(ends) <= HEAL_US < plan.deadline_us


@pytest.mark.parametrize("name", BEARING)
def test_without_faults_reliable_messages_change_no_result_of_designs_that_bear_no_crash(name: str) -> None:
    """Sparrow, Hawk and Eagle: the same components, linked. Where masters come in pairs, messages are others."""
    architecture = lookup(name)
    if any(fault.startswith("crash:") for fault in architecture.conformance.tolerates):
        pytest.skip("its roles are others where components may crash")
    calm = msgspec.structs.replace(draw(architecture, 5), jitter_us=0, tie_shuffle=None)
    calm = msgspec.structs.replace(calm, plan=msgspec.structs.replace(calm.plan, messages=(), partitions=()))
    bare = msgspec.structs.replace(calm, parameters={**calm.parameters, "reliable": False})
    assert run_scenario(architecture, calm).digest == run_scenario(architecture, bare).digest
