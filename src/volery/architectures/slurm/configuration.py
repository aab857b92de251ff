"""Partitions, reservations, priorities and preemption, as the texts of parameters name them.

A partition, a quality of service (QOS) or a reservation is written as NAME/Parameter:value/.., several joined by `+`.
Sets of nodes are numbers and ranges of machines joined by `_`, as 0-3_7, or ALL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from volery.architectures.slurm.jobs import AdvanceReservation, SlurmPartition
from volery.architectures.slurm.parameters import MINUTE, PLACE, UNLIMITED, SlurmConfig, seconds
from volery.architectures.slurm.preemption import PreemptionRules
from volery.architectures.slurm.priority import ClusterSize, FairTree, Priorities
from volery.core.errors import InputError, suggestion
from volery.policies.fairness.shares import parse_shares_text
from volery.policies.match import positions

NODES: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
MODES: Final = ("OFF", "REQUEUE", "CANCEL")
YES: Final = ("YES", "TRUE", "1")
NO: Final = ("NO", "FALSE", "0")
EXCLUSIVE: Final = "EXCLUSIVE"
SHARING: Final = (EXCLUSIVE, "NO", "YES", "FORCE")
"""Values of OverSubscribe, the last two perhaps with a count (FORCE:2): that jobs share cores is not modelled."""
PARTITION_KEYS: Final = (
    "Nodes",
    "Default",
    "PriorityTier",
    "PriorityJobFactor",
    "MaxTime",
    "DefaultTime",
    "OverSubscribe",
    "MinNodes",
    "MaxNodes",
    "PreemptMode",
)
QOS_KEYS: Final = ("Priority", "Preempt", "Users")
RESERVATION_KEYS: Final = ("Nodes", "StartTime", "Duration", "Users")


def _entries(text: str, place: str, known_keys: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The entries of a text such as `a/Nodes:0-3+b/Nodes:4`, each with its name.

    Raises:
        InputError: a name comes twice, or a part is no known parameter with a value.
    """
    names: set[str] = set()
    for entry in text.split("+") if text else ():
        name, *settings = entry.split("/")
        if not name:
            raise InputError(place, f"{entry[:60]!r} has no name; write NAME/Parameter:value/..")
        if name in names:
            raise InputError(place, f"{name!r} stands twice; give each a name of its own")
        names.add(name)
        values = {}
        for setting in settings:
            key, _, value = setting.partition(":")
            if key not in known_keys or not value:
                raise InputError(place, f"{name}: {setting[:60]!r} is no parameter" + suggestion(key, known_keys))
            if key in values:
                raise InputError(place, f"{name}: {key} stands twice; give one value")
            values[key] = value
        yield name, values


def _nodes(text: str, place: str, every: int) -> int:
    """The vector of a set of nodes."""
    if text.upper() == "ALL":
        return every
    nodes = 0
    for part in text.split("_"):
        match = NODES.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high or high >= every.bit_length():
            problem = (
                f"{part[:40]!r} are no nodes of the cluster's {every.bit_length()}; write numbers as 0-3_7, or ALL"
            )
            raise InputError(place, problem)
        nodes |= (1 << high + 1) - (1 << low)
    return nodes


def _count(values: Mapping[str, str], key: str, default: int, place: str) -> int:
    text = values.get(key, str(default))
    if text.upper() in UNLIMITED:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise InputError(place, f"{key} is {text[:40]!r}; write a whole number from 0")
    return int(text)


def _word(values: Mapping[str, str], key: str, words: Collection[str], place: str) -> str:
    """The value of a key in capitals, one of some words; empty where there is none."""
    text = values.get(key, "").upper().partition(":")[0]
    if text and text not in words:
        raise InputError(place, f"{key} is {values[key][:40]!r}" + suggestion(text, words))
    return text


