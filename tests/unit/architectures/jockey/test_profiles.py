"""What Jockey learns from earlier runs, and what the lab makes of it in a study."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.component import Deployment, Learning
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.sim import Network, Options, simulate
from volery.study.plan import run_key
from volery.study.runs import execute
from volery.study.spec import RunSpec

JOCKEY = lookup("jockey")
GRID: dict[str, Any] = {"tokens_step": 2, "tokens_max": 4, "repetitions": 3, "period_s": 1.0}


def lab(deployment: Deployment, trace: Trace, cluster: Cluster) -> Records:
    return simulate(deployment, trace, cluster, network=Network(0), options=Options(graphs=True, check=True))


def earlier() -> Records:
    """Two runs of `daily`, four tasks of 2 s and then one of 3 s; one of somebody without a name, one undue."""
    graph = [(), (), (), (), (0, 1, 2, 3)]
    jobs = [[2 * SECOND] * 4 + [3 * SECOND]] * 2 + [[SECOND], [SECOND]]
    trace = trace_of("earlier", [0, 100 * SECOND, 200 * SECOND, 300 * SECOND], jobs)
    parents = [tuple(low + p for p in one) for low in (0, 5) for one in graph] + [(), ()]
    due = array("q", [50 * SECOND, 150 * SECOND, 250 * SECOND, NEVER])
    trace = msgspec.structs.replace(trace, user=("daily", "daily", "", "weekly"), deadline_us=due)
    cluster = Cluster.uniform(4)
    return lab(JOCKEY.build(cluster, JOCKEY.defaults, Streams(0)), with_parents(trace, parents), cluster)


def test_recurring_jobs_with_deadlines_get_a_profile_and_a_table_by_the_kernel() -> None:
    learning = JOCKEY.capability(Learning)
    assert learning is not None
    (daily,) = learning.learn(configure(JOCKEY, GRID), earlier(), lab)
    assert (daily.job, daily.profile.stage_of) == ("daily", (0, 0, 0, 0, 1))
    assert daily.profile.run_us == ((2 * SECOND,) * 8, (3 * SECOND,) * 2)
    assert daily.table.grid == (2, 4)
    assert (daily.table.at(0, 2), daily.table.at(0, 4)) == (7 * SECOND, 5 * SECOND), "4 / 2 and 4 / 4 rounds of 2 s"
    assert daily.table.at(8 / 11, 4) == 3 * SECOND, "8 of 11 s of work are done"


def test_learning_depends_on_what_it_says_it_depends_on_alone() -> None:
    learning = JOCKEY.capability(Learning)
    assert learning is not None
    assert set(learning.by) <= set(JOCKEY.defaults.__struct_fields__)
    records = earlier()
    found = learning.learn(configure(JOCKEY, GRID), records, lab)
    others = {"control": "first", "simulator": False, "slack": 2.0, "alpha": 0.5, "dead_zone_s": 1.0, "spare": False}
    assert learning.learn(configure(JOCKEY, {**GRID, **others}), records, lab) == found
    assert learning.learn(configure(JOCKEY, {**GRID, "tokens_step": 1}), records, lab) != found


SPEC = "recurring:2x2,tasks=20,mean=10,workers=20,tokens=4"
RUN = RunSpec(trace=SPEC, workers=20, architecture="jockey", parameters={**GRID, "dead_zone_s": 5.0}, history=SPEC)


@pytest.mark.slow
def test_a_study_teaches_by_other_runs_of_the_same_jobs() -> None:
    taught, untaught = execute(RUN).summary, execute(msgspec.structs.replace(RUN, history="")).summary
    assert (taught.ignores, untaught.ignores) == ((), ("users",))
    assert taught.allotments is not None
    assert untaught.allotments is not None
    assert taught.allotments != untaught.allotments, "what is known of a job changes its guarantee"
    assert taught.deadlines is not None
    assert taught.deadlines.relative is not None
    assert taught.deadlines.relative.count == taught.deadlines.jobs == 4
    assert execute(RUN).summary.digest == taught.digest


@pytest.mark.parametrize("history", ["", f"{SPEC},noise=0.5"])
def test_results_depend_on_earlier_runs(history: str) -> None:
    assert run_key(RUN) != run_key(msgspec.structs.replace(RUN, history=history))


def test_designs_that_learn_nothing_run_as_without() -> None:
    oracle = msgspec.structs.replace(RUN, architecture="oracle", parameters={})
    assert execute(oracle).summary.digest == execute(msgspec.structs.replace(oracle, history="")).summary.digest
