"""Hadoop Fair Scheduler with delay scheduling (Zaharia et al., EuroSys 2010): fair pools wait a little for locality.

Roles    JobTracker (one), Node (one per machine).
Flow     Submit > Launch > Heartbeat (what has ended) > Launch, at most `per_heartbeat` to a machine at a time.
Deviates Heartbeats without an end are not sent: the tracker computes when those of machines with free slots are
         due, and offers the slots then. By default machines report at once when a task ends (Hadoop's out-of-band
         heartbeats), and machines with free slots are offered when a job comes; `out_of_band=false` is Hadoop as the
         paper had it. Slots are of one kind. Tasks of a job without input run anywhere at once, whatever others of that
         job wait for. Fair shares are exact instead of by bisection. No caps on running jobs, no speculative attempts.
         Waits of the paper's evaluation and much of its text were not at hand; see docs/papers.md.
"""

from __future__ import annotations

from typing import Literal

from volery.architectures.hfs.pools import Pools
from volery.architectures.hfs.preemption import Preemptor, Timeouts
from volery.architectures.hfs.tracker import TRACKER, JobTracker, Node, Offers
from volery.core.bounds import Count, Parameters, Period, Seconds, param
from volery.core.capabilities import DueShares
from volery.core.component import Architecture, Component, Deployment, sent_by
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.fairness.shares import parse_shares_text
from volery.policies.locality import delay_policy
from volery.roles.node import Heartbeats


class HfsConfig(Parameters, frozen=True):
    """Parameters of the Hadoop Fair Scheduler."""

    shares: str = param("", "pools with weights, as web:1+dev:2(ann:2+bob:1); others join with weight 1")
    min_shares: str = param("", "slots that pools are due first, as web:20+dev:5")
    fifo: str = param("", "pools whose jobs run first come first served, as web+dev; *: all of them")
    delay: Literal["time", "rates", "skips", "off"] = param(
        "time",
        "jobs wait for locality for some time, likewise where offers come often enough, for a number of opportunities, "
        "or not at all",
    )
    node_wait_s: Seconds = param(4.5, "W1: wait for machines that hold input; 1.5 heartbeats, seconds")
    rack_wait_s: Seconds = param(4.5, "W2: wait for racks that do, after that, seconds")
    node_skips: Count = param(40, "D1: opportunities to let pass for machines that hold input")
    rack_skips: Count = param(10, "D2: opportunities to let pass for racks that do, after that")
    heartbeat_s: Period = param(3.0, "between two heartbeats of a machine, seconds")
    out_of_band: bool = param(True, "heartbeats at once when a task ends, and when a job comes to free slots")
    per_heartbeat: Count = param(0, "launches at one heartbeat at most; 0: as many as there are slots free")
    min_share_timeout_s: Seconds = param(0.0, "preempt after so long below the minimum share, seconds; 0: never")
    fair_share_timeout_s: Seconds = param(0.0, "preempt after so long below half the fair share, seconds; 0: never")
    update_s: Period = param(0.5, "shares are looked at for preemption so long after a change, seconds")


MESSAGES = sent_by(JobTracker, Node)


def build(cluster: Cluster, config: HfsConfig, streams: Streams) -> Deployment:
    """Build the components for a cluster.

    Raises:
        InputError: a text is no list of shares, or the heartbeats of two machines fall into one microsecond.
    """
    order = list(range(len(cluster.constraints)))
    streams.of("hfs/heartbeats").shuffle(order)

    try:
        beats = Heartbeats(_us(config.heartbeat_s), len(order))
    except ValueError as error:
        raise InputError("hfs:heartbeat_s", str(error)) from None

    pools = _pools(config)
    timeouts = Timeouts(_us(config.min_share_timeout_s), _us(config.fair_share_timeout_s), max(1, _us(config.update_s)))
    preemptor = Preemptor(timeouts, pools) if timeouts.least_us or timeouts.half_us else None

    by_time = config.delay in ("time", "rates")
    node_wait = _us(config.node_wait_s) if by_time else config.node_skips
    rack_wait = _us(config.rack_wait_s) if by_time else config.rack_skips
    delay = delay_policy(config.delay, node_wait, rack_wait)

    offers = Offers(beats, config.out_of_band, config.per_heartbeat)
    tracker = JobTracker(cluster, order, pools, delay, offers, streams.of(TRACKER), preemptor)

    components: dict[Address, Component] = {TRACKER: tracker}
    machines = {f"node/{machine}": machine for machine in range(len(order))}
    beats_of = None if config.out_of_band else beats
    for seat, machine in enumerate(order):
        components[f"node/{machine}"] = Node(seat, beats_of)

    due = {pool.name: share / cluster.slot_count for pool, share in pools.standing_shares(cluster.slot_count).items()}
    capabilities = () if preemptor is None else (DueShares(due),)
    return Deployment(components, machines, lambda _: TRACKER, capabilities=capabilities)


def _us(seconds: float) -> Time:
    return round(seconds * SECOND)


def _pools(config: HfsConfig) -> Pools:
    tree = parse_shares_text(config.shares, "hfs:shares") if config.shares else None

    min_slots = {}
    if config.min_shares:
        min_shares = parse_shares_text(config.min_shares, "hfs:min_shares")
        if any(member.members for member in min_shares.members):
            raise InputError("hfs:min_shares", f"{config.min_shares!r} is a tree. Write POOL:SLOTS+POOL:SLOTS")
        min_slots = {member.name: member.weight for member in min_shares.members}

    return Pools(tree, min_slots, frozenset(name.strip() for name in config.fifo.split("+") if name.strip()))


STAGES = {
    Stage.J1: Realisation("JobTracker.on_submit"),
    Stage.J3: Realisation("JobTracker._assign", "full", "pools by share, jobs in them by share or first come"),
    Stage.J4: Realisation("JobTracker._assign", "full", "one job at a time"),
    Stage.J6: Realisation("JobTracker.on_heartbeat", "full", "JobDone after the last task"),
    Stage.T2: Realisation("JobTracker._assign", "full", "the nearest to its input, then the oldest"),
    Stage.T3: Realisation("JobTracker._assign", "full", "one task at a time"),
    Stage.T4: Realisation("JobTracker._launch"),
    Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
    Stage.T6: Realisation("Node.on_task_finished", "partial", "heartbeats report ends, no progress"),
    Stage.T7: Realisation("JobTracker.on_heartbeat"),
    Stage.T10: Realisation("JobTracker._look_at_shares", "full", "timeouts on shares", "min_share_timeout_s"),
    Stage.R1: Realisation("JobTracker.on_heartbeat", "full", "one machine per heartbeat"),
    Stage.R3: Realisation("JobTracker._assign", "full", "constraint bit vectors"),
    Stage.R4: Realisation("JobTracker._offer", "full", "idle slots of the machine"),
    Stage.R5: Realisation("JobTracker._assign", "full", "delay scheduling: pass a machine over, or take it"),
}

HFS = Architecture(
    name="hfs",
    summary="Hadoop Fair Scheduler: fair pools of jobs that wait a little for machines that hold their input",
    source="Zaharia, Borthakur, Sen Sarma, Elmeleegy, Shenker, Stoica: Delay Scheduling, EuroSys 2010",
    defaults=HfsConfig(),
    messages=MESSAGES,
    stages=STAGES,
    build=build,
    hops=2,
    tolerates=frozenset({"duplication"}),
    features={"constraints": "", "users": "", "priorities": "", "locality": ""},
)
