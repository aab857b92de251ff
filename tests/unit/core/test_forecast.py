"""States of a federation, from which forecasts are made."""

from __future__ import annotations

from volery.core.forecast import ActiveJob, FederationState
from volery.core.model import JobId

FIRST, SECOND_JOB = (ActiveJob(JobId(number), "ann", 0) for number in (1, 2))


def test_the_job_in_question_is_the_planned_one_or_one_of_those_under_way() -> None:
    planned = FederationState(0, (FIRST,), SECOND_JOB, ())
    assert planned.questioned is SECOND_JOB
    assert planned.all == (FIRST, SECOND_JOB)
    under_way = FederationState(0, (FIRST, SECOND_JOB), None, (), asked=JobId(2))
    assert under_way.questioned is SECOND_JOB
    assert under_way.all == (FIRST, SECOND_JOB)
