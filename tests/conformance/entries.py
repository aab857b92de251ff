"""What the conformance tests judge: the registry as it stands, and ours under parameters that change the path."""

from __future__ import annotations

from typing import Any

import msgspec

from volery.architectures import configure, lookup, registry
from volery.core.component import Architecture, Deployment
from volery.core.model import Cluster
from volery.core.streams import Streams

VARIANTS: dict[str, dict[str, str | tuple[float, ...]]] = {
    "megha:updates=snapshots": {"heartbeat_s": "0.5"},
    "megha:completion_notice=twice": {"heartbeat_s": "0.3"},
    "megha:eager_retry=false": {},
    "megha:ask=true": {"gms": "3", "lms": "2"},
    "megha:order=priority": {"gms": "3", "lms": "2", "heartbeat_s": "0.2"},
    "megha:near=true": {"gms": "3", "lms": "2", "heartbeat_s": "0.2"},
    "megha-2021:ask=true": {"gms": "2", "lms": "2", "shares": "a:1+b:2+c:1"},
    "megha:match=min-constraints": {"gms": "3", "lms": "2", "batch_max": "3", "heartbeat_s": "0.05"},
    "central:match=min-constraints": {},
    "megha-2021:match=random": {"updates": "deltas", "batch_max": "100", "heartbeat_s": "0.5", "gms": "2"},
    "megha-2021:match=best-fit": {"eager_retry": "false", "rescheduling": "head", "heartbeat_s": "0.2"},
    "megha-2021:completion_notice=twice": {"updates": "deltas", "repartition": "false", "lms": "2"},
    "megha-2021:shares=a:1+b:2+c:1": {"gms": "2", "lms": "2", "heartbeat_s": "0.05"},
    "megha-2021:preemption=paper": {
        "gms": "2",
        "lms": "2",
        "shares": "a:1+b:2+c:1",
        "turns": "round-robin",
        "match": "first",
        "heartbeat_s": "0.05",
    },
    "megha-2021:preempted=keep": {
        "shares": "c:3+org:2(a:1+b:4)",
        "updates": "deltas",
        "batch_max": "10",
        "heartbeat_s": "0.1",
        "eager_retry": "false",
    },
    "megha:answers=all": {"gms": "3", "lms": "2", "heartbeat_s": "0.5"},
    "megha:launch=synchronous": {"answers": "all", "gms": "2", "lms": "2", "heartbeat_s": "0.5"},
    "megha-2021:answers=all": {"reliable": "true", "gms": "3", "lms": "2", "heartbeat_s": "0.5"},
    "megha-2021:launch=synchronous": {"gms": "2", "lms": "2", "shares": "a:1+b:2+c:1", "heartbeat_s": "0.05"},
    "megha-2021-printed:reliable=true": {"gms": "3", "lms": "2", "shares": "a:2+b:1+c:1", "heartbeat_s": "0.05"},
    "megha-2021-printed:completion_notice=with-updates": {
        "gms": "2",
        "lms": "2",
        "shares": "a:1+b:2+c:1",
        "heartbeat_s": "0.05",
    },
    "pigeon:groups=4": {"reserved": "1", "weight": "3", "match": "min-constraints"},
    "pigeon:weight=0": {"groups": "3", "reserved": "0"},
    "pigeon:longer_cutoffs_s": {
        "groups": "3",
        "reserved": "1",
        "weight": "3",
        "cutoff_s": "0.05",
        "longer_cutoffs_s": (0.2, 1.0),
        "longer_weights": (2, 0),
    },
    "pigeon:reports_s": {"groups": "4", "reserved": "1", "weight": "3", "cutoff_s": "0.2", "reports_s": "0.02"},
    "pigeon:masters_per_worker": {"groups": "4", "reserved": "1", "masters_per_worker": "2"},
    "pigeon:power": {"groups": "4", "reserved": "1", "power": "speed"},
    "pigeon:group_sizes": {"group_sizes": (4, 16, 30), "reserved": "2"},
    "oracle:order=drf": {"shares": "a:3+b:1"},
    "oracle:order=hdrf": {"shares": "a:3+org:2(b:1+c:4)"},
    "oracle:hierarchy=naive": {"order": "hdrf", "shares": "a:3+org:2(b:1+c:4)"},
    "oracle:hierarchy=collapsed": {"order": "hdrf", "shares": "a:3+org:2(b:1+c:4)"},
    "oracle:patience_s=0.02": {"order": "drf", "shares": "a:3+b:1"},
    "oracle:patience_s=0.1": {"order": "hdrf", "shares": "a:3+org:2(b:1+c:4)"},
    "hydra:split=broadcast": {"queues": "a:3+b:1", "routing": "hash", "subclusters": "3", "decision_ms": "0.1"},
    "hydra:split=home": {
        "routing": "load",
        "node_heartbeat_s": "0.02",
        "am_heartbeat_s": "0.05",
        "report_s": "0.5",
        "gpg_s": "0.5",
        "pending_low": "0",
        "pending_high": "5",
    },
    "hydra:reliable=true": {"split": "locality", "routing": "locality", "alpha": "0.5", "gpg": "off", "proxies": "1"},
    "sparrow:late_binding=false": {"queue": "fair"},
    "sparrow:sampling=per-task": {"schedulers": "3", "cancellation": "false", "replacement": "true"},
    "sparrow:queue=priority": {"schedulers": "1", "probe_ratio": "1.05", "constrained_ratio": "4"},
    "hawk:stealing=random": {
        "steal_after_vain": "false",
        "schedulers": "2",
        "steal_free": "true",
        "cutoff_s": "0.2",
        "estimate_high": "3",
    },
    "hawk:short_placement=least-wait": {"stale_s": "8", "stealing": "off", "short_part": "0"},
    "eagle:sharing=ideal": {"order": "fifo", "cutoff_s": "0.2"},
    "eagle:order=srpt": {"cutoff_s": "0.2", "schedulers": "1", "rounds": "1", "short_part": "0.4"},
    "mercury:containers=guaranteed": {"heartbeat_s": "0.05"},
    "mercury:containers=queueable": {
        "heartbeat_s": "0.1",
        "sort_s": "0.05",
        "queue_max": "3",
        "queue_min": "1",
        "load": "length",
        "order": "job",
    },
    "mercury:containers=mixed": {"heartbeat_s": "0.05", "sort_s": "0.1", "order": "task", "schedulers": "2"},
    "mercury:balance=false": {"cutoff_s": "0.2", "nodes_used": "1", "heartbeat_s": "0.1", "sort_s": "0.05"},
    "mercury:reliable=true": {"cutoff_s": "0.2", "heartbeat_s": "0.5", "schedulers": "2", "limit_deviations": "0"},
    "hfs:delay=skips": {"node_skips": "5", "rack_skips": "2", "per_heartbeat": "1", "heartbeat_s": "0.05", "fifo": "a"},
    "hfs:delay=rates": {"node_wait_s": "0.03", "rack_wait_s": "0.01"},
    "hfs:delay=off": {"fifo": "*", "min_shares": "a:10+c:2"},
    "hfs:out_of_band=false": {"heartbeat_s": "0.02", "node_wait_s": "0.03", "rack_wait_s": "0.01"},
    "hfs:shares=a:1+b:2+c:1": {
        "min_shares": "c:10",
        "min_share_timeout_s": "0.02",
        "fair_share_timeout_s": "0.05",
        "update_s": "0.01",
        "heartbeat_s": "0.1",
    },
    "hfs:fair_share_timeout_s=0.02": {"shares": "c:3+org:2(a:1+b:4)", "update_s": "0.01", "delay": "off"},
    "megha:reliable=true": {"gms": "3", "lms": "2", "heartbeat_s": "0.5"},
    "megha-2021:reliable=true": {"gms": "3", "lms": "2", "heartbeat_s": "0.5"},
    "megha:recovery=paper": {"reliable": "true", "gms": "3", "lms": "2", "heartbeat_s": "0.5"},
    "megha-2021:recovery=paper": {
        "reliable": "true",
        "gms": "3",
        "lms": "2",
        "heartbeat_s": "0.05",
        "shares": "a:2+b:1+c:1",
        "preemption": "paper",
    },
    "megha-2021:shares=a:2+b:1+c:1": {"reliable": "true", "gms": "3", "lms": "2", "heartbeat_s": "0.05"},
    "pigeon:reliable=true": {"groups": "4", "reserved": "1", "distributors": "3"},
    "pigeon:candidates=4": {
        "reliable": "true",
        "groups": "4",
        "reserved": "1",
        "distributors": "3",
        "election": "power",
        "reports_s": "0.1",
    },
    "sparrow:reliable=true": {},
    "eagle:reliable=true": {"cutoff_s": "0.2"},
    "phoenix:heartbeat_s=0.02": {"crv_threshold": "0.02", "wait_load": "0", "cutoff_s": "0.2", "schedulers": "2"},
    "phoenix:reorder_max=1": {"crv_threshold": "0", "wait_load": "0.1", "heartbeat_s": "0.1", "order": "fifo"},
    "tetrisched:solver=greedy": {"plan_ahead_s": "8", "jobs_max": "5"},
    "tetrisched:heterogeneity=false": {"gangs": "false"},
    "tetrisched:budget=priority": {"preferences": "hard", "grace_s": "20", "drop_penalty": "5"},
    "alsched:solver=greedy": {"constraints": "hard"},
    "quincy:preemption=true": {"cycle_s": "1", "job_max": "5"},
    "quincy:policy=network-aware": {"solver": "scaling", "cycle_s": "0.5", "fairness": "false"},
    "firmament:policy=load-spreading": {"decision_ms": "2", "arc_us": "1"},
    "jockey:control=first": {"tokens_step": "1", "tokens_max": "7", "spare": "false"},
    "jockey:period_s=20": {"tokens_step": "3", "dead_zone_s": "0.1", "alpha": "1"},
    "pigeonc:constraint_counting=published-code": {"groups": "5", "weight": "2", "weight_counting": "published-code"},
    "omega:conflicts=coarse": {"batch_schedulers": "3", "service": "estimate:0.2", "restore_sequences": "false"},
    "omega:gang=true": {
        "batch_schedulers": "2",
        "service": "user:a+b",
        "conflicts": "coarse",
        "pickiness": "0.5",
        "retry_s": "2",
    },
    "omega:batch_limit=0.4": {"batch_schedulers": "2", "service": "user:a", "service_limit": "0.3"},
    "omega:batch_limit=0.5": {"gang": "true", "preemption": "true"},
    "omega:elastic=global-cap": {"width": "2", "retry_s": "20"},
    "omega:elastic=relative-size": {"width": "1", "elastic_times": "3", "pickiness": "0.2"},
    "omega:reliable=true": {},
    "omega:preemption=true": {"batch_schedulers": "2", "service": "user:a", "retry_s": "2"},
    "monolithic:path=single": {"gang": "true"},
    "mesos:gang=true": {"service": "estimate:0.2", "hoard_s": "150"},
    "mesos:batch_schedulers=2": {"service": "user:a", "offer_s": "1", "refuse_s": "0", "width": "3"},
    "mesos:reliable=true": {},
    "pipeline:T2=srtf": {"R5": "first-fit", "J2": "per-user/jobs:2", "J3": "edf", "T5": "none"},
    "pipeline:T2=random": {"R5": "worst-fit", "J2": "flow-control/tasks:20"},
    "pipeline:T2=drf/shares:a:3+b:1": {"R5": "random-fit", "J3": "ljf"},
    "pipeline:T2=hdrf/shares:a:3+org:2(b:1+c:4)": {"R5": "min-constraints"},
    "pipeline:T3=strict": {"J3": "srtf", "R5": "fastest"},
    "pipeline:J3=sjf": {"T3": "easy", "R2": "acl/users:b=0-49"},
    "pipeline:lrms=3": {"M4": "managed/per_machine:2.5", "M5": "random-fit", "T2": "heft"},
    "pipeline:lrms=2": {
        "M4": "managed",
        "T3": "easy",
        "backfilling": "per-event",
        "broker_machines": "6",
        "M1": "overflow/tasks:5",
    },
    "pipeline:cycle_s=0.02": {"cycle_cost_us": "50", "task_cost_us": "7", "J4": "2", "T2": "bands"},
    "pipeline:T10=fairness/shares:a:1+b:2+c:1": {"T2": "drf/shares:a:1+b:2+c:1"},
    "pipeline:progress=keep": {"T10": "fairness/shares:a:3+b:1", "T2": "drf/shares:a:3+b:1", "cycle_cost_us": "40"},
    "pipeline:T12=rebalance/period_s:0.1/cost_s:0.01/left_s:0": {"progress": "keep"},
    "pipeline:T9=fixed/n:3": {"T11": "restart"},
    "pipeline:T9=straggler/times:0.5": {"lrms": "2"},
    "pipeline:T11=checkpoint/period_s:0.1": {"lrms": "2"},
    "pipeline:reliable=true": {"T2": "drf", "T10": "fairness"},
    "pipeline:R7=react/spare:0.1": {
        "T11": "restart",
        "R6": "biggest/release_at:once",
        "boot_s": "5",
        "scale_s": "60",
        "billing_s": "300",
        "rest_s": "600",
    },
    "pipeline:R3=delay/node_wait_s:0.1/rack_wait_s:0.05": {"T11": "restart"},
    "pipeline:R3=delay": {"T2": "drf", "R5": "first-fit", "T3": "strict"},
    "pipeline:T5=stage-in/mb:1": {"J5": "stage-in/latency_s:0.001"},
    "slurm:SchedulerType=sched/builtin": {"batch_sched_delay": "0"},
    "slurm:SelectType=select/linear": {"SchedulerType": "sched/builtin", "defer": "true"},
    "slurm:PreemptType=preempt/qos": {
        "PreemptMode": "REQUEUE",
        "SchedulerType": "sched/builtin",
        "qos": "high/Preempt:low/Users:a+low/Users:b_c",
        "cred_expire": "0",
    },
    "slurm:PriorityType=priority/multifactor": {
        "PriorityWeightFairshare": "1000",
        "PriorityWeightAge": "100",
        "PriorityCalcPeriod": "1",
        "accounts": "a:3+org:2(b:1+c:4)",
        "bf_max_job_test": "20",
    },
    "pipeline:T8=delete/files:20": {
        "alloc_s": "0.3",
        "lrms": "2",
        "T6": "overrun/period_s:20",
        "J2": "per-user",
        "J7": "delete/files:9",
    },
}

