"""Schedules of faults of processes and of the load, as data for the lab and live hosts.

`make chaos` draws one from a seed, applies it to a live federation and can write it to a file;
`volery storm --schedule` plays the same file in the lab. A schedule has only faults that its design `tolerates`.

In the lab a host that is killed, has a torn end of its files, or cannot write is a crash of all its components. A host
that is stopped or cut off is partitioned from all others; without a broker every host is. A slow link delays messages.
The submitter does not fail there, so faults of the API's host have no effect. There is no keeper either: killing one is
a crash of its nodes, and stopping one has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Any, Final, Literal

import msgspec

from volery.core.capabilities import CrashRecovery
from volery.core.component import Architecture, Deployment, role_of
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Amounts, Cluster, Time
from volery.core.streams import Streams
from volery.faults.scenario import LATE_US, RESOURCES, Scenario, ScenarioJob
from volery.sim.faults import Crash, FaultPlan, MessageFaults, Partition

API: Final = "api"
KEEPER: Final = "/keeper"
"""Suffix of the name of a host with nodes: the process that is the parent of its tasks."""
MACHINES: Final = 8
CAPACITY: Final[Amounts] = (2_000, 2_048)
"""The capacity of each machine, where amounts are placed."""
REQUESTS: Final[tuple[Amounts, ...]] = ((1_000, 512), (1_000, 512), (1_000, 1_536), (2_000, 1_024))
USERS: Final = ("a", "b")
SHARES: Final = "a:1+b:2"
TASKS: Final = 4
BURST_TASKS: Final = 24
DURATIONS_US: Final = (50_000, 300_000, 300_000, 2 * SECOND)
JOBS_PER_S: Final = 1.5
DETECTION_S: Final = 1.5
GAP_US: Final = (SECOND, 3 * SECOND)
"""Between the end of one fault and the beginning of the next, most often."""
BESIDE: Final = 0.25
"""The probability that the next fault begins half a second after this one, on another host."""
BUSY_MAX: Final = 2
BACK_US: Final[Time] = 9 * SECOND // 10
"""The restart of a process takes this time in the lab."""

Kind = Literal["kill", "lose", "restart", "stop", "broker", "tear", "fill", "slow", "cut"]
WEIGHTS: Final[Mapping[Kind, int]] = {"kill": 6, "stop": 4, "broker": 2, "tear": 2, "fill": 2, "slow": 2, "cut": 2}
LASTS_S: Final[Mapping[Kind, tuple[float, ...]]] = {
    "kill": (0.0, 0.3, 3.0, 8.0),
    "stop": (0.5, 2.0, 9.0),
    "broker": (0.0, 1.0, 4.0),
    "tear": (0.0, 1.0),
    "fill": (2.0,),
    "slow": (2.0, 8.0),
    "cut": (0.5, 2.0, 9.0),
}
"""Some are longer than a lease: with `DETECTION_S` tasks of a node that is away are given to others after 6 s."""
FIRST_ROUND: Final = 2
"""Every kind is done once before any is done again, for no longer than the second of its times."""
GARBAGE_BYTES: Final = (7, 500, 5_000)
EXTRA_US: Final = (30_000, 200_000)

Moment = Annotated[int, msgspec.Meta(ge=0)]


class HostFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of a process, a disk or a link.

    Args:
        at_us: since the beginning of the schedule.
        kind: kill: SIGKILL, and a restart after `lasts_us`; lose: SIGKILL without a restart; restart: SIGKILL of all
            hosts at once that are there, the API's too, and a restart at once; stop: SIGSTOP and SIGCONT; broker: the
            broker is killed and restarted; tear: as kill, and the last write gets a torn end; fill: nothing can be
            written; slow: the host's link delays messages; cut: its link is cut.
        lasts_us: duration of the fault.
        host: name of the host with the fault, or of the keeper of its tasks (`KEEPER`).
        garbage_bytes: number of bytes that tear writes.
        extra_us: mean extra delay of slow.
    """

    at_us: Moment
    kind: Kind
    lasts_us: Moment
    host: str = ""
    garbage_bytes: Moment = 0
    extra_us: Moment = 0

    @property
    def base(self) -> str:
        """The host, also of a keeper."""
        return self.host.removesuffix(KEEPER)

    @property
    def until_us(self) -> Time:
        """The time at which it has ended."""
        return self.at_us + self.lasts_us


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hosts, jobs and faults of one run.

    Args:
        architecture: name of the design.
        seed: seed of the schedule, and of the components' streams.
        parameters: parameters of the design.
        machines: number of machines.
        capacity: capacity of each machine, in units of `RESOURCES`; empty: a slot.
        hosts: components on each; the API's host is not among them.
        jobs: jobs in order of arrival.
        faults: faults in order of time.
        lasts_us: jobs arrive, and faults begin, until then.
    """

    architecture: str
    seed: int
    parameters: dict[str, Any]
    machines: Annotated[int, msgspec.Meta(ge=1)]
    capacity: Amounts
    hosts: dict[str, tuple[Address, ...]]
    jobs: tuple[ScenarioJob, ...]
    faults: tuple[HostFault, ...]
    lasts_us: Moment

    def __post_init__(self) -> None:
        """Refuse hosts that are not there."""
        for place, fault in enumerate(self.faults):
            if fault.kind not in ("broker", "restart") and fault.base not in (*self.hosts, API):
                raise InputError(
                    f"faults[{place}].host", f"{fault.host!r} is none; there are {', '.join(self.hosts)} and api"
                )

    def scenario(self) -> Scenario:
        """The same in the lab."""
        return Scenario(
            architecture=self.architecture,
            seed=self.seed,
            parameters=self.parameters,
            constraints=(0,) * self.machines,
            slots=(1,) * self.machines,
            jobs=self.jobs,
            delay_us=500,
            jitter_us=500,
            tie_shuffle=None,
            plan=self._plan(),
            capacities=(self.capacity,) * self.machines if self.capacity else (),
        )

    def _plan(self) -> FaultPlan:
        crashes: list[Crash] = []
        partitions: list[Partition] = []
        message_faults: list[MessageFaults] = []
        lost_addresses: list[Address] = []
        lost_us = 0

        for fault in self.faults:
            host_addresses = self.hosts.get(fault.base, ())
            at = fault.at_us
            until = fault.until_us
            match fault.kind:
                case "broker":
                    # Every host is cut off from all others, and goes on by itself.
                    partitions += [Partition(at, until, addresses) for addresses in self.hosts.values()]
                case "stop" | "cut" if host_addresses and not fault.host.endswith(KEEPER):
                    partitions.append(Partition(at, until, host_addresses))
                case "slow" if host_addresses:
                    message_faults.append(
                        MessageFaults(
                            start_us=at, end_us=until, delay=1.0, extra_us=fault.extra_us, among=host_addresses
                        )
                    )
                case "lose":
                    # It crashes for good: a crash from which it would come back after that is dropped.
                    lost_addresses += host_addresses
                    crashes = [crash for crash in crashes if crash.address not in host_addresses or crash.back_us < at]
                    lost_us = at
                case "restart":
                    # A component that is down already comes back by its own crash, and is not restarted twice.
                    crashed_addresses = {crash.address for crash in crashes if crash.at_us <= at <= crash.back_us}
                    all_addresses = [address for addresses in self.hosts.values() for address in addresses]
                    crashes += [
                        Crash(at, address, at + BACK_US)
                        for address in all_addresses
                        if address not in {*crashed_addresses, *lost_addresses}
                    ]
                case "kill" | "tear" | "fill":
                    crashes += [Crash(at, address, until + BACK_US) for address in host_addresses]
                case _:
                    continue

        work_us = sum(sum(job.durations_us) for job in self.jobs)
        deadline_us = max([self.lasts_us, *[fault.until_us for fault in self.faults]]) + LATE_US + work_us

        if not lost_addresses:
            return FaultPlan(tuple(message_faults), tuple(partitions), tuple(crashes), deadline_us)
        # The lost ones come back when all else is over, to check that their old state does no harm.
        crashes += [Crash(lost_us, address, deadline_us + SECOND) for address in lost_addresses]
        whole_us = deadline_us + LATE_US
        return FaultPlan(tuple(message_faults), tuple(partitions), tuple(crashes), whole_us, progress_us=deadline_us)


def draw_schedule(architecture: Architecture, seed: int, lasts_us: Time, *, amounts: bool = False) -> Schedule:
    """The schedule of a seed.

    Args:
        architecture: a design that tolerates partitions at least.
        seed: seed of all random streams.
        lasts_us: duration of the schedule.
        amounts: true where machines offer amounts instead of slots, and users have shares.

    Raises:
        InputError: the design tolerates none of these faults, or places no amounts.
    """
    if "partition" not in architecture.conformance.tolerates:
        raise InputError(architecture.name, "bears no partition, and so neither a stopped host nor a lost broker")
    if amounts and not architecture.vectors:
        raise InputError(architecture.name, "places slots, not amounts")

    stream = Streams(seed).of(f"schedule/{architecture.name}")
    parameters = dict(architecture.conformance.fault_parameters)
    parameter_names = architecture.defaults.__struct_fields__

    if "detection_s" in parameter_names:
        parameters["detection_s"] = DETECTION_S
    if amounts and "shares" in parameter_names:
        parameters["shares"] = SHARES

    jobs = tuple(_jobs(stream, lasts_us, amounts))

    cluster = Cluster((0,) * MACHINES, (1,) * MACHINES, "schedule")
    if amounts:
        cluster = Cluster(cluster.constraints, cluster.slots, "schedule", RESOURCES, (CAPACITY,) * MACHINES)

    defaults = msgspec.to_builtins(architecture.defaults)
    config = msgspec.convert({**defaults, **parameters}, type(architecture.defaults))
    deployment = architecture.build(cluster, config, Streams(seed))
    hosts = spread(deployment.components)

    return Schedule(
        architecture.name,
        seed,
        parameters,
        MACHINES,
        CAPACITY if amounts else (),
        hosts,
        jobs,
        tuple(
            _with_loss(
                architecture,
                deployment,
                hosts,
                seed,
                lasts_us,
                _faults(stream, borne(architecture, deployment, hosts), lasts_us),
            )
        ),
        lasts_us,
    )


def _with_loss(
    architecture: Architecture,
    deployment: Deployment,
    hosts: Mapping[str, Sequence[Address]],
    seed: int,
    lasts_us: Time,
    faults: Iterator[HostFault],
) -> Iterator[HostFault]:
    """The faults with the loss of a host whose entries others can replace, and a restart of all others after it.

    A stream of its own leaves all else.
    """
    recovery = deployment.capability(CrashRecovery)
    standins = recovery.standins if recovery is not None else ()
    replaceable_entries = [
        entry for entry in standins if f"gone:{role_of(entry)}" in architecture.conformance.tolerates
    ]
    replaceable = [
        host
        for host, addresses in hosts.items()
        if addresses and all(entry in replaceable_entries for entry in addresses)
    ]
    # One of them must remain to take over.
    if len(replaceable) < 2:
        yield from faults
        return

    stream = Streams(seed).of(f"schedule/{architecture.name}/loss")
    lost = stream.choice(replaceable)
    at = stream.randint(lasts_us // 5, lasts_us // 2)
    loss = HostFault(at, "lose", lasts_us - at, lost)
    restart = HostFault(stream.randint((at + lasts_us) // 2, lasts_us - lasts_us // 5), "restart", 0)

    other_faults = [
        fault
        for fault in faults
        # The lost host has no faults later on, and none begins while all others restart.
        if (fault.base != lost or fault.until_us + BACK_US < at)
        and not restart.at_us <= fault.at_us <= restart.at_us + 2 * BACK_US
    ]

    yield from sorted([*other_faults, loss, restart], key=lambda fault: fault.at_us)


def spread(addresses: Sequence[Address] | Mapping[Address, Any]) -> dict[str, tuple[Address, ...]]:
    """Two hosts per role; of a pair of masters one on each."""
    hosts: dict[str, list[Address]] = {}
    for address in addresses:
        number, _, standby = address.partition("/")[2].partition("/")
        # A master and its standby are on different hosts: the loss of one host takes only one of them.
        side = (int(number) + bool(standby)) % 2
        hosts.setdefault(f"{role_of(address)}-{'ab'[side]}", []).append(address)

    return {host: tuple(addresses_on) for host, addresses_on in hosts.items()}


def borne(
    architecture: Architecture, deployment: Deployment, hosts: Mapping[str, Sequence[Address]]
) -> dict[Kind, list[str]]:
    """Per kind of fault, the hosts that may have it, as the design declares; kinds without hosts are left out.

    The API's host may end where components can be rebuilt; its disk may be full under any design.
    """
    tolerates = architecture.conformance.tolerates
    # A killed host loses what was on its way to it, too.
    survives = deployment.capability(CrashRecovery) is not None and "loss" in tolerates

    mortal = [
        host
        for host, addresses in hosts.items()
        if survives and all(f"crash:{role_of(address)}" in tolerates for address in addresses)
    ]

    keepers = [host + KEEPER for host in mortal if any(address in deployment.machines for address in hosts[host])]
    ending = [*mortal, API] if survives else []
    all_hosts = [*hosts, API]

    hosts_by_kind: dict[Kind, list[str]] = {
        "kill": ending + keepers,
        "stop": all_hosts + keepers,
        "broker": [""] if "loss" in tolerates else [],
        "tear": ending,
        "fill": [*mortal, API],
        "slow": all_hosts if "delay" in tolerates else [],
        "cut": all_hosts,
    }
    return {kind: hosts_of for kind, hosts_of in hosts_by_kind.items() if hosts_of}


def _jobs(stream: Random, lasts_us: Time, amounts: bool) -> Iterator[ScenarioJob]:
    at, number = 0, 0
    while at < lasts_us:
        duration = DURATIONS_US[number % len(DURATIONS_US)]
        # Now and then a user asks for more than there is, so that others wait, or it is preempted.
        count = BURST_TASKS if amounts and stream.random() < 0.1 else TASKS
        requests = tuple([stream.choice(REQUESTS) for _ in range(count)]) if amounts else ()
        user = stream.choice(USERS) if amounts else ""
        yield ScenarioJob(at, (duration,) * count, (0,) * count, (), requests, user)
        at += round(stream.uniform(0.5, 1.5) * SECOND / JOBS_PER_S)
        number += 1


def _faults(stream: Random, hosts_of: Mapping[Kind, Sequence[str]], lasts_us: Time) -> Iterator[HostFault]:
    kinds = list(hosts_of)
    first = stream.sample(kinds, len(kinds))

    at = stream.randint(*GAP_US)
    ended = 0
    busy = set[str]()
    while True:
        longest = FIRST_ROUND if first else None
        kind = first.pop() if first else stream.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]

        free = [host for host in hosts_of[kind] if host.removesuffix(KEEPER) not in busy]
        if not free:
            continue

        fault = HostFault(
            at,
            kind,
            round(stream.choice(LASTS_S[kind][:longest]) * SECOND),
            stream.choice(free),
            stream.choice(GARBAGE_BYTES) if kind == "tear" else 0,
            stream.choice(EXTRA_US) if kind == "slow" else 0,
        )

        if fault.until_us > lasts_us:
            return
        yield fault

        ended = max(ended, fault.until_us)
        if stream.random() < BESIDE and len(busy) < BUSY_MAX:
            busy.add(fault.base)
            at += SECOND // 2
        else:
            busy.clear()
            at = ended + stream.randint(*GAP_US)
