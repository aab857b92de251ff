"""Parameters of Megha, of the first Megha and of the central scheduler."""

from __future__ import annotations

from typing import Literal

from volery.core.bounds import Components, Count, Parameters, Period, PositiveCount, param
from volery.core.errors import InputError

MeghaMatch = Literal["random", "min-constraints", "best-fit", "first"]
"""Best fit looks at amounts; among slots, which are all alike, it is the minimum-constraints policy. First: algorithm 1
of arXiv 2103.08413, the first candidate with room in the order of machines."""


class MeghaConfig(Parameters, frozen=True):
    """Parameters of Megha, of the first Megha and of the central scheduler."""

    gms: Components = param(5, "Global Masters; partitions per Local Master")
    lms: Components = param(5, "Local Masters; clusters")
    match: MeghaMatch = param("random", "which suitable worker is taken (section 4.3)")
    heartbeat_s: Period = param(5.0, "period of updates to the GMs, seconds")
    batch_max: PositiveCount = param(100, "placements per request to a Local Master")
    updates: Literal["deltas", "snapshots"] = param("deltas", "what an update carries (section 4.4)")
    completion_notice: Literal["once", "twice", "with-updates"] = param(
        "once", "own completions: notice once, or again in the next update (4.4), or with the next update alone (2021)"
    )
    answers: Literal["refusals", "all"] = param(
        "refusals", "launches that a Local Master answers, with its state: refused ones, or all (2021, IV-A)"
    )
    launch: Literal["asynchronous", "synchronous"] = param(
        "asynchronous", "a GM goes on after a request, or waits for its answer as over HTTP (2021, V-D)"
    )
    eager_retry: bool = param(True, "place a refused task at once; false: the published code")
    ask: bool = param(False, "a GM with waiting tasks asks LMs for news; false: it waits for updates (the paper)")
    queue_max: Count = param(0, "tasks waiting at a GM before jobs are refused; 0: no limit")
    reliable: bool = param(
        False, "bear faults: reliable messages, two Local Masters per cluster, leases of nodes (2021, IV-D)"
    )
    recovery: Literal["asked", "paper"] = param(
        "asked", "GMs ask, and place again what died; paper: with heartbeats, and LMs relaunch (2021, IV-D)"
    )
    detection_s: Period = param(1.0, "a peer that does not answer is given up within this, seconds")
    repartition: bool = param(False, "external machines lend logical nodes (2021, IV-B4), else are requested as such")
    rescheduling: Literal["head", "tail"] = param(
        "head", "a refused task that fits nowhere goes to this end (2021: tail, IV-B5)"
    )
    shares: str = param("", "tree of users and weights, as a:1+b:2(c:1+d:1); empty: no fairness (2021, IV-C)")
    queues: str = param("", "the GM of each user of the tree, in order, as 0+1+1+2; empty: in turn")
    turns: Literal["short-first", "round-robin"] = param(
        "short-first", "a GM's users: below their share first, or in turn alone (2021, IV-C)"
    )
    preemption: Literal["agreed", "paper"] = param(
        "agreed", "the loser's GM agrees and nobody loses its share; paper: algorithm 2 as printed"
    )
    preempted: Literal["restart", "keep"] = param(
        "restart", "preempted tasks start anew, or keep what they have done (lab only)"
    )
    order: Literal["arrival", "priority"] = param(
        "arrival", "tasks that wait at a GM: first come first served, or by priority of jobs (2021, VIII)"
    )
    near: bool = param(False, "take a free machine that holds a task's input, if there is one (2023, section 8)")
    why: bool = param(False, "GMs report why each task was placed, or not: volery why")


def check_unshared(config: MeghaConfig) -> None:
    """Refuse parameters of shares where there are none."""
    for name in ("queues", "turns", "preemption", "preempted"):
        given, default = getattr(config, name), getattr(MeghaConfig(), name)
        if given != default:
            raise InputError(
                f"megha:{name}", f"{given!r} is of users with shares, and shares is empty; give shares, or leave {name}"
            )


def check_order(config: MeghaConfig) -> None:
    """Refuse an order by priority beside another order."""
    if config.order != "priority":
        return
    for name, reason in (
        ("shares", "users have turns"),
        ("reliable", "a GM that restarts takes over tasks without the priorities of their jobs"),
    ):
        if getattr(config, name):
            raise InputError("megha:order", f"priority orders all that waits, and {reason}; leave {name}, or order")
    if config.launch == "synchronous":
        raise InputError("megha:order", "priority orders tasks that wait, not requests in line; take asynchronous")
