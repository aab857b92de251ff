"""The processes that answer for designs under other hash seeds."""

from __future__ import annotations

import os

import msgspec
import pytest

from volery.architectures import lookup
from volery.conformance.determinism import digests, digests_under
from volery.core.component import Deployment
from volery.core.model import Cluster
from volery.core.streams import Streams


def build_ends_the_process(cluster: Cluster, config: object, streams: Streams) -> Deployment:
    os._exit(3)


def build_fails(cluster: Cluster, config: object, streams: Streams) -> Deployment:
    raise ValueError("no room for it")


@pytest.mark.parametrize(("build", "why"), [(build_fails, "no room for it"), (build_ends_the_process, "status 3")])
def test_what_goes_wrong_elsewhere_is_told_and_the_next_design_is_answered(build: object, why: str) -> None:
    oracle = lookup("oracle")
    told = digests_under("5", msgspec.structs.replace(oracle, build=build))
    assert isinstance(told, str)
    assert why in told
    assert digests_under("5", oracle) == digests(oracle)
