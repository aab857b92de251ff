"""The form of a plan describes a job; what it cannot is refused by the name of its field."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from starlette.requests import Request

from volery.core.errors import InputError
from volery.core.forecast import DurationBases, MomentQuantiles, PreemptedJob, Quantiles
from volery.live.dashboard.forecasts import MOMENTS, asked_job, forecast_intervals
from volery.live.service.authentication import Principal
from volery.live.status import Forecast


def asked(**fields: str) -> Request:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": urlencode(fields).encode(),
        "headers": [],
        "state": {"principal": Principal("ada", "user")},
    }
    return Request(scope)


def test_a_filled_form_is_a_job_of_who_asks() -> None:
    found = asked_job(
        asked(
            name="fit",
            command="make",
            tasks="12",
            estimate_s="2.5",
            constraints='cores >= 2\n\n label.disk == "ssd" ',
            request="cpu_milli = 500, memory_mb=64\n",
            user="",
        )
    )
    assert found is not None
    assert (found.name, found.command, found.user, found.tasks, found.estimate_s) == ("fit", "make", "ada", 12, 2.5)
    assert found.constraints == ("cores >= 2", 'label.disk == "ssd"')
    assert found.request == {"cpu_milli": 500, "memory_mb": 64}


def test_an_empty_form_describes_nothing_and_empty_fields_are_left_out() -> None:
    assert asked_job(asked()) is None
    found = asked_job(asked(name="fit", command="", tasks="", estimate_s="", constraints="", request=""))
    assert found is not None
    assert (found.tasks, found.constraints, found.request, found.estimate_s) == (1, (), {}, None)


@pytest.mark.parametrize(
    ("field", "text", "place"),
    [
        ("tasks", "many", "query.tasks"),
        ("estimate_s", "soon", "estimate_s"),
        ("request", "cpu_milli", "request"),
        ("request", "cpu_milli = \N{SUPERSCRIPT TWO}", "request"),
        ("request", "cpu_milli = " + "9" * 30, "request"),
    ],
)
def test_a_wrong_field_is_named(field: str, text: str, place: str) -> None:
    with pytest.raises(InputError) as refused:
        asked_job(asked(name="fit", **{field: text}))
    assert refused.value.place == place


def test_intervals_name_moments_to_come_what_is_known_and_who_loses() -> None:
    none = Quantiles(None, None, None)
    soon, late = Quantiles(0, 2_000_000, 4_000_000), Quantiles(1_000_000, 8_000_000, None)
    forecast = Forecast(
        made_us=0,
        tasks=3,
        runs=20,
        moments=MomentQuantiles(none, soon, none, late),
        known=DurationBases(history=2, nothing=1),
        preempts=(PreemptedJob(job=7, user="bob", tasks=1.5, runs=4), PreemptedJob(tasks=2.0, runs=3)),
    )
    shown = forecast_intervals(forecast, MOMENTS)
    assert "the first task ends" in shown
    assert "the first task starts" not in shown, "it has started"
    assert "of 2 tasks from earlier runs of it; of 1 tasks they are not" in shown
    assert "loses 1.5 running tasks" in shown
    assert "Jobs of others lose 2.0 running tasks" in shown
    refused = forecast_intervals(Forecast(made_us=0, tasks=1, runs=0, problem="the job has ended"), MOMENTS)
    assert "No forecast: the job has ended." in refused
