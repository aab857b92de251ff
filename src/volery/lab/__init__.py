"""The lab as Python functions: traces, clusters, designs, comparisons, and single runs with their records in memory.

`import volery as vo` offers what stands here; docs/reference/python.md describes it. The commands use the same studies.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volery.core.errors import InputError
    from volery.lab.calls import compare, load, simulate
    from volery.lab.comparison import Comparison, Simulation
    from volery.lab.design import Design, architecture
    from volery.lab.inputs import ClusterSource, TraceSource, cluster, trace
    from volery.lab.pictures import Picture
    from volery.study.watcher import LostRunError

__all__ = [
    "ClusterSource",
    "Comparison",
    "Design",
    "InputError",
    "LostRunError",
    "Picture",
    "Simulation",
    "TraceSource",
    "architecture",
    "cluster",
    "compare",
    "load",
    "simulate",
    "trace",
]

if not TYPE_CHECKING:
    # The command line starts without the libraries of a study: names are looked up in these modules when they are used.
    HOMES = {
        "volery.core.errors": ("InputError",),
        "volery.lab.calls": ("compare", "load", "simulate"),
        "volery.lab.comparison": ("Comparison", "Simulation"),
        "volery.lab.design": ("Design", "architecture"),
        "volery.lab.inputs": ("ClusterSource", "TraceSource", "cluster", "trace"),
        "volery.lab.pictures": ("Picture",),
        "volery.study.watcher": ("LostRunError",),
    }

    def __getattr__(name):
        """A public name of the lab."""
        home = next((module for module, names in HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'volery.lab' has no attribute {name!r}")
        return getattr(import_module(home), name)
