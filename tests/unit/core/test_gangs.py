"""Gangs of a workload: their shapes, what schedulers receive, and workloads that no run can have."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.capabilities import GangPlacement, Replication
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.gangs import check_gang_placement, check_gang_racks, check_gangs, has_gangs, with_gangs
from volery.core.model import PREFERS_RACK, REQUIRES_RACK, SECOND, Cluster, Gang
from volery.core.trace import NO_GANG, Trace
from volery.workload.quirks import first_jobs, in_order


def workload() -> Trace:
    """Three jobs of 1, 5 and 4 tasks: no gang, a gang on two machines, and one on any."""
    plain = trace_of("three", [0, 10, 20], [[SECOND], [SECOND] * 5, [SECOND] * 4])
    return with_gangs(plain, [NO_GANG, 2, 0])


def submitted(trace: Trace, job: int) -> Gang | None:
    """The gang in the message that submits a job."""
    [message] = trace.submission(job)
    assert isinstance(message, Submit)
    return message.job.gang


def test_a_job_is_submitted_with_the_shape_of_its_gang() -> None:
    assert [submitted(workload(), job) for job in range(3)] == [None, Gang(2, 3), Gang()]


def test_gangs_are_part_of_the_input_and_their_absence_is_not() -> None:
    plain = msgspec.structs.replace(workload(), gang_nodes=array("i"))
    assert workload().digest() != plain.digest()
    assert with_gangs(plain, [NO_GANG] * 3) == plain
    assert not has_gangs(plain)


def test_a_job_is_submitted_with_the_rack_of_its_gang() -> None:
    wishes = [0, REQUIRES_RACK, PREFERS_RACK]
    racked = with_gangs(workload(), workload().gang_nodes, wishes)
    assert [submitted(racked, job) for job in range(3)] == [None, Gang(2, 3, REQUIRES_RACK), Gang(rack=PREFERS_RACK)]
    assert racked.digest() != workload().digest()
    assert with_gangs(workload(), workload().gang_nodes, [0, 0, 0]) == workload()
    late = msgspec.structs.replace(racked, arrival_us=array("q", [30, 10, 20]))
    assert list(in_order(late).gang_racks) == [REQUIRES_RACK, PREFERS_RACK, 0]
    assert list(first_jobs(racked, 2).gang_racks) == [0, REQUIRES_RACK]


def test_gangs_follow_their_jobs() -> None:
    late = msgspec.structs.replace(workload(), arrival_us=array("q", [30, 10, 20]))
    assert list(in_order(late).gang_nodes) == [2, 0, NO_GANG]
    assert list(first_jobs(workload(), 2).gang_nodes) == [NO_GANG, 2]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"gang_nodes": array("i", [0, 0])}, "2 counts of machines of gangs for 3 jobs"),
        ({"gang_nodes": array("i", [0, 6, 0])}, "job 1 is a gang of 5 tasks on 6 machines; give from 1 to 5, or 0"),
        ({"gang_nodes": array("i", [0, -2, 0])}, "on -2 machines"),
        ({"gang_racks": array("b", [0, 1])}, "2 racks of gangs for 3 jobs"),
        ({"gang_racks": array("b", [0, 3, 0])}, "the rack of gang 1 is 3; give 0, 1 or 2"),
        (
            {"parent_first": array("q", [0] * 7 + [1] * 4), "parents": array("q", [5])},
            "job 2 is a gang, and tasks of it wait for each other",
        ),
        (
            {"submit_us": array("q", [0, *[10] * 4, 11, *[20] * 4])},
            "job 1 is a gang, and tasks of it are submitted later",
        ),
    ],
)
def test_what_cannot_be_a_gang_is_refused(columns: dict[str, array[int]], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_gangs(msgspec.structs.replace(workload(), **columns))


def test_a_design_starts_gangs_whole_or_is_allowed_to_hold() -> None:
    def deployment(*capabilities: object) -> Deployment:
        return Deployment({}, {}, lambda _: "x/0", capabilities=capabilities)

    check_gang_placement(workload(), deployment(GangPlacement()), "x", may_hold=False)
    check_gang_placement(workload(), deployment(), "x", may_hold=True)
    check_gang_placement(first_jobs(workload(), 1), deployment(), "x", may_hold=False)
    with pytest.raises(InputError, match="--gangs hold"):
        check_gang_placement(workload(), deployment(), "x", may_hold=False)
    with pytest.raises(InputError, match="copy"):
        check_gang_placement(workload(), deployment(GangPlacement(), Replication(2)), "x", may_hold=True)


def test_a_gang_that_requires_one_rack_is_for_designs_that_heed_racks() -> None:
    def check(wish: int, racks: tuple[int, ...], *capabilities: object) -> None:
        deployment = Deployment({}, {}, lambda _: "x/0", capabilities=capabilities)
        racked = with_gangs(workload(), workload().gang_nodes, [0, wish, 0])
        check_gang_racks(racked, deployment, Cluster((0, 0), (5, 5), racks=racks), "x")

    check(REQUIRES_RACK, (0, 1), GangPlacement(racks=True))
    check(REQUIRES_RACK, (), GangPlacement())
    check(REQUIRES_RACK, (4, 4))
    check(PREFERS_RACK, (0, 1))
    for capabilities in ((), (GangPlacement(),)):
        with pytest.raises(InputError, match="x: job 1 is a gang that requires one rack, which this design does not"):
            check(REQUIRES_RACK, (0, 1), *capabilities)
