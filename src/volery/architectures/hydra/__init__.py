"""Hydra: a federation of YARN sub-clusters (Curino et al., NSDI 2019; Apache Hadoop's YARN Federation).

Roles    Router (several), StateStore, PolicyGenerator (GPG), Proxy (AM-RM proxies with the application masters beside
         them, several per sub-cluster), ResourceManager (one per sub-cluster), Node (one per machine).
Flow     Submit > Locate > Located > Hosted > ContainerRequest > (machine's heartbeat, master's heartbeat) Grant >
         Start > Completed and, in the machine's heartbeat, Vacated. Out of band: Load > Directory; News > Read >
         SubclusterLoads > PolicyUpdate > Entitle.
Deviates No text of the paper was at hand but abstract and summaries: policies and periods are those of Hadoop's
         documentation and code, and the method by which queues get their capacities is ours (docs/reference/hydra.md).
         Slots only. Application masters take no container and no time to start: they stand beside proxies, which are a
         few per sub-cluster instead of one per machine and do not fail. Empty heartbeats are not
         sent. Requests are not moved once they are placed, unless a sub-cluster is lost or back; locality is of
         sub-clusters, not of machines and racks. home: a job whose home cannot run a task asks the others. The state
         store does not fail. docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from random import Random

from volery.architectures.hydra.layout import GPG, STORE, Layout, Membership, rm_of
from volery.architectures.hydra.manager import ManagerSetting, ResourceManager
from volery.architectures.hydra.node import Node
from volery.architectures.hydra.proxy import Proxy, Split, Splitter
from volery.architectures.hydra.recovery import Registration, Registrations
from volery.architectures.hydra.router import Router, Routing
from volery.architectures.hydra.store import Generating, PolicyGenerator, StateStore
from volery.core.bounds import Components, Count, Milliseconds, Parameters, Period, PositiveCount, Seconds, param
from volery.core.capabilities import ClusterParts, CrashRecovery, GangPlacement
from volery.core.component import Architecture, Component, Conformance, Deployment, role_of, sent_by
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.fairness.shares import parse_shares_text
from volery.roles.node import Heartbeats
from volery.roles.recovery.channel import LINK_MESSAGES, Linking


class HydraConfig(Parameters, frozen=True):
    subclusters: Components = param(4, "sub-clusters, each under a resource manager")
    routers: Components = param(2, "routers, where jobs come in")
    proxies: Components = param(2, "AM-RM proxies of each sub-cluster")
    routing: Routing = param("uniform", "which sub-cluster becomes a job's home; hash: by its user; load: most free")
    split: Split = param(
        "weighted", "what is asked where: all of each, of the home, by headroom and weight, near input"
    )
    alpha: float = param(1.0, "weighted, locality: what headroom counts against weights", ge=0, le=1)
    node_heartbeat_s: Seconds = param(1.0, "between two heartbeats of a machine, seconds; 0: told and served at once")
    am_heartbeat_s: Seconds = param(1.0, "between two of an application master, seconds; 0: told at once")
    decision_ms: Milliseconds = param(0.0, "modelled time of a resource manager per container, in the lab alone")
    queues: str = param("", "queues by user with weights, as web:1+dev:2; others join; empty: one for all")
    report_s: Period = param(5.0, "between two reports of a resource manager to the store, seconds")
    gpg: Generating = param("both", "what the policy generator sets: weights of sub-clusters, queues, both")
    gpg_s: Period = param(10.0, "from one look of the generator to the next, seconds")
    pending_low: Count = param(100, "waiting jobs up to which a sub-cluster keeps its weight")
    pending_high: PositiveCount = param(1000, "waiting jobs from which its weight is 0")
    reliable: bool = param(False, "bear faults: reliable messages, registrations, expiry of machines")
    detection_s: Period = param(1.0, "a resource manager or machine that is lost is missed within this, seconds")
    node_expiry_s: Period = param(600.0, "a machine that was missed for so long is given up, seconds")


MESSAGES = sent_by(Router, StateStore, PolicyGenerator, Proxy, ResourceManager, Node)


def build(cluster: Cluster, config: HydraConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: more sub-clusters than machines, queues that are none, heartbeats closer than a microsecond.
    """
    builder = HydraBuilder(cluster, config, streams)

    layout = builder.layout
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    resource_managers = [rm_of(subcluster.number) for subcluster in layout.subclusters]
    addresses = [*layout.routers, STORE, GPG, *layout.proxies, *resource_managers, *machines]
    entries = layout.routers
    parts = ClusterParts(tuple([sub.part for sub in layout.subclusters]))
    placement = GangPlacement(parts=lambda _: parts, remedy="give fewer sub-clusters (subclusters), or leave it out")

    if not config.reliable:
        components = {address: builder.component(address, 0) for address in addresses}
        return Deployment(components, machines, lambda job: entries[job % len(entries)], capabilities=(placement,))

    linking = Linking(MESSAGES)

    def linked(address: Address, incarnation: int) -> Component:
        return linking.around(builder.component(address, incarnation), incarnation)

    watches = [(STORE, address) for address in resource_managers]
    watches += [(rm_of(layout.sub_of[machine]), node) for node, machine in machines.items()]

    return Deployment(
        {address: linked(address, 0) for address in addresses},
        machines,
        lambda job: entries[job % len(entries)],
        capabilities=(CrashRecovery(linked, tuple(watches), _us(config.detection_s)), placement),
    )


