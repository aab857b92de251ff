"""A claim is tested in its first form, or says why it is not; none is dropped without a word."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.experiments.test_reproduction import TEXT

from experiments.experiment import claim_id, names, read_experiment
from experiments.first_forms import (
    FIRST_FORMS,
    FirstForm,
    append_first_forms,
    form_of,
    read_first_forms,
    read_first_texts,
    text_of,
    unexplained_changes,
)
from experiments.records import content_sha256, read_record, record_path

FOLDER = Path(__file__).parents[2] / "experiments"


def test_every_claim_of_this_repository_equals_its_first_form_or_says_why_not() -> None:
    experiments = [read_experiment(FOLDER, name) for name in names(FOLDER)]
    assert unexplained_changes(experiments, read_first_forms(FOLDER), read_first_texts(FOLDER)) == []


def test_every_recorded_claim_of_this_repository_has_its_first_form_and_text() -> None:
    forms, texts = read_first_forms(FOLDER), read_first_texts(FOLDER)
    for name in names(FOLDER):
        record = read_record(record_path(FOLDER, name))
        judged = {claim_id(name, judgement.claim) for judgement in record.judgements} if record is not None else set()
        here = {claim_id(name, claim.id) for claim in read_experiment(FOLDER, name).claim}
        assert judged & here <= forms.keys() & texts.keys(), f"`python -m experiments judge {name}` appends them"


def test_a_change_without_a_word_a_word_without_a_change_and_a_lost_claim_are_found(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TEXT, encoding="utf-8")
    experiment = read_experiment(tmp_path, "small")
    judged = read_record(record_path(FOLDER, "osdi2016_solver"))
    assert judged is not None
    judgements = tuple(msgspec.structs.replace(judged.judgements[0], claim=claim.id) for claim in experiment.claim)
    record = msgspec.structs.replace(judged, experiment_sha256=content_sha256(experiment), judgements=judgements)

    assert append_first_forms(tmp_path, experiment, msgspec.structs.replace(record, experiment_sha256="other")) == []
    assert append_first_forms(tmp_path, experiment, record) == [f"small/{claim.id}" for claim in experiment.claim]
    lines = (tmp_path / FIRST_FORMS).read_bytes()
    assert append_first_forms(tmp_path, experiment, record) == []
    assert (tmp_path / FIRST_FORMS).read_bytes() == lines

    forms, texts = read_first_forms(tmp_path), read_first_texts(tmp_path)
    assert forms.keys() == texts.keys()
    weaker = msgspec.structs.replace(experiment.claim[0], factor=0.5)
    explained = msgspec.structs.replace(weaker, changed="the figure was misread")
    chatty = msgspec.structs.replace(experiment.claim[1], changed="for nothing")
    for claims, wrong in (
        (experiment.claim, []),
        ((weaker, *experiment.claim[1:]), ["small/three-hops"]),
        ((explained, *experiment.claim[1:]), []),
        ((experiment.claim[0], chatty, experiment.claim[2]), ["small/impossible"]),
        (experiment.claim[:2], ["small/everywhere"]),
    ):
        assert unexplained_changes([msgspec.structs.replace(experiment, claim=claims)], forms, texts) == wrong


@pytest.mark.parametrize(
    ("old", "new", "silent"),
    [
        ('says = "Load is positive."', 'says = "There is load."', ["small/everywhere"]),
        ('published = "above 0"', 'published = "at least 0"', ["small/everywhere"]),
        ('id = "impossible"\nsection = "6"', 'id = "impossible"\nsection = "7"', ["small/impossible"]),
        ('m = "megha"', 'm = "megha:match=random"', ["small/three-hops", "small/impossible"]),
        ('p = { exact = "pigeonc:groups=3"', 'p = { exact = "pigeonc:groups=4"', ["small/three-hops"]),
        ('stands_for = "the whole trace"', 'stands_for = "half of it"', ["small/everywhere"]),
        ("seed = 3", "seed = 4", ["small/three-hops", "small/impossible", "small/everywhere"]),
        (
            "[[population]]",
            "[network]\ndelay_us = 1\n\n[[population]]",
            ["small/three-hops", "small/impossible", "small/everywhere"],
        ),
        ("seeds = [0, 1]", "seeds = [0, 1, 2]", []),
        ('title = "a small one"', 'title = "another title"', []),
        ("[architectures]", '[architectures]\nother = "oracle"', []),
    ],
)
def test_words_and_settings_that_change_after_the_first_record_need_a_word(
    tmp_path: Path, old: str, new: str, silent: list[str]
) -> None:
    (tmp_path / "small.toml").write_text(TEXT, encoding="utf-8")
    experiment = read_experiment(tmp_path, "small")
    forms = {
        f"small/{claim.id}": FirstForm(f"small/{claim.id}", "", claim.says, form_of(claim))
        for claim in experiment.claim
    }
    texts = {f"small/{claim.id}": text_of(experiment, claim, "2026-01-01") for claim in experiment.claim}
    assert unexplained_changes([experiment], forms, texts) == []
    assert old in TEXT
    (tmp_path / "small.toml").write_text(TEXT.replace(old, new), encoding="utf-8")
    assert unexplained_changes([read_experiment(tmp_path, "small")], forms, texts) == silent
    explained = TEXT.replace(old, new).replace("right = 0\n", 'right = 0\nchanged = "why"\n')
    (tmp_path / "small.toml").write_text(explained, encoding="utf-8")
    assert "small/everywhere" not in silent or "small/everywhere" not in unexplained_changes(
        [read_experiment(tmp_path, "small")], forms, texts
    )


def test_a_claim_that_was_changed_before_needs_another_word_for_a_further_change(tmp_path: Path) -> None:
    once = TEXT.replace("right = 1\n", 'right = 0.5\nchanged = "the figure was misread"\n')
    (tmp_path / "small.toml").write_text(once, encoding="utf-8")
    experiment = read_experiment(tmp_path, "small")
    texts = {f"small/{claim.id}": text_of(experiment, claim, "2026-01-01") for claim in experiment.claim}
    forms = {"small/impossible": FirstForm("small/impossible", "", "Utilisation is above one.", {"right": 1.0})}
    assert unexplained_changes([experiment], forms, texts) == []
    twice = once.replace("right = 0.5", "right = 0.4")
    for text, silent in ((twice, ["small/impossible"]), (twice.replace("misread", "misread twice"), [])):
        (tmp_path / "small.toml").write_text(text, encoding="utf-8")
        assert unexplained_changes([read_experiment(tmp_path, "small")], forms, texts) == silent
