"""The lab as Python functions: traces, clusters, designs, comparisons, and single runs with their records in memory.

`import volery as vo` offers what stands here; docs/reference/python.md describes it. The commands use the same studies.
"""

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
