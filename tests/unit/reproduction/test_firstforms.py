"""A claim cannot be changed, edited in the history or dropped without a word."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from volery.core.errors import InputError
from volery.reproduction.claims import Claim, ClaimCase, Judgement, Quantity, Side, Verdict
from volery.reproduction.experiments import Experiment, names, read_experiment
from volery.reproduction.firstforms import (
    FIRST_FORMS,
    FirstForm,
    append_first_forms,
    changes_rows,
    check_first_forms,
    differences,
    first_words,
    follows_the_rule,
    form_of,
    form_text,
    read_first_forms,
    rule_lines,
    sealed,
    setting_lines,
)
from volery.reproduction.ledger import Record, content_sha256, read_record, record_path

FOLDER = Path(__file__).parents[3] / "experiments"
EXTRACTED = 637
"""So many first forms were taken from the history of this repository; the lines after them were appended."""
EXTRACTED_SHA256 = "180dd8a4cc69ecf1b267526d8e64a9c652a976d881f82b768de75418237eadbd"
CLAIM = Claim(
    "waits", "6", "Jobs wait less.", "picture", Side("delay_s.p50", "a"), "<=", Side("delay_s.p50", "b"), factor=0.5
)


def experiment(*claims: Claim) -> Experiment:
    """One workload, two architectures."""
    told = {
        "title": "a small one",
        "paper": "test",
        "figure": "Figure 0",
        "quick": {"jobs": 3},
        "workload": [{"label": "w", "trace": "w.tr", "workers": 30}],
        "population": [{"label": "0"}],
        "claim": [],
        "architectures": {"a": "megha", "b": "pigeon"},
        "name": "small",
    }
    return msgspec.convert({**told, "claim": [msgspec.to_builtins(claim) for claim in claims]}, Experiment)


def record(of: Experiment, *claims: str) -> Record:
    """Judgements of claims, each on one case; of all claims where none is named."""
    sides = (Quantity("a", "w", 2.0, 1.9, 2.1), Quantity("b", "w", 3.0, 2.9, 3.1))
    judgements = [
        Judgement(one, "", "differs", "", (ClaimCase("w", "0", "differs", *sides),))
        for one in claims or [claim.id for claim in of.claim]
    ]
    return Record(
        experiment="small", title="a small one", figure="Figure 0", experiment_sha256=content_sha256(of),
        code_sha256="", volery_version="0", digest="", date="2026-11-22", quick=False, complete=True, runs=1, planned=1,
        seeds=(0,), populations=("0",), missing=(), judgements=tuple(judgements), facts=(),
    )  # fmt: skip


def append(folder: Path, form: FirstForm) -> None:
    """Append a line that fits the lines before it."""
    path = folder / FIRST_FORMS
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with path.open("ab") as file:
        file.write(msgspec.json.encode(sealed(msgspec.structs.replace(form, lines_sha256=before))) + b"\n")


@pytest.fixture
def forms(tmp_path: Path) -> dict[str, FirstForm]:
    """The first form of the claim, appended to a file and read again."""
    assert append_first_forms(tmp_path, experiment(CLAIM), record(experiment(CLAIM))) == ["small/waits"]
    return read_first_forms(tmp_path)


def test_the_first_record_of_a_claim_appends_its_form_once(tmp_path: Path, forms: dict[str, FirstForm]) -> None:
    first = forms["small/waits"]
    assert first.form == {
        "left": {"metric": "delay_s.p50", "of": "a"},
        "relation": "<=",
        "right": {"metric": "delay_s.p50", "of": "b"},
        "factor": 0.5,
    }
    assert first.gave[0].verdict == "differs"
    assert first.gave[0].ours.startswith("2.00 s")
    assert first.setting.architectures == {"a": "megha", "b": "pigeon"}
    before = (tmp_path / FIRST_FORMS).read_bytes()
    changed = msgspec.structs.replace(CLAIM, factor=0.9)
    assert append_first_forms(tmp_path, experiment(changed), record(experiment(changed))) == []
    assert (tmp_path / FIRST_FORMS).read_bytes() == before
    other = msgspec.structs.replace(CLAIM, id="later")
    both = experiment(changed, other)
    assert append_first_forms(tmp_path, both, record(experiment(changed), "waits", "later")) == []
    assert append_first_forms(tmp_path, both, record(both)) == ["small/later"]
    assert (tmp_path / FIRST_FORMS).read_bytes().startswith(before)


def test_a_claim_changed_without_a_word_is_refused(forms: dict[str, FirstForm]) -> None:
    weaker = msgspec.structs.replace(CLAIM, factor=0.9)
    with pytest.raises(InputError, match=r"small.claim\[0\].changed: is missing: .*factor was 0.5, is 0.9.*restore"):
        check_first_forms(forms, [experiment(weaker)], {})
    told = msgspec.structs.replace(weaker, changed="the figure was misread")
    check_first_forms(forms, [experiment(told)], {})
    check_first_forms(forms, [experiment(CLAIM)], {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left", Side("delay_s.p90", "a")), ("relation", "<"), ("right", 3.0), ("factor", 0.51), ("percent", 1.0),
        ("margin", 0.1), ("effect", 1.0), ("printed", "0.5"), ("on", ("w",)), ("populations", ("0",)),
        ("averaged", True),
    ],
)  # fmt: skip
def test_every_field_that_decides_a_verdict_is_held(forms: dict[str, FirstForm], field: str, value: object) -> None:
    changed = msgspec.structs.replace(CLAIM, **{field: value})
    assert differences(forms["small/waits"].form, form_of(changed))[0].startswith(f"{field} was ")
    with pytest.raises(InputError, match="is missing"):
        check_first_forms(forms, [experiment(changed)], {})


def test_words_about_a_claim_may_change(forms: dict[str, FirstForm]) -> None:
    reworded = msgspec.structs.replace(CLAIM, says="Half as long.", note="in short", sentence="Half.", section="7")
    check_first_forms(forms, [experiment(reworded)], {})


def test_a_reason_without_a_change_is_refused(forms: dict[str, FirstForm]) -> None:
    told = msgspec.structs.replace(CLAIM, changed="rule")
    with pytest.raises(InputError, match="is tested in its first form; leave it out"):
        check_first_forms(forms, [experiment(told)], {})
    with pytest.raises(InputError, match="no first form that it could differ from"):
        check_first_forms({}, [experiment(told)], {})


def test_a_dropped_claim_is_asked_back(forms: dict[str, FirstForm]) -> None:
    other = msgspec.structs.replace(CLAIM, id="other")
    with pytest.raises(InputError, match=r"small.claim: waits: .*no longer in the ledger.*delay_s.p50 of a <= 0.5"):
        check_first_forms(forms, [experiment(other)], {})
    marked = {"small/waits": msgspec.structs.replace(forms["small/waits"], dropped="2026-11-21 abc1234")}
    check_first_forms(marked, [experiment(other)], {})


def test_a_recorded_claim_without_a_first_form_is_found(forms: dict[str, FirstForm]) -> None:
    claims = experiment(CLAIM, msgspec.structs.replace(CLAIM, id="new"))
    check_first_forms(forms, [claims], {"small": record(claims, "waits")})
    with pytest.raises(
        InputError, match="'new' has a record and no first form; `volery reproduce small --judge` adds it"
    ):
        check_first_forms(forms, [claims], {"small": record(claims)})


def test_a_claim_that_is_called_first_is_the_first_form(forms: dict[str, FirstForm]) -> None:
    told = msgspec.structs.replace(CLAIM, factor=0.9, changed="misread")
    back = msgspec.structs.replace(CLAIM, id="waits-first")
    check_first_forms(forms, [experiment(told, back)], {})
    other = msgspec.structs.replace(back, factor=0.6)
    with pytest.raises(InputError, match=r"'waits-first' is not the first form of small/waits, which is: .*0.5"):
        check_first_forms(forms, [experiment(told, other)], {})
    named_so_at_first = msgspec.structs.replace(forms["small/waits"], claim="small/waits-first", commit="abc1234")
    check_first_forms({**forms, "small/waits-first": named_so_at_first}, [experiment(told, back)], {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"factor":0.5', '"factor":0.9'),
        ('"verdict":"differs"', '"verdict":"reproduced"'),
        ("Jobs wait less.", "Jobs wait."),
        ("2026-11-22", "2026-11-20"),
        ('"a":"megha"', '"a":"oracle"'),
    ],
)
def test_an_edited_first_form_is_found(tmp_path: Path, forms: dict[str, FirstForm], old: str, new: str) -> None:
    path = tmp_path / FIRST_FORMS
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(
        InputError, match=r"first_forms.jsonl:1: the first form of 'small/waits' does not fit .*Restore"
    ):
        read_first_forms(tmp_path)


@pytest.mark.parametrize("line", ["{", "[]", '{"claim": "x"}', '{"claim": "x", "unknown": 1}'])
def test_a_damaged_line_is_told_with_its_place(tmp_path: Path, forms: dict[str, FirstForm], line: str) -> None:
    with (tmp_path / FIRST_FORMS).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match=r"first_forms.jsonl:2: is no first form: .*; restore the line as it was"):
        read_first_forms(tmp_path)


def test_a_second_first_form_is_refused(tmp_path: Path, forms: dict[str, FirstForm]) -> None:
    easier = {**forms["small/waits"].form, "factor": 0.9}
    append(tmp_path, msgspec.structs.replace(forms["small/waits"], form=easier))
    with pytest.raises(InputError, match=r"jsonl:2: the first form of 'small/waits' is told a second time"):
        read_first_forms(tmp_path)


def test_a_line_edited_with_its_hash_does_not_fit_the_lines_after_it(
    tmp_path: Path, forms: dict[str, FirstForm]
) -> None:
    other = experiment(CLAIM, msgspec.structs.replace(CLAIM, id="later"))
    append_first_forms(tmp_path, other, record(other))
    path = tmp_path / FIRST_FORMS
    first, later = path.read_bytes().splitlines(keepends=True)
    easier = sealed(msgspec.structs.replace(forms["small/waits"], says="Jobs wait."))
    edited = msgspec.json.encode(easier) + b"\n"
    unchained = msgspec.json.decode(later, type=FirstForm)
    for lines in (edited + later, later, edited + rewritten(unchained, lines_sha256="")):
        path.write_bytes(lines)
        with pytest.raises(InputError, match=r"first_forms.jsonl:\d: .*'small/later' does not fit the lines before it"):
            read_first_forms(tmp_path)
    path.write_bytes(first + later)
    assert list(read_first_forms(tmp_path)) == ["small/waits", "small/later"]


def rewritten(form: FirstForm, **fields: str) -> bytes:
    """A line with other fields and a hash that fits them."""
    return msgspec.json.encode(sealed(msgspec.structs.replace(form, **fields))) + b"\n"


def test_a_line_without_the_hash_of_those_before_it_is_refused(tmp_path: Path, forms: dict[str, FirstForm]) -> None:
    (tmp_path / FIRST_FORMS).write_bytes(rewritten(forms["small/waits"], lines_sha256=""))
    with pytest.raises(InputError, match=r"first_forms.jsonl:1: .*does not fit the lines before it"):
        read_first_forms(tmp_path)


def test_a_claim_that_came_after_a_result_is_told(tmp_path: Path, forms: dict[str, FirstForm]) -> None:
    later = msgspec.structs.replace(CLAIM, id="later")
    back = msgspec.structs.replace(CLAIM, id="waits-first")
    both = experiment(CLAIM, later, back)
    judged = msgspec.structs.replace(record(both), judged="2026-12-01")
    append_first_forms(tmp_path, both, judged)
    known = read_first_forms(tmp_path)
    differs = judged.judgements[1]
    words = ["Added on 2026-12-01, after the experiment's first record (2026-11-22)"]
    assert first_words(both, later, differs, known) == words
    assert first_words(both, CLAIM, differs, known) == []
    assert first_words(both, back, differs, known) == []


@pytest.mark.parametrize("verdict", ["reproduced", "fails on a stand-in", "by construction"])
def test_a_first_verdict_is_told_beside_another_one(forms: dict[str, FirstForm], verdict: Verdict) -> None:
    """A workload marked as a stand-in afterwards, a chosen input, another workload under a label: all show here."""
    now = Judgement("waits", "", verdict, "", ())
    assert first_words(experiment(CLAIM), CLAIM, now, forms) == ["First record (2026-11-22): differs"]
    assert first_words(experiment(CLAIM), CLAIM, None, forms) == ["First record (2026-11-22): differs"]


RULED = {"left": {"metric": "m", "of": "a"}, "relation": "<", "right": {"metric": "m", "of": "b"}, "factor": 0.5}


@pytest.mark.parametrize(
    ("first", "now", "follows"),
    [
        ({}, {"relation": "<="}, True),
        ({"factor": 0.5}, {"factor": 1.0, "effect": 50.0}, True),
        ({"factor": 0.5}, {"factor": 1.0, "effect": 40.0}, False),
        ({}, {"factor": 0.6}, False),
        ({}, {"factor": 0.4}, True),
        ({"relation": ">"}, {"relation": ">", "factor": 0.45}, False),
        ({}, {"relation": ">"}, False),
        ({}, {"on": ["w"]}, False),
        ({}, {"left": {"metric": "m", "of": "c"}}, False),
        ({}, {"relation": "about", "factor": 0.7, "printed": "0.7"}, True),
        ({}, {"relation": "about", "right": 3.0, "printed": "3"}, False),
        ({"relation": "within", "percent": 5.0}, {"relation": "within", "percent": 2.0}, True),
        ({"relation": "within", "percent": 5.0}, {"relation": "within", "percent": 10.0}, False),
        ({"relation": "<="}, {"relation": "within", "percent": 5.0}, False),
    ],
)
def test_the_rule_stands_for_no_more_than_the_rule(
    first: dict[str, object], now: dict[str, object], follows: bool
) -> None:
    assert follows_the_rule(RULED | first, RULED | now) == follows


def test_a_claim_younger_than_the_rules_cannot_name_them(forms: dict[str, FirstForm]) -> None:
    narrower = experiment(msgspec.structs.replace(CLAIM, factor=0.4, changed="rule"))
    with pytest.raises(InputError, match=r"claim\[0\].changed: 'rule' stands for .*factor was 0.5, is 0.4. Say why"):
        check_first_forms(forms, [narrower], {})
    old = {"small/waits": msgspec.structs.replace(forms["small/waits"], commit="abc1234")}
    check_first_forms(old, [narrower], {})
    assert rule_lines(narrower, old) == ["factor was 0.5, is 0.4; gave *differs*: `waits`"]
    assert list(changes_rows(narrower, old)) == []


def test_a_claim_that_brings_nothing_back_is_not_called_first(forms: dict[str, FirstForm]) -> None:
    alone = experiment(CLAIM, msgspec.structs.replace(CLAIM, id="other-first"))
    with pytest.raises(InputError, match="'other-first' is the first form of no claim; give it an id without '-first'"):
        check_first_forms(forms, [alone], {})


def test_the_page_tells_what_it_was_what_it_gave_and_why(forms: dict[str, FirstForm]) -> None:
    told = msgspec.structs.replace(CLAIM, factor=0.9, changed="the figure was misread")
    back = msgspec.structs.replace(CLAIM, id="waits-first")
    moved = msgspec.structs.replace(experiment(told, back), architectures={"a": "megha", "b": "pigeon:weight=5"})
    ((claim, first, gave, why),) = changes_rows(moved, forms)
    assert claim == "waits"
    assert "`delay_s.p50 of a <= 0.5 \u00d7 that of b`" in first
    assert "2026-11-22" in first
    assert gave.startswith("differs (2.00 s")
    assert why == "the figure was misread; back as `waits-first`"
    assert setting_lines(moved, forms) == ["b was `pigeon`"]
    assert list(changes_rows(experiment(CLAIM), forms)) == []


def test_the_ledger_of_this_repository_fits_its_first_forms() -> None:
    experiments = [read_experiment(FOLDER, name) for name in names(FOLDER)]
    records = {name: read_record(record_path(FOLDER, name)) for name in names(FOLDER)}
    check_first_forms(read_first_forms(FOLDER), experiments, records)


def test_the_first_forms_from_the_history_are_those_that_were_extracted() -> None:
    """A line that was edited with its hash, or removed, shows here."""
    lines = (FOLDER / FIRST_FORMS).read_bytes().splitlines(keepends=True)
    assert hashlib.sha256(b"".join(lines[:EXTRACTED])).hexdigest() == EXTRACTED_SHA256


@pytest.mark.parametrize(
    ("claim", "form", "gave"),
    [
        ("omega2013_section5_1/one-bears", "wait_first_s.mean of one_8 <= 30.0 s", "27.1 s (18.8 s to 37.8 s)"),
        ("omega2013_section5_1/three-bear-20", "of three_20 <= 30.0 s", "46.4 s (37.1 s to 51.2 s)"),
        ("omega2013_section6/max-gains", "of max_parallelism <= 0.667 \u00d7 that of normal", "318 s"),
        ("omega2013_section4_1/omega-service", "of omega_10 <= that of multi_10", "not decidable"),
        ("nsdi2019_scaling/two-twice", "makespan_s of two <= 0.55 \u00d7 that of one", "not decidable"),
        ("nsdi2019_megha/late-binding", "of hydra_at_once <= that of pigeon", "differs (162 s against 29.2 s"),
        ("eurosys2010_sticky_slots/sticky-5", "6 percentage points", "54.4 % (52.9 % to 55.5 %) against 48.8 %"),
        (
            "omega2013_section4_2/batch-attempts",
            "of mesos_10 >= 3 \u00d7 that of multi_10",
            "764 attempts against 3 x 743",
        ),
        ("eurosys2016_ablations/all", "", "loads of 0.9 and 1.1"),
    ],
)
def test_the_claims_that_an_audit_found_changed_have_their_first_form(claim: str, form: str, gave: str) -> None:
    forms = read_first_forms(FOLDER)
    if claim.endswith("/all"):
        found = [one for name, one in forms.items() if one.commit and name.startswith(claim.removesuffix("all"))]
        assert len(found) == 7
        assert all("het_110" in one.setting.workloads and gave in one.note for one in found)
        return
    first = forms[claim]
    assert form in form_text(first.form)
    assert gave in f"{'; '.join(f'{one.verdict} ({one.ours})' for one in first.gave)} {first.note}"
