"""Twin: Sparrow under another name, with random draws of its own; a comparison of the two shows no difference."""

from __future__ import annotations

import msgspec

from volery.architectures.sparrow import SPARROW
from volery.core.component import Deployment
from volery.core.model import Cluster
from volery.core.streams import Streams


def build(cluster: Cluster, config: msgspec.Struct, streams: Streams) -> Deployment:
    """Sparrow's components, with streams that Sparrow does not have under the same seed."""
    return SPARROW.build(cluster, config, Streams(streams.number("twin")))


TWIN = msgspec.structs.replace(SPARROW, name="twin", summary="Sparrow under another name", build=build)
