"""Loads of federations: work with tags is refused before anything runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from volery.cli.federation import choose
from volery.core.errors import InputError
from volery.core.trace import Trace
from volery.live.config.federation import FederationFile
from volery.live.load import load_apart, load_by_api, refuse_tags
from volery.workload import load_trace

TAGGED = load_trace("medea:2")
REFUSED = "^medea:2: tasks have tag constraints, which federations do not take"


def by_api(trace: Trace) -> None:
    asyncio.run(load_by_api("http://127.0.0.1:1", trace, "sleep"))


def apart(trace: Trace) -> None:
    load_apart(FederationFile(machines=[]), Path(), choose, trace)


@pytest.mark.parametrize("submit", [refuse_tags, by_api, apart])
def test_work_with_tags_is_refused(submit: object) -> None:
    assert callable(submit)
    with pytest.raises(InputError, match=REFUSED):
        submit(TAGGED)


def test_work_without_tags_passes() -> None:
    refuse_tags(msgspec.structs.replace(TAGGED, tag_set=type(TAGGED.tag_set)("H")))
