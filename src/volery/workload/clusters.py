"""Cluster descriptions: workers with their slots or resources, constraints, racks and speeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.model import AMOUNT_MAX, CONSTRAINT_BITS_MAX, SECOND, Amounts, Cluster, Variability
from volery.core.trace import Trace
from volery.workload.constraints import PROFILES, check_model, gpu_racks, machine_constraints
from volery.workload.files import numbered_lines
from volery.workload.hdfs import machine_racks
from volery.workload.models import RESOURCES, check_names, parse_resources
from volery.workload.spec import Spec

if TYPE_CHECKING:
    from volery.workload.inventory import Inventory, ListedMachine

WORKERS_MAX = 10_000_000
SLOTS_MAX = 1_000_000
BITS = frozenset("01")
SETUP_SUFFIX = ".json"
CONF_SUFFIX = ".conf"
SPEED = "speed_mhz"
"""The column of a machine file."""
SETUP_PROCESSORS = {1: (4, 4100), 2: (2, 3500)}
"""Cores and MHz of the processors that a setup file numbers: Intel i7 and i5 (Andreadis et al., SC18, appendix A-G)."""


class SetupMachine(msgspec.Struct):
    """A machine of a setup file; its `ethernet_speed` is not read."""

    cpus: list[int]


class SetupRack(msgspec.Struct, tag="RACK"):
    """A rack of a setup file."""

    machines: list[SetupMachine]


class SetupRoom(msgspec.Struct):
    """A room of a setup file."""

    objects: list[SetupRack]


class SetupFile(msgspec.Struct):
    """A setup file as SC18's published code reads it (github.com/atlarge-research/opendc-simulator)."""

    rooms: list[SetupRoom]

    def machines(self) -> list[SetupMachine]:
        """The machines of all racks, in order."""
        return [machine for room in self.rooms for rack in room.objects for machine in rack.machines]


def load_cluster(
    workers: int,
    *,
    slots: int = 1,
    constraints: str = "none",
    machines: Path | None = None,
    seed: int = 0,
    resources: tuple[str, ...] = (),
    capacity: str = "",
    racks: int = 1,
    reference_mhz: int = 0,
) -> Cluster:
    """A cluster of `workers` machines.

    Args:
        workers: number of machines.
        slots: tasks that each runs at once; of no account where machines offer resources.
        constraints: `sharma2011` to draw what the machines satisfy, `sharma2011-profiles` to draw it by cluster,
            `gpu-racks` for 8 racks of which 2 have GPUs, or `none`.
        machines: a CSV file with the constraints that they satisfy instead; its first `workers` rows are taken.
        seed: seed of the run; the stream is `constraints/machines`.
        resources: names of requested resources; the file's columns of these names hold the offers of each machine.
        capacity: what every machine offers, as `cpu_milli=64000,memory_mb=16384`, instead.
        racks: number of racks, of equal size and of neighbouring machines.
        reference_mhz: speed of the machine for which durations hold; the file's column `speed_mhz` has that of each
            machine. 0: all are alike.

    Raises:
        InputError: a number is out of range, the model is unknown, the file is wrong or too short, or the offer
            of a requested resource, or the speed, is not given.
    """
    if reference_mhz and machines is None:
        raise InputError("reference_mhz", f"no file says how fast machines are; give one with a column {SPEED}")
    if not 1 <= workers <= WORKERS_MAX:
        raise InputError("workers", f"{workers} workers cannot run anything; give from 1 to {WORKERS_MAX}")
    if not 1 <= slots <= SLOTS_MAX:
        raise InputError("slots", f"{slots} slots per worker are impossible; give from 1 to {SLOTS_MAX}")
    if not 1 <= racks <= workers:
        raise InputError("racks", f"{racks} racks for {workers} workers are impossible; give from 1 to {workers}")

    check_model(constraints)
    cluster = _without_racks(workers, slots, constraints, machines, seed, resources, capacity, reference_mhz)
    return cluster if racks == 1 else msgspec.structs.replace(cluster, racks=machine_racks(workers, racks))


def parse_variability(text: str, seed: int) -> Variability:
    """Read `period=300,spread=0.2`: every 300 s each machine draws a speed between 80 and 120 %.

    Raises:
        InputError: a key is unknown, or a value out of range.
    """
    spec = Spec(f"variability:{text}", ("period", "spread"))
    spread_permille = round(spec.at_least_zero("spread", 0.2, most=0.99) * 1000)
    return Variability(seed, max(1, round(spec.positive("period", 300.0) * SECOND)), spread_permille)


