"""The node table follows attempts, drained nodes and lost ones."""

from __future__ import annotations

from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.messages import AttemptState, ConfinementReport, PeerReport, TaskReport
from volery.live.service.node_table import NodeTable

MACHINES = [Machine("x86_64", "linux", "6.1", 4, 1024, {}) for _ in range(2)]
NODES = {"node/0": 0, "node/1": 1}


def table() -> NodeTable:
    return NodeTable(NODES, Fleet(MACHINES, [2, 2]), {"node/1"}, lambda node: ("lm/0",))


def report(task: int, state: AttemptState, attempt: int = 0, node: str = "node/0") -> TaskReport:
    return TaskReport(task, 0, attempt, node, state, 1)


def test_an_attempt_runs_on_its_node_until_its_end_is_reported() -> None:
    nodes = table()
    assert not nodes.report(report(1, "running"))
    assert not nodes.report(report(2, "running"))
    assert nodes.running_on("node/0", 9) == [1, 2]
    assert nodes.taken() == {0: 2}
    assert nodes.report(report(1, "finished"))
    assert [status.running for status in nodes.statuses()] == [1, 0]


def test_a_later_attempt_takes_the_place_of_one_whose_end_nobody_reports() -> None:
    nodes = table()
    nodes.report(report(1, "running"))
    nodes.report(report(1, "running", 1, "node/1"))
    assert [status.running for status in nodes.statuses()] == [0, 1]
    nodes.report(report(1, "killed"))
    assert nodes.running_on("node/1", 9) == [1]


def test_a_node_is_lost_while_any_component_reports_it() -> None:
    nodes = table()
    for by in ("lm/0", "lm/1"):
        nodes.peer(PeerReport(by, "node/0", lost=True))
    nodes.peer(PeerReport("lm/0", "node/0", lost=False))
    assert nodes.lost() == {"node/0"}
    assert nodes.lost_machines() == {0}
    nodes.forget_lost(["lm/1"])
    assert nodes.lost() == set()


def test_a_status_says_what_is_drained_and_what_holds_tasks() -> None:
    nodes = table()
    nodes.confined(ConfinementReport(("node/0",), "control groups"))
    first, second = nodes.statuses()
    assert (first.held, first.drained, second.drained) == ("control groups", False, True)
    assert nodes.drained_machines() == {1}
    assert nodes.partitions() == {"node/0": ("lm/0",), "node/1": ("lm/0",)}
    assert not NodeTable(NODES, Fleet(MACHINES, [2, 2]), set()).can_drain
