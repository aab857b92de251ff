"""Pigeon: hierarchical federated scheduling with job-oblivious distribution (Wang et al., SoCC 2019), and PigeonC.

Roles    Distributor (many, share nothing), Master (one per group), Node (one per machine).
Flow     Submit > GroupTasks > Launch > Completed (to the distributor) and Completed (to the master, an idle notice).
Deviates Idle lists are bit vectors: which of several equal idle workers runs a task changes no result. Jobs go to
         distributors round robin (the code: at random). A job of more than 4,096 tasks is dealt chunk by chunk. Masters
         fail over (section 6.1 of the paper) where `reliable` is set: two that are fixed, or workers that succeed each
         other (`candidates`), where distributors grant the lead and no idle list is copied. The paper names no rule by
         which distributors use reported queue lengths (`reports_s`, see `balance`), nor for the weights of more than
         two types of jobs (see `queues`). The last worker of a group is its master's where `masters_per_worker` is set,
         and second masters take workers of their own; a master's work has a processor to itself, and does not end with
         its worker. PigeonC, the constraint-aware version of Thiyyakat et al. (IoT 2023, section 4.2), is a preset.
         Gangs (GangTasks) are ours: see `gangs`. docs/papers.md has more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from random import Random

import msgspec

from volery.architectures.pigeon.distributor import Deal, Distribution, Distributor
from volery.architectures.pigeon.gangs import GangSupply, placement_in
from volery.architectures.pigeon.groups import ConstraintCounting, Group, GroupSupply, MasterHosts, Power, divide
from volery.architectures.pigeon.master import Master, Node
from volery.architectures.pigeon.messages import MESSAGES, RECOVERY_MESSAGES
from volery.architectures.pigeon.queues import WeightCounting
from volery.architectures.pigeon.recovery import MasterElection, MasterRecovery, pair_of, seats_of
from volery.architectures.pigeon.resends import DistributorRecovery
from volery.architectures.pigeon.succession import Candidacy, Election, GroupNode, GuardedWorker
from volery.core.bounds import SECONDS_MAX, Components, Count, OptionalComponents, Parameters, Period, Seconds, param
from volery.core.capabilities import CrashRecovery, GangPlacement, Refusals
from volery.core.component import Architecture, Component, Conformance, DeclaredCaptions, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster, Job, JobId, Task
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.match import MatchPolicy
from volery.roles.recovery.channel import Linking
from volery.roles.recovery.election import PairElection
from volery.roles.recovery.leadership import Leadership, Led
from volery.roles.recovery.leases import Lease


class PigeonConfig(Parameters, frozen=True):
    """Parameters of Pigeon and PigeonC."""

    distributors: Components = param(10, "distributors (schedulers)")
    groups: OptionalComponents = param(0, "groups, each under a master; 0: one per 100 workers (section 4)")
    group_sizes: tuple[int, ...] = param((), "machines per group, for unequal groups weighted by power (section 6.2)")
    power: Power = param("workers", "a group's power: its workers, or speed: the sum of their speeds (section 6.2)")
    masters_per_worker: Count = param(
        0, "masters that share a worker, which runs no task (section 4.1); 0: masters take no worker"
    )
    reserved: Count = param(9, "workers per group that run short tasks only")
    weight: Count = param(20, "W: one of W dispatches is long while long tasks wait; 0: infinite")
    weight_counting: WeightCounting = param(
        "paper", "short-per-long: weight short ones pass a long one; published-code: weight + 1, and all are counted"
    )
    cutoff_s: Seconds = param(1129.532, "jobs with at most this mean task duration are short, seconds")
    longer_cutoffs_s: tuple[float, ...] = param(
        (), "ascending limits above cutoff_s: a type of long jobs, with a queue, below each and above the last, seconds"
    )
    longer_weights: tuple[int, ...] = param(
        (), "as weight, one per limit: between the jobs below it and all that are longer (footnote of section 2.2)"
    )
    distribution: Distribution = param("even", "even with random remainder, or weighted by suitable workers")
    deal: Deal = param("turns", "even: each master gets a task in turn, or a block of consecutive ones (figure 6)")
    reports_s: Seconds = param(
        0.0,
        "period of masters' reports of queue lengths, by which distributors balance (section 6.2), seconds; 0: none",
    )
    match: MatchPolicy = param("random", "which suitable worker is taken")
    constraint_counting: ConstraintCounting = param(
        "exact", "published-code: weak workers count as strong ones, as in PigeonC's public code"
    )
    reliable: bool = param(False, "bear faults: two masters per group, leases, reliable messages (section 6.1)")
    candidates: Count = param(
        0, "workers of a group that may lead it where reliable is set (section 6.1); 0: two masters that are fixed"
    )
    election: Election = param("time", "of candidates without a master: the first to declare, or power: the strongest")
    update_s: Period = param(1.0, "a second master gets the queues within this, seconds; where there are candidates")
    detection_s: Period = param(1.0, "a peer that does not answer is given up within this, seconds")

    def check_types(self) -> None:
        """Refuse types of jobs that are not in order, or without a weight.

        Raises:
            InputError: naming the parameter.
        """
        limits = (self.cutoff_s, *self.longer_cutoffs_s)
        if not all(low < high <= SECONDS_MAX for low, high in pairwise(limits)):
            raise InputError(
                "pigeon:longer_cutoffs_s", f"the limits {limits} with cutoff_s do not ascend; give longer ones later"
            )
        if any(weight < 0 for weight in self.longer_weights):
            raise InputError("pigeon:longer_weights", f"{self.longer_weights} has a negative weight; 0 is infinite")
        if len(self.longer_weights) != len(self.longer_cutoffs_s):
            raise InputError(
                "pigeon:longer_weights",
                f"{len(self.longer_weights)} weights for {len(self.longer_cutoffs_s)} limits; give one per limit",
            )


GROUP_WORKERS = 100


def build(cluster: Cluster, config: PigeonConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: groups that the cluster cannot be cut into.
    """
    config.check_types()
    groups = _groups(cluster, config)
    supply = GroupSupply(groups, config.constraint_counting, config.power)
    builder = PigeonBuilder(groups, supply, config, streams)

    if config.reliable:
        return builder.recoverable()

    components: dict[str, Component] = {}
    machines: dict[str, int] = {}

    for number in range(config.distributors):
        address = f"distributor/{number}"
        components[address] = builder.distributor(address)

    for number, group in enumerate(groups):
        address = f"master/{number}"
        components[address] = builder.master(group, streams.of(address))
        for node, machine in zip(group.node_of, group.machines, strict=True):
            # A machine of several slots is several units with one node.
            if node not in machines:
                machines[node] = machine
                components[node] = Node(address)

    return Deployment(components, machines, builder.entry, capabilities=_capabilities(groups, config))


