"""Under contention every user gets the share that it is entitled to, on a view that is up to 10 s old.

All users want more than the whole cluster for all of the time; they come one after the other, and the first has taken
everything by then. Measured from two heartbeats after the last one has come.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.model import SECOND, Amounts, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.metrics.preemption import preemption_summary, user_shares
from volery.sim import Options, simulate

TWO = {"a": 30, "b": 70}
FOUR = {"q1": 10, "q2": 25, "q3": 15, "q4": 50}
"""Section VI-E of arXiv 2103.08413."""
MEAN_S, STAGGER_S, SPAN_S = 15.0, 20, 160
FROM_S, UNTIL_S = 80, 160
SLOTS = Cluster.uniform(25, 4)
OFFERED: Amounts = (16_000, 32_768)
REQUESTS: tuple[Amounts, ...] = ((1000, 4096), (2000, 2048), (500, 1024), (4000, 8192))
MACHINES = msgspec.structs.replace(
    Cluster.uniform(20), resources=("cpu_milli", "memory_mb"), capacities=(OFFERED,) * 20
)


def flood(users: dict[str, int], tasks_at_once: int, seed: int) -> Trace:
    """Each user brings enough to use the whole cluster until the end."""
    stream, jobs = Random(seed), 20
    came = [place * STAGGER_S * SECOND + part * SECOND // 10 for place in range(len(users)) for part in range(jobs)]
    count = int(1.2 * tasks_at_once * SPAN_S / MEAN_S / jobs)
    durations = [[1 + int(stream.expovariate(1 / MEAN_S) * SECOND) for _ in range(count)] for _ in came]
    owners = tuple(user for user in users for _ in range(jobs))
    return msgspec.structs.replace(trace_of("flood", came, durations), user=owners)


def asking(trace: Trace, seed: int) -> Trace:
    """The trace with requests on its tasks."""
    stream = Random(seed)
    drawn = array("H", [stream.randrange(len(REQUESTS)) for _ in range(trace.task_count)])
    return msgspec.structs.replace(trace, resources=MACHINES.resources, requests=REQUESTS, request=drawn)


def played(users: dict[str, int], trace: Trace, cluster: Cluster, **parameters: Any) -> Records:
    megha = lookup("megha-2021")
    shares = "+".join(f"{user}:{weight}" for user, weight in users.items())
    config = configure(megha, {"gms": 3, "lms": 2, "shares": shares, **parameters})
    return simulate(megha.build(cluster, config, Streams(0)), trace, cluster, options=Options())


@pytest.mark.parametrize("preempted", ["restart", "keep"])
@pytest.mark.parametrize("users", [TWO, FOUR], ids=["two users", "four users"])
@pytest.mark.parametrize("kind", ["slots", "resources"])
def test_dominant_shares_converge_to_within_2_percent_of_the_entitlements(
    users: dict[str, int], kind: str, preempted: str
) -> None:
    queues = "0+1+1+2" if len(users) == 4 else "0+1"
    cluster, trace = SLOTS, flood(users, 100, seed=1)
    if kind == "resources":
        cluster, trace = MACHINES, asking(flood(users, 160, seed=1), seed=2)
    records = played(users, trace, cluster, queues=queues, preempted=preempted)
    found = user_shares(records, cluster, FROM_S * SECOND, UNTIL_S * SECOND)
    for user, weight in users.items():
        due = weight / sum(users.values())
        assert found[user] >= 0.98 * due, f"{user} has {found[user]:.4f} of {due}"
        assert found[user] <= due + 0.02, f"{user} has {found[user]:.4f} of {due}"
    account = preemption_summary(records, cluster)
    assert account is not None
    assert not account.taken_back, "a place went to and fro"
    assert (account.wasted_s == 0) == (preempted == "keep")


def test_without_shares_the_first_user_keeps_the_cluster() -> None:
    """What the shares are for."""
    trace = flood(FOUR, 100, seed=1)
    found = user_shares(played(FOUR, trace, SLOTS, shares=""), SLOTS, FROM_S * SECOND, UNTIL_S * SECOND)
    assert found["q1"] > 0.5 > found["q4"] + 0.1
