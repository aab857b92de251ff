"""Transcripts of Pigeon beyond two queues and a fixed pair of masters (sections 2.2 and 6)."""

from __future__ import annotations

import re

from tests.scripts.register import bits, case, counter, responses, script
from tests.scripts.transcript import transcript

from volery.core.model import SECOND
from volery.sim.faults import Crash, FaultPlan

LONG_US = 2_000 * SECOND
"""A mean duration beyond the cutoff of 1129.532 s."""
NEVER_US = 2_000 * SECOND
"""Masters that crash are restarted long after the work is done."""
QUIET = frozenset({"JobAccepted", "LeaderStatus", "StaleEpoch"})


@script
def fair_queue_of_three_types() -> str:
    """Short tasks 7 to 12, medium ones 4 to 6, long ones 1 to 3, with weights 3 and 2."""
    jobs = [[SECOND], *([[LONG_US]] * 3), *([[100 * SECOND]] * 3), *([[SECOND]] * 6)]
    queued = case([0] + [1_000] * 12, jobs, [0])
    title = "Pigeon, section 2.2, footnote: as many queues as types of jobs, with weighted fair queuing"
    parameters = {"reserved": 0, "distributors": 1, "weight": 3, "cutoff_s": 10.0}
    more = {"longer_cutoffs_s": (1129.532,), "longer_weights": (2,)}
    quiet = frozenset({"JobAccepted", "Submit", "GroupTasks", "Launch", "Completed", "JobDone"})
    return transcript(title, "pigeon", queued, parameters={**parameters, **more}, quiet=quiet)


def test_of_three_types_one_in_three_is_not_short_and_of_these_one_in_two_is_long() -> None:
    started = [int(task) for task in re.findall(r"runs t([0-9]+)", fair_queue_of_three_types())]
    assert "".join("LMS"[(task > 3) + (task > 6)] for task in started[1:]) == "SSMSSLSSMLML"


@script
def pigeon_reports_queue_lengths() -> str:
    """Job 0 is bound to the worker of the first group; jobs 1 to 3 are not, and go to the second group."""
    jobs = [[10 * SECOND] * 3, *([[SECOND]] * 3)]
    bound = case([0, *[k * SECOND for k in (2, 4, 4)]], jobs, [bits(1), 0], [[bits(1)] * 3, *([[0]] * 3)])
    title = "Pigeon, section 6.2: tasks bound to a worker; masters report queue lengths, distributors balance by them"
    parameters = {"groups": 2, "reserved": 0, "distributors": 1, "reports_s": 1.0}
    return transcript(title, "pigeon", bound, parameters=parameters, quiet=frozenset({"JobAccepted", "Submit"}))


def test_jobs_avoid_the_group_of_which_tasks_wait() -> None:
    text = pigeon_reports_queue_lengths()
    assert "master/0 > distributor/0  QueueLengths(lengths=[2 0])" in text
    assert responses(text)[1:] == [1.0015, 1.0015, 2.0025]


SUCCEEDING = {"reliable": True, "groups": 1, "reserved": 0, "distributors": 1, "candidates": 4, "update_s": 0.5}
SIX_TASKS = case([0], [[8 * SECOND] * 6], [0] * 4)


@script
def pigeon_masters_succeed_each_other() -> str:
    """The second master takes over with its copy of the queue and chooses a second, which takes over in its turn."""
    title = "Pigeon, section 6.1: updates of the second master, its takeover, and the choice of a new second master"
    plan = FaultPlan(crashes=(Crash(2 * SECOND, "master/0", NEVER_US), Crash(5 * SECOND, "master/0/standby", NEVER_US)))
    return transcript(title, "pigeon", SIX_TASKS, parameters=SUCCEEDING, plan=plan, quiet=QUIET)


@script
def pigeon_workers_elect_a_master() -> str:
    """Leader and second are lost at once; both other workers declare themselves, and one of them leads."""
    title = "Pigeon, section 6.1: both masters fail, a worker takes over and asks workers and schedulers; an election"
    plan = FaultPlan(crashes=(Crash(2 * SECOND, "master/0", NEVER_US), Crash(2 * SECOND, "master/0/standby", NEVER_US)))
    return transcript(title, "pigeon", SIX_TASKS, parameters=SUCCEEDING, plan=plan, quiet=QUIET)


def test_a_second_master_places_the_tasks_of_its_copy_and_no_task_runs_twice() -> None:
    text = pigeon_masters_succeed_each_other()
    assert counter(text, "tasks_resumed") == 4
    assert counter(text, "tasks_sent_again") == 0
    assert text.count("runs t") == 6


def test_workers_that_lost_both_masters_elect_one_and_distributors_send_what_waited() -> None:
    text = pigeon_workers_elect_a_master()
    assert len(set(re.findall(r"(master/0/[23]) > .*Declared", text))) == 2
    assert len(set(re.findall(r"(master/0/[23]) > node/0  Lead", text))) == 1
    assert counter(text, "tasks_sent_again") == 2
    assert text.count("runs t") == 6
