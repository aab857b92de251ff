"""Inventories: the machines of a cluster as its manager lists them, from which a file of machines is made.

Every line or entry of the source is accounted for: what was read of it, and what was not.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError, suggestion
from volery.core.omissions import amount_text
from volery.workload.files import atomic_output

NAME: Final = "name"
GPU_MODEL: Final = "gpu_model"
MEMORY: Final = "memory_mb"
GPU: Final = "gpu_milli"
DISK: Final = "disk_mb"


class ListedMachine(msgspec.Struct, frozen=True):
    """A machine of an inventory.

    Args:
        name: Name of the machine in its cluster.
        amounts: Units that it offers by resource, `cpu_milli` among them; a resource that is not stated is absent.
        gpu_model: Models of its GPUs, joined by `+`.
        partitions: Partitions that it belongs to.
        state: State in which it takes no work, with the manager's reason; empty: it takes work.
    """

    name: str
    amounts: dict[str, int]
    gpu_model: str = ""
    partitions: frozenset[str] = frozenset()
    state: str = ""

    def kind(self) -> str:
        """The offers of the machine in words."""
        shown = {name: amount for name, amount in self.amounts.items() if amount or name == "cpu_milli"}
        model = f" ({self.gpu_model})" if self.gpu_model else ""
        return ", ".join([offer_text(name, amount) + (model if name == GPU else "") for name, amount in shown.items()])


def offer_text(name: str, amount: int) -> str:
    """An amount that a machine offers, in the units that people use."""
    return f"{amount / 1000:g} GPUs" if name == GPU else amount_text(name, amount)


class LineUse(msgspec.Struct, frozen=True):
    """The use that was made of a line or an entry of an inventory.

    Args:
        place: File and line, or entry, as `slurm.conf:12`.
        meaning: Meaning that was read; empty: nothing was.
        ignored: Parts that were not read, each with the reason.
    """

    place: str
    meaning: str
    ignored: tuple[str, ...] = ()

    def text(self) -> str:
        """The use in a line for people."""
        parts = [self.meaning, f"not read: {', '.join(self.ignored)}" if self.ignored else ""]
        return f"{self.place}: {'; '.join(filter(None, parts))}"


class Inventory(msgspec.Struct, frozen=True):
    """The machines of a cluster, and the use that was made of each line of the source.

    Args:
        form: Form of the source, as `slurm.conf`.
        machines: Machines in the order of the source, with those that take no work.
        uses: Uses of lines in the order of the source.
        partitions: Partitions that the source names.
    """

    form: str
    machines: tuple[ListedMachine, ...]
    uses: tuple[LineUse, ...] = ()
    partitions: frozenset[str] = frozenset()

    def working(self, path: Path, partition: str = "", *, down: bool = False) -> tuple[ListedMachine, ...]:
        """The machines that take work.

        Args:
            partition: Partition of the machines; empty: all.
            down: True to add machines that take no work at present.

        Raises:
            InputError: there is no such partition, or no machine is left.
        """
        if partition and partition not in self.partitions:
            raise InputError("--partition", f"{path.name} has no {partition!r}{suggestion(partition, self.partitions)}")

        members = [listed for listed in self.machines if not partition or partition in listed.partitions]
        machines = tuple([listed for listed in members if down or not listed.state])
        if not machines:
            in_partition = f" in partition {partition}" if partition else ""
            fix = "give --down to take machines that are down, too" if members else "name a file that lists nodes"
            raise InputError(str(path), f"lists no machine that takes work{in_partition}; {fix}")
        return machines


def machine_uses(entries: Iterable[tuple[str, ListedMachine, tuple[str, ...]]]) -> tuple[LineUse, ...]:
    """Uses of entries that state a machine each; of entries that are alike, the first with their number.

    Args:
        entries: place, machine and ignored parts of each.
    """
    firsts: dict[tuple[str, tuple[str, ...]], str] = {}
    counts = Counter[tuple[str, tuple[str, ...]]]()
    for place, listed, ignored in entries:
        key = listed.kind() + (f", takes no work: {listed.state}" if listed.state else ""), ignored
        firsts.setdefault(key, place)
        counts[key] += 1
    return tuple([LineUse(place, f"{machine_count(counts[key])} of {key[0]}", key[1]) for key, place in firsts.items()])


def machine_count(number: int) -> str:
    """A number of machines in words."""
    return f"{number:,} machine{'' if number == 1 else 's'}"


def write_machines(machines: tuple[ListedMachine, ...], output: Path, *, force: bool) -> None:
    """Write a file of machines, as `--machines` takes it: a name, a column per resource, and models of GPUs.

    A resource that some machines do not state is 0 for them.

    Raises:
        InputError: the file exists and `force` is off, or it cannot be written.
    """
    resources = columns_of(machines)
    has_models = any(listed.gpu_model for listed in machines)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([NAME, *resources, *([GPU_MODEL] if has_models else [])])
    for listed in machines:
        offers = [listed.amounts.get(name, 0) for name in resources]
        rows.writerow([listed.name, *offers, *([listed.gpu_model] if has_models else [])])

    with atomic_output(output, force=force) as file:
        file.write(text.getvalue().encode())


def columns_of(machines: Iterable[ListedMachine]) -> tuple[str, ...]:
    """The resources of which some machine offers a part, in the order of a trace file."""
    from volery.workload.models import RESOURCES

    return tuple([name for name in RESOURCES if any(listed.amounts.get(name) for listed in machines)])