def _without_racks(
    workers: int,
    slots: int,
    constraints: str,
    machines: Path | None,
    seed: int,
    resources: tuple[str, ...],
    capacity: str,
    reference_mhz: int,
) -> Cluster:
    columns = resources if machines is not None and not capacity else ()
    if machines is not None:
        population = read_machines(machines, workers, columns, speeds=reference_mhz > 0)
        if len(population.constraints) < workers:
            machine_count = len(population.constraints)
            fix = f"give --workers {machine_count} or fewer, or another file"
            raise InputError(str(machines), f"holds {machine_count} machines, fewer than the {workers} workers; {fix}")

        name, speeds = f"{workers} workers, {machines.name}", tuple(population.speeds)
        cluster = Cluster(
            tuple(population.constraints), (slots,) * workers, name, speeds=speeds, reference_speed=reference_mhz
        )
        if columns:
            return offering(cluster, resources, population.capacities)
    elif constraints == "none":
        cluster = Cluster.uniform(workers, slots, name=f"{workers} workers")
    elif constraints == "gpu-racks":
        cluster = Cluster(tuple(gpu_racks(workers)), (slots,) * workers, f"{workers} workers, {constraints}")
    else:
        drawn = machine_constraints(workers, seed, PROFILES[constraints])
        cluster = Cluster(tuple(drawn), (slots,) * workers, f"{workers} workers, {constraints} seed {seed}")

    if not capacity:
        return cluster

    offer = parse_amounts(capacity, "capacity")
    names = resources or tuple(offer)
    return offering(cluster, names, [in_order_of(names, offer, "capacity")] * workers)


def counted_resources(resources: str, capacity: str, machines: Path | None) -> tuple[str, ...] | None:
    """The resources of a trace file that tasks ask for; None: those that at least half of its first rows ask for.

    Args:
        resources: names, as `cpu_milli,memory_mb`; empty: those that machines offer.
        capacity: what every machine offers.
        machines: a file of machines, where no capacity is given.

    Raises:
        InputError: a name is no resource of a trace file, or the file cannot be read.
    """
    if resources:
        return parse_resources(resources, "resources")

    if capacity:
        offered = tuple(parse_amounts(capacity, "capacity"))
        return parse_resources(",".join(offered), "capacity") if not set(offered).isdisjoint(RESOURCES) else None

    if machines is None:
        return None

    if machines.suffix == SETUP_SUFFIX:
        return RESOURCES[:1]

    if machines.suffix == CONF_SUFFIX:
        from volery.workload.inventory import columns_of

        return columns_of(_conf_machines(machines))

    _, header = next(numbered_lines(machines))
    offered = tuple([word.strip() for word in header.decode("utf-8", "replace").split(",")])
    return tuple([name for name in RESOURCES if name in offered]) or None


class MachineRows(NamedTuple):
    """Rows of a machine file: constraint bit sets, and the resources and speeds that the caller asked for."""

    constraints: list[int]
    capacities: list[Amounts]
    speeds: list[int]


def read_machines(
    path: Path, at_most: int | None = None, resources: tuple[str, ...] = (), *, speeds: bool = False
) -> MachineRows:
    """Machines from a CSV file, plain or gzip-compressed, one machine per row, or from a setup file (`.json`).

    The header names the columns; `c0` to `cK` hold 1 where the machine satisfies that constraint and 0 where not,
    columns named as a resource hold whole numbers of units, `speed_mhz` holds the speed where speeds are asked for, and
    other columns are passed over. Machines of a file without constraint columns satisfy none. Reading stops after
    `at_most` machines.

    Raises:
        InputError: the file cannot be read or a row is wrong; the message names the line.
    """
    if path.suffix == SETUP_SUFFIX:
        return _setup_machines(path, at_most, resources)
    if path.suffix == CONF_SUFFIX:
        return _conf_rows(path, at_most, resources, speeds=speeds)

    places: list[int] = []
    amount_places: list[int] = []
    width = 0
    machines = MachineRows([], [], [])
    amount_columns = (*resources, SPEED) if speeds else resources

    for number, line in numbered_lines(path):
        words = [word.strip() for word in line.decode("utf-8", "replace").split(",")]
        if not width:
            amount_places = _resource_columns(words, amount_columns, f"{path}:{number}")
            places = _constraint_columns(words, f"{path}:{number}", optional=bool(amount_columns))
            width = len(words)
            continue

        if words == [""]:
            continue

        if len(words) != width:
            raise InputError(f"{path}:{number}", f"has {len(words)} fields where the header has {width}; mend the row")
        machines.constraints.append(_bit_set([words[place] for place in places], f"{path}:{number}"))

        if amount_columns:
            pairs = zip(amount_columns, amount_places, strict=True)
            amounts = tuple([_amount(words[at], name, f"{path}:{number}") for name, at in pairs])
            if speeds:
                machines.speeds.append(_speed(amounts[-1], f"{path}:{number}"))
            if resources:
                machines.capacities.append(amounts[: len(resources)])

        if len(machines.constraints) == at_most:
            break

    if not machines.constraints:
        raise InputError(str(path), "holds no machine; a header with c0, c1 .. and one row per machine are needed")
    return machines


