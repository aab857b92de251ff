"""Transcripts of Mercury, after the documentation of its implementation in YARN ("Opportunistic Containers")."""

from __future__ import annotations

import re

import msgspec
from tests.scripts.register import case, counter, responses, script
from tests.scripts.transcript import transcript

from volery.core.model import SECOND, Cluster

MILLISECOND = SECOND // 1000
ONE = {"schedulers": 1, "containers": "hybrid", "cutoff_s": 5.0}


@script
def mercury_preempts() -> str:
    """t1, the last of the short tasks to start, makes room for t3, and waits again before t2; t0 goes on."""
    title = """YARN, Opportunistic Containers, "Execution of Opportunistic Containers": "If the container is guaranteed,
we kill as many running opportunistic containers as required"; these were killed "in reverse order of arrival" """
    arrivals_us = [0, 10 * MILLISECOND, 20 * MILLISECOND, 500 * MILLISECOND]
    played = case(arrivals_us, [[4 * SECOND]] * 3 + [[9 * SECOND]], [0])
    jobs = msgspec.structs.replace(played, cluster=Cluster((0,), (2,)))
    return transcript(title.strip(), "mercury", jobs, parameters=ONE)


def test_a_guaranteed_container_starts_at_once_in_place_of_the_one_that_started_last() -> None:
    text = mercury_preempts()
    started = dict(re.findall(r"\( *([0-9.]+) ms\) node/\d runs (t3)", text))
    assert started == {"501.000": "t3"}, "two hops after its submission, though both nodes were busy"
    assert len(re.findall(r"runs t1\b", text)) == 2
    assert len(re.findall(r"runs t0\b", text)) == 1
    assert responses(text)[3] < 9.01


@script
def mercury_waits_for_a_heartbeat() -> str:
    """t1 needs a slot without a guaranteed container: t0 has ended long before the central scheduler is told."""
    title = """YARN, Opportunistic Containers, "Overview", feedback delays: "When a container finishes its execution at
a node, the RM gets notified that there are available resources through the next NM-RM heartbeat" """
    jobs = case([0, 100 * MILLISECOND], [[200 * MILLISECOND], [200 * MILLISECOND]], [0])
    return transcript(title.strip(), "mercury", jobs, parameters={**ONE, "containers": "guaranteed"})


def test_guaranteed_containers_pay_with_idle_slots_what_queueable_ones_save() -> None:
    assert responses(mercury_waits_for_a_heartbeat())[1] > 1
    jobs = case([0, 100 * MILLISECOND], [[200 * MILLISECOND], [200 * MILLISECOND]], [0])
    queued = transcript("the same", "mercury", jobs, parameters={**ONE, "containers": "queueable"})
    assert 0.3 < responses(queued)[1] < 0.31, "t1 starts as soon as t0 has ended"


@script
def mercury_sheds() -> str:
    """Both tasks of job 0 are thought to take 20 s; where the shorter one was, queued tasks of the other node run."""
    title = """YARN, Opportunistic Containers, "Rebalancing Node Load": "an NM on a node whose queue length is above the
threshold discards opportunistic containers"; "avg + k*stdev", here with k = 0 and a least length of 1"""
    jobs = case([0] + [100 * MILLISECOND] * 4, [[SECOND, 39 * SECOND]] + [[SECOND]] * 4, [0, 0])
    parameters = {
        "schedulers": 1,
        "containers": "queueable",
        "load": "length",
        "nodes_used": 1,
        "queue_min": 1,
        "limit_deviations": 0,
    }
    return transcript(title, "mercury", jobs, parameters=parameters)


def test_a_queue_above_the_limit_sheds_to_the_node_that_is_ahead() -> None:
    text = mercury_sheds()
    assert counter(text, "shed_containers") == 1
    assert sum(response > 30 for response in responses(text)) == 2, "the long job, and one that was not shed"
