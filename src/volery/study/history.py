"""Earlier runs, and what designs learn from them before a run: simulated under the design as it is untaught."""

from __future__ import annotations

from typing import Any

import msgspec

from volery import sim, workload
from volery.core.component import Architecture, Deployment, Learning
from volery.core.model import Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.study.plan import content_digest, inputs_key
from volery.study.spec import RunSpec

HISTORY = "history"
"""The stream from which the seed of earlier runs is drawn."""
_kept: dict[tuple[Any, ...], Any] = {}
"""What was learned last, by all that it depends on: variants of a design under one seed share it."""


def learned(
    architecture: Architecture, learning: Learning, config: msgspec.Struct, run: RunSpec, cluster: Cluster
) -> msgspec.Struct:
    """The configuration with what the earlier runs of a run have taught.

    They are scheduled by the design with its defaults, on the run's machines, under its delay, so that all variants
    have seen the same.

    Args:
        architecture: that learns.
        learning: how.
        config: of it.
        run: which names the earlier runs.
        cluster: its machines.

    Raises:
        InputError: the earlier runs cannot be read.
    """
    by = tuple([getattr(config, name) for name in learning.by])
    key = (architecture.name, by, content_digest(run.history), inputs_key(run), run.delay_us)
    if key not in _kept:
        _kept.clear()
        network = sim.Network(run.delay_us)
        options = sim.Options(graphs=architecture.graphs)

        def simulate(deployment: Deployment, trace: Trace, machines: Cluster) -> Records:
            return sim.simulate(deployment, trace, machines, network=network, seed=run.seed, options=options)

        streams = Streams(run.seed)
        seed = streams.number(HISTORY)
        earlier = workload.load_trace(
            run.history, seed=seed, durations=run.durations, arrivals=run.arrivals, only=run.only
        )
        records = simulate(architecture.build(cluster, architecture.defaults, streams), earlier, cluster)
        _kept[key] = learning.learn(config, records, simulate)
    return msgspec.structs.replace(config, **{learning.parameter: _kept[key]})
