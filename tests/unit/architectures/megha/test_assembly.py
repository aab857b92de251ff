"""Masters are assembled from parts: every set of parameters is built, of three classes of components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.local_master import LocalMaster
from volery.architectures.megha.messages import StateUpdate
from volery.architectures.megha.recovery.messages import ResyncReply, ResyncRequest
from volery.architectures.megha.shares.messages import (
    AttemptsLost,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
)
from volery.core.capabilities import CrashRecovery, DueShares
from volery.core.component import Deployment, UnknownMessageError
from volery.core.events import Moved, Reassignment, Submit
from volery.core.flow import seen_through
from volery.core.model import Address, Cluster, Job, Message, Task, Time
from volery.core.streams import Streams
from volery.faults import draw, run_scenario
from volery.live.runtime.port import LivePort
from volery.live.runtime.snapshots import first_difference, obstacle, read_snapshot, write_snapshot
from volery.roles.node import Completed, Node
from volery.roles.recovery.leases import (
    Fenced,
    Forget,
    GuardedNode,
    LeaderStatus,
    Result,
    RunningAttempt,
    StaleEpoch,
    Status,
)

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
    assert (deployment.capability(CrashRecovery) is not None) is reliable
    assert (deployment.capability(DueShares) is not None) is bool(shares)


@pytest.mark.parametrize("other", [{"updates": "snapshots"}, {"completion_notice": "twice"}, {"eager_retry": False}])
def test_slots_that_bear_crashes_take_every_value_of_other_parameters(other: dict[str, Any]) -> None:
    megha = lookup("megha")
    changed = msgspec.structs.replace(
        megha,
        conformance=msgspec.structs.replace(
            megha.conformance, fault_parameters={**megha.conformance.fault_parameters, **other}
        ),
    )
    for seed in range(5):
        run_scenario(changed, draw(changed, seed))


@pytest.mark.parametrize("why", [False, True])
def test_a_master_that_begins_anew_has_new_parts_and_knows_what_was_moved(why: bool) -> None:
    master = seen_through(built(SLOTS, reliable=True, shares="a:1+b:1", why=why).components["gm/0"])
    assert isinstance(master, GlobalMaster)
    view, fairness, recovery, observer = before = (master.view, master.fairness, master.recovery, master.observer)
    master.attempts[1] = 4
    master.restart((Reassignment(3, "gm/0", "gm/1"),))
    after = (master.view, master.fairness, master.recovery, master.observer)
    assert not {id(part) for part in before if part is not None} & {id(part) for part in after}
    assert [type(part) for part in after] == [type(part) for part in (view, fairness, recovery, observer)]
    assert master.recovery is not None
    assert (master.recovery.term, master.recovery.knows_all(), master.attempts) == (3, False, {})


def samples() -> dict[type, Message]:
    """A message of each type that masters exchange."""
    task, update = Task(1, 1), StateUpdate(1)
    return {
        type(one): one
        for one in (
            ResyncReply(0, True, True, update, (), ()),
            AttemptsLost(()),
            ResyncRequest(),
            Holdings(1, (), ()),
            PreemptionDone(1),
            Preempt(1, 0, 0, task, 0, 0, 1, ()),
            PreemptionVote(1, False),
            PreemptionRequest(1, 0, 0, ()),
            Moved(()),
            LeaderStatus(0, False),
            StaleEpoch(0),
            Forget(()),
            Fenced(0, 0),
            Status(0, (), ()),
            Result(RunningAttempt(1, 1, 0, "gm/0", 0)),
            Completed(1),
        )
    }


@pytest.mark.parametrize("shares", ["", "a:1+b:2"])
@pytest.mark.parametrize("reliable", [False, True])
def test_a_master_refuses_messages_that_its_parts_do_not_receive(shares: str, reliable: bool) -> None:
    """A host whose messages are refused is to blame; any other error would end the host that receives them."""
    deployment, refused = built(ROOM, shares=shares, reliable=reliable), 0
    for address in ("gm/0", "lm/0"):
        master = seen_through(deployment.components[address])
        for kind, message in samples().items():
            if kind not in master.takes():
                refused += 1
                with pytest.raises(UnknownMessageError, match=f"does not receive {kind.__name__}"):
                    master.handle(message, "node/0", 0)
    assert refused >= 10


@pytest.mark.parametrize("cluster", [SLOTS, ROOM], ids=["slots", "amounts"])
@pytest.mark.parametrize("shares", ["", "a:1+b:2"])
@pytest.mark.parametrize("reliable", [False, True])
@pytest.mark.parametrize("why", [False, True])
def test_every_combination_has_snapshots(
    tmp_path: Path, cluster: Cluster, shares: str, reliable: bool, why: bool
) -> None:
    """A journal of a federation without snapshots grows without end."""
    components = built(cluster, shares=shares, reliable=reliable, why=why).components
    for address, component in components.items():
        component.bind(LivePort(address, []))
        component.start(0)
    assert obstacle(components) == ""
    with (tmp_path / "one.snapshot").open("wb") as file:
        write_snapshot(file, components, {})
    loaded, _ = read_snapshot(tmp_path / "one.snapshot", lookup("megha"), [])
    assert first_difference(dict(components), loaded) == ""
    master = seen_through(loaded["gm/0"])
    master.handle(Submit(Job(1, 1, (Task(1, 1),))), "submitter", 5)


def test_handlers_of_a_master_that_reports_decisions_are_those_of_its_class() -> None:
    """Clocks of stages and recordings change the class of a component after it was built."""
    heard: list[int] = []

    class Watched(GlobalMaster):
        def on_submit(self, message: Submit, source: Address, now: Time) -> None:
            heard.append(message.job.id)

    master = seen_through(built(SLOTS, why=True).components["gm/0"])
    master.bind(LivePort("gm/0", []))
    master.start(0)
    master.__class__ = Watched
    master.handle(Submit(Job(7, 0, ())), "submitter", 5)
    assert heard == [7]
