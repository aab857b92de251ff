"""Functions that maps of columns name, for values that no unit, format or pattern describes.

A function takes the text of a value and gives a text or a number; None stands for no value. What it refuses, it refuses
with a ValueError. A function of a further system stands in a module of its own, and in `FUNCTIONS` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from volery.workload.formats.columns.kubernetes import pod_cpu, pod_end, pod_gpus, pod_memory, pod_start
from volery.workload.formats.columns.slurm import array_size, gpu_count, json_number, json_state, json_tres

ValueFunction = Callable[[str], str | float | None]

FUNCTIONS: Final[dict[str, ValueFunction]] = {
    "kube-cpu": pod_cpu,
    "kube-end": pod_end,
    "kube-gpus": pod_gpus,
    "kube-memory": pod_memory,
    "kube-start": pod_start,
    "slurm-array-size": array_size,
    "slurm-gpus": gpu_count,
    "slurm-json-number": json_number,
    "slurm-json-state": json_state,
    "slurm-json-tres": json_tres,
}
"""Functions by the names that maps write."""