def read_inventory(path: Path) -> Inventory:
    """The machines that a manager of clusters lists: a slurm.conf, or output of sinfo, scontrol or kubectl.

    Raises:
        InputError: the file cannot be read, is of none of these forms, or a line of it is wrong.
    """
    # These readers bring 45 MB of libraries, too.
    from volery.workload.formats.source import fields, head_of
    from volery.workload.kubernetes import read_nodes
    from volery.workload.slurmnodes import SINFO_NAMES, read_sinfo, read_sinfo_document, read_slurm_conf

    head = head_of(path)
    if head.start[:1] == b"{":
        return (read_nodes if any('"apiVersion"' in line for line in head.lines) else read_sinfo_document)(path)
    if any(SINFO_NAMES & set(fields(head.lines[0], mark)) for mark in "| " if head.lines):
        return read_sinfo(path)
    return read_slurm_conf(path)


def _conf_machines(path: Path) -> tuple[ListedMachine, ...]:
    """The machines of a slurm.conf that take work.

    Raises:
        InputError: it is wrong, or includes a file: a study would not notice that this one changes.
    """
    from volery.workload.slurmnodes import read_slurm_conf

    inventory = read_slurm_conf(path)
    if any(not use.place.startswith(f"{path}:") for use in inventory.uses):
        raise InputError(str(path), "includes other files; make a file of machines of it with `volery trace machines`")
    return inventory.working(path)


def _conf_rows(path: Path, at_most: int | None, resources: tuple[str, ...], *, speeds: bool) -> MachineRows:
    """Machines of a slurm.conf; a resource that a node does not state, and others do, is 0 for it.

    Raises:
        InputError: it is wrong, or says nothing of speeds or of a resource that is asked for.
    """
    from volery.workload.inventory import columns_of

    if speeds:
        raise InputError(str(path), f"states no speeds; make a file of machines of it, and add the column {SPEED}")
    if not resources:
        problem = "lists CPUs and memory, and tasks ask for none of them; give --requests, or leave the file out"
        raise InputError(str(path), problem)

    machines = _conf_machines(path)
    nothing = dict.fromkeys(columns_of(machines), 0)
    offers = [in_order_of(resources, nothing | machine.amounts, str(path)) for machine in machines[:at_most]]
    return MachineRows([0] * len(offers), offers, [])


def _setup_machines(path: Path, at_most: int | None, resources: tuple[str, ...]) -> MachineRows:
    """Machines of a setup file: processors and their speed; constraints they satisfy none.

    Raises:
        InputError: the file is no setup, a machine has processors of two speeds or none, or other resources are wanted.
    """
    # The readers of documents bring 45 MB of libraries, which other runs shall not pay for.
    from volery.workload.formats.source import document

    machines = document(path, SetupFile, "setup file of SC18's experiments").machines()[:at_most]
    if not set(resources) <= {RESOURCES[0]}:
        problem = f"tells of processors alone, and tasks ask for {', '.join(resources)}; give a CSV file"
        raise InputError(str(path), problem)

    rows = MachineRows([0] * len(machines), [], [])
    for number, machine in enumerate(machines):
        place = f"{path}: machine {number}"
        if not machine.cpus or not set(machine.cpus) <= SETUP_PROCESSORS.keys():
            raise InputError(place, f"has the processors {machine.cpus}; give 1 (i7) or 2 (i5), one at least")
        processors = [SETUP_PROCESSORS[cpu] for cpu in machine.cpus]
        if len({mhz for _, mhz in processors}) > 1:
            raise InputError(place, "has processors of two speeds, and a machine has one here; give it one type")
        rows.capacities.append((1000 * sum(cores for cores, _ in processors),) * len(resources))
        rows.speeds.append(processors[0][1])

    if not machines:
        raise InputError(str(path), "holds no machine; give rooms with racks (objects of the type RACK) of machines")
    return rows


def _bit_set(bits: list[str], place: str) -> int:
    if not BITS.issuperset(bits):
        at, wrong = next((k, bit) for k, bit in enumerate(bits) if bit not in BITS)
        raise InputError(place, f"column c{at} holds {wrong[:40]!r}; write 0 or 1")
    return int("".join(reversed(bits)) or "0", 2)


