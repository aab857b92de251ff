"""The rule for service jobs, and the packing of a cell's state in messages."""

from __future__ import annotations

import pytest

from volery.architectures.omega.firstfit import Rings
from volery.architectures.omega.layout import DecisionTimes, Layout, parse_rule
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster, Job, Task
from volery.core.streams import Streams


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


def test_the_decision_time_of_a_job_grows_with_its_tasks() -> None:
    times = DecisionTimes({"batch": 100, "service": 500, "fill": 0}, {"batch": 5, "service": 50, "fill": 0})
    assert [times.decision_us(workload, 3) for workload in ("batch", "service", "fill")] == [115, 650, 0]


def test_free_amounts_survive_their_packing() -> None:
    cluster = Cluster((0b01, 0b11), (2, 3))
    layout = Layout(cluster, Rings(cluster, Streams(0).of("rings")))
    octets = layout.encode(layout.whole)
    assert (len(octets), layout.decode(octets)) == (2 * layout.state_bytes, layout.whole)
    assert layout.fits_somewhere(Task(0, 0, 0b10))
    assert not layout.fits_somewhere(Task(0, 0, 0b100))
