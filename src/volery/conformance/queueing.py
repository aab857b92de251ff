"""The check of worker queues: a node that keeps a task waiting reports for how long."""

from __future__ import annotations

from volery.conformance.cases import MACHINES, Case, trace_of
from volery.conformance.verdict import check, demand, run
from volery.conformance.watching import Deliveries
from volery.core.component import Architecture
from volery.core.model import NEVER, SECOND, Address, Cluster, Time
from volery.core.streams import Streams

LONG_US = 10 * SECOND
TASKS = 4 * MACHINES
LATE_US = SECOND
"""When the job whose task has to wait arrives."""
NEWS_US = SECOND // 2
"""For so long after that its reservations are on their way."""
SEEDS = 5


@check
def check_worker_queues_are_reported(architecture: Architecture) -> None:
    """A task whose node knew of it long before it could start was launched with that wait as `waited_us`.

    All machines are busy when its job arrives. What a node receives then, and does not without the job, is about it.
    Concerns designs with queues at the workers; the nodes of others receive nothing then.
    """
    busy = trace_of("busy", [0], [[LONG_US] * TASKS])
    late = trace_of("busy, and a late task", [0, LATE_US], [[LONG_US] * TASKS, [SECOND]])
    cluster = Cluster.uniform(MACHINES)
    deployment = architecture.build(cluster, architecture.defaults, Streams(0))
    node_of = {machine: address for address, machine in deployment.machines.items()}
    for seed in range(SEEDS):
        without, beside = Deliveries(), Deliveries()
        run(architecture, Case("busy", 0, busy, cluster), seed=seed, watch=without)
        records = run(architecture, Case("busy, late", 0, late, cluster), seed=seed, watch=beside)
        start = records.start_us[TASKS]
        if start == NEVER:
            continue
        address = node_of[records.worker[TASKS]]
        before, after = _news(without, address), _news(beside, address)
        if len(after) > len(before) and start > LATE_US + 2 * NEWS_US:
            least = start - LATE_US - NEWS_US - NEWS_US
            told = records.waited_us.get(TASKS, 0)
            demand(told >= least, f"a task that waited at its worker for at least {least} us was launched with {told}")


def _news(deliveries: Deliveries, address: Address) -> list[Time]:
    """When messages reached a node just after the late job had arrived."""
    return [at for at, _, to, _ in deliveries.delivered if to == address and LATE_US <= at < LATE_US + NEWS_US]
