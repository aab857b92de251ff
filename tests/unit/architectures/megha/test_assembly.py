"""Masters are assembled from parts: every set of parameters is built, of three classes of components."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.local_master import LocalMaster
from volery.core.component import Deployment
from volery.core.events import Move
from volery.core.flow import seen_through
from volery.core.model import Cluster
from volery.core.streams import Streams
from volery.faults import draw, run_scenario
from volery.roles.node import Node
from volery.roles.recovery.leases import GuardedNode

SLOTS = Cluster.uniform(8)
ROOM = Cluster((0,) * 8, (1,) * 8, "room", ("cpu_milli",), ((1000,),) * 8)


def built(cluster: Cluster, **parameters: Any) -> Deployment:
    megha = lookup("megha")
    return megha.build(cluster, configure(megha, {"gms": 2, "lms": 2, **parameters}), Streams(0))


@pytest.mark.parametrize("cluster", [SLOTS, ROOM], ids=["slots", "amounts"])
@pytest.mark.parametrize("shares", ["", "a:1+b:2"])
@pytest.mark.parametrize("reliable", [False, True])
@pytest.mark.parametrize("why", [False, True])
def test_every_combination_is_built_of_the_same_classes(
    cluster: Cluster, shares: str, reliable: bool, why: bool
) -> None:
    deployment = built(cluster, shares=shares, reliable=reliable, why=why)
    classes = {type(seen_through(component)) for component in deployment.components.values()}
    assert classes == {GlobalMaster, LocalMaster, GuardedNode if reliable else Node}
    assert (deployment.rebuild is not None) is reliable
    assert bool(deployment.weight_subscribers) is bool(shares)


@pytest.mark.parametrize("other", [{"updates": "snapshots"}, {"completion_notice": "twice"}, {"eager_retry": False}])
def test_slots_that_bear_crashes_take_every_value_of_other_parameters(other: dict[str, Any]) -> None:
    megha = lookup("megha")
    changed = msgspec.structs.replace(megha, bearing={**megha.bearing, **other})
    for seed in range(5):
        run_scenario(changed, draw(changed, seed))


@pytest.mark.parametrize("why", [False, True])
def test_a_master_that_begins_anew_has_new_parts_and_knows_what_was_moved(why: bool) -> None:
    master = seen_through(built(SLOTS, reliable=True, shares="a:1+b:1", why=why).components["gm/0"])
    assert isinstance(master, GlobalMaster)
    view, fairness, recovery, narrator = before = (master.view, master.fairness, master.recovery, master.narrator)
    master.attempts[1] = 4
    master.begin_anew((Move(3, "gm/0", "gm/1"),))
    after = (master.view, master.fairness, master.recovery, master.narrator)
    assert not {id(part) for part in before} & {id(part) for part in after}
    assert [type(part) for part in after] == [type(part) for part in (view, fairness, recovery, narrator)]
    assert (master.recovery.term, master.recovery.knows_all(), master.attempts) == (3, False, {})
