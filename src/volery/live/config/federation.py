"""A federation as a file describes it: which architecture, on which machines, split over which hosts.

    architecture = "megha"
    broker = "nats://127.0.0.1:4222"

    [parameters]
    gms = 2
    lms = 3

    [[machines]]
    count = 30
    labels = { zone = "a" }

    [hosts]                      # left out: one host per role, and one for the API
    gm-0 = ["gm/0"]
    others = ["gm/*", "lm/*"]    # whatever an earlier line has not taken
    node = ["node/*"]

The API runs on the host `api`. Every host reads the same file and must get the same configuration from it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from volery.core.component import Architecture, role_of
from volery.core.errors import InputError, suggestion
from volery.core.model import AMOUNT_MAX, SUBMITTER, Address
from volery.core.resources import check_vectors
from volery.live.config.constraints import Fleet
from volery.live.config.limits import CALLS_MAX, Durability, Isolation, JournalSize, OutputLimits, Retention
from volery.live.config.machine import Machine, amounts, discover, machine_from_table
from volery.live.config.plan import FederationPlan
from volery.live.config.tables import misfit, read_table
from volery.live.config.tls import BrokerAccess, BrokerTls, ServerTls
from volery.live.messages import HostName
from volery.live.status import DEFAULT_PORT

API_HOST: Final = "api"
ALL: Final = "all"
"""The name of the one host of a federation that runs in one process."""
RESULTS: Final = "results"
"""No host's name: `volery serve results` shows a folder."""
EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - nothing listens here
"""Addresses to listen on, to which nothing can connect."""
DISCOVERED: Final = "auto"
"""The capacity that stands for what this machine has, divided among the machines of the table."""
MACHINE_MEANINGS: Final = {
    "count": "how many machines like this; 1",
    "slots": "tasks that each runs at once; 1. Not beside `capacity`",
    "capacity": 'what each offers, as { cpu_milli = 4000, memory_mb = 8192 }; "auto": this machine, divided by `count`',
    "labels": 'free names, as { zone = "a" }; a job\'s constraints call them `label.zone`',
    "arch": "of the processor, as x86_64; found on this machine where it is left out, like all that follow",
    "os": "as linux",
    "kernel": "major and minor version, as 6.1",
    "cores": "processors",
    "memory_mb": "main memory, MB",
    "gpus": "how many GPUs",
    "gpu": "what they are",
    "disk": "where tasks run: ssd, hdd or unknown",
}
MACHINE_KEYS: Final = tuple(MACHINE_MEANINGS)
NODES_MAX: Final = 1_000_000
"""Machines of a federation; each is an object of some kB."""
_VARIABLES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*[*]?|[*]")

ExecutorName = Literal["agent", "sleep", "instant"]
Choose = Callable[[str, Mapping[str, Any]], tuple[Architecture, msgspec.Struct]]
"""Name and parameters -> architecture and configuration; raises InputError."""


class FederationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a federation's file."""

    machines: Annotated[
        list[dict[str, Any]], Meta(description="tables of equal machines: count, slots or capacity, attributes")
    ]
    architecture: Annotated[str, Meta(description="registry name of the design that schedules")] = "megha"
    parameters: Annotated[dict[str, Any], Meta(description="of the architecture")] = {}
    name: Annotated[str, Meta(description="tells federations on one broker apart")] = "federation"
    seed: Annotated[int, Meta(description="of the components' random streams")] = 0
    broker: Annotated[str, Meta(description="NATS server of a federation of several hosts, without a password")] = (
        "nats://127.0.0.1:4222"
    )
    broker_tls: Annotated[BrokerTls | None, Meta(description="certificates of the hosts on the broker")] = None
    broker_login: Annotated[str, Meta(description="TOML file with user and password, or token, for the broker")] = ""
    api: Annotated[str, Meta(description="where the API listens, HOST:PORT")] = f"127.0.0.1:{DEFAULT_PORT}"
    api_connections: Annotated[int, Meta(ge=1, description="connections to the API that may be open at a time")] = 2_000
    api_connections_per_address: Annotated[
        int, Meta(ge=1, description="of these, from one address; all of them where a proxy is before the API")
    ] = 500
    tls: Annotated[ServerTls | None, Meta(description="certificate and key of the API")] = None
    folder: Annotated[str, Meta(description="for jobs, output and journals; relative to the file")] = "federation"
    journal: Annotated[
        bool | JournalSize,
        Meta(description="write every event down, for `volery replay`; as a table: how much is kept"),
    ] = True
    durability: Annotated[Durability, Meta(description="what a turn waits for before its effects leave")] = "flush"
    executor: Annotated[ExecutorName, Meta(description="agent: real work; sleep, instant: load tests")] = "agent"
    run_as: Annotated[
        str | dict[str, str], Meta(description="the account that tasks run as, or user -> account, * for all others")
    ] = ""
    calls: Annotated[
        bool, Meta(description="tasks may be Python calls; false: accounts of `run_as` need not reach this interpreter")
    ] = True
    environment: Annotated[
        tuple[str, ...],
        Meta(description='variables of the host that tasks get beside the usual ones, as ["CUDA_*"]'),
    ] = ()
    api_url: Annotated[
        str, Meta(description="how tasks reach the API, as https://cluster.example:8642; left out: by `api`")
    ] = ""
    task_tokens: Annotated[
        bool, Meta(description="where there are tokens, tasks get one to act as their user until their job has ended")
    ] = True
    calls_max: Annotated[
        int, Meta(ge=0, description="Python calls of a worker process, before another takes its place; 0: no limit")
    ] = CALLS_MAX
    isolation: Annotated[Isolation, Meta(description="how tasks are held to the amounts that they ask for")] = (
        Isolation()
    )
    output: Annotated[OutputLimits, Meta(description="how much of what tasks leave behind is kept")] = OutputLimits()
    retention: Annotated[Retention, Meta(description="how long the API's database keeps jobs that have ended")] = (
        Retention()
    )
    reports: Annotated[bool, Meta(description="report starts and ends of tasks to the API; load tests may not")] = True
    telemetry: Annotated[
        str, Meta(description="where an OpenTelemetry collector takes OTLP over HTTP, as http://127.0.0.1:4318")
    ] = ""
    hosts: Annotated[dict[HostName, list[str]], Meta(description="host -> patterns of addresses")] = {}


