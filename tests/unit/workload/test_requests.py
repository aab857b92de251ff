"""Request models: what tasks ask for, drawn by weight, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.workload import ask, synthesize
from volery.workload.quirks import first_jobs, in_order
from volery.workload.requests import load_model
from volery.workload.tr import read_tr, write_tr

MODEL = """
resources = ["cpu_milli", "gpus"]
per = "task"
classes = [{ weight = 3, request = [500, 0] }, { weight = 1, request = [1000, 2] }]
"""


def written(folder: Path, text: str) -> str:
    path = folder / "model.toml"
    path.write_text(text)
    return str(path)


def test_classes_are_drawn_by_weight_for_each_task(tmp_path: Path) -> None:
    trace = ask(synthesize("syn:100x200"), written(tmp_path, MODEL), 1)
    drawn = Counter(trace.requests[k] for k in trace.request)
    assert trace.resources == ("cpu_milli", "gpus")
    assert 0.73 < drawn[500, 0] / trace.task_count < 0.77
    assert drawn.total() == trace.task_count


def test_the_tasks_of_a_job_ask_for_the_same_where_the_job_draws() -> None:
    trace = ask(synthesize("syn:7x300"), "alibaba-like", 0)
    by_job = [set(trace.request[low : low + 7]) for low in range(0, trace.task_count, 7)]
    assert {len(drawn) for drawn in by_job} == {1}
    assert len({frozenset(drawn) for drawn in by_job}) > 5


def test_draws_depend_on_the_seed_alone() -> None:
    whole, part = (ask(synthesize(f"syn:7x{jobs}"), "alibaba-like", 3) for jobs in (300, 100))
    assert whole.request[: part.task_count] == part.request
    assert first_jobs(whole, 100).digest() != whole.digest()
    assert first_jobs(whole, 100).request == part.request
    assert ask(synthesize("syn:7x300"), "alibaba-like", 4).request != whole.request


def test_requests_follow_their_jobs_when_those_are_sorted() -> None:
    import msgspec

    trace = ask(synthesize("syn:2x50"), "alibaba-like", 0)
    backwards = msgspec.structs.replace(trace, arrival_us=trace.arrival_us[::-1])
    assert in_order(backwards).request.tolist() == [
        place for job in reversed(range(50)) for place in trace.request[2 * job : 2 * job + 2]
    ]


def test_none_leaves_the_trace_as_it_is(tmp_path: Path) -> None:
    trace = synthesize("syn:2x2")
    assert ask(trace, "none", 0) is trace
    with pytest.raises(InputError, match=r"a \.tr file holds no constraints, requests, users or workflows"):
        write_tr(ask(trace, "alibaba-like", 0), tmp_path / "t.tr")
    write_tr(trace, tmp_path / "t.tr")
    assert not read_tr(tmp_path / "t.tr").resources


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('resources = ["a"]\nper = job\n', "model.toml:2: is not TOML"),
        (MODEL.replace("500, 0", "500"), r"model.toml.classes\[0\].request: has 1 amounts where there are 2 resources"),
        (MODEL.replace("500, 0", "500, -1"), r"model.toml.classes\[0\].request\[1\]: expected int >= 0"),
        (MODEL.replace("weight = 3", "weight = 0"), r"model.toml.classes\[0\].weight: expected float > 0"),
        (MODEL.replace("gpus", "GPUs of ours"), "'GPUs of ours' is no name of a resource; write it as"),
        (MODEL.replace("gpus", "cpu_milli"), "'cpu_milli' stands there twice"),
        (MODEL.replace('per = "task"', 'per = "user"'), "model.toml.per: invalid enum value 'user'"),
        (MODEL + "more = 1", "object contains unknown field more"),
    ],
)
def test_a_wrong_model_is_named_by_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_model(written(tmp_path, text))


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'alibaba' is neither a request model; did you mean 'alibaba-like'"):
        load_model("alibaba")
    with pytest.raises(InputError, match=r"no.toml: cannot be read: No such file"):
        load_model(str(tmp_path / "no.toml"))


def test_the_alibaba_kind_asks_and_holds_its_load() -> None:
    trace = synthesize("alibaba:jobs=300,load=0.5,workers=20", 2)
    work = sum(trace.requests[k][0] * at for k, at in zip(trace.request, trace.duration_us, strict=True))
    assert work / (trace.arrival_us[-1] * 20 * 64_000) == pytest.approx(0.5, rel=1e-3)
    busier = synthesize("alibaba:jobs=300,load=1,workers=20", 2)
    assert (busier.request, busier.duration_us) == (trace.request, trace.duration_us)
    assert synthesize("alibaba:jobs=300,load=0.5,workers=20", 2).digest() == trace.digest()
