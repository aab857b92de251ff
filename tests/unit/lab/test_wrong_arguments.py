"""Each function refuses what is wrong: the error names the argument, and what to give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import volery as vo
from volery.architectures.megha.designs import MEGHA
from volery.architectures.pipeline.policies import Policy

COMPARE: Callable[..., Any] = vo.compare
SIMULATE: Callable[..., Any] = vo.simulate
TRACE: Callable[..., Any] = vo.trace
CLUSTER: Callable[..., Any] = vo.cluster
LOAD: Callable[..., Any] = vo.load
ARCHITECTURE: Callable[..., Any] = vo.architecture
WORK = {"trace": "syn:5x4", "workers": 50}


class Lacking(Policy, frozen=True):
    """Has no decision."""


class BestFit(Policy, frozen=True):
    """Has the name of another."""

    def select(self, *arguments: Any) -> int:
        return 0


@pytest.mark.parametrize(
    ("arguments", "options", "place", "problem"),
    [
        ((), WORK, "designs", "is empty; give at least one value"),
        (("megah",), WORK, "designs", "did you mean 'megha'?"),
        (("megha", "oracle:x=1"), WORK, "designs=oracle:x", "there is no such parameter"),
        (("megha", "megha"), WORK, "designs", "'megha' stands here twice; leave one out"),
        ((5,), WORK, "designs", "expected a name"),
        (("oracle", "megha:gms=100"), WORK, "designs=megha", "lower gms or lms, or add workers"),
        (("oracle",), {"workers": 5}, "trace", "is missing; give a file, or 'syn:250x300'"),
        (("oracle",), {"trace": "syn:5x4"}, "workers", "is missing; give a number of machines, or a cluster"),
        (("oracle",), WORK | {"trace": "no.csv"}, "trace", "there is no file 'no.csv'; check its path"),
        (("oracle",), WORK | {"trace": "syn:axb"}, "trace=syn:axb", "is not TASKSxJOBS"),
        (("oracle",), WORK | {"trace": "sny:5x4"}, "trace=sny:5x4", "did you mean 'syn'?"),
        (("oracle",), WORK | {"trace": 5}, "trace", "expected a file, a spec, a table"),
        (("oracle",), WORK | {"trace": pa.table({"job": ["a"]})}, "trace", "has no column 'submit_s'"),
        (("oracle",), WORK | {"workers": "many"}, "workers", "expected int, got str, not 'many'"),
        (("oracle",), WORK | {"seeds": "3"}, "seeds", "expected a number of seeds >= 1, or auto"),
        (("oracle",), WORK | {"seeds": "auto"}, "seeds", "give two architectures, or a number of seeds"),
        (("oracle",), WORK | {"seeds_max": 3}, "seeds_max", "set seeds to auto, or leave it out"),
        (("oracle",), WORK | {"axes": {"laod": [1]}}, "axes.laod", "did you mean 'load'?"),
        (("oracle",), WORK | {"axes": {"load": 0.5}}, "axes.load", "write [0.5]"),
        (("oracle",), WORK | {"axes": {"load": [0.5, "x"]}}, "axes.load[1]", "expected float"),
        (("oracle",), WORK | {"axes": [1]}, "axes", "expected a table of lists"),
        (("oracle",), WORK | {"load": 0.5, "axes": {"load": [1]}}, "axes.load", "leave one out"),
        (("oracle",), WORK | {"axes": {"workers": [5, 6]}}, "workers", "is given twice, in axes and in workers"),
        (("oracle",), WORK | {"lod": 0.5}, "lod", "there is no such argument; did you mean 'load'?"),
        (("oracle",), WORK | {"baseline": "x"}, "baseline", "no architecture 'x' here"),
        (("oracle",), WORK | {"baseline": 3}, "baseline", "expected the name of a design"),
        (("oracle",), WORK | {"processes": 0}, "processes", "expected a number >= 1, not 0"),
        (("oracle",), WORK | {"processes": True}, "processes", "expected a number >= 1, not True"),
        (("oracle",), WORK | {"progress": "no"}, "progress", "expected True or False, not 'no'"),
        (("oracle",), WORK | {"folder": ""}, "folder", "expected the name of a folder, not ''"),
        (("oracle",), WORK | {"trace": ""}, "trace", "expected a file, a spec, a table"),
        (("oracle",), WORK | {"machines": ""}, "machines", "expected the name of a file, not ''"),
        (
            ("oracle",),
            WORK | {"axes": {1: [2]}},
            "axes",
            "expected names of fields, or of parameters as 'pigeon.weight'",
        ),
        (("oracle",), WORK | {"axes": {"trace": ["syn:1x1"]}}, "trace", "is given twice, in axes and in trace"),
        (("oracle",), {"workers": 5, "axes": {"trace": [3]}}, "axes.trace[0]", "expected a file, a spec, a table"),
        (("oracle",), {"workers": 5, "axes": {"trace": ["no.csv"]}}, "axes.trace[0]", "there is no file 'no.csv'"),
        (
            ("oracle",),
            {"workers": 5, "axes": {"trace": ["syn:5x4", vo.trace("syn:5x4", jobs=3)]}},
            "axes.trace[1]",
            "states jobs, too; read it without, and give that to the call",
        ),
        (("oracle",), {"workers": 5, "axes": {"trace": ["syn:axb"]}}, "axes.trace=syn:axb", "is not TASKSxJOBS"),
        (("oracle",), WORK | {"axes": {"crashes": ["gm"]}}, "axes.crashes", "write address@time+duration"),
        (("oracle", "megha"), WORK | {"axes": {"megha.gms": [100]}}, "designs=megha", "lower gms or lms"),
        (("oracle",), WORK | {"seeds": {1, 2}}, "seeds", "expected a number of seeds >= 1, or auto"),
        (("oracle",), WORK | {"folder": "a", "axes": {"load": ["x"]}}, "axes.load[0]", "expected float"),
        (("oracle",), WORK | {"folder": "load", "load": "x"}, "load", "expected float"),
        (("oracle",), WORK | {"folder": "s", "slots": "x"}, "slots", "expected int"),
        (("oracle",), WORK | {"folder": 3}, "folder", "expected the name of a folder, not 3"),
        (("oracle",), WORK | {"folder": Path(__file__)}, f"folder={__file__}", "is a file; give a folder"),
        (("oracle",), WORK | {"machines": "no.csv"}, "machines", "there is no file 'no.csv'; check its path"),
        (("oracle",), WORK | {"cluster": 5}, "cluster", "expected the result of volery.cluster, not 5"),
        (("oracle",), WORK | {"links": {"x:y": 1}}, "links", "no architecture here has the role 'x'"),
    ],
)
def test_compare(arguments: tuple[Any, ...], options: dict[str, Any], place: str, problem: str) -> None:
    demand(lambda: COMPARE(*arguments, **options), place, problem)


def demand(call: Callable[[], object], place: str, problem: str) -> None:
    """An error at this place, whose traceback ends in the module that names arguments or checks them."""
    with pytest.raises(vo.InputError) as caught:
        call()
    assert (caught.value.place, problem in caught.value.problem) == (place, True), str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("design", "options", "place", "problem"),
    [
        ("megah", WORK, "design", "did you mean 'megha'?"),
        ("oracle", WORK | {"seed": "x"}, "seed", "expected a whole number, not 'x'"),
        ("oracle", WORK | {"seed": -1}, "seed", "expected int >= 0, not -1"),
        ("oracle", WORK | {"seeds": 3}, "seeds", "there is no such argument; known are"),
        ("oracle", {"workers": 3}, "trace", "is missing; give a file"),
        ("oracle", WORK | {"progress": 1}, "progress", "expected True or False, not 1"),
        ("oracle:x=1", WORK, "design=oracle:x", "there is no such parameter"),
        ("megha:gms=100", WORK, "design=megha", "lower gms or lms, or add workers"),
        ("oracle", WORK | {"trace": "poisson:wokers=3"}, "trace=poisson:wokers", "did you mean 'workers'?"),
        ("oracle", WORK | {"crashes": "gm"}, "crashes", "write address@time+duration in seconds"),
    ],
)
def test_simulate(design: str, options: dict[str, Any], place: str, problem: str) -> None:
    demand(lambda: SIMULATE(design, **options), place, problem)


def test_a_field_of_a_trace_and_of_a_call_is_one_too_many() -> None:
    work, machines = vo.trace("syn:5x4", jobs=3), vo.cluster(5, slots=2)
    demand(lambda: COMPARE("oracle", trace=work, workers=5, jobs=3), "jobs", "in the call itself and in trace")
    demand(lambda: COMPARE("oracle", trace=work, cluster=machines, workers=5), "workers", "in cluster and in workers")


TIMES = {"submit_s": [1.0], "runtime_s": [1.0]}


@pytest.mark.parametrize(
    ("source", "options", "place", "problem"),
    [
        ("nowhere.csv", {}, "source", "there is no file 'nowhere.csv'; check its path, or give synthetic work"),
        (3, {}, "source", "expected a file, a spec or a table, not 3"),
        ("", {}, "source", "expected a file, a spec or a table, not ''"),
        (Path(__file__), {}, f"source={__file__}:1", "which no known format does"),
        ("syn:5x4", {"jobs": 0}, "jobs", "expected int >= 1, not 0"),
        ("syn:5x4", {"job": 0}, "job", "did you mean 'jobs'?"),
        ("syn:5x4", {"load": 3}, "load", "belongs to the run, not to a trace; give it to compare or simulate"),
        ("syn:5x4", {"seed": "x"}, "seed", "expected a whole number"),
        ("syn:5x4", {"into": "x.parquet"}, "into", "belongs to a table in memory"),
        (pa.table({"submit_s": [1.0]}), {}, "source", "has no column 'runtime_s'"),
        (pa.table(TIMES | {"runtime_s": ["a"]}), {}, "source", "column 'runtime_s' is string"),
        (pa.table(TIMES | {"runtime_s": [float("inf")]}), {}, "source, row 0", "give a finite number, or null"),
        (pa.table(TIMES | {"runtim_s": [1.0]}), {}, "source", "did you mean 'runtime_s'?"),
        (pa.table(TIMES | {"runtime_s": [-1.0]}), {}, "source", "a runtime below 0"),
        (
            pa.table(TIMES | {"submit_s": [-1.0]}),
            {},
            "source, row 0",
            "submit_s is -1; subtract the earliest time from all",
        ),
        (
            pa.table({"job": ["a", "b", "a"], "submit_s": [0.0, 1.0, 2.0], "runtime_s": [1.0, 1.0, 1.0]}),
            {},
            "source, row 2",
            "job 'a' has another submit_s than in its rows before",
        ),
        (pa.table(TIMES | {"status": ["x"]}), {}, "source, row 0", "it is one of finished, failed"),
        (pa.table(TIMES | {"submit_us": [1]}), {}, "source", "is given in seconds, too"),
        (pa.table(TIMES).slice(1), {}, "source", "has no row"),
        (pa.table(TIMES), {"into": Path(__file__)}, "into", "is no trace table; give another name"),
        (pa.table(TIMES), {"into": ""}, "into", "expected the name of a file, not ''"),
        (pa.table(TIMES), {"into": "/no/x.parquet"}, "into=/no/x.parquet", "cannot be written"),
    ],
)
def test_trace(source: object, options: dict[str, Any], place: str, problem: str) -> None:
    demand(lambda: TRACE(source, **options), place, problem)


@pytest.mark.parametrize(
    ("workers", "options", "place", "problem"),
    [
        (0, {}, "workers", "expected int >= 1, not 0"),
        ("x", {}, "workers", "expected int, got str"),
        (5, {"slots": 0}, "slots", "expected int >= 1, not 0"),
        (5, {"racks": 9}, "racks", "give from 1 to 5"),
        (5, {"slot": 9}, "slot", "did you mean 'slots'?"),
        (5, {"jobs": 4}, "jobs", "belongs to the run, not to a cluster"),
        (5, {"capacity": "x"}, "capacity", "is not of the form RESOURCE=UNITS"),
        (5, {"machines": "no.csv"}, "machines", "there is no file 'no.csv'"),
    ],
)
def test_cluster(workers: Any, options: dict[str, Any], place: str, problem: str) -> None:
    demand(lambda: CLUSTER(workers, **options), place, problem)


@pytest.mark.parametrize(
    ("design", "parameters", "place", "problem"),
    [
        ("pigon", {}, "design", "did you mean 'pigeon'?"),
        (3, {}, "design", "expected the name of a design, or an Architecture, not 3"),
        ("pigeon", {"wieght": 3}, "wieght", "did you mean 'weight'?"),
        ("pigeon", {"weight": "x"}, "weight", "'x' does not fit"),
        ("pigeon", {"weight": [1]}, "weight", "expected a text, a number, or a policy"),
        ("pipeline", {"R5": "colde"}, "R5", "known are best-fit"),
        ("pipeline", {"R5": "a,b"}, "R5", "holds a comma"),
        ("pipeline", {"R5": Lacking}, "R5", "a policy of R5 has select"),
        ("pipeline", {"R5": BestFit}, "R5", "give the class BestFit another name"),
        ("pipeline", {"lrms": BestFit}, "lrms", "is no stage with policies"),
    ],
)
def test_architecture(design: Any, parameters: dict[str, Any], place: str, problem: str) -> None:
    demand(lambda: ARCHITECTURE(design, **parameters), place, problem)


def test_a_design_of_ours_cannot_be_replaced() -> None:
    import msgspec

    other = msgspec.structs.replace(MEGHA, summary="another")
    demand(lambda: ARCHITECTURE(other), "design", "give yours another name")
    assert vo.architecture(MEGHA, gms=3).label == "megha:gms=3"


def test_load(tmp_path: Path) -> None:
    demand(lambda: LOAD(tmp_path), f"folder={tmp_path}", "is not a results folder")
    demand(lambda: LOAD(3), "folder", "expected the name of a folder, not 3")
    demand(lambda: LOAD(""), "folder", "expected the name of a folder, not ''")
    vo.compare("oracle", "central", **WORK, folder=tmp_path)  # type: ignore[arg-type]  # numbers and texts
    demand(lambda: LOAD(tmp_path, baseline="x"), "baseline", "no architecture 'x' here")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "runs" / f"{manifest['runs'][0]['key']}.npz").unlink()
    demand(lambda: LOAD(tmp_path), f"folder={tmp_path}", "is missing or damaged; run the study again")
    other = WORK | {"workers": 60}
    demand(lambda: COMPARE("oracle", **other, folder=tmp_path), f"folder={tmp_path}", "or force=True to replace them")


def test_tables_and_pictures_that_there_are_not(tmp_path: Path) -> None:
    results = vo.compare("oracle", trace="syn:5x4", workers=50)
    demand(lambda: results.plot("x"), "name", "there is no 'x'; known are delay-all")
    demand(lambda: results.plot(width="x"), "width", "known are double, single")  # type: ignore[arg-type]  # wrong
    demand(lambda: results.to_latex("dealy"), "name", "did you mean 'delay'?")
    picture = results.plot()
    demand(lambda: picture.save(tmp_path / "x.gif"), "path", "must end in .png, .svg or .pdf")
    demand(lambda: picture.save(tmp_path / "no" / "x.png"), "path", "choose another place")


def test_an_error_keeps_the_options_of_other_commands() -> None:
    table = pa.table(TIMES | {"limit_s": [0.0]})
    with pytest.raises(vo.InputError, match="`volery trace convert --repair zero-limit=null`, or run with limits"):
        vo.simulate("oracle", trace=table, workers=3)
    assert vo.simulate("oracle", trace=table, workers=3, limits="ignore").jobs.num_rows == 1
