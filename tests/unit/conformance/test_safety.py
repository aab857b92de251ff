"""The rule of preemptions in turn rejects records in which users take tasks from themselves, or from each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from volery.conformance import NonconformanceError
from volery.conformance.cases import trace_of
from volery.conformance.safety import _demand_no_return
from volery.core.events import Preemption
from volery.core.records import Records

USERS = ("a", "b", "c")
"""Of the tasks, one each."""


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([(0, 1), (1, 2), (2, 0)], ""),
        ([(0, 1), (1, 1)], "'b' lost task 1 to its own task 1"),
        ([(0, 1), (1, 2), (1, 0)], "'a' and 'b' have taken tasks from each other"),
    ],
)
def test_no_two_users_take_tasks_from_each_other(pairs: Sequence[tuple[int, int]], problem: str) -> None:
    records = Records(trace_of("three", [0, 0, 0], [[1], [1], [1]]))
    for task, beneficiary in pairs:
        records.observe(Preemption(0, task, 0, beneficiary))
    if not problem:
        _demand_no_return(records, USERS)
        return
    with pytest.raises(NonconformanceError, match=problem):
        _demand_no_return(records, USERS)