class Federation(msgspec.Struct, frozen=True):
    """A federation, ready to be built.

    Args:
        folder: folder of jobs, output and journals.
        base: folder that paths in the file are relative to.
    """

    file: FederationFile
    plan: FederationPlan
    fleet: Fleet
    folder: Path
    api: tuple[str, int]
    base: Path = Path()

    @property
    def broker(self) -> BrokerAccess:
        file = self.file
        login = self.base / file.broker_login if file.broker_login else None
        return BrokerAccess(file.broker, file.broker_tls, login, self.base)

    def api_url(self, host: HostName) -> str:
        """The address of the API for tasks on a host; empty where the file does not say."""
        listening, port = self.api
        if self.file.api_url or not port:
            return self.file.api_url
        if listening in EVERYWHERE:
            # An address to listen on everywhere does not tell another host where the API is.
            if host != ALL:
                return ""
            listening = "127.0.0.1"
        scheme = "https" if self.file.tls is not None else "http"
        return f"{scheme}://[{listening}]:{port}" if ":" in listening else f"{scheme}://{listening}:{port}"

    def layout(self, addresses: Iterable[Address]) -> dict[HostName, tuple[Address, ...]]:
        """The components of each host; the submitter is on the API's.

        Raises:
            InputError: a pattern that nothing is left for, or an address that no pattern takes.
        """
        return split(addresses, self.file.hosts)


def located(hosts: Mapping[HostName, Iterable[Address]]) -> dict[Address, HostName]:
    """The host of each address."""
    return {address: host for host, addresses in hosts.items() for address in addresses}


def layout_digest(hosts: Mapping[HostName, Iterable[Address]]) -> str:
    """SHA-256 of the components of each host, in any order; two hosts fit together only when theirs are equal."""
    content = sorted((host, sorted(addresses)) for host, addresses in hosts.items())
    return hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()


def split(addresses: Iterable[Address], hosts: Mapping[HostName, Iterable[str]]) -> dict[HostName, tuple[Address, ...]]:
    """Deal addresses to hosts; the first pattern that fits takes an address. Without hosts: one per role.

    Raises:
        InputError: a name that no host may have, a pattern that nothing is left for, or an address without a pattern.
    """
    if RESULTS in hosts:
        raise InputError(
            f"hosts.{RESULTS}", "`volery serve results` shows a results folder; give the host another name"
        )

    dealt: dict[HostName, list[Address]] = {host: [] for host in hosts}
    patterns = [(host, pattern) for host, listed in hosts.items() for pattern in listed]
    used_patterns: set[tuple[HostName, str]] = set()

    for address in addresses:
        if not hosts:
            dealt.setdefault(role_of(address), []).append(address)
            continue
        # In the order of the file, so that an exception stands in front of its rule.
        match = next(((host, pattern) for host, pattern in patterns if fnmatchcase(address, pattern)), None)
        if match is None:
            raise InputError("hosts", f"no host takes {address}; add a pattern such as {role_of(address)}/*")
        used_patterns.add(match)
        dealt[match[0]].append(address)

    for host, pattern in patterns:
        if (host, pattern) not in used_patterns:
            raise InputError(f"hosts.{host}", f"nothing is left for {pattern!r}; addresses look like gm/0 or node/12")

    dealt.setdefault(API_HOST, []).append(SUBMITTER)
    return {host: tuple(listed) for host, listed in dealt.items()}


