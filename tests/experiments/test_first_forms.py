"""A claim is tested in its first form, or says why it is not; none is dropped without a word."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.experiments.test_reproduction import TEXT

from experiments.experiment import names, read_experiment
from experiments.first_forms import FIRST_FORMS, append_first_forms, read_first_forms, unexplained_changes
from experiments.records import content_sha256, read_record, record_path

FOLDER = Path(__file__).parents[2] / "experiments"


def test_every_claim_of_this_repository_equals_its_first_form_or_says_why_not() -> None:
    experiments = [read_experiment(FOLDER, name) for name in names(FOLDER)]
    assert unexplained_changes(experiments, read_first_forms(FOLDER)) == []


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

    forms = read_first_forms(tmp_path)
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
        assert unexplained_changes([msgspec.structs.replace(experiment, claim=claims)], forms) == wrong
