"""Tags where masters and machines fail: constraints hold, also against what a new leader cannot see yet."""

from __future__ import annotations

import pytest

from volery.architectures import lookup
from volery.architectures.megha.tagged_allocations import TaggedAllocations
from volery.core.model import SECOND, Address, TagConstraint
from volery.faults import Failure, draw, run_scenario
from volery.faults.scenario import TAGGED, Scenario, ScenarioJob
from volery.roles.recovery.leases import Active
from volery.sim.faults import Crash, FaultPlan, Partition

STORMS = 36
SEEDS = [seed for seed in range(STORMS) if seed % TAGGED[0] in TAGGED[1]]


@pytest.mark.parametrize("name", ["megha", "central", "omega"])
def test_storms_with_tags_are_drawn_and_weathered(name: str) -> None:
    architecture = lookup(name)
    for seed in SEEDS:
        scenario = draw(architecture, seed)
        assert scenario.parameters["tags"]
        assert any(job.tags for job in scenario.jobs)
        run_scenario(architecture, scenario)


@pytest.mark.parametrize("seed", [2167, 2344])
def test_a_job_is_given_up_whose_master_is_gone_before_it_is_cancelled(seed: int) -> None:
    """The last cache ends after a Global Master is gone for good, and before the heir has its workers."""
    megha = lookup("megha")
    run_scenario(megha, draw(megha, seed))


def test_storms_find_a_local_master_that_does_not_validate_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits(self: TaggedAllocations, active: Active, node: Address) -> bool:
        return self._slots.fits(active, node)

    monkeypatch.setattr(TaggedAllocations, "fits", fits)
    megha = lookup("megha")

    def all_storms() -> None:
        for seed in SEEDS:
            run_scenario(megha, draw(megha, seed))

    with pytest.raises(Failure, match="tag constraint"):
        all_storms()


def unseen() -> Scenario:
    """A master crashes while a machine of the rack is cut off, on which a task runs that must be alone in it.

    The next leader cannot reach the machine. The task runs on until its grace is over, and another GM has one like it.
    """
    cut = SECOND
    return Scenario(
        "megha", 1, {"reliable": True, "tags": True, "gms": 2, "lms": 1, "heartbeat_s": 1.0}, (0, 0), (1, 1),
        (
            ScenarioJob(0, (9 * SECOND,), (0,), tags=("lone",)),
            ScenarioJob(cut + SECOND // 2, (SECOND,), (0,), tags=("lone",)),
        ),
        500, 0, None,
        FaultPlan(
            partitions=(Partition(cut, 6 * SECOND, ("node/0",)),),
            crashes=(Crash(cut, "lm/0", 9 * SECOND),),
        ),
        racks=(0, 0), rules=(TagConstraint(("lone",), ("lone",), 0, 0, "rack"),),
    )  # fmt: skip


def test_a_new_leader_places_nothing_beside_what_it_cannot_see() -> None:
    run_scenario(lookup("megha"), unseen())
