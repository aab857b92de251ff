"""The front, which separates batch jobs from service jobs."""

from __future__ import annotations

import pytest
from tests.unit.architectures.parts import Alone, submit

from volery.architectures.omega.jobs import parse_rule
from volery.core.errors import InputError
from volery.core.events import Cancel, JobAccepted, JobDone
from volery.core.model import SECOND, Cluster, Job, Task

FRONT = "front/0"


def test_the_front_sends_each_type_to_its_schedulers_by_number_and_answers_for_what_is_done() -> None:
    front = Alone("omega", FRONT, Cluster.uniform(2), service="user:web", batch_schedulers=2)
    batch, service = submit(3, 0), type(submit(0))(Job(4, 1, (Task(400, 4),), user="web"))
    assert front.hear(batch) == [("scheduler/1", batch)]
    assert front.hear(service) == [("scheduler/2", service)]
    assert front.hear(Cancel(4)) == [("scheduler/2", Cancel(4))]
    assert front.hear(JobDone(3, 1), "scheduler/1") == [("submitter", JobDone(3, 1))]
    assert front.hear(JobDone(3, 1), "scheduler/1") == [], "repeated"
    assert front.hear(batch) == [("submitter", JobAccepted(3)), ("submitter", JobDone(3, 1))]
    assert front.hear(Cancel(9)) == [("submitter", JobDone(9))]


@pytest.mark.parametrize("text", ["", "user:", "user:a+", "estimate:", "estimate:-1", "estimate:nan", "class:2"])
def test_a_malformed_rule_for_service_jobs_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"omega:service: .* is neither none, user:NAME\+NAME nor estimate:SECONDS"):
        parse_rule(text, "omega:service")


def test_no_rule_makes_all_jobs_batch() -> None:
    assert parse_rule("none", "").workload(Job(0, 0, (), 10**12, "service")) == "batch"


def test_a_rule_by_estimates_counts_jobs_that_are_longer_as_service_jobs() -> None:
    rule = parse_rule("estimate:10", "")
    assert rule.workload(Job(0, 0, (), 10 * SECOND)) == "batch"
    assert rule.workload(Job(0, 0, (), 10 * SECOND + 1)) == "service"
