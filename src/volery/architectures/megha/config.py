"""Parameters of Megha, of the first Megha and of the central scheduler."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from volery.architectures.megha.global_master import Rescheduling
from volery.architectures.megha.local_master import CompletionNotice, Updates
from volery.architectures.megha.view import MeghaMatch
from volery.core.bounds import Components, Count, Period, PositiveCount
from volery.core.errors import InputError

Preempted = Literal["restart", "keep"]
RecoveryRule = Literal["asked", "paper"]
PreemptionRule = Literal["agreed", "paper"]
Turns = Literal["short-first", "round-robin"]


class MeghaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of Megha, of the first Megha and of the central scheduler."""

    gms: Annotated[Components, msgspec.Meta(description="Global Masters; partitions per Local Master")] = 5
    lms: Annotated[Components, msgspec.Meta(description="Local Masters; clusters")] = 5
    match: Annotated[MeghaMatch, msgspec.Meta(description="which suitable worker is taken (section 4.3)")] = "random"
    heartbeat_s: Annotated[Period, msgspec.Meta(description="period of updates to the GMs, seconds")] = 5.0
    batch_max: Annotated[PositiveCount, msgspec.Meta(description="placements per request to a Local Master")] = 100
    updates: Annotated[Updates, msgspec.Meta(description="what an update carries (section 4.4)")] = "deltas"
    completion_notice: Annotated[
        CompletionNotice, msgspec.Meta(description="own completions: notice once, or again in the next update (4.4)")
    ] = "once"
    eager_retry: Annotated[
        bool, msgspec.Meta(description="place a refused task at once; false: the published code")
    ] = True
    ask: Annotated[
        bool,
        msgspec.Meta(description="a GM with waiting tasks asks LMs for news; false: it waits for updates (the paper)"),
    ] = False
    queue_max: Annotated[
        Count, msgspec.Meta(description="tasks waiting at a GM before jobs are refused; 0: no limit")
    ] = 0
    reliable: Annotated[
        bool,
        msgspec.Meta(
            description="bear faults: reliable messages, two Local Masters per cluster, leases of nodes (2021, IV-D)"
        ),
    ] = False
    recovery: Annotated[
        RecoveryRule,
        msgspec.Meta(
            description="GMs ask, and place again what died; paper: with heartbeats, and LMs relaunch (2021, IV-D)"
        ),
    ] = "asked"
    detection_s: Annotated[
        Period, msgspec.Meta(description="a peer that does not answer is given up within this, seconds")
    ] = 1.0
    repartition: Annotated[
        bool, msgspec.Meta(description="external machines lend logical nodes (2021, IV-B4), else are requested as such")
    ] = False
    rescheduling: Annotated[
        Rescheduling, msgspec.Meta(description="a refused task that fits nowhere goes to this end (2021: tail, IV-B5)")
    ] = "head"
    shares: Annotated[
        str, msgspec.Meta(description="tree of users and weights, as a:1+b:2(c:1+d:1); empty: no fairness (2021, IV-C)")
    ] = ""
    queues: Annotated[
        str, msgspec.Meta(description="the GM of each user of the tree, in order, as 0+1+1+2; empty: in turn")
    ] = ""
    turns: Annotated[
        Turns, msgspec.Meta(description="a GM's users: below their share first, or in turn alone (2021, IV-C)")
    ] = "short-first"
    preemption: Annotated[
        PreemptionRule,
        msgspec.Meta(description="the loser's GM agrees and nobody loses its share; paper: algorithm 2 as printed"),
    ] = "agreed"
    preempted: Annotated[
        Preempted, msgspec.Meta(description="preempted tasks start anew, or keep what they have done (lab only)")
    ] = "restart"
    why: Annotated[bool, msgspec.Meta(description="GMs report why each task was placed, or not: volery why")] = False


def check_unshared(config: MeghaConfig) -> None:
    """Refuse parameters of shares where there are none."""
    for name in ("queues", "turns", "preemption", "preempted"):
        given, default = getattr(config, name), getattr(MeghaConfig(), name)
        if given != default:
            raise InputError(
                f"megha:{name}", f"{given!r} is of users with shares, and shares is empty; give shares, or leave {name}"
            )