HOPS = {
    "mercury:containers=guaranteed": 3,
    "mercury:containers=mixed": 3,
    "mercury:balance=false": 3,
    "mercury:reliable=true": 3,
    "pipeline:lrms=3": 4,
    "pipeline:lrms=2": 4,
    "pipeline:T11=checkpoint/period_s:0.1": 4,
    "pipeline:T9=straggler/times:0.5": 4,
    "pipeline:T8=delete/files:20": 4,
}
"""Variants that take another number of hops than the entry that they are of."""

EXCUSED = {
    ("firmament:policy=load-spreading", "check_lone_task_costs_its_hops"): "decisions take their time",
    ("firmament:policy=load-spreading", "check_costly_roles_saturate"): "likewise, and that is processing",
    ("quincy:preemption=true", "check_allocation_adds_up"): "tasks wait for the next cycle",
    ("quincy:policy=network-aware", "check_allocation_adds_up"): "likewise",
    ("megha:near=true", "check_gangs_start_whole"): "it takes slots alone, and some of these gangs ask for amounts",
    ("omega:gang=true", "check_gangs"): "with pickiness=0.5 no attempt considers more than half of the machines",
    ("omega:batch_limit=0.4", "check_gangs"): "a gang beyond the limit of its scheduler is refused",
    ("omega:batch_limit=0.5", "check_gangs"): "likewise",
    ("omega:elastic=relative-size", "check_gangs"): "width and gangs exclude each other",
    ("omega:elastic=global-cap", "check_gangs"): "likewise",
    ("mesos:batch_schedulers=2", "check_gangs"): "width and gangs exclude each other",
    ("mesos:batch_schedulers=2", "check_lone_task_costs_its_hops"): "offers are made in batches",
    ("mesos:batch_schedulers=2", "check_allocation_adds_up"): "offers are made in batches",
    (
        "sparrow:late_binding=false",
        "check_allocation_adds_up",
    ): "it waits for all answers, served in turn",
    ("hfs:out_of_band=false", "check_lone_task_costs_its_hops"): "it waits for heartbeats",
    ("hfs:out_of_band=false", "check_allocation_adds_up"): "it waits for heartbeats",
    ("hfs:out_of_band=false", "check_cancel"): "what was killed is told with the next heartbeat",
    (
        "megha-2021:launch=synchronous",
        "check_nobody_loses_what_it_is_due",
    ): "a GM that waits uses what its users free one by one: others get some of it first, and lose it again",
    (
        "megha-2021-printed:completion_notice=with-updates",
        "check_lone_task_costs_its_hops",
    ): "ends wait for heartbeats",
    ("megha-2021-printed:completion_notice=with-updates", "check_cancel"): "likewise",
    ("hydra:split=home", "check_lone_task_costs_its_hops"): "it waits for heartbeats",
    ("hydra:split=home", "check_allocation_adds_up"): "it waits for heartbeats",
    ("hydra:split=broadcast", "check_lone_task_costs_its_hops"): "decisions take their time",
    ("slurm:SelectType=select/linear", "check_lone_task_costs_its_hops"): "a deferred job waits for the main loop",
    ("slurm:SelectType=select/linear", "check_allocation_adds_up"): "likewise",
    ("pipeline:J3=sjf", "check_allocation_adds_up"): "it decides at the end of the instant, where the path begins anew",
    ("pipeline:cycle_s=0.02", "check_lone_task_costs_its_hops"): "tasks wait for the next cycle",
    ("pipeline:cycle_s=0.02", "check_allocation_adds_up"): "likewise",
    ("pipeline:progress=keep", "check_lone_task_costs_its_hops"): "cycles take their time",
    ("pipeline:progress=keep", "check_allocation_adds_up"): "likewise",
    ("pipeline:R7=react/spare:0.1", "check_lone_task_costs_its_hops"): "tasks wait for a machine to boot",
    ("pipeline:R7=react/spare:0.1", "check_allocation_adds_up"): "likewise",
    ("pipeline:T5=stage-in/mb:1", "check_lone_task_costs_its_hops"): "tasks wait for their files",
    ("pipeline:T5=stage-in/mb:1", "check_allocation_adds_up"): "likewise",
}
"""What a variant cannot keep by its very design, and why."""


def variant(name: str) -> Architecture:
    """A registry entry with other defaults, named after what it is about."""
    base, _, first = name.partition(":")
    key, equals, value = first.partition("=")
    given = {**({key: value} if equals else {}), **VARIANTS[name]}
    entry = lookup(base)
    hops = HOPS.get(name, entry.conformance.hops)
    defaults = configure(entry, {**entry.conformance.immediate, **given})
    claims = msgspec.structs.replace(entry.conformance, hops=hops, immediate={})
    return msgspec.structs.replace(entry, name=name, defaults=defaults, conformance=claims)


def entries() -> dict[str, Architecture]:
    """All registry entries."""
    return registry()


def without(design: Architecture, capability: type[object]) -> Architecture:
    """The design, which does not declare a capability."""

    def build(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
        made = design.build(cluster, config, streams)
        kept = tuple([one for one in made.capabilities if not isinstance(one, capability)])
        return msgspec.structs.replace(made, capabilities=kept)

    return msgspec.structs.replace(design, build=build)
