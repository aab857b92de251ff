"""Tasks of a run that never ran, or that ran as one slot though they ask for more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volery.core.model import NEVER, SECOND
from volery.core.omissions import Omission, Omissions, machine_unit
from volery.core.records import Records
from volery.core.trace import Trace
from volery.metrics.columns import view
from volery.workload.capacity import in_order_of, parse_amounts

NEVER_RAN = "no machine can run them, or a scheduler gave them up"
LARGER = "ask for more than one slot"
PLACE = "slot_request"


def never_ran(records: Records, trace: Trace) -> Omissions | None:
    """Tasks that never started; None where all did."""
    return _of_tasks(trace, view(records.start_us) == NEVER, NEVER_RAN)


def larger_than_a_slot(trace: Trace, slot_request: str) -> Omissions | None:
    """Tasks that ask for more than a slot holds; None where none does, or where tasks ask for nothing.

    Args:
        trace: before its machines are turned into slots.
        slot_request: what one slot stands for, as `cpu_milli=1000,memory_mb=256`.

    Raises:
        InputError: the amounts are wrong.
    """
    if not trace.resources:
        return None
    slot = in_order_of(trace.resources, parse_amounts(slot_request, PLACE), PLACE)
    larger = [any(asked > held > 0 for asked, held in zip(one, slot, strict=True)) for one in trace.requests]
    return _of_tasks(trace, np.array(larger, np.bool_)[view(trace.request)], LARGER)


def _of_tasks(trace: Trace, members: NDArray[np.bool_], reason: str) -> Omissions | None:
    """These tasks of a trace, counted for one reason; None where there are none."""
    if not members.any():
        return None
    unit, scale = machine_unit(trace.resources)
    held = view(trace.duration_us).astype(np.float64) * (scale / SECOND)
    if trace.resources:
        held *= np.array([request[0] for request in trace.requests], np.float64)[view(trace.request)]
    per_job = np.add.reduceat(members, view(trace.first)[:-1], dtype=np.int64)
    sizes = np.diff(view(trace.first))
    whole, lost = float(held.sum()), float(held[members].sum())
    told = Omission(reason, int(np.count_nonzero(per_job)), int(members.sum()), lost, lost / whole if whole else 0.0)
    return Omissions(trace.job_count, trace.task_count, whole, unit, int(np.count_nonzero(per_job == sizes)), (told,))
