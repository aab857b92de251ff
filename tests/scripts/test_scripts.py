"""Transcripts of small interactions, one per paragraph or figure that they replay.

A change of behaviour shows as a changed line. After review: `pytest tests/scripts --rewrite-scripts`.
Each script also states, apart from its lines, what the paragraph claims.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tests.scripts.test_deadlines
import tests.scripts.test_hydra
import tests.scripts.test_megha_printed
import tests.scripts.test_mercury
import tests.scripts.test_pigeon
import tests.scripts.test_tags  # noqa: F401 - likewise
from tests.scripts.register import SCRIPTS, bits, case, counter, responses, script
from tests.scripts.transcript import transcript

from volery.architectures.pigeon.groups import ConstraintCounting, GroupSupply, divide
from volery.conformance.cases import Case
from volery.core.locality import with_replicas
from volery.core.model import SECOND, Cluster
from volery.sim import Network
from volery.sim.faults import Crash, FaultPlan

HERE = Path(__file__).parent
NO_DELAY = Network(delay_us=0)
LONG = 2_000 * SECOND
"""A mean duration beyond the cutoff of 1129.532 s."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_transcript_is_as_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    path, text = HERE / f"{name}.txt", SCRIPTS[name]()
    if request.config.getoption("--rewrite-scripts"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "review the change, then pytest tests/scripts --rewrite-scripts"


def test_every_transcript_has_its_script() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(SCRIPTS)


def replay(title: str, design: str, played: Case, *premises: str, **settings: Any) -> str:
    """The transcript of the first seed under which the random choices are those that the paragraph speaks of."""
    for seed in range(1000):
        text = transcript(title, design, played, seed=seed, **settings)
        if all(premise in text for premise in premises):
            return text
    raise AssertionError(f"no seed below 1000 gives {premises}")


TOY = case([0, 0, 0], [[t * SECOND for t in (20, 1, 1, 10, 10, 10)], [2 * SECOND], [2 * SECOND]], [0] * 4)


@script
def pigeon_toy() -> str:
    """Tasks A1 to A3 go to group one, A4 to A6 to group two."""
    parameters = {"groups": 2, "distributors": 1, "reserved": 0, "deal": "blocks"}
    title = "Pigeon, section 4, 'Explanations for the Counterintuitive Phenomenon', figure 6: jobs A (0), B (1), C (2)"
    premises = (
        "master/0  GroupTasks(number=2, short=True, tasks=[t6])",
        "master/1  GroupTasks(number=2, short=True, tasks=[t7])",
    )
    return replay(title, "pigeon", TOY, *premises, parameters=parameters, network=NO_DELAY)


@script
def central_toy() -> str:
    """The same jobs under one central first-come-first-served scheduler."""
    title = "Pigeon, section 4, figure 6: the centralised counterpart"
    return transcript(title, "oracle", TOY, network=NO_DELAY)


def test_pigeon_finishes_the_toy_in_36_and_the_central_scheduler_in_45() -> None:
    """Job completion times 20, 4, 12 against 20, 12, 13."""
    assert responses(pigeon_toy()) == [20, 4, 12]
    assert responses(central_toy()) == [20, 12, 13]


COUNTINGS: tuple[ConstraintCounting, ...] = ("exact", "published-code")
L1 = [bits(1, 3, 5), bits(1, 2), bits(4)]
L2 = [bits(2, 4), bits(4), bits(2, 4)]


@script
def pigeonc_supply() -> str:
    """The constraint sets of section 4.2's two clusters, their counts per task, and where tasks go."""
    groups = divide(Cluster(tuple(L1 + L2), (1,) * 6), 2, (), 0)
    asked: tuple[list[int], ...] = ([], [1], [2], [4], [2, 4], [1, 2], [1, 4])
    lines = ["# Thiyyakat et al. 2023, section 4.2: the weight of a master is the number of its workers that suffice"]
    lines.append(f"{'task needs':>12} {'exact L1':>9} {'exact L2':>9} {'code L1':>9} {'code L2':>9}")
    for task in asked:
        weights = []
        for counting in COUNTINGS:
            first, both = GroupSupply(groups, counting).cumulative(bits(*task), True)
            weights += [first, both - first]
        label = ",".join(str(need) for need in task) or "nothing"
        lines.append(f"{label:>12} " + " ".join(f"{weight:9}" for weight in weights))
    needs: list[list[int]] = [[bits(1)], [bits(2, 4)], [bits(4)], [bits(4)], [bits(4)], [bits(1, 4)], [0]]
    arrivals = [k * 10_000 for k in range(len(needs))]
    sent = case(arrivals, [[5_000]] * len(needs), L1 + L2, needs)
    title = "Section 4.2: {1} only fits L1 (master/0), {2,4} only L2 (master/1), {4} goes three times as often to L2,\n"
    title += "{1,4} fits no worker and is reported"
    parameters = {"groups": 2, "distributors": 1}
    return "\n".join(lines) + "\n\n" + transcript(title, "pigeonc", sent, parameters=parameters)


def test_supply_counts_are_those_of_the_paper() -> None:
    """CS_1 = {(1,3,5):1, (1,2):1, (4):1}, CS_2 = {(2,4):2, (4):1}; a set counts for every subset of it."""
    groups = divide(Cluster(tuple(L1 + L2), (1,) * 6), 2, (), 0)
    supply = GroupSupply(groups, "exact")
    expected = {(): [3, 3], (1,): [2, 0], (2,): [1, 2], (4,): [1, 3], (2, 4): [0, 2], (1, 2): [1, 0], (1, 4): [0, 0]}
    for needs, (one, two) in expected.items():
        assert list(supply.cumulative(bits(*needs), True)) == [one, one + two], needs


@script
def megha_inconsistency() -> str:
    """Two GMs choose the same worker; the LM refuses the later one and piggybacks what it knows."""
    title = "Thiyyakat et al. 2023, section 2.1: a stale view, an invalid request, the state piggybacked on the refusal"
    clash = case([0, 0], [[SECOND, SECOND], [SECOND // 2]], [0] * 3)
    return transcript(title, "megha", clash, parameters={"gms": 2, "lms": 1, "match": "min-constraints"})


def test_an_invalid_request_costs_one_round_trip() -> None:
    """Three hops when valid (1.5 ms); the refused task needs the refusal and another request: five (2.5 ms)."""
    text = megha_inconsistency()
    assert counter(text, "inconsistencies") == 1
    assert responses(text) == [1.0015, 0.5025]
    assert re.search(r"lm/0 > gm/1  Refusal\(tasks=\[2\], update=StateUpdate\(.*taken=\{", text)


FREED = case([4 * SECOND, 7 * SECOND], [[2 * SECOND] * 3, [SECOND]], [0] * 3)
"""The heartbeat at 5 s tells gm/1 that all is taken; all is free from 6 s on, which the heartbeat at 10 s tells."""


@script
def megha_asks_for_news() -> str:
    """The next job on an idle cluster is at the GM that did not have the work before it."""
    title = "not in the papers, a default of federations: a GM with waiting tasks asks for news (ask)"
    return transcript(title, "megha", FREED, parameters={"gms": 2, "lms": 1, "ask": True})


@pytest.mark.parametrize("design", ["megha", "megha-2021"])
@pytest.mark.parametrize("reliable", [False, True])
def test_the_next_job_on_an_idle_cluster_starts_in_milliseconds(design: str, reliable: bool) -> None:
    """Ask, 2 ms for whoever had the room before, the update, and three hops: 5 ms; else the rest of the heartbeat."""
    parameters = {"gms": 2, "lms": 1, "heartbeat_s": 5.0, "reliable": reliable}
    asked, waited = (
        responses(transcript("", design, FREED, parameters={**parameters, "ask": ask}))[1] for ask in (True, False)
    )
    assert asked <= 1.006
    assert waited >= 4.0


NOTICE = case([0], [[8_600, 8_600, 8_600]], [0])
"""The first task ends 0.4 ms before a heartbeat, so that its notice and the update are under way together."""


def notices(completion_notice: str) -> str:
    """Section 4.4's race between a completion and the next update."""
    title = f"Thiyyakat et al. 2023, section 4.4: own completions told {completion_notice}"
    parameters = {"gms": 1, "lms": 1, "heartbeat_s": 0.01, "completion_notice": completion_notice}
    return transcript(title, "megha", NOTICE, parameters=parameters)


@script
def megha_completion_told_twice() -> str:
    """The earlier design: the update repeats what the completion said, and the GM gives the worker away twice."""
    return notices("twice")


@script
def megha_completion_told_once() -> str:
    """The revised design leaves a GM's own completions out of its updates."""
    return notices("once")


def test_telling_a_completion_twice_causes_inconsistencies_and_once_does_not() -> None:
    assert counter(megha_completion_told_twice(), "inconsistencies") > 0
    assert counter(megha_completion_told_once(), "inconsistencies") == 0


@script
def megha_preemption() -> str:
    """Two users with equal shares; the second finds all machines taken, and gets its half at the first one's cost."""
    title = "Thiyyakat et al. 2021, section IV-C: user b preempts the youngest of a's tasks, which is beyond a's share"
    taken = case([0, 5_000], [[SECOND, SECOND], [SECOND]], [0] * 2)
    shared = msgspec.structs.replace(taken.trace, user=("a", "b"))
    parameters = {"gms": 2, "lms": 1, "shares": "a:1+b:1", "heartbeat_s": 0.01}
    return transcript(title, "megha-2021", Case("script", 0, shared, taken.cluster), parameters=parameters)


def test_a_preemption_costs_the_loser_its_work_and_the_winner_seven_hops() -> None:
    """Request and refusal, which says who runs there; Preempt, Yield, Answer, Kill, Launch: 3.5 ms."""
    text = megha_preemption()
    assert counter(text, "preemptions") == counter(text, "inconsistencies") == 1
    steps = [
        text.index(step)
        for step in (
            "Preempt(",
            "PreemptionRequest(",
            "PreemptionVote(",
            "Kill(",
            "killed=True",
            "AttemptsLost(",
            "runs t2",
        )
    ]
    assert steps == sorted(steps)
    assert responses(text) == [2.003, 1.004]


SURVIVING = {"reliable": True, "gms": 2, "lms": 1, "heartbeat_s": 1.0}
"""Two GMs, one LM and its standby."""


@script
def megha2021_worker_dies() -> str:
    """Two tasks, the second on a logical node of the other GM's machine, which dies and is restarted."""
    title = "Thiyyakat et al. 2021, section IV-D: a worker is restarted; what ran there is on its LM's active task list"
    plan = FaultPlan(crashes=(Crash(400_000, "node/1", 700_000),))
    two = case([0], [[SECOND, SECOND]], [0] * 2)
    return transcript(title, "megha-2021", two, parameters=SURVIVING, plan=plan, quiet=QUIET)


@script
def megha2021_masters_die() -> str:
    """The active LM dies, then the stateless GM of the only job; its task on a logical node runs on."""
    title = "Thiyyakat et al. 2021, section IV-D: the standby takes over; a GM is rebuilt from what LMs tell it"
    plan = FaultPlan(crashes=(Crash(100_000, "lm/0", 60 * SECOND), Crash(3 * SECOND, "gm/0", 4 * SECOND)))
    two = case([0], [[8 * SECOND, 8 * SECOND]], [0] * 2)
    return transcript(title, "megha-2021", two, parameters=SURVIVING, plan=plan, quiet=QUIET)


QUIET = frozenset({"JobAccepted", "LeaderStatus", "StaleEpoch"})


def test_a_worker_that_dies_costs_one_attempt_and_its_logical_node_goes_back_once() -> None:
    text = megha2021_worker_dies()
    steps = [text.index(step) for step in ("node/1 runs t1", "AttemptsLost(", "attempts=[1]", "ends t1", "JobDone")]
    assert steps == sorted(steps)
    assert text.count("runs t0") == 1
    assert text.count("runs t1") == 2


def test_tasks_outlive_the_masters_that_placed_them() -> None:
    """Whole reports of the standby: as it opens, and to the GM that has begun anew; both tasks run once."""
    text = megha2021_masters_die()
    assert text.count("runs t") == 2
    assert "lm/0/standby > gm/0  ResyncReply(epoch=1, is_whole=True" in text
    assert text.index("gm/0 > lm/0/standby  ResyncRequest()") < text.rindex("ResyncReply(epoch=1, is_whole=True")
    assert counter(text, "repartitions") == 2, "the new leader counts what it takes over"


VERSATILE = case([0, 10_000], [[SECOND], [SECOND]], [bits(1, 2, 3, 4), bits(1, 2)], [[bits(1, 2)], [bits(3)]])


@script
def minimum_constraints() -> str:
    """Worker B (1,2) is taken for task1, so that worker A (1,2,3,4) is there for task2."""
    title = "Thiyyakat et al. 2023, section 4.3.2: minimum constraints leaves the versatile worker A (node/0) free"
    return transcript(title, "pigeonc", VERSATILE, parameters={"match": "min-constraints", "distributors": 1})


@script
def random_match() -> str:
    """Chosen at random, worker A runs task1 and task2 must wait for it."""
    title = "Thiyyakat et al. 2023, section 4.3.2: a random choice may take the versatile worker A (node/0)"
    return replay(title, "pigeonc", VERSATILE, "node/0 runs t0", parameters={"match": "random", "distributors": 1})


def test_minimum_constraints_spares_the_second_task_its_wait() -> None:
    assert responses(minimum_constraints()) == [1.0015, 1.0015]
    assert responses(random_match())[1] == pytest.approx(1.0015 + 0.991, abs=0.002)


PROBED = case([0, 10_000], [[4 * SECOND], [SECOND, SECOND]], [0] * 2)
"""One of two workers is busy for long when a job of two tasks comes."""


@script
def sparrow_late_binding() -> str:
    """Batch sampling leaves four reservations; the worker that is free first gets both tasks, one after the other."""
    title = "Ousterhout et al. 2013, sections 3.2 to 3.6: reservations, tasks bound on request, the rest withdrawn"
    return transcript(title, "sparrow", PROBED, parameters={"schedulers": 1})


@script
def sparrow_shortest_queues() -> str:
    """The same without late binding: the shortest queues at the moment of probing get the tasks."""
    title = "Ousterhout et al. 2013, section 3.3: tasks placed by queue length, which says nothing of durations"
    parameters = {"schedulers": 1, "late_binding": False}
    return replay(title, "sparrow", PROBED, "job 1: response 4.99", parameters=parameters)


def test_late_binding_runs_both_tasks_on_the_worker_that_is_free() -> None:
    """One after the other on the idle worker take 2 s; behind a task of 4 s, one of them takes 5 s."""
    assert responses(sparrow_late_binding())[1] == pytest.approx(2.0, abs=0.02)
    assert responses(sparrow_shortest_queues())[1] == pytest.approx(5.0, abs=0.02)


BEHIND = case([0, 10_000, 11_000], [[LONG], [SECOND], [SECOND, SECOND]], [0] * 3)
"""A long task runs when two short jobs come; the third worker is for short tasks only."""


@script
def hawk_steals() -> str:
    """A reservation behind the long task is served by a worker that has fallen idle."""
    title = "Delgado et al. 2015, section 3.6: an idle worker steals the short tasks that wait behind a long one"
    parameters = {"schedulers": 1, "short_part": 0.34, "steal_attempts": 4, "probe_ratio": 1, "probes_min": 1}
    premises = ("Stolen(probes=[Probe", "job 2: response 2.")
    return replay(title, "hawk", BEHIND, *premises, parameters=parameters)


@script
def eagle_rejects() -> str:
    """The worker with the long task rejects the probe and tells where long tasks are."""
    title = "Delgado et al. 2016, section 4: a worker with a long task rejects short ones; nobody waits behind it"
    parameters = {"schedulers": 1, "short_part": 0.34, "probe_ratio": 1, "probes_min": 2}
    return replay(title, "eagle", BEHIND, "Rejected(", parameters=parameters)


def test_no_short_job_waits_for_a_long_task_to_end() -> None:
    assert max(responses(hawk_steals())[1:]) < 4
    assert max(responses(eagle_rejects())[1:]) < 4
    assert counter(eagle_rejects(), "rejected_probes") > 0


MILLISECOND = SECOND // 1000
ASKS_FOR_1 = case(
    [0, MILLISECOND, 2 * MILLISECOND],
    [[20 * MILLISECOND] * 3, [10 * MILLISECOND] * 2, [30 * MILLISECOND] * 2],
    [bits(0, 1)],
    [[0, 0, 0], [0, 0], [bits(1), bits(1)]],
)
"""One worker; tasks 5 and 6 of the third job ask for constraint 1, of which two tasks wait for every worker."""


@script
def phoenix_reorders() -> str:
    """At a heartbeat the queue is crowded and constraint 1 is scarce: t5 passes t1 and t2; then it no longer is."""
    title = (
        "Thinakaran et al. 2017, section IV: while demand exceeds supply, tasks that ask for what is scarce go first"
    )
    parameters = {"schedulers": 1, "short_part": 0, "probe_ratio": 1, "probes_min": 1, "heartbeat_s": 0.01}
    return transcript(title, "phoenix", ASKS_FOR_1, parameters=parameters)


def started(text: str) -> list[int]:
    """Tasks in the order of their starts."""
    return [int(task) for task in re.findall(r"runs t([0-9]+)", text)]


def test_phoenix_lets_scarce_constraints_pass_where_eagle_goes_by_remaining_work() -> None:
    parameters = {"schedulers": 1, "short_part": 0, "probe_ratio": 1, "probes_min": 1}
    assert started(transcript("the same", "eagle", ASKS_FOR_1, parameters=parameters)) == [0, 3, 4, 1, 2, 5, 6]
    assert started(phoenix_reorders()) == [0, 3, 4, 5, 1, 2, 6], "t6 alone is no longer more than one per worker"
    assert counter(phoenix_reorders(), "reordered_tasks") > 0


TWO_FOR_ONE = case([0, 0], [[SECOND], [SECOND, SECOND]], [0, 0])
"""Three tasks of two jobs on two machines."""


def two_schedulers(conflicts: str, gang: bool) -> str:
    """Both schedulers begin on the same, empty cell; the one with fewer tasks has decided first."""
    title = "Schwarzkopf et al. 2013, sections 3.4 and 5.2: two transactions on the same state; the later one conflicts"
    parameters = {"batch_schedulers": 2, "conflicts": conflicts, "gang": gang}
    return transcript(title, "omega", TWO_FOR_ONE, parameters=parameters)


@script
def omega_incremental() -> str:
    """Of two claims the one that is in conflict comes again after 1 s; the other stands."""
    return two_schedulers("fine", gang=False)


@script
def omega_gang() -> str:
    """All or nothing: both claims come again."""
    return two_schedulers("fine", gang=True)


def test_a_conflict_costs_an_incremental_job_one_claim_and_a_gang_all() -> None:
    assert len(re.findall(r"refused=\[[12]\]", omega_incremental())) == 1
    assert "refused=[1 2]" in omega_gang()
    assert max(responses(omega_incremental())) < max(responses(omega_gang())) + 0.1


@script
def mesos_locks() -> str:
    """While one framework decides on all that is free, the other gets no offer."""
    title = "Schwarzkopf et al. 2013, section 4.2: an offer locks what is free while its framework decides"
    parameters = {"service": "estimate:1", "service_job_s": 5.0}
    jobs = case([0, 1_200 * MILLISECOND], [[2 * SECOND], [SECOND]], [0, 0])
    return transcript(title, "mesos", jobs, parameters=parameters)


def test_the_batch_job_waits_for_the_long_decision_on_a_machine_that_nobody_uses() -> None:
    assert responses(mesos_locks())[1] > 5


def fair_queue(weight: int, weight_counting: str, title: str) -> str:
    """Six short and four long tasks wait for one worker."""
    jobs = [[SECOND], *([[LONG]] * 4), *([[SECOND]] * 6)]
    queued = case([0] + [1_000] * 10, jobs, [0])
    parameters = {"reserved": 0, "distributors": 1, "weight": weight, "weight_counting": weight_counting}
    quiet = frozenset({"JobAccepted", "Submit", "GroupTasks", "Launch", "Completed", "JobDone"})
    return transcript(title, "pigeon", queued, parameters=parameters, quiet=quiet)


@script
def fair_queue_of_weight_3() -> str:
    """Out of every 3 tasks that are served, one is long while long ones wait."""
    return fair_queue(3, "paper", "Pigeon, section 2.2: of every W = 3 tasks at least one comes from the low queue")


@script
def fair_queue_of_infinite_weight() -> str:
    """Strict priority."""
    return fair_queue(0, "paper", "Pigeon, section 2.2: W = infinity is strict priority")


@script
def fair_queue_of_pigeonc() -> str:
    """One long task for every FQW short ones."""
    return fair_queue(3, "short-per-long", "IoT 2023, section 4.2: one long task for every FQW = 3 short ones")


@script
def fair_queue_of_the_published_code() -> str:
    """The public code lets W + 1 short tasks pass."""
    return fair_queue(3, "published-code", "Pigeon's public code: W + 1 = 4 short tasks pass before a long one")


def served(text: str) -> str:
    """S or L for each task after the first, in the order of their starts (tasks 1 to 4 are long)."""
    started = [int(task) for task in re.findall(r"runs t([0-9]+)", text)]
    return "".join("L" if 1 <= task <= 4 else "S" for task in started[1:])


def test_the_weight_decides_how_many_short_tasks_pass_a_long_one() -> None:
    assert served(fair_queue_of_weight_3()) == "SSLSSLSSLL"
    assert served(fair_queue_of_infinite_weight()) == "SSSSSSLLLL"
    assert served(fair_queue_of_pigeonc()) == "SSSLSSSLLL"
    assert served(fair_queue_of_the_published_code()) == "SSSSLSSLLL"


@script
def hfs_waits_for_input() -> str:
    """Job 1 has its turn on node/0 and no input there; it waits for node/1, and job 2 goes first."""
    jobs = [[2 * SECOND, 3 * SECOND], [SECOND], [SECOND]]
    waiting = case([0, 1_000, 2_000], jobs, [0, 0])
    held = [(0,), (1,), (1,), (0,)]
    placed = msgspec.structs.replace(waiting, trace=with_replicas(waiting.trace, held, (1000, 1000)))
    title = "Zaharia et al. 2010, section 3.3: a job without input on the machine lets the next job go first"
    parameters = {"delay": "skips", "node_skips": 3, "rack_skips": 0, "heartbeat_s": 10.0}
    return transcript(title, "hfs", placed, parameters=parameters)


def test_the_job_that_waits_runs_later_and_where_its_input_lies() -> None:
    text = hfs_waits_for_input()
    assert text.index("node/0 runs t3") < text.index("node/1 runs t2")
    assert "node/0 runs t2" not in text
