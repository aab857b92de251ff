"""Megha: federated scheduling on an eventually consistent view (Thiyyakat et al., IoT 2023; arXiv 2103.08413).

Roles    GlobalMaster (matches on a view of all clusters), LocalMaster (truth of one cluster), Node (one per machine).
Flow     Submit > Request > (valid) Launch > Completed > TasksEnded | (invalid) Refusal > Request ...; StateUpdate.
Deviates A GM retries an invalid placement at once (eager_retry; the published code waits for the next free unit), looks
         for partitions round robin over Local Masters (the code: always from the first), matches queued tasks against
         every unit that it learns to be free, and the last state of a unit wins within an update (the code: "busy"
         before "available"). Where machines offer several resources, amounts stand in for the available bit.
         megha-2021 (arXiv 2103.08413): a GM receives the ends of its own tasks at once, because it answers for their
         jobs (the paper: with the next update). With `shares` a preemption is validated by the loser's GM too, and
         nobody loses what it is due: docs/decisions/0011. Users below their share come first, a standby receives
         results alone, and GMs ask for what they need after a crash: docs/decisions/0010. A request that is valid has
         no answer, and a GM does not wait for one. megha-2021-printed has all of this as printed, by match=first,
         completion_notice=with-updates, answers=all, launch=synchronous, turns=round-robin, preemption=paper and
         recovery=paper (heartbeats are sent where there is news). docs/papers.md. Gangs are ours: docs/decisions/0076.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.assembly import Recipe
from volery.architectures.megha.config import MeghaConfig, check_order, check_unshared
from volery.architectures.megha.gangs import GangAttachment, heeds_gangs
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.local_master import LocalMaster
from volery.architectures.megha.recovery.messages import MESSAGES
from volery.architectures.megha.recovery.reports import ReportRecovery
from volery.architectures.megha.shares.fairness import WeightedFairness
from volery.architectures.megha.view import SlotView
from volery.core.capabilities import GangPlacement
from volery.core.component import (
    Architecture,
    Conformance,
    DeclaredCaptions,
    Deployment,
    FederationDefaults,
    UnusedFeatures,
)
from volery.core.errors import InputError
from volery.core.features import GANGS
from volery.core.model import Cluster
from volery.core.stages import Extent, Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import Node

_ASKED: Final = "{sender} asks {receiver}, the Local Master, for {tasks}: only {receiver} knows what is really free."
_LAUNCHED: Final = "{sender} finds it free, and launches {tasks} on {receiver}."
_REFUSED: Final = (
    "An inconsistency: {receiver}'s view was old. {sender} refuses {tasks}, and sends the truth along; {receiver} "
    "tries again."
)
_UPDATED: Final = "Heartbeat: {sender} tells {receiver} what has changed. Until the next one, that view grows old."
_FREED: Final = "{sender} tells {receiver} at once that {tasks} finished: room for others."

CAPTIONS: Final = {
    "Submit": (
        "Job {job}{user} comes to {receiver}, a Global Master. It matches {tasks_of_job} on its own view, its own "
        "partitions first: an internal match."
    ),
    "Request": _ASKED,
    "Launch": _LAUNCHED,
    "Run": _LAUNCHED,
    "external_placements": (
        "{sender} has nothing free left in its own partitions, and borrows machines of others: an external match."
    ),
    "Refusal": _REFUSED,
    "inconsistencies": "",
    "StateUpdate": _UPDATED,
    "TasksEnded": _FREED,
    "AttemptsLost": "{sender} is sure that what ran there is dead: {receiver} places it anew, before all that waits.",
    "Preempt": "{sender} takes {tasks} from who has more than its share, for who has less.",
}
"""Captions of a recording, by the name of a message or of a counted fact; what is empty has no caption of its own."""


def build(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: more partitions than machines; the shares or queues are malformed; a parameter of shares is given
            without any; progress is to be kept where components may crash; recovery is chosen where none may.
    """
    if config.recovery == "paper" and not config.reliable:
        raise InputError("megha:recovery", "paper is a way to recover, and nothing may crash; set reliable=true")
    if not config.shares:
        check_unshared(config)
    check_order(config)
    recipe = Recipe(cluster, config, streams)
    if config.near and recipe.capacities is not None:
        problem = "slots are searched near input, and amounts, shares, repartition and a tail are of whole machines"
        raise InputError("megha:near", f"{problem}; take the design megha without them, or near=false")
    if not heeds_gangs(config):
        deployment = recipe.deployment()
        return deployment if recipe.shares is None else recipe.shares.declared(deployment)

    recipe.gangs = GangAttachment(recipe.layout, config)
    deployment = recipe.deployment()
    return msgspec.structs.replace(deployment, capabilities=(*deployment.capabilities, GangPlacement()))