def _groups(cluster: Cluster, config: PigeonConfig) -> list[Group]:
    group_count = config.groups or max(1, len(cluster.constraints) // GROUP_WORKERS)
    hosts = MasterHosts(config.masters_per_worker, config.reliable)
    return divide(cluster, group_count, config.group_sizes, config.reserved, hosts)


def _capabilities(groups: Sequence[Group], config: PigeonConfig) -> tuple[Refusals, GangPlacement]:
    """Long tasks may not use reserved workers, masters may take workers, and a gang runs in one group."""
    of_short = {offered for group in groups for offered in group.in_order}
    of_long = {offered for group in groups for offered in group.in_order_for_long}
    cutoff_us = round(config.cutoff_s * SECOND)

    def refuses(job: Job, task: Task) -> bool:
        allowed = of_short if job.estimate_us <= cutoff_us else of_long
        return all(task.constraints & ~offered for offered in allowed)

    return Refusals(refuses), placement_in(groups, cutoff_us)


class PigeonBuilder:
    """Makes the components of one build."""

    def __init__(self, groups: list[Group], supply: GroupSupply, config: PigeonConfig, streams: Streams) -> None:
        self._groups = groups
        self._supply = supply
        self._gangs = GangSupply(groups)
        self._config = config
        self._streams = streams
        self._distributors = [f"distributor/{number}" for number in range(config.distributors)]
        self._reports_us = round(config.reports_s * SECOND)
        self._lease = Lease(round(config.detection_s * SECOND))
        self._linking = Linking(MESSAGES | RECOVERY_MESSAGES)
        self._update_us = round(config.update_s * SECOND)
        self._seats = [seats_of(number, group, config.candidates) for number, group in enumerate(groups)]
        self._group_of = {node: number for number, group in enumerate(groups) for node in group.node_of}

    def entry(self, job: JobId) -> Address:
        """The distributor of a job."""
        return self._distributors[job % len(self._distributors)]

    def distributor(self, address: Address, recovery: DistributorRecovery | None = None) -> Distributor:
        """The distributor at an address."""
        return Distributor(
            self._supply,
            self._gangs,
            distribution=self._config.distribution,
            deal=self._config.deal,
            cutoffs_us=[round(limit * SECOND) for limit in (self._config.cutoff_s, *self._config.longer_cutoffs_s)],
            stream=self._streams.of(address),
            recovery=recovery,
            reports_us=self._reports_us,
        )

    def master(self, group: Group, stream: Random, recovery: MasterRecovery | None = None) -> Master:
        """A master of a group."""
        config = self._config
        return Master(
            group,
            weights=(config.weight, *config.longer_weights),
            weight_counting=config.weight_counting,
            match=config.match,
            stream=stream,
            recovery=recovery,
            reports=(self._distributors, self._reports_us) if self._reports_us else None,
        )

    def recoverable(self) -> Deployment:
        """The components of a deployment of which masters and nodes may crash."""
        groups = self._groups
        machines = {
            node: machine for group in groups for node, machine in zip(group.node_of, group.machines, strict=True)
        }
        masters = [address for seats in self._seats for address in seats]
        watches = (
            *(pair for seats in self._seats for pair in combinations(seats, 2)),
            *((master, node) for node in machines for master in self._seats[self._group_of[node]]),
        )
        components = {address: self._linked(address, 0) for address in [*self._distributors, *masters, *machines]}
        recovery = CrashRecovery(self._linked, watches, self._lease.detection_us)
        capabilities = recovery, *_capabilities(groups, self._config)
        return Deployment(components, machines, self.entry, capabilities=capabilities)

    def _linked(self, address: Address, incarnation: int) -> Component:
        """The component at an address, behind its link."""
        return self._linking.around(self._component(address, incarnation), incarnation)

    def _component(self, address: Address, incarnation: int) -> Component:
        role, *numbers = address.split("/")
        if role == "distributor":
            return self.distributor(address, DistributorRecovery(self._seats))
        if role == "node":
            node = GroupNode if self._config.candidates else GuardedWorker
            return node(self._seats[self._group_of[address]], self._lease, incarnation)
        number = int(numbers[0])
        group, seats = self._groups[number], self._seats[number]

        def elect(master: Led, nodes: Iterable[Address]) -> MasterElection:
            me, clients = seats.index(address), self._distributors
            leadership = Leadership(master, me, len(seats), nodes, clients, self._lease, incarnation)
            if not self._config.candidates:
                return PairElection(leadership, pair_of(number))
            return Candidacy(leadership, seats, group.powers()[: len(seats)], self._config.election)

        recovery = MasterRecovery(group, elect, self._distributors, self._update_us)
        return self.master(group, self._streams.of(address, incarnation), recovery)


STAGES = {
    Stage.J1: Realisation("Distributor.on_submit"),
    Stage.J4: Realisation("Distributor.on_submit", "full", "distributors in parallel"),
    Stage.J6: Realisation("Distributor.on_completed", "full", "JobDone after the last result"),
    Stage.T2: Realisation("Master.next_task", "full", "two weighted fair queues"),
    Stage.T3: Realisation("Distributor._distribute"),
    Stage.M2: Realisation("Distributor._distribute", "full", "distributors over masters"),
    Stage.M3: Realisation("Distributor._distribute", "full", "all masters"),
    Stage.M4: Realisation("Distributor._draw", "partial", "masters with a suitable worker, whether idle or not"),
    Stage.M5: Realisation("Distributor._distribute", "full", "even with random remainder, or weighted by supply"),
    Stage.M6: Realisation("Master.on_group_tasks"),
    Stage.T4: Realisation("Master._launch"),
    Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
    Stage.T7: Realisation("Master.on_completed", "full", "idle notice"),
    Stage.T11: Realisation("Distributor.on_lost", "full", "another attempt in its group", "reliable=true"),
    Stage.R1: Realisation("Master.on_completed", "full", "idle workers of the group"),
    Stage.R2: Realisation("Master.on_group_tasks", "partial", "reserved workers run short tasks only"),
    Stage.R3: Realisation("Master.on_group_tasks", "full", "constraint bit vectors"),
    Stage.R4: Realisation("Master.on_group_tasks", "full", "idle vector"),
    Stage.R5: Realisation("Master.on_group_tasks", "full", "random or minimum constraints"),
}

CAPTIONS = {
    "Submit": "Job {job}{user} comes to {receiver}, a distributor that knows no machine: {tasks_of_job} to deal out.",
    "GroupTasks": (
        "{sender} deals {tasks} to {receiver}, master of a group of machines; each group gets its part, however busy."
    ),
    "GangTasks": "{sender} sends {tasks}, which run only together, to {receiver}: its group starts them at once.",
    "Launch": "{sender} has an idle machine in its group: it launches {tasks} on {receiver}.",
    "Completed": "{sender} tells {receiver} that {tasks} has finished; the machine is idle again.",
    "QueueLengths": "{sender} reports to {receiver} how many tasks wait in its queues.",
    "Update": "{sender} sends {receiver}, its second master, all tasks that wait, in case it fails.",
    "VoteRequest": "{sender} has lost its master and asks {receiver} to let it lead the group.",
    "Lineup": "{sender} leads the group now, and tells {receiver} who is its second master.",
    "Declared": "{sender} has lost both masters and tells {receiver}: the first, or the strongest, of these will lead.",
    "Withdrawn": "{sender} has let {tasks} go that waited: the job was given up.",
}
"""Texts of recordings, for readers who do not know the design."""

PIGEON = Architecture(
    name="pigeon",
    summary="federated: distributors deal tasks evenly to masters, each master serves two weighted fair queues",
    source="Z. Wang, H. Li, Z. Li, X. Sun, J. Rao, H. Che, H. Jiang: Pigeon, SoCC 2019, sections 2 and 6.2",
    defaults=PigeonConfig(),
    messages=MESSAGES | RECOVERY_MESSAGES,
    stages=STAGES,
    build=build,
    conformance=Conformance(
        hops=3,
        tolerates=frozenset({"loss", "duplication", "delay", "partition", "crash:master", "crash:node"}),
        fault_parameters={
            "reliable": True,
            "groups": 3,
            "reserved": 1,
            "distributors": 3,
            "weight": 3,
            "cutoff_s": 0.5,
        },
        fuzzed={
            "candidates": (0, 2, 3, 50),
            "election": ("time", "power"),
            "update_s": (0.05, 1.0),
            "reports_s": (0.0, 0.3),
        },
    ),
    features={"constraints": "", "gangs": ""},
    capabilities=(DeclaredCaptions(CAPTIONS),),
)

PIGEONC = msgspec.structs.replace(
    PIGEON,
    name="pigeonc",
    summary="constraint-aware Pigeon: masters drawn by the number of suitable workers, no reserved workers",
    source="Thiyyakat, Kalambur, Sitaram: Constraint-Aware Federated Scheduling, IoT 2023, section 4.2",
    defaults=PigeonConfig(reserved=0, distribution="supply"),
    stages={stage: realisation for stage, realisation in STAGES.items() if stage is not Stage.R2},
    conformance=msgspec.structs.replace(
        PIGEON.conformance,
        fault_parameters={"reliable": True, "groups": 3, "distributors": 3, "weight": 3, "cutoff_s": 0.5},
    ),
)