def read_federation(path: Path, choose: Choose) -> Federation:
    """The federation that a file describes.

    Raises:
        InputError: naming the file and the line or key.
    """
    table = read_table(path)
    try:
        file = msgspec.convert(table, FederationFile)
    except msgspec.ValidationError as error:
        raise misfit(error, path.name, FederationFile) from None
    return resolve(file, path.parent, choose)


def resolve(file: FederationFile, base: Path, choose: Choose) -> Federation:
    """Make sense of a file's content.

    Args:
        base: folder that the file's folder is relative to.
        choose: finds and configures the architecture.

    Raises:
        InputError: naming the key.
    """
    architecture, _ = choose(file.architecture, {})
    # Twice: values that the design has for federations alone stand below those of the file.
    architecture, config = choose(file.architecture, {**architecture.parameters_in_federation(), **file.parameters})

    machines: list[Machine] = []
    slots, capacities = [], []

    for place, pattern in enumerate(file.environment):
        if not _VARIABLES.fullmatch(pattern):
            problem = (
                f"{pattern!r} is no name of a variable, nor the beginning of one and *, as CUDA_*; without a value"
            )
            raise InputError(f"environment[{place}]", problem)

    folder = base / file.folder
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder {folder}", "is no folder; name one, or a place where one can be made")

    local_machine = discover(folder=folder)
    for place, table in enumerate(file.machines):
        key = f"machines[{place}]"
        for name in table:
            if name not in MACHINE_KEYS:
                raise InputError(f"{key}.{name}", "unknown key" + suggestion(name, MACHINE_KEYS))

        count, slot_count = (_at_least_one(table, name, key) for name in ("count", "slots"))
        attributes = {name: value for name, value in table.items() if name not in ("count", "slots", "capacity")}

        if len(machines) + count > NODES_MAX:
            raise InputError(f"{key}.count", f"makes more than {NODES_MAX:,} machines in all; take fewer")

        capacities += [_capacity(table, key, folder, count)] * count
        machine = machine_from_table(attributes, key, local_machine)
        machines += [machine] * count
        slots += [slot_count] * count

    if not machines:
        raise InputError("machines", "there is none; add [[machines]] with count = 30")

    fleet = Fleet(machines, slots, file.name, _alike(capacities), calls=file.calls)
    check_vectors(file.architecture, has_vectors=architecture.vectors, cluster=fleet.cluster)
    plan = FederationPlan(architecture, config, fleet.cluster, file.seed)

    # The URL is shown in logs and errors.
    if "@" in file.broker:
        raise InputError("broker", "a password does not belong into a URL; name a file with it as broker_login")

    return Federation(file, plan, fleet, folder, _listening(file.api), base)


def _capacity(table: Mapping[str, Any], place: str, folder: Path, count: int) -> dict[str, int]:
    capacity = table.get("capacity", {})
    if capacity == DISCOVERED:
        capacity = amounts(folder, count)

    if not isinstance(capacity, Mapping):
        problem = f'is a table, as capacity = {{ memory_mb = 4096 }}, or "{DISCOVERED}", not {capacity!r}'
        raise InputError(f"{place}.capacity", problem)
    if capacity and "slots" in table:
        raise InputError(f"{place}.slots", "is given beside capacity; machines have the one or the other")

    for name, amount in capacity.items():
        if type(amount) is not int or not 0 <= amount <= AMOUNT_MAX:
            raise InputError(f"{place}.capacity.{name}", f"expected a whole number up to {AMOUNT_MAX}, not {amount!r}")

    return dict(capacity)


def _alike(capacities: Sequence[Mapping[str, int]]) -> Sequence[Mapping[str, int]]:
    """The capacities, or nothing where no machine has any."""
    names = dict.fromkeys(name for offered in capacities for name in offered)
    for offered in capacities:
        missing = [name for name in names if name not in offered]
        if missing:
            raise InputError("machines", f"some offer {missing[0]} and some leave it out; write 0 where there is none")
    return capacities if names else ()


def _at_least_one(table: Mapping[str, Any], name: str, place: str) -> int:
    value = table.get(name, 1)
    if type(value) is not int or value < 1:
        raise InputError(f"{place}.{name}", f"expected a whole number >= 1, not {value!r}")
    return value


def _listening(api: str) -> tuple[str, int]:
    host, colon, port = api.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InputError("api", f"{api!r} is not HOST:PORT; for example 127.0.0.1:{DEFAULT_PORT}")
    return host.strip("[]"), int(port)