def _unused(config: MeghaConfig) -> frozenset[str]:
    return frozenset() if heeds_gangs(config) else frozenset({GANGS})


def build_printed(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components of the first Megha as printed; what is printed of users and of recovery needs shares and reliable.

    Raises:
        InputError: as for `build`.
    """
    defaults = MeghaConfig()
    if not config.shares:
        config = msgspec.structs.replace(config, turns=defaults.turns, preemption=defaults.preemption)
    if not config.reliable:
        config = msgspec.structs.replace(config, recovery=defaults.recovery)
    return build(cluster, config, streams)


def _by(method: Callable[..., Any], extent: Extent = "full", remark: str = "", setting: str = "") -> Realisation:
    """Realisation of a stage by a method of a class that stands in this module."""
    return Realisation(method.__qualname__, extent, remark, setting)


def _stages(view: type[SlotView | CapacityView]) -> dict[Stage, Realisation]:
    """Methods that realise stages, those of this view among them."""
    return {
        Stage.J1: _by(GlobalMaster.on_submit),
        Stage.J2: _by(GlobalMaster.on_submit, "partial", "refused while the queue is full"),
        Stage.J4: _by(GlobalMaster.on_submit, "full", "one job at a time, GMs in parallel"),
        Stage.J6: _by(GlobalMaster.on_tasks_ended, "full", "JobDone after the last task"),
        Stage.T2: _by(view.offer, "full", "first come first served among the tasks that fit"),
        Stage.T3: _by(view.place),
        Stage.T4: _by(LocalMaster.on_request, "full", "validation"),
        Stage.T5: _by(Node.on_launch, "partial", "launch without staging"),
        Stage.T6: _by(LocalMaster.on_timer, "partial", "heartbeats tell what is free, not how far tasks are"),
        Stage.T7: _by(LocalMaster.on_completed),
        Stage.T10: _by(
            WeightedFairness.enforce, "full", "youngest tasks of who exceeds its share most", "shares=a:1+b:1"
        ),
        Stage.T11: _by(
            ReportRecovery.on_attempts_lost, "full", "another attempt, before all that waits", "reliable=true"
        ),
        Stage.M2: _by(GlobalMaster.request, "full", "every task goes by the Local Master of its machine"),
        Stage.M3: _by(view._find, "full", "the partitions of all LMs, the GM's own first"),
        Stage.M4: _by(view._find, "full", "partitions with something free in the view"),
        Stage.M5: _by(view._find, "full", "round robin over LMs, own partitions first"),
        Stage.M6: _by(GlobalMaster.request, "full", "a batch of tasks with the machines that they shall have"),
        Stage.R1: _by(GlobalMaster.on_update, "full", "the GM's view of all clusters"),
        Stage.R3: _by(view.place, "full", "constraint bit vectors"),
        Stage.R4: _by(view.place, "full", "availability bit vector"),
        Stage.R5: _by(view.place, "full", "random or minimum constraints"),
    }


STAGES = _stages(SlotView)
HIERARCHY = (Stage.M2, Stage.M3, Stage.M4, Stage.M5)
"""Stages that a scheduler with one Local Master lacks."""

MEGHA = Architecture(
    name="megha",
    summary="federated: Global Masters match on a stale view, Local Masters validate",
    source="Thiyyakat, Kalambur, Sitaram: Constraint-Aware Federated Scheduling, IoT 2023, section 4",
    defaults=MeghaConfig(),
    messages=MESSAGES,
    stages=STAGES,
    build=build,
    conformance=Conformance(
        hops=3,
        tolerates=frozenset(
            {"loss", "duplication", "delay", "partition", "crash:gm", "crash:lm", "crash:node", "gone:gm"}
        ),
        fault_parameters={"reliable": True, "gms": 3, "lms": 2, "heartbeat_s": 1.0},
    ),
    capabilities=(
        FederationDefaults({"ask": True}),
        DeclaredCaptions(CAPTIONS),
        UnusedFeatures(_unused),
    ),
    features={
        "constraints": "",
        "users": "shares",
        "amounts": "",
        "priorities": "order=priority",
        "locality": "near",
        "gangs": "",
    },
)

CENTRAL = msgspec.structs.replace(
    MEGHA,
    name="central",
    summary="Megha with one Global Master and one Local Master: a central scheduler",
    source="Thiyyakat et al., arXiv 2103.08413, section V (centralised counterpart)",
    defaults=MeghaConfig(gms=1, lms=1),
    conformance=msgspec.structs.replace(
        MEGHA.conformance, tolerates=MEGHA.conformance.tolerates - {"gone:gm"}, fault_parameters={"reliable": True}
    ),
    stages={
        **{stage: found for stage, found in STAGES.items() if stage not in HIERARCHY},
        Stage.M6: _by(GlobalMaster.request, "partial", "to the only Local Master"),
        Stage.R1: _by(GlobalMaster.on_tasks_ended, "full", "the GM's view, exact: nobody else places"),
    },
)

MEGHA_2021 = msgspec.structs.replace(
    MEGHA,
    name="megha-2021",
    summary="the first Megha: amounts of several resources, repartition, full states, rescheduling at the tail",
    source="Thiyyakat, Kalambur, Sitaram: Megha, arXiv 2103.08413 (2021), section IV",
    defaults=MeghaConfig(
        match="min-constraints",
        heartbeat_s=10.0,
        batch_max=1,
        updates="snapshots",
        repartition=True,
        rescheduling="tail",
    ),
    conformance=msgspec.structs.replace(
        MEGHA.conformance,
        fuzzed={
            "updates": ("snapshots", "snapshots", "deltas"),
            "batch_max": (1, 1, 100),
            "match": ("min-constraints", "random", "best-fit"),
            "rescheduling": ("tail", "tail", "head"),
            "completion_notice": ("once", "once", "twice"),
            "eager_retry": (True, True, False),
            "shares": ("", "", "a:1+b:2+c:1", "c:3+org:2(a:1+b:4)"),
        },
    ),
    stages={
        **_stages(CapacityView),
        Stage.T4: _by(LocalMaster.on_request, "full", "validation, repartition"),
        Stage.T6: _by(LocalMaster.on_timer, "partial", "full states tell what is free, no progress"),
        Stage.M4: _by(CapacityView._find, "full", "partitions with enough free in the view"),
        Stage.M6: _by(GlobalMaster.request, "full", "requests, and repartitions of another's machine"),
        Stage.R4: _by(CapacityView._find, "full", "bit vectors of free capacity"),
        Stage.R5: _by(CapacityView._find, "full", "the first machine that fits"),
    },
)

MEGHA_2021_PRINTED = msgspec.structs.replace(
    MEGHA_2021,
    name="megha-2021-printed",
    summary="the first Megha with every choice as printed: answers with states, and requests that wait for them",
    source="Thiyyakat, Kalambur, Sitaram: Megha, arXiv 2103.08413 (2021), sections IV and V-D",
    defaults=msgspec.structs.replace(
        MEGHA_2021.defaults,
        match="first",
        completion_notice="with-updates",
        answers="all",
        launch="synchronous",
        turns="round-robin",
        preemption="paper",
        recovery="paper",
    ),
    build=build_printed,
    conformance=msgspec.structs.replace(
        MEGHA_2021.conformance,
        immediate={"completion_notice": "once"},
        fuzzed={
            "answers": ("all", "all", "refusals"),
            "launch": ("synchronous", "synchronous", "asynchronous"),
            "completion_notice": ("with-updates", "with-updates", "once"),
            "updates": ("snapshots", "snapshots", "deltas"),
            "recovery": ("paper", "paper", "asked"),
            "preemption": ("paper", "paper", "agreed"),
            "rescheduling": ("tail", "tail", "head"),
            "shares": ("", "", "a:1+b:2+c:1", "c:3+org:2(a:1+b:4)"),
        },
    ),
)
