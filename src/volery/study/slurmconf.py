"""Parameters of the design `slurm` from a slurm.conf, and what each of its lines was used for.

Names of parameters, and what they may be, are those of the design alone. Nodes are machines by their place: those that
take work, in the order of the file, as `volery trace convert` writes them into a file of machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from volery import architectures
from volery.architectures.slurm import SLURM
from volery.architectures.slurm.configuration import PARTITION_KEYS, partitions_of, preemption_of, priorities_of
from volery.architectures.slurm.parameters import PLACE, SlurmConfig, seconds
from volery.architectures.slurm.priority import ClusterSize
from volery.core.errors import InputError
from volery.study.spec import ArchitectureChoice, Value
from volery.workload.inventory import LineUse
from volery.workload.slurmconf import ConfRecord, conf_records, node_names

CONF: Final = "conf"
NODE, PARTITION, DEFAULT = "nodename", "partitionname", "DEFAULT"
OPTIONS: Final = frozenset({"schedulerparameters", "authinfo", "priorityflags", "preemptparameters"})
"""Parameters that hold several, joined by commas."""
TIMES: Final = frozenset({"PriorityMaxAge", "PriorityDecayHalfLife", "PriorityCalcPeriod"})
DEFAULTS: Final[Mapping[str, str]] = {"SelectType": "select/linear", "AccountingStorageEnforce": "none"}
"""Parameters of Slurm 22.05 that stand in no line and differ from those of the design."""
UNMODELLED: Final = {
    "topologyplugin": "topology",
    "licenses": "licenses",
    "completewait": "waits for ends",
    "gracetime": "grace of preempted jobs",
    "selecttypeparameters": "all resources are consumed, whole cores",
    "prioritysitefactorplugin": "factors of a site",
    "priorityweightassoc": "priorities of associations",
    "priorityweighttres": "weights of resources",
    "jobsubmitplugins": "changes of jobs at their submission",
    "assoc_limit_stop": "limits of associations",
    "bf_busy_nodes": "nodes that run jobs first",
    "bf_ignore_newly_avail_nodes": "passes that are interrupted",
    "bf_max_time": "passes that are interrupted",
    "bf_one_resv_per_job": "jobs in several partitions",
    "bf_yield_interval": "passes that are interrupted",
    "enforcepartlimits": "jobs beyond the limits of a partition",
    "max_rpc_cnt": "passes that are put off",
    "max_sched_time": "passes that end early",
    "overtimelimit": "time after a limit",
    "pack_serial_at_end": "another choice of nodes",
    "preempt_strict_order": "preemption in strict order",
    "strict_order": "preemption in strict order",
    "preempt_reorder_count": "preemption that tries more orders",
    "reorder_count": "preemption that tries more orders",
    "preemptexempttime": "time in which no job is preempted",
    "min_exempt_priority": "priority from which no job is preempted",
    "priorityusageresetperiod": "usage that is set to 0",
    "accrue_always": "ages of jobs that may not run",
    "calculate_running": "priorities of running jobs",
    "depth_oblivious": "another fair share",
    "incr_only": "priorities that only grow",
    "max_tres": "another size factor",
    "no_fair_tree": "another fair share",
}
"""Parameters and options that decide about starts and are not modelled, with what they are."""
ALIASES: Final = {"youngest_first": "preempt_youngest_first"}
"""Options that had another name in SchedulerParameters, which is the design's."""
BOOLEANS: Final = {"YES": "true", "NO": "false", "TRUE": "true", "FALSE": "false", "1": "true", "0": "false"}


class ConfReading(msgspec.Struct, frozen=True):
    """A slurm.conf as the design takes it.

    Args:
        parameters: Parameters of the design.
        uses: Uses of lines, in the order of the file.
    """

    parameters: dict[str, Value]
    uses: tuple[LineUse, ...]


def with_conf(choice: ArchitectureChoice) -> dict[str, Value]:
    """The parameters of a choice, with those of the slurm.conf that it names; given ones go before these.

    Raises:
        InputError: at file and line, where a line cannot be.
    """
    parameters = dict(choice.parameters)
    if choice.name != SLURM.name or not parameters.get(CONF):
        return parameters
    path = Path(str(parameters.pop(CONF)))
    return read_conf(path, parameters).parameters | parameters


def read_conf(path: Path, given: Mapping[str, Value] = {}) -> ConfReading:
    """Read a slurm.conf.

    Args:
        path: File, which may include others.
        given: Parameters that are given otherwise, so that the file may have anything for them.

    Raises:
        InputError: at file and line: a plugin or a value is unknown, a partition has no nodes or stands twice, or a
            parameter needs another.
    """
    from volery.workload.slurmnodes import read_slurm_conf  # it loads the readers of tables, which few runs need

    machines = [listed for listed in read_slurm_conf(path).machines if not listed.state]
    numbers = {listed.name: number for number, listed in enumerate(machines)}
    members = {
        name: [number for number, listed in enumerate(machines) if name in listed.partitions]
        for name in dict.fromkeys(name for listed in machines for name in sorted(listed.partitions))
    }
    reader = _ConfReader(numbers, members, given)
    uses = tuple([reader.use_of(record) for record in conf_records(path)])
    reader.check()
    return ConfReading(reader.parameters(), uses)