class HydraBuilder:
    """Makes the components of one build."""

    def __init__(self, cluster: Cluster, config: HydraConfig, streams: Streams) -> None:
        self._config = config
        self._streams = streams
        self.layout = Layout(
            cluster, config.subclusters, config.routers, config.proxies, streams.of("hydra/heartbeats")
        )

        if config.pending_high <= config.pending_low:
            problem = f"{config.pending_high} is not more than pending_low, {config.pending_low}"
            raise InputError("hydra:pending_high", problem)

        self._queues = _queues(config)
        sizes = [len(sub.machines) for sub in self.layout.subclusters]
        beats = _beats("node_heartbeat_s", config.node_heartbeat_s, sizes)
        am_beats = _beats("am_heartbeat_s", config.am_heartbeat_s, [len(self.layout.proxies)])

        self._setting = ManagerSetting(
            self._queues,
            beats,
            am_beats[0] if am_beats else None,
            self.layout.proxies,
            round(config.decision_ms * 1000),
            _us(config.report_s),
        )

    def component(self, address: Address, incarnation: int) -> Component:
        config = self._config
        layout = self.layout
        role, *numbers = address.split("/")
        stream = self._streams.of(address, incarnation) if role in ("router", "rm") else None
        number = int(numbers[0])

        if role == "node":
            return self._node(number, incarnation)

        if stream is not None and role == "router":
            return Router(layout, config.routing, stream)

        if stream is not None:
            return self._manager(number, stream, incarnation)

        if role == "proxy":
            membership = Membership(len(layout.subclusters))
            alpha = Fraction(config.alpha).limit_denominator(1000)
            return Proxy(number, layout, membership, Splitter(layout, membership, config.split, alpha))

        if role == role_of(GPG):
            return PolicyGenerator(
                config.gpg, _us(config.gpg_s), config.pending_low, config.pending_high, self._queues, incarnation
            )

        return StateStore(layout)

    def _node(self, machine: int, incarnation: int) -> Node:
        config = self._config
        setting = self._setting
        sub = self.layout.subclusters[self.layout.sub_of[machine]]

        rm = rm_of(sub.number)
        beats = setting.beats[sub.number] if setting.beats else None
        registration = None

        if config.reliable:
            registration = Registration(rm, self.layout.proxies, _us(config.node_expiry_s), incarnation)

        return Node(rm, sub.seat_of[machine], beats, registration)

    def _manager(self, number: int, stream: Random, incarnation: int) -> ResourceManager:
        config = self._config
        sub = self.layout.subclusters[number]
        registrations = None

        if config.reliable:
            # The node gives up at its own expiry; by then, after two detections, nothing can run there any more.
            lease_us = _us(config.node_expiry_s + 2 * config.detection_s)
            registrations = Registrations(sub, self.layout.proxies, lease_us, incarnation)

        return ResourceManager(sub, self._setting, stream, incarnation, registrations)


def _us(seconds: float) -> Time:
    return round(seconds * SECOND)


