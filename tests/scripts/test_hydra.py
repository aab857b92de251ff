"""Transcripts of Hydra: how it spans sub-clusters, and how it outlives the loss of one."""

from __future__ import annotations

from tests.scripts.register import case, counter, script
from tests.scripts.transcript import transcript

from volery.core.model import SECOND
from volery.sim.faults import Crash, FaultPlan

HYDRA = {"subclusters": 2, "routers": 1, "proxies": 1, "routing": "priority"}
OUT_OF_BAND = frozenset(
    {"JobAccepted", "Load", "Directory", "News", "Read", "SubclusterLoads", "PolicyUpdate", "Reborn", "Vacated"}
)


@script
def hydra_spans_subclusters() -> str:
    """A job that is at home in one sub-cluster gets containers of both, one too many, in heartbeats."""
    title = "YARN Federation, AMRMProxy: an ask is split, containers come in heartbeats, the one in excess is released"
    three = case([0], [[2 * SECOND, 2 * SECOND, 2 * SECOND]], [0] * 4)
    return transcript(title, "hydra", three, parameters=HYDRA, quiet=OUT_OF_BAND)


@script
def hydra_loses_a_subcluster() -> str:
    """Both machines of the lost sub-cluster go on; what was asked there is asked of the other one."""
    title = "Hydra: a sub-cluster's resource manager dies while one job runs and another asks for containers"
    parameters = {**HYDRA, "reliable": True, "split": "home", "node_heartbeat_s": 0, "am_heartbeat_s": 0}
    two = case([0, SECOND], [[8 * SECOND, 8 * SECOND], [SECOND]], [0] * 4)
    plan = FaultPlan(crashes=(Crash(900_000, "rm/0", 5 * SECOND),))
    return transcript(title, "hydra", two, parameters=parameters, quiet=OUT_OF_BAND, plan=plan)


def test_a_container_in_excess_is_released() -> None:
    text = hydra_spans_subclusters()
    assert "proxy/0/0 > rm/0  ContainerRequest(number=1, job=0, user=, masks=[0], counts=[2])" in text
    assert "proxy/0/0 > rm/1  ContainerRequest(number=1, job=0, user=, masks=[0], counts=[2])" in text
    assert text.count("runs t") == 3
    assert "proxy/0/0 > rm/1  ContainerRequest(number=2, job=0, user=, masks=[0], counts=[-1])" in text, (
        "its grant is under way"
    )
    assert counter(text, "containers_released") == 1


def test_tasks_outlive_their_resource_manager_and_what_waits_goes_elsewhere() -> None:
    text = hydra_loses_a_subcluster()
    assert text.count("runs t") == 3, "nothing runs twice"
    steps = [
        "PeerLost(peer=rm/0)",
        "proxy/0/0 > rm/1  ContainerRequest",
        "runs t2",
        "Register(number=1, running=[Held",
        "ends t0",
    ]
    assert [text.index(step) for step in steps] == sorted(text.index(step) for step in steps)
