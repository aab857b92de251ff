"""What a study is: checked values, distinct axes, the product in a fixed order."""

from __future__ import annotations

from typing import Any

import pytest

from volery.core.errors import InputError
from volery.setting import Setting
from volery.study.spec import (
    ArchitectureChoice,
    StudySpec,
    is_synthetic,
    make_study,
    parse_architecture,
    point_label,
)

MEGHA = ArchitectureChoice("megha")


def study(axes: dict[str, list[Any]], seeds: tuple[Any, ...] = (0,), chosen: tuple[Any, ...] = (MEGHA,)) -> StudySpec:
    return make_study("test", chosen, axes, seeds, lambda axis, i: axis if i is None else f"{axis}[{i}]")


def test_an_architecture_is_a_name_with_parameters() -> None:
    assert parse_architecture("pigeon: weight = 20 ,reserved=9", "ARCH") == ArchitectureChoice(
        "pigeon", {"weight": "20", "reserved": "9"}
    )
    assert parse_architecture("pigeon:weight=20,reserved=9", "ARCH").label == "pigeon:weight=20,reserved=9"
    assert parse_architecture("megha", "ARCH").label == "megha"


@pytest.mark.parametrize("text", ["", ":gms=1", "megha:", "megha:gms", "megha:gms=", "megha:=3", "megha:gms=1,,lms=2"])
def test_an_architecture_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^ARCH: "):
        parse_architecture(text, "ARCH")


def test_a_parameter_cannot_be_given_twice() -> None:
    with pytest.raises(InputError, match="gives 'gms' twice"):
        parse_architecture("megha:gms=1,gms=2", "ARCH")


def test_settings_are_the_product_of_the_axes_in_the_order_of_the_fields() -> None:
    spec = study({"slots": [1, 2], "workers": [10, 20], "trace": ["a.tr"]})
    assert [(s.workers, s.slots) for s in spec.settings()] == [(10, 1), (10, 2), (20, 1), (20, 2)]
    assert spec.varying() == ("workers", "slots")
    assert point_label(next(spec.settings()), spec.varying()) == "workers=10 slots=1"


def test_axes_that_are_absent_have_their_defaults() -> None:
    assert list(study({"trace": ["a.tr"], "workers": [5]}).settings()) == [Setting(trace="a.tr", workers=5)]


def test_a_default_that_is_spelled_out_makes_no_other_study() -> None:
    spelled = study({"trace": ["a.tr"], "workers": [5], "slots": [1], "links": [{}], "jobs": [None]})
    assert spelled == study({"trace": ["a.tr"], "workers": [5]})
    assert study({"trace": ["a.tr"], "workers": [5], "slots": [1, 2]}) != spelled


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"workers": [10, 0]}, r"workers\[1\]: expected int >= 1, not 0"),
        ({"workers": [True]}, r"workers\[0\]: expected int, got bool, not True"),
        ({"workers": ["ten"]}, r"workers\[0\]: expected int, got str, not 'ten'"),
        ({"workers": []}, "workers: is missing"),
        ({"workers": [10, 10]}, r"workers\[1\]: 10 stands here twice"),
        (
            {"workers": [10], "durations": ["whole"]},
            r"durations\[0\]: there is no 'whole'; did you mean 'whole-seconds'",
        ),
        ({"workers": [10], "cutoff_s": [-1.0]}, r"cutoff_s\[0\]: expected float > 0"),
        ({"workers": [10], "delay_us": [-1]}, r"delay_us\[0\]: expected int >= 0"),
        ({"workers": [10], "links": [{"lm:node": -1}]}, r"links\[0\]: expected int >= 0"),
        ({"wrokers": [10]}, "wrokers: unknown axis; did you mean 'workers'"),
        ({"workers": [10], "slots": []}, "slots: is empty"),
    ],
)
def test_a_wrong_value_is_named_by_its_place(axes: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study({"trace": ["a.tr"], **axes})


def test_seeds_and_architectures_are_checked_like_axes() -> None:
    axes: dict[str, list[Any]] = {"trace": ["a.tr"], "workers": [5]}
    with pytest.raises(InputError, match=r"seeds\[1\]: expected int >= 0"):
        study(axes, seeds=(0, -1))
    with pytest.raises(InputError, match=r"architectures\[1\]: 'megha' stands here twice"):
        study(axes, chosen=(MEGHA, ArchitectureChoice("megha")))
    with pytest.raises(InputError, match="architectures: is empty"):
        study(axes, chosen=())


def test_synthetic_work_is_told_from_files() -> None:
    assert is_synthetic("syn:250x2000")
    assert not is_synthetic("traces/a.tr.gz")
    assert not is_synthetic("C:/traces/a.tr")
