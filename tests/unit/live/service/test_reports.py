"""Reports of hosts: samples and throughput, tasks on nodes, decisions of schedulers, and the funnel of machines."""

from __future__ import annotations

import asyncio

import pytest

from volery.core.model import Cluster
from volery.core.reasons import Chosen, Decision
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.messages import AttemptState, ConfinementReport, DecisionReport, PeerReport, TaskReport
from volery.live.service import reports
from volery.live.service.reports import (
    KEPT_PER_TASK,
    RECENT_STEPS,
    STEP_S,
    AttemptCounts,
    DecisionBook,
    History,
    NodeTable,
    ThroughputMeter,
    candidates,
    counted,
    ended_of,
)


def test_a_sample_counts_failures_since_the_one_before() -> None:
    kept = History()
    for at, failed in enumerate((2, 2, 5)):
        kept.note(at, 1, 4, 0, failed)
    assert [sample.failed for sample in kept.samples] == [2, 0, 3]


def test_the_oldest_samples_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "KEPT", 2)
    kept = History()
    for at in range(5):
        kept.note(at, 0, 0, 0, 0)
    assert [sample.at_us for sample in kept.samples] == [3, 4]


def test_samples_are_taken_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "STEP_S", 0.001)
    taken: list[int] = []

    async def scenario() -> None:
        kept = History()
        kept.start(lambda: taken.append(1))
        async with asyncio.timeout(10):
            while len(taken) < 3:
                await asyncio.sleep(0.001)
        kept.close()
        before = len(taken)
        await asyncio.sleep(0.01)
        assert len(taken) == before

    asyncio.run(scenario())


def test_running_and_unknown_attempts_have_not_ended() -> None:
    counts = AttemptCounts()
    counts.by_state |= {"running": 5, "finished": 3, "failed": 2, "unknown": 1}
    assert ended_of(counts.by_state) == 5


def test_throughput_is_that_of_the_last_minute() -> None:
    now = [0.0]
    meter = ThroughputMeter(lambda: now[0])
    assert meter.per_second(0) is None, "too soon"
    for second in range(1, 121):
        now[0] = float(second)
        meter.note(10 * second if second <= 60 else 600)
    assert meter.per_second(600) == 0


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


def test_a_report_of_a_node_that_the_federation_does_not_have_is_passed_over() -> None:
    nodes = table()
    assert not nodes.report(report(1, "running", node="node/999"))
    assert nodes.taken() == {}
    assert nodes.running_on("node/999", 9) == []
    assert nodes.report(report(1, "finished", node="node/999"))


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


SHORT = "short of disk space (No space left on device); free space"


def test_a_node_whose_host_lacks_something_is_short_and_named() -> None:
    nodes = table()
    assert nodes.confined(ConfinementReport(("node/0", "node/1"), "", SHORT)) == [], "there is no other host"
    first, second = nodes.statuses()
    assert (first.state, first.shortage, second.state) == ("short", SHORT, "drained")
    assert nodes.absent() == (f"node/0 and 1 more cannot start tasks, {SHORT}",)
    assert nodes.short_machines() == {0, 1}
    nodes.confined(ConfinementReport(("node/0", "node/1"), ""))
    assert [status.state for status in nodes.statuses()] == ["in use", "drained"]
    assert nodes.absent() == ()


def test_nodes_of_a_short_host_are_closed_while_there_are_others() -> None:
    nodes = NodeTable(NODES, Fleet(MACHINES, [2, 2]), {"node/1"}, lambda node: ("lm/0",), spread=True)
    assert nodes.confined(ConfinementReport(("node/0",), "", SHORT)) == ["node/0"]
    assert nodes.confined(ConfinementReport(("node/0",), "", SHORT)) == [], "it is closed already"
    assert nodes.confined(ConfinementReport(("node/1",), "", SHORT)) == [], "it is drained"
    assert nodes.closed() == {"node/0", "node/1"}
    assert nodes.confined(ConfinementReport(("node/0", "node/1"), "")) == ["node/0"]
    assert nodes.closed() == {"node/1"}


def test_machines_that_are_short_of_something_are_left_out_of_what_could_run_a_task() -> None:
    steps = candidates(Fleet(MACHINES, [2, 2]).cluster, 0, (), (), {}, short={1})
    assert [(demand, len(left)) for demand, left in steps][-2:] == [
        ("lack nothing to start a task", 1),
        ("have a free slot now", 1),
    ]


class Clock:
    """Seconds, as they are set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def told(task: int, at: int = 0, chosen: Chosen = "placed", age_us: int = 0) -> DecisionReport:
    decision = Decision(task, 0, chosen, partition=0, machine=3, asked="lm/0", view_age_us=age_us)
    return DecisionReport("gm/0", at, decision)


def test_the_first_and_the_last_decisions_of_a_task_are_kept() -> None:
    book = DecisionBook()
    assert not book.has_decisions
    for at in range(KEPT_PER_TASK + 5):
        book.note(told(7, at))
    steps = book.steps(7, {3: "node/3"})
    assert [step.at_us for step in steps] == [0, *range(6, KEPT_PER_TASK + 5)]
    assert [step.omitted for step in steps] == [0, 5, *[0] * (KEPT_PER_TASK - 2)]
    assert {(step.by, step.node, step.asked) for step in steps} == {("gm/0", "node/3", "lm/0")}
    assert book.has_decisions
    assert book.steps(8, {}) == ()


def test_decisions_of_the_oldest_tasks_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TASKS_MAX", 2)
    book = DecisionBook()
    for task in (1, 2, 1, 3):
        book.note(told(task))
    assert [len(book.steps(task, {})) for task in (1, 2, 3)] == [0, 1, 1]


def test_recent_decisions_of_a_pair_are_counted_apart() -> None:
    clock = Clock()
    book = DecisionBook(clock)
    book.note(told(1, chosen="placed", age_us=100))
    book.note(told(2, chosen="refused"))
    clock.now_s = RECENT_STEPS * STEP_S
    book.note(told(3, chosen="placed", age_us=300))
    (pair,) = book.pairs()
    assert (pair.by, pair.asked, pair.decisions, pair.refused, pair.view_age_us) == ("gm/0", "lm/0", 2, 1, 200)
    assert (pair.recent, pair.recent_refused, pair.recent_view_age_us) == (1, 0, 300)
    clock.now_s *= 3
    (pair,) = book.pairs()
    assert (pair.decisions, pair.recent, pair.recent_view_age_us) == (2, 0, None)


def test_each_demand_leaves_fewer_machines() -> None:
    cluster = Cluster((0b1, 0b11, 0b11, 0b11, 0b11), (1, 1, 1, 1, 2))
    steps = candidates(cluster, 0b10, (), {1}, {3: 1, 4: 1}, {2})
    assert counted(steps) == counted(
        [
            ("machines", [0, 1, 2, 3, 4]),
            ("meet its constraints", [1, 2, 3, 4]),
            ("are not drained", [2, 3, 4]),
            ("answer", [3, 4]),
            ("have a free slot now", [4]),
        ]
    )


def test_a_task_that_asks_for_amounts_needs_a_machine_that_is_large_enough_when_empty() -> None:
    cluster = Cluster((0, 0), (1, 1), "x", ("memory_mb",), ((100,), (200,)))
    names = [name for name, _ in candidates(cluster, 0, (150,), (), {})]
    assert names == ["machines", "meet its constraints", "are large enough when empty", "are not drained"]
    assert candidates(cluster, 0, (150,), (), {})[-1][1] == [1]