def _amount(word: str, name: str, place: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) <= AMOUNT_MAX):
        raise InputError(place, f"column {name} holds {word[:40]!r}; write a whole number up to {AMOUNT_MAX}")
    return int(word)


def _speed(mhz: int, place: str) -> int:
    if not mhz:
        raise InputError(place, f"column {SPEED} holds 0; a machine that runs tasks has a speed of at least 1")
    return mhz


def _resource_columns(header: list[str], resources: tuple[str, ...], place: str) -> list[int]:
    """The places of resources in a header."""
    missing = [name for name in resources if name not in header]
    if missing:
        if missing[0] == SPEED:
            raise InputError(place, f"has no column {SPEED}; add it, or leave out the reference speed")
        fix = "add the column, or give --capacity"
        raise InputError(place, f"has no column {missing[0]}, which tasks ask for; {fix}")
    return [header.index(name) for name in resources]


def _constraint_columns(header: list[str], place: str, *, optional: bool = False) -> list[int]:
    """The places of c0, c1 .. in a header."""
    numbers = {int(name[1:]): at for at, name in enumerate(header) if name[:1] == "c" and name[1:].isdecimal()}

    if optional and not numbers:
        return []

    if sorted(numbers) != list(range(len(numbers))) or not 1 <= len(numbers) <= CONSTRAINT_BITS_MAX:
        named_columns = ", ".join(f"c{k}" for k in sorted(numbers)) or "none"
        limit = f"c0, c1 .. without gaps, at most {CONSTRAINT_BITS_MAX} of them"
        raise InputError(place, f"the header must name the constraint columns {limit}; found {named_columns}")
    return [numbers[k] for k in range(len(numbers))]


def parse_amounts(text: str, place: str) -> dict[str, int]:
    """Read `cpu_milli=64000,memory_mb=16384`.

    Raises:
        InputError: at `place`, when it is not of that form.
    """
    amounts: dict[str, int] = {}

    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not (equals and number.isascii() and number.isdigit() and int(number) <= AMOUNT_MAX):
            form = "RESOURCE=UNITS,..., whole numbers, as cpu_milli=64000,memory_mb=16384"
            raise InputError(place, f"{part.strip()!r} is not of the form {form}")

        if name in amounts:
            raise InputError(place, f"{name!r} is given twice; keep one")
        amounts[name] = int(number)

    check_names(tuple(amounts), place)
    return amounts


def in_order_of(names: Sequence[str], amounts: dict[str, int], place: str) -> Amounts:
    """The amounts of these resources; others that are given are not wanted.

    Raises:
        InputError: one is missing.
    """
    for name in names:
        if name not in amounts:
            raise InputError(place, f"says nothing of {name}, which tasks ask for; add {name}=N")
    return tuple(amounts[name] for name in names)


def offering(cluster: Cluster, names: tuple[str, ...], capacities: Sequence[Amounts]) -> Cluster:
    """The cluster with machines that offer amounts instead of slots."""
    slots = (1,) * len(cluster.constraints)
    return msgspec.structs.replace(cluster, slots=slots, resources=names, capacities=tuple(capacities))


def as_slots(trace: Trace, cluster: Cluster, slot_request: str, place: str) -> tuple[Trace, Cluster]:
    """Workload and machines for designs that place on slots alone.

    Every machine has as many slots as it holds of `slot_request`, one at least, and every task takes one slot.

    Args:
        slot_request: the amounts that one slot stands for, as `cpu_milli=1000,memory_mb=256`.

    Raises:
        InputError: the cluster has slots already, the amounts are wrong, or a machine has nothing of what a slot holds.
    """
    if not cluster.resources:
        raise InputError(place, "machines have slots already; leave it out, or give --capacity")

    amounts = in_order_of(cluster.resources, parse_amounts(slot_request, place), place)
    if not any(amounts):
        raise InputError(place, "stands for nothing at all; give one resource at least one unit")

    for machine, capacity in enumerate(cluster.capacities):
        for name, offered, amount in zip(cluster.resources, capacity, amounts, strict=True):
            if amount and not offered:
                fix = f"give {name}=0 here, or leave the machine out"
                raise InputError(place, f"a slot takes {amount} {name}, and machine {machine} has none; {fix}")

    slots = [
        max(
            1,
            min(offered // slot_amount for offered, slot_amount in zip(capacity, amounts, strict=True) if slot_amount),
        )
        for capacity in cluster.capacities
    ]

    without_requests = msgspec.structs.replace(trace, resources=(), requests=(), request=trace.request[:0])
    name = f"{cluster.name}, slots of {slot_request}"
    return without_requests, msgspec.structs.replace(
        cluster, slots=tuple(slots), name=name, resources=(), capacities=()
    )
