"""Names, parameters and configuration of designs."""

from __future__ import annotations

import re

import pytest

from volery.architectures import REGISTRY, configure, lookup, names, parameters, registry
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.pigeon import PigeonConfig
from volery.core.errors import InputError


def test_the_registry_has_the_designs_that_the_papers_describe() -> None:
    assert {"megha", "central", "oracle", "pigeon", "pigeonc", "sparrow", "hawk", "eagle"} <= set(names())
    assert all(registry()[name].name == name for name in REGISTRY)


def test_an_unknown_design_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="there is no 'mega'; did you mean 'megha'"):
        lookup("mega")


def test_an_unknown_parameter_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="pigeon:wieght: there is no such parameter; did you mean 'weight'"):
        configure(lookup("pigeon"), {"wieght": "3"})


@pytest.mark.parametrize(
    ("design", "name", "value"),
    [
        ("megha", "gms", "0"),
        ("megha", "gms", "several"),
        ("megha", "heartbeat_s", "-1"),
        ("pigeon", "weight", "-2"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(design: str, name: str, value: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"{design}:{name}: {value!r} does not fit")):
        configure(lookup(design), {name: value})


def test_a_word_that_is_none_of_the_values_gets_a_suggestion_or_all_of_them() -> None:
    known = "megha:match: 'qqq' is not one of its values; known are best-fit, first, min-constraints, random"
    with pytest.raises(InputError, match=known):
        configure(lookup("megha"), {"match": "qqq"})
    with pytest.raises(InputError, match="'published' is not one of its values; did you mean 'published-code'"):
        configure(lookup("pigeonc"), {"constraint_counting": "published"})


def test_text_is_read_as_the_parameters_type() -> None:
    config = configure(lookup("megha"), {"gms": "3", "eager_retry": "false", "heartbeat_s": "0.5"})
    assert isinstance(config, MeghaConfig)
    assert (config.gms, config.eager_retry, config.heartbeat_s, config.lms) == (3, False, 0.5, 5)


def test_presets_keep_their_own_defaults() -> None:
    config = configure(lookup("pigeonc"), {"weight": "7"})
    assert isinstance(config, PigeonConfig)
    assert (config.reserved, config.distribution, config.weight) == (0, "supply", 7)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_parameter_is_described_and_its_default_is_valid(name: str) -> None:
    design = lookup(name)
    for parameter in parameters(design):
        assert parameter.description
        configure(design, {parameter.name: parameter.default})
