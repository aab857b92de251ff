"""Transcripts of tag constraints: Medea's Storm near Memcached, apart from HBase, and few beside Spark."""

from __future__ import annotations

import re

import msgspec
from tests.scripts.register import case, script
from tests.scripts.transcript import transcript

from volery.conformance.cases import Case
from volery.core.model import SECOND, UNLIMITED, Cluster, TagConstraint
from volery.core.tags import with_tags

RACKS = (0, 0, 1, 1)
QUIET = frozenset({"JobAccepted", "Cleaned"})


def applications() -> Case:
    """HBase (t0, t1), Memcached (t2), Storm (t3 to t5) and, later, Spark (t6 to t9)."""
    rules = (
        TagConstraint(("hb",), ("hb",), 0, 0, "rack"),
        TagConstraint(("storm",), ("mem",), 1, UNLIMITED, "rack"),
        TagConstraint(("storm",), ("hb",), 0, 0, "node"),
        TagConstraint(("storm",), ("spark",), 0, 1, "rack"),
    )
    played = case([0, 0, 0, SECOND], [[9 * SECOND] * 2, [9 * SECOND], [5 * SECOND] * 3, [2 * SECOND] * 4], [0] * 4)
    trace = with_tags(played.trace, [("hb",), ("mem",), ("storm",), ("spark",)], rules)
    return msgspec.structs.replace(played, trace=trace, cluster=Cluster((0,) * 4, (3,) * 4, racks=RACKS))


TITLE = """Medea, EuroSys 2018, section 4.2: constraints between applications, as recalled, on two racks of two machines
HBase {hb, {hb, 0, 0}, rack}: its two tasks in different racks
Storm {storm, {mem, 1, inf}, rack}: in the rack of Memcached; {storm, {hb, 0, 0}, node}: on no machine with HBase
Storm {storm, {spark, 0, 1}, rack}: at most one Spark in its rack, also of those that come later"""


@script
def tags_pipeline() -> str:
    """One scheduler that knows where everything runs."""
    return transcript(TITLE, "pipeline", applications(), parameters={"tags": True}, quiet=QUIET)


@script
def tags_omega_conflict() -> str:
    """Two schedulers claim machines of one rack for tasks that must be alone there: the cell refuses the second."""
    title = """Medea's anti-affinity under shared state: two jobs, each alone where it is (web, {web, 0, 0}, rack)
Both schedulers see an empty cell, and the second claim in a rack breaks the constraint of the first"""
    rule = TagConstraint(("web",), ("web",), 0, 0, "rack")
    played = case([0, 0], [[SECOND] * 2, [SECOND] * 2], [0] * 4)
    trace = with_tags(played.trace, [("web",), ("web",)], [rule])
    cluster = Cluster((0,) * 4, (2,) * 4, racks=RACKS)
    two = msgspec.structs.replace(played, trace=trace, cluster=cluster)
    parameters = {"tags": True, "batch_schedulers": 2, "batch_job_s": 0.0, "batch_task_s": 0.0}
    return transcript(title, "omega", two, parameters=parameters, quiet=QUIET | {"Changes"})


def placed(text: str) -> dict[int, tuple[float, int]]:
    """Per task, when (ms) and on which machine it started."""
    found = re.findall(r"\( *([0-9.]+) ms\) node/(\d+) runs t(\d+)", text)
    return {int(task): (float(at), int(machine)) for at, machine, task in found}


def test_applications_stand_as_their_constraints_say() -> None:
    starts = placed(tags_pipeline())
    rack = {task: RACKS[machine] for task, (_, machine) in starts.items()}
    assert rack[0] != rack[1], "HBase apart"
    assert {rack[task] for task in (3, 4, 5)} == {rack[2]}, "Storm near Memcached"
    assert not {starts[task][1] for task in (3, 4, 5)} & {starts[0][1], starts[1][1]}, "and not beside HBase"
    early = [task for task in (6, 7, 8, 9) if starts[task][0] < 5000]
    assert [rack[task] for task in early].count(rack[2]) <= 1, "at most one Spark while Storm runs"


def test_the_cell_refuses_a_claim_beside_one_that_must_be_alone() -> None:
    text = tags_omega_conflict()
    assert re.search(r"cell/0 > scheduler/1  Verdict\(.*refused=\[\d", text)
    starts = placed(text)
    for first in range(4):
        for second in range(first):
            apart = abs(starts[first][0] - starts[second][0]) >= 1000
            assert apart or RACKS[starts[first][1]] != RACKS[starts[second][1]]
