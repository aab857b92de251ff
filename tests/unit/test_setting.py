"""The setting is declared once: files, command line and Python have the same fields with the same defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Required, Union, Unpack, get_args, get_origin, get_type_hints

import msgspec
import pytest
import typer
from tests.comparison import compare

from volery.cli.main import app
from volery.core.errors import InputError
from volery.setting import DECLARED, Setting, SettingFields, StudyOptions, option_of
from volery.study import compare_spec, study_from_tables
from volery.study.file import TABLES

FIELDS = msgspec.structs.fields(Setting)
OPTIONS: dict[str, Any] = {
    one.opts[-1]: one
    for one in typer.main.get_command(app).commands["compare"].params  # type: ignore[attr-defined]  # typer makes a group
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_field_has_a_meaning_that_is_a_phrase_with_a_full_stop(name: str) -> None:
    meaning = DECLARED[name]["meaning"]
    assert meaning[:1].isupper()
    assert meaning.endswith(".")


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field_is_an_option_with_its_form_group_and_default(field: msgspec.structs.FieldInfo) -> None:
    declared = DECLARED[field.name]
    if not declared["form"]:
        assert option_of(field.name) not in OPTIONS
        return
    option = OPTIONS[option_of(field.name)]
    assert (option.metavar, option.help) == (declared["form"], declared["meaning"])
    assert option.required == field.required
    if isinstance(field.default, str | int) and field.name != "delay_us":
        assert option.default == field.default


def test_the_options_without_a_group_are_few() -> None:
    first = [name for name, option in OPTIONS.items() if not option.rich_help_panel and name.startswith("--")]
    assert {"--trace", "--workers", "--seeds", "--output", "--json"} <= set(first)
    assert len(first) == 10


def test_python_takes_every_field() -> None:
    required = {field.name for field in msgspec.structs.fields(Setting) if field.required}
    assert set(Setting.__struct_fields__) == set(SettingFields.__annotations__)
    hints = get_type_hints(SettingFields, include_extras=True)
    assert required == {name for name, hint in hints.items() if get_origin(hint) is Required}
    assert get_type_hints(compare)["setting"] == Unpack[SettingFields]


def test_a_study_file_has_a_table_for_every_field() -> None:
    assert set(Setting.__struct_fields__) == set(TABLES["workload"]) | set(TABLES["network"])
    assert set(TABLES["study"]) | {"architectures", "seeds"} == set(StudyOptions.__struct_fields__)


def test_the_same_setting_is_the_same_study_from_a_file_and_from_python() -> None:
    table = tomllib.loads("""
        [workload]
        trace = "syn:5x6"
        workers = 60
        estimates = "f:3"
        [network]
        links = { "lm:node" = 1000 }
        [axes]
        architectures = ["megha", "oracle"]
    """)
    written = study_from_tables(table, Path(), "study", "comparison")
    setting = {"trace": "syn:5x6", "workers": 60, "estimates": "f:3", "links": {"lm:node": 1000}}
    assert written == compare_spec(["megha", "oracle"], setting, 1)


def test_a_field_that_does_not_exist_is_refused_by_its_name() -> None:
    setting: Any = {"trace": "syn:5x6", "workers": 60, "estimate": "f:3"}
    with pytest.raises(InputError, match=r"unknown axis.*estimates"):
        compare("megha", **setting)


def plain(hint: Any) -> Any:
    """A type without limits and without paths; a table of anything is one."""
    if get_origin(hint) in (Annotated, Required):
        return plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        kinds = frozenset(plain(one) for one in get_args(hint)) - {Path}
        return next(iter(kinds)) if len(kinds) == 1 else kinds
    if get_origin(hint) in (dict, Mapping):
        value = plain(get_args(hint)[1])
        return Mapping, "anything" if value is Any or value == (Mapping, "anything") else value
    return (Sequence, plain(get_args(hint)[0])) if get_origin(hint) in (list, Sequence) else hint


def test_type_checkers_know_every_field_as_it_is_declared() -> None:
    hints = get_type_hints(SettingFields, include_extras=True)
    assert {name: get_origin(hint) is Required for name, hint in hints.items()} == {
        field.name: field.required for field in FIELDS
    }
    assert {name: plain(hint) for name, hint in hints.items()} == {field.name: plain(field.type) for field in FIELDS}


def test_python_takes_paths_tuples_and_any_mapping() -> None:
    found = compare(
        "oracle", trace="syn:5x6", workers=60, links=MappingProxyType({"oracle:node": 5}), window=("0%", 5), load=None
    )
    assert found.study.axes["window"] == (["0%", 5],)
    assert found.study.axes["links"] == ({"oracle:node": 5},)
