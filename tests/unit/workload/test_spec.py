"""Spec strings of synthetic workloads, and the errors that name their keys."""

from __future__ import annotations

import pytest

from volery.core.errors import InputError
from volery.workload.spec import TASKS_MAX, Spec

KEYS = ("load", "jobs")


def test_a_spec_has_a_kind_a_word_and_values() -> None:
    spec = Spec("mix: google , load = 0.5", KEYS, word="PRESET")
    assert (spec.kind, spec.word) == ("mix", "google")
    assert spec.positive("load", 0.8) == 0.5
    assert spec.count("jobs", 7) == 7
    assert spec.text_of("jobs", "none") == "none"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mix:", "lacks its first part; write mix:PRESET"),
        ("mix:google,load", "'load' is not of the form key=value"),
        ("mix:google,lod=1", "mix:lod: no such key"),
        ("mix:google,load=1,load=2", "mix:load: is given twice"),
    ],
)
def test_wrong_specs_are_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Spec(text, KEYS, word="PRESET")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", "2e9"])
def test_numbers_have_bounds(value: str) -> None:
    with pytest.raises(InputError, match=r"mix:load: .* is not a number above 0 and up to 1e\+09; for example"):
        Spec(f"mix:load={value}", KEYS).positive("load", 0.8)


@pytest.mark.parametrize("value", ["0", "1.5", "-3", "²", "100000001"])
def test_counts_are_whole_numbers(value: str) -> None:
    with pytest.raises(InputError, match=r"mix:jobs: .* is not a whole number from 1 to 100000000"):
        Spec(f"mix:jobs={value}", KEYS).count("jobs", 1)


def test_zero_is_a_number_from_zero() -> None:
    assert Spec("mix:load=0", KEYS).at_least_zero("load", 1.0) == 0.0
    with pytest.raises(InputError, match="a number from 0 to 1;"):
        Spec("mix:load=2", KEYS).at_least_zero("load", 1.0, most=1.0)


def test_a_workload_that_fits_no_memory_is_refused() -> None:
    Spec("syn:", ()).check_size(TASKS_MAX)
    with pytest.raises(InputError, match="ask for fewer jobs or tasks"):
        Spec("syn:", ()).check_size(TASKS_MAX + 1)
