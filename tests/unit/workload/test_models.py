"""Models of what a trace lacks: requests, estimates and users, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.trace import Trace
from volery.workload import ask, deal_to_users, load_trace, synthesize, with_estimates
from volery.workload.arrays import job_means, view
from volery.workload.models import load_model
from volery.workload.quirks import first_jobs, in_order
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


OF_USERS = """
resources = ["cpu_milli", "gpus"]
classes = [
    { weight = 1, request = [500, 0], users = ["ann"] },
    { weight = 1, request = [0, 1], users = ["bob"] },
    { weight = 3, request = [1, 1], users = ["bob"] },
]
"""


def test_users_draw_among_their_own_classes(tmp_path: Path) -> None:
    trace = ask(deal_to_users(synthesize("syn:2x400"), "ann+bob", 1), written(tmp_path, OF_USERS), 1)
    drawn = Counter((trace.user[task // 2], trace.requests[k]) for task, k in enumerate(trace.request))
    assert drawn.keys() == {("ann", (500, 0)), ("bob", (0, 1)), ("bob", (1, 1))}
    assert 0.65 < drawn["bob", (1, 1)] / (drawn["bob", (1, 1)] + drawn["bob", (0, 1)]) < 0.85


def test_a_user_without_a_class_and_a_trace_without_users_are_refused(tmp_path: Path) -> None:
    model = written(tmp_path, OF_USERS)
    with pytest.raises(InputError, match=r"model.toml.classes: no class is for user 'cid'"):
        ask(deal_to_users(synthesize("syn:2x40"), "ann+cid", 1), model, 1)
    with pytest.raises(InputError, match="the trace has none; deal its jobs"):
        ask(synthesize("syn:2x40"), model, 1)


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
    with pytest.raises(InputError, match=r"a \.tr file holds no constraints, requests, users, tags or workflows"):
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


SPEC = "poisson:fanout=3,mean=10,jobs=2000"


def told_us(trace: Trace, job: int) -> tuple[int, int]:
    """The estimate of a job, and of its first task, as a scheduler receives them."""
    submit = trace.submission(job)[0]
    assert isinstance(submit, Submit)
    return submit.job.estimate_us, submit.job.tasks[0].estimate_us


def test_the_default_changes_nothing() -> None:
    trace = load_trace(SPEC)
    assert with_estimates(trace, "mean", 0) is trace
    assert trace.digest() == load_trace(SPEC).digest()


def test_lognormal_errors_have_their_spread_and_an_exact_median() -> None:
    trace = load_trace(SPEC)
    found = with_estimates(trace, "lognormal:0.5", 0)
    errors = np.log(view(found.told_estimate_us) / job_means(view(trace.duration_us), view(trace.first)))
    assert np.median(errors) == pytest.approx(0, abs=0.05)
    assert errors.std() == pytest.approx(0.5, rel=0.05)
    assert told_us(found, 7) == (found.told_estimate_us[7],) * 2


def test_the_f_model_never_asks_for_less_than_the_mean_and_at_most_for_so_many_times_more() -> None:
    trace = load_trace(SPEC)
    found = with_estimates(trace, "f:3", 0)
    factors = view(found.told_estimate_us) / job_means(view(trace.duration_us), view(trace.first))
    assert factors.min() >= 1 - 1e-6
    assert factors.max() <= 4 + 1e-6
    assert factors.mean() == pytest.approx(2.5, rel=0.05)


def test_errors_come_from_a_stream_of_their_own_and_leave_jobs_in_their_class() -> None:
    trace = load_trace(SPEC, seed=4)
    first, again, other = (with_estimates(trace, "lognormal:1", seed) for seed in (4, 4, 5))
    assert first.digest() == again.digest() != other.digest()
    assert first.estimate_us == trace.estimate_us
    assert first.duration_us == trace.duration_us
    assert first.arrival_us == trace.arrival_us


def test_exact_estimates_are_per_task() -> None:
    trace = with_estimates(load_trace(SPEC), "exact", 0)
    assert told_us(trace, 0)[1] == trace.duration_us[0]


def test_requested_times_are_those_of_the_log_and_refused_where_it_has_none(tmp_path: Path) -> None:
    rows = [f"{n} {60 * n} 0 100 1 -1 -1 1 3600 -1 1 1 1 1 1 -1 -1 -1" for n in range(1, 4)]
    log = tmp_path / "log.swf"
    log.write_text("; Version: 2.2\n" + "\n".join(rows) + "\n")
    trace = with_estimates(load_trace(log), "requested", 0)
    assert told_us(trace, 0) == (3_600_000_000, 3_600_000_000)
    with pytest.raises(InputError, match=r"estimates: the trace .* has no requested times; give mean"):
        with_estimates(load_trace(SPEC), "requested", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lognormal", "'lognormal' needs a number from 0 to 10; for example lognormal:0.5"),
        ("lognormal:nan", "needs a number from 0 to 10"),
        ("f:-1", "needs a number from 0 to 1000"),
        ("f:inf", "needs a number from 0 to 1000"),
        ("exakt", "there is no 'exakt'; did you mean 'exact'"),
        ("mean:1", "there is no 'mean:1'"),
    ],
)
def test_another_model_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_estimates(load_trace("syn:2x2"), text, 0)


QUEUES = "q1:10+q2:25+q3:15+q4:50"


def test_users_get_their_part_of_the_jobs() -> None:
    trace = deal_to_users(load_trace("syn:1x20000"), QUEUES, seed=3)
    jobs = Counter(trace.user)
    for user, percent in (("q1", 10), ("q2", 25), ("q3", 15), ("q4", 50)):
        assert abs(jobs[user] / 20_000 - percent / 100) < 0.01  # three standard deviations


def test_the_first_jobs_have_the_same_users_however_many_follow() -> None:
    long, short = (deal_to_users(load_trace(f"syn:1x{jobs}"), QUEUES, seed=3).user for jobs in (500, 100))
    assert long[:100] == short
    assert deal_to_users(load_trace("syn:1x500"), QUEUES, seed=4).user != long


def test_without_users_the_trace_stays_as_it_is() -> None:
    trace = load_trace("syn:2x3")
    assert deal_to_users(trace, None, seed=1) is trace
    assert set(deal_to_users(trace, "ann", seed=1).user) == {"ann"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:1+", "'' in 'a:1+' is not NAME:WEIGHT"),
        ("a:0", "with a weight from 1"),
        ("a:x", "is not NAME:WEIGHT"),
        ("a:1+a:2", "'a' stands in 'a:1+a:2' twice"),
        ("+".join(f"u{i}" for i in range(100_001)), "at most 100000"),
    ],
)
def test_what_is_not_a_list_of_users_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match="users") as caught:
        deal_to_users(load_trace("syn:2x3"), text, seed=1)
    assert problem in str(caught.value)
