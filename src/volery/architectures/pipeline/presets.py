"""Presets of the pipeline: published schedulers as far as policies of its stages realise them.

Tables IV to VII of Andreadis et al. (SC18) say which stages fourteen schedulers have. Eight of these schedulers have no
design of their own here: `MAPPED` names them. Such a preset sets policies for the stages that the tables give its
scheduler. It declares no stage that is empty in the tables and that the pipeline can leave out. Deviations are on the
page of each preset; docs/reference/pipeline.md has the definitions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from volery.architectures.pipeline import PIPELINE, UNTAGGED, PipelineConfig, starts_gangs
from volery.architectures.pipeline.iterations import BACKFILLING
from volery.core.component import Architecture
from volery.core.features import GANGS, RACKS
from volery.core.stages import Stage

HOPS_BY_MANAGERS: Final = 4
"""Number of link delays of a lone task with two levels: the manager is passed the task and reports its end."""
MANAGERS: Final = frozenset({Stage.M2, Stage.M3, Stage.M4, Stage.M5, Stage.M6})
BROKER: Final = frozenset({Stage.B, Stage.M1})
ELASTIC: Final = frozenset({Stage.R6, Stage.R7})
UNTOLD: Final = frozenset({Stage.T6, Stage.T8})
"""Stages of which the copies of the tables leave open whether any of the eight has them."""


def preset(
    name: str, summary: str, source: str, without: Collection[Stage] = frozenset(), **policies: Any
) -> Architecture:
    """The same module with other defaults; docs/reference/pipeline.md lists the published parts.

    Args:
        without: Stages that the preset does not declare.
        policies: Parameters that differ from the pipeline's defaults; stages that they switch on need no setting.
    """
    defaults = msgspec.structs.replace(PipelineConfig(), **policies)

    stages = {
        stage: (
            msgspec.structs.replace(realisation, when="")
            if realisation.when.partition("=")[0] in policies
            else realisation
        )
        for stage, realisation in PIPELINE.stages.items()
        if stage not in without
    }

    heeds_tags = all(getattr(defaults, stage) == getattr(PIPELINE.defaults, stage) for stage in UNTAGGED)
    conformance = msgspec.structs.replace(
        PIPELINE.conformance,
        hops=HOPS_BY_MANAGERS if defaults.lrms else PIPELINE.conformance.hops,
        immediate={"backfilling": "per-event"} if defaults.T3 in BACKFILLING else {},
        tags=PIPELINE.conformance.tags if heeds_tags else "",
    )

    if Stage.T11 in without:
        conformance = msgspec.structs.replace(conformance, tolerates=frozenset({"duplication"}), fault_parameters={})
    # Storms refuse two attempts of a task at once.
    elif "T9" in policies:
        conformance = msgspec.structs.replace(
            conformance, fault_parameters={**conformance.fault_parameters, "T9": "none"}
        )

    features = dict(PIPELINE.features)
    if not starts_gangs(defaults):
        del features[GANGS], features[RACKS]

    return msgspec.structs.replace(
        PIPELINE,
        features=features,
        name=name,
        summary=summary,
        source=source,
        defaults=defaults,
        stages=stages,
        conformance=conformance,
    )


PARTS = (
    preset(
        "borg",
        "Borg-like: priorities, turns between users inside one, machines by hybrid scores",
        "Verma et al., EuroSys 2015, sections 2.5, 3.2 and 3.4",
        T2="bands",
        R5="borg",
    ),
    preset(
        "kubernetes",
        "Kubernetes-like: priorities, then some feasible nodes are scored and the best is taken",
        "kubernetes.io, Scheduling Framework and Scheduler Performance Tuning; the public code",
        T2="priority",
        R5="kubernetes",
    ),
    preset(
        "condor",
        "HTCondor-like matchmaking: users by what they held, each up to its slice; machines by rank",
        "HTCondor manual, User Priorities and Negotiation; Thain et al., CCPE 17(2-4), 2005",
        T2="usage",
        R5="ranked",
    ),
    preset(
        "backfill",
        "first come first served with EASY backfilling",
        "Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001",
        T2="fifo",
        T3="easy",
    ),
)

MAPPED = (
    preset(
        "fuxi",
        "Fuxi-like: requests of jobs by priority, preemption by priority, balanced load, recovery",
        "Zhang et al., PVLDB 7(13), 2014; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, Stage.J7, *MANAGERS, *BROKER, Stage.T9, Stage.T12},
        J3="priority",
        J5="stage-in",
        T10="priority",
        T11="restart",
        R5="worst-fit",
    ),
    preset(
        "apollo",
        "Apollo-like: tasks on the critical path first, passed to the queue with the least work; regular tasks preempt",
        "Boutin et al., OSDI 2014; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, Stage.J7, Stage.T9, Stage.T12},
        J3="priority",
        J5="stage-in",
        T2="heft",
        T10="priority",
        T11="restart",
        lrms=4,
    ),
    preset(
        "autopilot",
        "Autopilot-like: any machine of the right type, another one after a failure; priorities preempt",
        "Isard, ACM SIGOPS Operating Systems Review 41(2), 2007; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, Stage.J7, *MANAGERS, *BROKER, *ELASTIC, Stage.J5, Stage.T9, Stage.T12},
        T10="priority",
        T11="restart",
        R5="random-fit",
    ),
    preset(
        "pegasus",
        "Pegasus-like: workflows with files staged for jobs and tasks, random machines, failed tasks again",
        "Deelman et al., IEEE Internet Computing 20(1), 2016; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, *MANAGERS, *BROKER, Stage.T9, Stage.T12},
        J7="delete",
        J5="stage-in",
        T2="fifo",
        T5="stage-in",
        T11="restart",
        R5="random-fit",
    ),
    preset(
        "iceni",
        "ICENI-like: jobs in turn, each task on the machine with the shortest predicted time",
        "McGough et al., UK e-Science All Hands Meeting 2004; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, Stage.J7, *MANAGERS, *BROKER, *ELASTIC, Stage.T9, Stage.T11},
        J5="stage-in",
        R5="ranked",
    ),
    preset(
        "askalon",
        "Askalon-like: HEFT orders the tasks of a workflow, each task on the fastest machine",
        "Wieczorek, Prodan, Fahringer, SIGMOD Record 34(3), 2005; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, *ELASTIC, Stage.T9, Stage.T11},
        J7="delete",
        J5="stage-in",
        T2="heft",
        R5="ranked",
    ),
    preset(
        "triana",
        "Triana-like: tasks in the order in which their input is there, each on any peer",
        "Majithia et al., ICWS 2004; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, Stage.J7, *ELASTIC, Stage.T9, Stage.T11},
        J5="stage-in",
        T2="fifo",
        R5="random-fit",
    ),
    preset(
        "dryad",
        "Dryad-like: a greedy manager, any free machine; lost vertices run again, slow ones twice",
        "Isard et al., EuroSys 2007; Andreadis et al., SC18, tables IV to VII",
        without={*UNTOLD, Stage.J7, *ELASTIC, Stage.T10, Stage.T12},
        T9="straggler",
        T11="restart",
        R5="random-fit",
    ),
)
PRESETS = (*PARTS, *MAPPED)