def _limit_s(values: Mapping[str, str], key: str, place: str) -> int:
    """The seconds of the whole minutes of a limit; 0: there is none."""
    text = values.get(key, UNLIMITED[0])
    limit_s = seconds(text, place)
    if not limit_s and text.upper() not in UNLIMITED:
        raise InputError(place, f"{key} is {text[:40]!r}, in which no job can run; write a longer time, or UNLIMITED")
    return -(-limit_s // MINUTE) * MINUTE


def weights_of(config: SlurmConfig, node_count: int) -> list[int]:
    """The weight of each node.

    Raises:
        InputError: a part of the parameter is no set of nodes with a weight.
    """
    weights = [1] * node_count
    for part in config.Weight.split("+") if config.Weight else ():
        text, _, weight = part.partition(":")
        for node in positions(_nodes(text, f"{PLACE}Weight", (1 << node_count) - 1)):
            weights[node] = _count({"Weight": weight}, "Weight", 1, f"{PLACE}Weight")
    return weights


def partitions_of(config: SlurmConfig, every: int) -> tuple[dict[str, SlurmPartition], SlurmPartition]:
    """The partitions by name, and that of jobs which name none: the one with Default:YES, or else the first.

    Args:
        every: Vector of all nodes.

    Raises:
        InputError: a partition has no nodes, or a parameter that does not fit.
    """
    place = f"{PLACE}PartitionName"
    partitions: dict[str, SlurmPartition] = {}
    default = ""
    for name, values in _entries(config.PartitionName or "all/Nodes:ALL", place, PARTITION_KEYS):
        partition_place = f"{place}/{name}"
        if "Nodes" not in values:
            raise InputError(
                partition_place, "it has no nodes, so that no job could run in it; give Nodes, as Nodes:0-3"
            )
        partitions[name] = SlurmPartition(
            name,
            _nodes(values["Nodes"], partition_place, every),
            _count(values, "PriorityTier", 1, partition_place),
            _count(values, "PriorityJobFactor", 1, partition_place),
            _limit_s(values, "MaxTime", partition_place),
            _limit_s(values, "DefaultTime", partition_place),
            _word(values, "OverSubscribe", SHARING, partition_place) == EXCLUSIVE,
            _count(values, "MinNodes", 0, partition_place),
            _count(values, "MaxNodes", 0, partition_place),
            _word(values, "PreemptMode", MODES, partition_place),
        )
        if _word(values, "Default", (*YES, *NO), partition_place) in YES:
            default = name
    return partitions, partitions[default or next(iter(partitions))]


def reservations_of(config: SlurmConfig, every: int) -> tuple[AdvanceReservation, ...]:
    """The advance reservations.

    Raises:
        InputError: one lacks its nodes, its start or its duration.
    """
    place = f"{PLACE}reservations"
    reservations = []
    for name, values in _entries(config.reservations, place, RESERVATION_KEYS):
        missing_key = next((key for key in RESERVATION_KEYS[:3] if key not in values), None)
        if missing_key is not None:
            raise InputError(f"{place}/{name}", f"it has no {missing_key}; give Nodes, StartTime and Duration")
        begin_s, length_s = (seconds(values[key], f"{place}/{name}") for key in ("StartTime", "Duration"))
        users = frozenset(values["Users"].split("_")) if "Users" in values else frozenset[str]()
        nodes = _nodes(values["Nodes"], f"{place}/{name}", every)
        reservations.append(AdvanceReservation(nodes, begin_s, begin_s + length_s, users))
    return tuple(reservations)


class _Qos:
    """Quality of service of users."""

    def __init__(self, text: str) -> None:
        place = f"{PLACE}qos"
        self.priority: dict[str, int] = {}
        self.preempted: dict[str, frozenset[str]] = {}
        self.of_user: dict[str, str] = {}
        for name, values in _entries(text, place, QOS_KEYS):
            self.priority[name] = _count(values, "Priority", 0, f"{place}/{name}")
            self.preempted[name] = frozenset(values["Preempt"].split("_")) if "Preempt" in values else frozenset()
            self.of_user |= dict.fromkeys(values["Users"].split("_"), name) if "Users" in values else {}

        for name in frozenset().union(*self.preempted.values()) - self.priority.keys():
            raise InputError(place, f"there is no QOS {name!r} to preempt" + suggestion(name, self.priority))

    def factors(self) -> dict[str, float]:
        """The priority of each user's QOS as a fraction of the largest."""
        largest = max(self.priority.values(), default=0) or 1
        return {user: self.priority[name] / largest for user, name in self.of_user.items()}


def priorities_of(
    config: SlurmConfig, size: ClusterSize, partitions: Mapping[str, SlurmPartition]
) -> Priorities | None:
    """Priorities by factors; None: first come, first served.

    Raises:
        InputError: a weight lacks what it weighs, or a time is none.
    """
    has_factors = config.PriorityType == "priority/multifactor"
    for name, other in (("PriorityWeightFairshare", "accounts"), ("PriorityWeightQOS", "qos")):
        if has_factors and getattr(config, name) and not getattr(config, other):
            raise InputError(PLACE + name, f"nothing is weighed without {other}; give {other}, or leave the weight 0")
    if not has_factors:
        return None

    tree = None
    if config.PriorityWeightFairshare:
        tree = FairTree(parse_shares_text(config.accounts, f"{PLACE}accounts"))
    largest_factor = max(partition.job_factor for partition in partitions.values())
    return Priorities(config, size, largest_factor, tree, _Qos(config.qos).factors())


def preemption_of(config: SlurmConfig) -> PreemptionRules | None:
    """The rules of preemption; None: no job is preempted.

    Raises:
        InputError: jobs may be preempted, and what becomes of them is not given.
    """
    if config.PreemptType == "preempt/none":
        return None
    if config.PreemptMode == "OFF":
        problem = f"{config.PreemptType} lets jobs end others, and PreemptMode is OFF; give REQUEUE or CANCEL"
        raise InputError(f"{PLACE}PreemptType", problem)
    qos = _Qos(config.qos)
    is_by_qos = config.PreemptType == "preempt/qos"
    return PreemptionRules(
        config.PreemptMode, is_by_qos, qos.preempted, qos.of_user, qos.priority, config.preempt_youngest_first
    )
