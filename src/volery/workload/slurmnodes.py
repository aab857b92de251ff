"""Nodes of Slurm: those of a slurm.conf, and the lists that `sinfo` and `scontrol show nodes` print.

Meanings and defaults are those of slurm.conf(5) and sinfo(1) of Slurm 22.05. A CPU of Slurm is a core, or a
thread where a node has more CPUs than cores.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError, suggestion
from volery.workload.files import numbered_lines
from volery.workload.formats.source import document, fields
from volery.workload.inventory import DISK, GPU, MEMORY, Inventory, LineUse, ListedMachine, machine_count, machine_uses
from volery.workload.slurmconf import ConfRecord, conf_records, node_names

NODE, DOWN_NODES, PARTITION, NODE_SET = "nodename", "downnodes", "partitionname", "nodeset"
DEFAULT: Final = "DEFAULT"
ALL: Final = "ALL"
NUMBERS: Final = {
    "cpus": 1,
    "boards": 1,
    "sockets": 1,
    "corespersocket": 1,
    "threadspercore": 1,
    "realmemory": 1,
    "tmpdisk": 0,
    "corespeccount": 0,
    "memspeclimit": 0,
}
"""Parameters of a node that are whole numbers, and their least values."""
SYNONYMS: Final = {"procs": "cpus", "socketsperboard": "sockets", "feature": "features"}
READ: Final = frozenset({NODE, *NUMBERS, "gres", "state", "reason"})
UNREAD: Final = {
    "weight": "order in which Slurm fills nodes",
    "features": "property that jobs may require",
    "cpuspeclist": "CPUs that cgroup.conf may reserve",
} | dict.fromkeys(("nodehostname", "nodeaddr", "bcastaddr", "port"), "address")
"""Parameters of a node that are not read, and what they are."""
KNOWN: Final = READ | UNREAD.keys() | {"cpubind", "topology", "restrictedcorespergpu", "parameters", "extra", "comment"}
"""Parameters of a node of any version of Slurm."""
DOWN_STATES: Final = re.compile(
    r"DOWN|DRAIN(ED|ING)?|DRNG|FAIL(ING|G)?|FUTU?RE?|ERROR|MAINT|UNK(NOWN)?|INVAL(ID_REG)?|NOT?_RESPOND(ING)?"
    r"|POWERING_DOWN|POWERED_OFF|REBOOT\w*",
    re.IGNORECASE,
)
"""States in which a node takes no work, as sinfo and scontrol write them; a slurm.conf says UNKNOWN of any node."""
STATE_MARKS: Final = "~#!%$@^-+"
"""Marks that sinfo adds to a state; `*` says that the node does not respond."""
GRES: Final = re.compile(r"([\w./-]+)(?::([\w./-]*[A-Za-z_][\w./-]*))??(?::no_consume)?(?::(\d+)([KMGTP]?))?", re.ASCII)
GRES_ITEM: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")
POWERS: Final = {suffix: 1024**power for power, suffix in enumerate(("", "K", "M", "G", "T", "P"))}
GPU_NAME: Final = "gpu"
SINFO_NAMES: Final = frozenset({"NODELIST", "HOSTNAMES"})
SINFO_FIX: Final = "print it by sinfo -N -o '%N|%P|%T|%c|%m|%G'"
DIGITS_MAX: Final = 18
"""Digits of a number that fits into 64 bits."""
NO_GRES: Final = ("", "(null)", "N/A")


Gpus = tuple[int, str, tuple[str, ...]]
"""Number of GPUs, their models joined by `+`, and generic resources that are none."""


def gpus_of(gres: str, place: str) -> Gpus:
    """GPUs of a list of generic resources, as `gpu:a100:4(S:0-1),shard:8`.

    Raises:
        InputError: an item is no name with a number.
    """
    if gres in NO_GRES:
        return 0, "", ()

    gpu_count, models, other_items = 0, dict[str, None](), []
    for item in GRES_ITEM.findall(gres):
        parts = GRES.fullmatch(item.partition("(")[0].strip())
        if parts is None or len(parts[3] or "") > DIGITS_MAX:
            raise InputError(place, f"{item[:60]!r} is no generic resource; write NAME:TYPE:NUMBER, as gpu:a100:4")
        if parts[1] != GPU_NAME:
            other_items.append(item)
            continue
        gpu_count += int(parts[3] or 1) * POWERS[parts[4] or ""]
        models |= {parts[2]: None} if parts[2] else {}
    return gpu_count, "+".join(models), tuple(other_items)


def _machine(name: str, cpus: int, memory_mb: int | None, gres: Gpus, state: str, disk_mb: int = 0) -> ListedMachine:
    gpu_count, models, _ = gres
    amounts = {"cpu_milli": 1000 * cpus}
    amounts |= {} if memory_mb is None else {MEMORY: memory_mb}
    amounts |= {GPU: 1000 * gpu_count} if gpu_count else {}
    amounts |= {DISK: disk_mb} if disk_mb else {}
    return ListedMachine(name, amounts, models, state=state)


def _whole(value: str, name: str, place: str, least: int = 0) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX and int(value) >= least):
        raise InputError(place, f"{name} is {value[:40]!r}; write a whole number from {least}")
    return int(value)


class _ConfNodes:
    """The nodes of a slurm.conf while its records are read."""

    def __init__(self, records: list[ConfRecord]) -> None:
        self._records = records
        self._places: dict[str, str] = {}
        self._machines: dict[str, ListedMachine] = {}
        self._features: dict[str, set[str]] = {}
        self._sets: dict[str, ConfRecord] = {}
        self._partitions: dict[str, frozenset[str]] = {}
        self._states_memory = any("realmemory" in values for record in records if NODE in (values := record.values()))

    def inventory(self) -> Inventory:
        """All machines; records of nodes and sets count first, as others name them.

        Raises:
            InputError: a record is wrong.
        """
        uses: dict[int, LineUse] = {}
        defaults: dict[str, dict[str, str]] = {NODE: {}, PARTITION: {}}
        for at, record in enumerate(self._records):
            if NODE in record.values():
                uses[at] = self._node_use(record, defaults[NODE])
            elif NODE_SET in record.values():
                self._sets[record.values()[NODE_SET]] = record
                uses[at] = LineUse(record.place, f"set of nodes {record.values()[NODE_SET]}")

        for at, record in enumerate(self._records):
            if at in uses:
                continue
            if DOWN_NODES in record.values():
                uses[at] = self._down_use(record)
            elif PARTITION in record.values():
                uses[at] = self._partition_use(record, defaults[PARTITION])
            else:
                names = tuple([f"{name} (not about machines)" for name, _ in record.pairs])
                uses[at] = LineUse(record.place, "", names)

        machines = tuple(
            [
                msgspec.structs.replace(
                    listed, partitions=frozenset([name for name, nodes in self._partitions.items() if node in nodes])
                )
                for node, listed in self._machines.items()
            ]
        )
        return Inventory("slurm.conf", machines, tuple([uses[at] for at in sorted(uses)]), frozenset(self._partitions))

    def _node_use(self, record: ConfRecord, defaults: dict[str, str]) -> LineUse:
        own = {SYNONYMS.get(name, name): value for name, value in record.values().items()}
        spelled = {SYNONYMS.get(name.lower(), name.lower()): name for name, _ in record.pairs}
        for name in sorted(spelled.keys() - KNOWN):
            if "did you mean" in (near := suggestion(name, KNOWN)):
                raise InputError(record.place, f"{spelled[name]!r} is no parameter of a node{near}")
        ignored = tuple([f"{spelled[name]} ({UNREAD.get(name, 'not read')})" for name in spelled if name not in READ])

        if own[NODE].upper() == DEFAULT:
            defaults |= {name: value for name, value in own.items() if name != NODE}
            return LineUse(record.place, "defaults of the nodes below", ignored)

        values = defaults | own
        machine, other_items = self._machine_of(values, record.place)
        names = node_names(own[NODE], record.place)
        for name in names:
            if name in self._places:
                problem = f"names the node {name} again, as {self._places[name]} does; take it out of one of them"
                raise InputError(record.place, problem)
            self._places[name] = record.place
            self._machines[name] = msgspec.structs.replace(machine, name=name)
            self._features[name] = set(values.get("features", "").split(","))

        meaning = f"{machine_count(len(names))} of {machine.kind()}"
        meaning += f", takes no work: {machine.state}" if machine.state else ""
        return LineUse(record.place, meaning, (*ignored, *[f"{item} (no GPU)" for item in other_items]))

    def _machine_of(self, values: dict[str, str], place: str) -> tuple[ListedMachine, tuple[str, ...]]:
        """The machine that a line states, and generic resources of it that are no GPUs."""
        numbers = {
            name: _whole(values[name], name, place, least) for name, least in NUMBERS.items() if values.get(name)
        }
        memory_mb = numbers.get("realmemory", 1) if self._states_memory else None
        if memory_mb is not None and numbers.get("memspeclimit"):
            memory_mb -= numbers["memspeclimit"]
            if memory_mb <= 0:
                raise InputError(place, "MemSpecLimit takes all of RealMemory; give less of it")

        gres = gpus_of(values.get("gres", ""), place)
        state = _conf_state(values, "UNKNOWN", place)
        machine = _machine("", _cpus(numbers, place), memory_mb, gres, state, numbers.get("tmpdisk", 0))
        return machine, gres[2]

    def _down_use(self, record: ConfRecord) -> LineUse:
        values = record.values()
        state = _conf_state(values, "DOWN", record.place)
        names = self._known(values[DOWN_NODES], record.place, {})
        for name in names:
            self._machines[name] = msgspec.structs.replace(self._machines[name], state=state)
        return LineUse(record.place, f"{machine_count(len(names))}, takes no work: {state}")

    def _partition_use(self, record: ConfRecord, defaults: dict[str, str]) -> LineUse:
        own = record.values()
        rules = [name for name, _ in record.pairs if name.lower() not in (PARTITION, "nodes")]
        ignored = (f"{', '.join(rules)} (rules of the scheduler)",) if rules else ()
        if own[PARTITION].upper() == DEFAULT:
            defaults |= own
            return LineUse(record.place, "defaults of the partitions below", ignored)

        nodes = frozenset(self._known((defaults | own).get("nodes", ""), record.place, self._sets))
        for name in node_names(own[PARTITION], record.place):
            self._partitions[name] = nodes
        return LineUse(record.place, f"partition {own[PARTITION]}: {machine_count(len(nodes))}", ignored)

    def _known(self, expression: str, place: str, sets: dict[str, ConfRecord]) -> list[str]:
        """The nodes of an expression, which may name sets of them, or all.

        Args:
            sets: sets that it may name.

        Raises:
            InputError: there is no such node.
        """
        if expression.upper() == ALL:
            return list(self._machines)

        names: list[str] = []
        for name in node_names(expression, place) if expression else []:
            if (node_set := sets.get(name)) is not None:
                values = node_set.values()
                names += self._known(values.get("nodes", ""), node_set.place, {})
                names += [node for node, features in self._features.items() if values.get("feature") in features]
            elif name in self._machines:
                names.append(name)
            else:
                raise InputError(place, f"there is no node {name!r}; add its NodeName= line, or take it out here")
        return names


def _conf_state(values: dict[str, str], default: str, place: str) -> str:
    """The state in which a record says that a node takes no work; empty where it takes work.

    Raises:
        InputError: there is no such state.
    """
    word = values.get("state", default).upper()
    if word not in ("UNKNOWN", "CLOUD", "DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"):
        raise InputError(place, f"{word[:40]!r} is no state of a node; write UNKNOWN, DOWN, DRAIN, FAIL or FUTURE")
    return "" if word in ("UNKNOWN", "CLOUD") else _with_reason(word, values.get("reason", ""))


def _with_reason(word: str, reason: str) -> str:
    return f"{word} ({reason})" if reason else word


def _cpus(numbers: dict[str, int], place: str) -> int:
    """CPUs of a node for jobs: those that slurmctld gives it, without cores that are reserved for the system."""
    per_core, cores_per_socket = numbers.get("threadspercore", 1), numbers.get("corespersocket", 1)
    stated = numbers.get("cpus", 0)
    sockets = numbers.get("boards", 1) * (numbers.get("sockets") or max(1, stated // (cores_per_socket * per_core)))
    cores = sockets * cores_per_socket
    # CPUs may be sockets, cores or threads; of any other number, Slurm takes the threads.
    cpus = stated if stated in (sockets, cores) else cores * per_core

    reserved = numbers.get("corespeccount", 0) * max(1, cpus // cores)
    if reserved >= cpus:
        raise InputError(place, f"{reserved} of {cpus} CPUs are reserved for the system; leave one for jobs")
    return cpus - reserved


def read_slurm_conf(path: Path) -> Inventory:
    """The nodes of a slurm.conf and of the files that it includes; each record is accounted for.

    A node without CPUs, sockets and cores has one CPU, and one without RealMemory 1 MB, as in Slurm; where no node
    states its memory, it is unknown.

    Raises:
        InputError: a file cannot be read, a record is wrong, or there is no node.
    """
    records = list(conf_records(path))
    if not any(NODE in record.values() for record in records):
        raise InputError(str(path), "has no NodeName= line; name the file that lists the nodes")
    return _ConfNodes(records).inventory()


def _down_state(words: list[str], reason: str = "") -> str:
    """The state of a node that takes no work, with the reason; empty where it takes work."""
    down = [word.upper() for word in words if DOWN_STATES.fullmatch(word)]
    return _with_reason("+".join(down), reason) if down else ""


def read_sinfo(path: Path) -> Inventory:
    """The nodes that `sinfo -N -o '%N|%P|%T|%c|%m|%G'` prints, or -O with columns that are wide enough.

    Raises:
        InputError: the file cannot be read, lacks the column CPUS, or a row is wrong.
    """
    mark, heads = "|", [""]
    machines: dict[str, ListedMachine] = {}
    uses: list[LineUse] = []
    lines: dict[tuple[str, frozenset[str]], int] = {}
    entries: list[tuple[str, ListedMachine, tuple[str, ...]]] = []
    for number, raw in numbered_lines(path):
        line, place = raw.decode("utf-8", "replace").rstrip(), f"{path}:{number}"
        if not uses:
            mark = "|" if "|" in line else ""
            heads = fields(line, mark) if mark else line.split()
            uses.append(_heads_use(heads, place))
            continue

        words = fields(line, mark) if mark else line.split()
        if not line or words == heads:
            continue
        if len(words) != len(heads):
            raise InputError(place, f"has {len(words)} fields where the header has {len(heads)}; {SINFO_FIX}")
        row = dict(zip(heads, words, strict=True))
        gres = gpus_of(row.get("GRES", ""), place)
        ignored = tuple([f"{item} (no GPU)" for item in gres[2]])
        for listed in _sinfo_machines(row, gres, place):
            if (first := lines.setdefault((listed.name, listed.partitions), number)) < number:
                raise InputError(place, f"lists {listed.name} again, as line {first} does; {SINFO_FIX}")
            if listed.name in machines:
                partitions = machines[listed.name].partitions | listed.partitions
                machines[listed.name] = msgspec.structs.replace(listed, partitions=partitions)
            else:
                machines[listed.name] = listed
                entries.append((place, listed, ignored))

    partitions = frozenset().union(*(listed.partitions for listed in machines.values()))
    return Inventory("sinfo", tuple(machines.values()), (*uses, *machine_uses(entries)), partitions)


SINFO_READ: Final = ("NODELIST", "HOSTNAMES", "PARTITION", "STATE", "CPUS", "MEMORY", "GRES", "TMP_DISK")


def _heads_use(heads: list[str], place: str) -> LineUse:
    if "CPUS" not in heads or SINFO_NAMES.isdisjoint(heads):
        raise InputError(place, f"lacks the column {'CPUS' if 'CPUS' not in heads else 'NODELIST'}; {SINFO_FIX}")
    ignored = tuple([f"{head} (not read)" for head in heads if head not in SINFO_READ])
    return LineUse(place, f"columns {', '.join(head for head in heads if head in SINFO_READ)}", ignored)


def _sinfo_machines(row: dict[str, str], gres: Gpus, place: str) -> list[ListedMachine]:
    """The machines of a row, which without -N stands for several."""
    if (least := next((name for name in ("CPUS", "MEMORY", "TMP_DISK") if row.get(name, "").endswith("+")), "")) != "":
        raise InputError(place, f"{least} is {row[least]!r}, the least of several nodes; {SINFO_FIX}")

    text = row.get("STATE", "")
    states = [text.strip(STATE_MARKS + "*"), "NOT_RESPONDING" if "*" in text else ""]
    memory_mb = _whole(row["MEMORY"], "MEMORY", place) if "MEMORY" in row else None
    disk_mb = _whole(row.get("TMP_DISK", "0"), "TMP_DISK", place)
    machine = _machine("", _whole(row["CPUS"], "CPUS", place, 1), memory_mb, gres, _down_state(states), disk_mb)
    partitions = frozenset({row["PARTITION"].rstrip("*")}) if row.get("PARTITION") else frozenset[str]()
    names = node_names(row.get("NODELIST") or row["HOSTNAMES"], place)
    return [msgspec.structs.replace(machine, name=name, partitions=partitions) for name in names]


class SlurmNode(msgspec.Struct):
    """A node of `sinfo --json` (openapi v0.0.38) or `scontrol show nodes --json` (data_parser v0.0.39 and later)."""

    name: str
    cpus: int
    real_memory: int | None = None
    gres: str = ""
    state: str | list[str] = ""
    state_flags: list[str] = []
    tres: str | None = ""
    effective_cpus: int = 0
    specialized_memory: int | None = 0
    temporary_disk: int = 0
    partitions: list[str] = []
    reason: str = ""


class SlurmNodes(msgspec.Struct):
    """The document of such nodes; later versions of sinfo put groups of nodes under another key."""

    nodes: list[SlurmNode] | None = None


TRES_CPUS: Final = re.compile(r"(?:^|,)cpu=(\d+)")
"""CPUs of a node that jobs may take, where `effective_cpus` is not stated."""


def read_sinfo_document(path: Path) -> Inventory:
    """The nodes of `sinfo --json` of Slurm up to 22.05, or of `scontrol show nodes --json` of later ones.

    Raises:
        InputError: it is no such document.
    """
    nodes = document(path, SlurmNodes, "list of Slurm's nodes").nodes
    if nodes is None:
        raise InputError(str(path), "has no key nodes, as `scontrol show nodes --json` prints it; print that instead")

    entries = []
    names = set[str]()
    for node in nodes:
        place = f"{path}: node {node.name}"
        if node.name in names:
            raise InputError(place, "is listed twice; keep one")
        names.add(node.name)
        effective = TRES_CPUS.search(node.tres or "")
        cpus = node.effective_cpus or (int(effective[1]) if effective else node.cpus)
        memory_mb = None if node.real_memory is None else node.real_memory - (node.specialized_memory or 0)
        if cpus <= 0 or (memory_mb is not None and memory_mb <= 0) or node.temporary_disk < 0:
            offers = f"{cpus} CPUs, {memory_mb} MB of memory and {node.temporary_disk} MB of disk"
            raise InputError(place, f"offers {offers}; give CPUs and memory from 1")
        state = _down_state(
            [*([node.state] if isinstance(node.state, str) else node.state), *node.state_flags], node.reason
        )
        gres = gpus_of(node.gres, place)
        listed = _machine(node.name, cpus, memory_mb, gres, state, node.temporary_disk)
        listed = msgspec.structs.replace(listed, partitions=frozenset(node.partitions))
        entries.append((place, listed, tuple([f"{item} (no GPU)" for item in gres[2]])))

    machines = tuple([listed for _, listed, _ in entries])
    partitions = frozenset().union(*(listed.partitions for listed in machines))
    return Inventory("Slurm nodes as JSON", machines, machine_uses(entries), partitions)