class _ConfReader:
    """Collects parameters record by record."""

    def __init__(
        self, numbers: Mapping[str, int], members: Mapping[str, list[int]], given: Mapping[str, Value]
    ) -> None:
        self._numbers = numbers
        self._members = members
        self._given = given
        self._known = {name.lower(): name for name in SLURM.defaults.__struct_fields__ if name != CONF}
        self._values: dict[str, Value] = dict(DEFAULTS)
        self._partition_defaults: dict[str, str] = {}
        self._partitions: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._weights: list[str] = []
        self._default_weight = "1"

    def parameters(self) -> dict[str, Value]:
        """All parameters of the file."""
        values = dict(self._values)
        if self._partitions:
            values["PartitionName"] = "+".join(self._partitions.values())
        if self._weights and "Weight" not in self._given:
            values["Weight"] = "+".join(self._weights)
        return values

    def check(self) -> None:
        """Demand that all parameters together make a controller.

        Raises:
            InputError: at the line of the parameter that needs another.
        """
        config = architectures.configure(SLURM, {**self.parameters(), **self._given})
        assert isinstance(config, SlurmConfig)
        every = (1 << len(self._numbers)) - 1
        try:
            partitions, _ = partitions_of(config, every)
            priorities_of(config, ClusterSize(len(self._numbers), 1), partitions)
            preemption_of(config)
        except InputError as error:
            place = self._places.get(error.place.removeprefix(PLACE).partition("/")[0])
            raise InputError(place or error.place, error.problem) from None

    def use_of(self, record: ConfRecord) -> LineUse:
        """The use of a record, whose parameters are kept."""
        if PARTITION in record.values():
            return self._partition_use(record)
        if NODE in record.values():
            return self._node_use(record)

        meanings, ignored = [], []
        for name, value in record.pairs:
            for part_name, part_value in _parts(name, value):
                key = part_name.lower()
                known_name = self._known.get(ALIASES.get(key, key))
                if known_name is None:
                    reason = UNMODELLED.get(key)
                    ignored.append(f"{part_name} ({f'not modelled: {reason}' if reason else 'not known here'})")
                    continue
                self._keep(known_name, part_value, record.place)
                meanings.append(f"{known_name}={part_value}")
        return LineUse(record.place, " ".join(meanings), tuple(ignored))

    def _keep(self, name: str, value: str, place: str) -> None:
        if name in self._given:
            return
        text = value
        if isinstance(getattr(SLURM.defaults, name), bool):
            # An Epilog is a program: that there is one is what counts.
            text = BOOLEANS.get(value.upper(), "true" if name == "Epilog" else value)
        elif name == "PreemptMode":
            text = value.upper()
        try:
            config = architectures.configure(SLURM, {name: text})
            if name in TIMES:
                seconds(text, place)
            elif name == "PartitionName":
                assert isinstance(config, SlurmConfig)
                partitions_of(config, (1 << len(self._numbers)) - 1)
        except InputError as error:
            problem = f"{name}: {error.problem}; or give it beside the file, as slurm:conf=FILE,{name}=.."
            raise InputError(place, problem) from None
        self._values[name] = text
        self._places[name] = place

    def _partition_use(self, record: ConfRecord) -> LineUse:
        keys = [name.lower() for name, _ in record.pairs]
        if twice := next((name for name, _ in record.pairs if keys.count(name.lower()) > 1), ""):
            raise InputError(record.place, f"{twice} stands twice in this line; take one out")
        own = {key: value for name, value in record.pairs for key in PARTITION_KEYS if key.lower() == name.lower()}
        known = {PARTITION, *(key.lower() for key in PARTITION_KEYS)}
        ignored = tuple([f"{name} (not modelled)" for name, _ in record.pairs if name.lower() not in known])
        names = record.values()[PARTITION]
        if names.upper() == DEFAULT:
            self._partition_defaults |= own
            return LineUse(record.place, "defaults of the partitions below", ignored)

        values = self._partition_defaults | own
        for name in node_names(names, record.place):
            if name in self._partitions:
                raise InputError(record.place, f"partition {name} stands in an earlier line, too; take one of them out")
            nodes = self._members.get(name)
            if not nodes:
                problem = f"partition {name} has no nodes that take work; name some as Nodes=, or take the line out"
                raise InputError(record.place, problem)
            settings = [f"{key}:{value}" for key, value in values.items() if key != "Nodes"]
            entry = "/".join([name, f"Nodes:{_ranges(nodes)}", *settings])
            self._keep("PartitionName", entry, record.place)
            self._partitions[name] = entry
        return LineUse(record.place, f"partition {names}: {' '.join(f'{k}={v}' for k, v in values.items())}", ignored)

    def _node_use(self, record: ConfRecord) -> LineUse:
        values = record.values()
        weight = values.get("weight", self._default_weight)
        if not weight.isdecimal():
            raise InputError(record.place, f"Weight is {weight[:40]!r}; write a whole number from 0")
        others = tuple([f"{name} (of the file of machines)" for name, _ in record.pairs if name.lower() != "weight"])
        if values[NODE].upper() == DEFAULT:
            self._default_weight = weight
            return LineUse(record.place, f"weight {weight} of the nodes below", others[1:])

        numbers = [self._numbers[name] for name in node_names(values[NODE], record.place) if name in self._numbers]
        if numbers and weight != "1":
            self._weights.append(f"{_ranges(numbers)}:{weight}")
        return LineUse(record.place, f"order of nodes: {values[NODE]}, weight {weight}", others[1:])


def _parts(name: str, value: str) -> Iterator[tuple[str, str]]:
    """The parameters that a parameter holds: a list of options, or itself."""
    if name.lower() not in OPTIONS:
        yield name, value
        return
    for option in value.split(","):
        option_name, _, option_value = option.partition("=")
        if name.lower() == "priorityflags":
            is_known = option.upper() == "SMALL_RELATIVE_TO_TIME"
            yield (name, option.upper()) if is_known else (option, "")
        else:
            yield option_name, option_value or "true"


def _ranges(numbers: list[int]) -> str:
    """Numbers as ranges, as 0-3_7."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return "_".join([str(low) if low == high else f"{low}-{high}" for low, high in ranges])
