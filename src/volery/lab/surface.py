"""The lab as Python functions: traces, clusters, designs, comparisons, and single runs with their records in memory.

`import volery as vo` offers what `volery.__all__` names; docs/reference/python.md describes it. The commands use the
same studies.
"""

from volery.core.errors import InputError as InputError
from volery.lab.calls import compare as compare
from volery.lab.calls import load as load
from volery.lab.calls import simulate as simulate
from volery.lab.comparison import Comparison as Comparison
from volery.lab.comparison import Simulation as Simulation
from volery.lab.design import Design as Design
from volery.lab.design import architecture as architecture
from volery.lab.inputs import ClusterSource as ClusterSource
from volery.lab.inputs import TraceSource as TraceSource
from volery.lab.inputs import cluster as cluster
from volery.lab.inputs import trace as trace
from volery.lab.pictures import Picture as Picture
from volery.study.watcher import LostRunError as LostRunError