def _beats(name: str, interval_s: float, sizes: list[int]) -> list[Heartbeats] | None:
    try:
        return [Heartbeats(_us(interval_s), size) for size in sizes] if interval_s else None
    except ValueError as error:
        raise InputError(f"hydra:{name}", str(error)) from None


def _queues(config: HydraConfig) -> Mapping[str, int] | None:
    if not config.queues:
        return None
    tree = parse_shares_text(config.queues, "hydra:queues")

    if any(member.members for member in tree.members):
        raise InputError("hydra:queues", f"{config.queues!r} is a tree; write QUEUE:WEIGHT+QUEUE:WEIGHT")
    return {member.name: member.weight for member in tree.members}


STAGES = {
    Stage.J1: Realisation("Router.on_submit"),
    Stage.J3: Realisation("ResourceManager._serve", "full", "queues by use over capacity, first come in each"),
    Stage.J4: Realisation("Proxy.on_hosted", "full", "application masters in parallel"),
    Stage.J5: Realisation("Proxy.on_hosted", "partial", "an application master, without staging"),
    Stage.J6: Realisation("Proxy.on_completed", "full", "JobDone after the last result"),
    Stage.T2: Realisation("Proxy._bind", "full", "first come first served per constraint set, near its input first"),
    Stage.T3: Realisation("ResourceManager._serve", "full", "container by container"),
    Stage.T4: Realisation("Proxy._bind", "full", "a task is bound to a container that was granted"),
    Stage.T5: Realisation("Node.on_start", "partial", "launch without staging"),
    Stage.T6: Realisation("Node.on_task_finished", "partial", "heartbeats report ends, no progress"),
    Stage.T7: Realisation("Proxy.on_completed"),
    Stage.T11: Realisation("Proxy.on_renewed", "full", "another attempt, anywhere", "reliable=true"),
    Stage.M2: Realisation("Proxy._want", "full", "proxies over resource managers"),
    Stage.M3: Realisation("StateStore.on_load", "full", "membership and load of all sub-clusters"),
    Stage.M4: Realisation("Proxy.on_directory", "full", "active sub-clusters with a weight that have such machines"),
    Stage.M5: Realisation("Proxy._want", "full", "broadcast, home, headroom and weights, or locality"),
    Stage.M6: Realisation("ResourceManager.on_container_request"),
    Stage.R1: Realisation("ResourceManager.on_vacated", "full", "the machines of the sub-cluster, by heartbeat"),
    Stage.R3: Realisation("ResourceManager._serve", "full", "constraint bit vectors"),
    Stage.R4: Realisation("ResourceManager._serve", "full", "free slots of the machine"),
    Stage.R5: Realisation("ResourceManager._serve", "full", "the machine whose heartbeat comes"),
}

HYDRA = Architecture(
    name="hydra",
    summary="federation of YARN sub-clusters: routers, proxies that span sub-clusters, out-of-band policies",
    source="Curino, Krishnan, Karanasos, Rao et al.: Hydra, NSDI 2019; Apache Hadoop 3: YARN Federation",
    defaults=HydraConfig(),
    messages=MESSAGES | LINK_MESSAGES,
    stages=STAGES,
    build=build,
    conformance=Conformance(
        hops=8,
        tolerates=frozenset(
            {"loss", "duplication", "delay", "partition", "crash:rm", "crash:node", "crash:router", "crash:gpg"}
        ),
        fault_parameters={
            "reliable": True,
            "subclusters": 3,
            "node_expiry_s": 3.0,
            "node_heartbeat_s": 0.1,
            "am_heartbeat_s": 0.1,
        },
        fuzzed={
            "split": ("weighted", "weighted", "broadcast", "home"),
            "node_heartbeat_s": (0.1, 0.0),
            "am_heartbeat_s": (0.1, 0.0),
            "routing": ("uniform", "load"),
            "node_expiry_s": (3.0, 600.0),
            "alpha": (1.0, 0.5),
        },
        immediate={"node_heartbeat_s": 0.0, "am_heartbeat_s": 0.0},
    ),
    features={
        "constraints": "",
        "gangs": "",
        "users": "queues or routing=hash",
        "locality": "split=locality or routing=locality",
    },
)
