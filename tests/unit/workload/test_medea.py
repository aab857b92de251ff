"""Synthetic applications with tag constraints: their kinds, their constraints, and errors that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.core.model import UNLIMITED, TagConstraint
from volery.core.tags import check_tags
from volery.workload import load_trace, write_tr
from volery.workload.quirks import first_jobs


def test_every_second_application_is_a_service_and_the_others_have_workers() -> None:
    trace = load_trace("medea:6,batch=5,tasks=3,workers=4,per_rack=2", seed=1)
    check_tags(trace)
    tags = [trace.tags_of(job) for job in range(trace.job_count)]
    kinds = [one.names[0] if one else "" for one in tags]
    assert {kind: kinds.count(kind) for kind in kinds} == {"service": 3, "cache": 3, "worker": 3, "": 5}
    sizes = {kind: trace.first[job + 1] - trace.first[job] for job, kind in enumerate(kinds)}
    assert sizes == {"service": 3, "cache": 1, "worker": 4, "": 10}
    service, worker = (next(one for one in tags if one and one.names[0] == kind) for kind in ("service", "worker"))
    own = service.names
    assert service.constraints == (TagConstraint(own, own, 0, 0, "node"), TagConstraint(own, own, 0, 1, "rack"))
    cache = ("cache", worker.names[1])
    near = TagConstraint(worker.names, cache, 1, UNLIMITED, "rack")
    assert worker.constraints == (near, TagConstraint(("worker",), ("worker",), 0, 1, "node"))


def test_workers_come_after_their_cache_and_end_before_it() -> None:
    trace = load_trace("medea:10,batch=0")
    spans = {}
    for job in range(trace.job_count):
        tags = trace.tags_of(job)
        assert tags is not None
        begin = trace.arrival_us[job]
        spans[tags.names] = begin, begin + trace.duration_us[trace.first[job]]
    workers = [names for names in spans if names[0] == "worker"]
    assert len(workers) == 5
    for names in workers:
        cache = spans["cache", names[1]]
        assert cache[0] < spans[names][0] < spans[names][1] < cache[1]


def test_the_seed_decides_and_cut_traces_keep_their_tags() -> None:
    trace = load_trace("medea:8", seed=3)
    assert trace.digest() == load_trace("medea:8", seed=3).digest() != load_trace("medea:8", seed=4).digest()
    cut = first_jobs(trace, 20)
    assert [cut.tags_of(job) for job in range(20)] == [trace.tags_of(job) for job in range(20)]


@pytest.mark.parametrize("spec", ["medea:", "medea:0", "medea:x", "medea:20000", "medea:5,tag=1", "medea:5,per_node=0"])
def test_wrong_specs_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="medea"):
        load_trace(spec)


def test_a_tr_file_cannot_hold_tags(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no constraints, requests, users, tags"):
        write_tr(load_trace("medea:4,batch=3"), tmp_path / "medea.tr")
