"""The first forms of claims: how each was tested before its result was known.

first_forms.jsonl    one line per claim that ever was in the lab book: its test, and its first verdicts
first_texts.jsonl    one line per claim: hashes of its words, its test, and the settings of the runs that judge it

Recording a claim for the first time appends its lines, and nothing edits a line. A claim that is tested, worded or run
otherwise today says why: `changed`. The file of texts is younger than most claims; what it keeps of those is of the day
when it began, and the words of `says` stand in the first forms as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from experiments.claims import Claim, Name
from experiments.experiment import Experiment, claim_id
from experiments.notation import ours
from experiments.records import Record, content_sha256, said, sha256_of

FIRST_FORMS: Final = "first_forms.jsonl"
FIRST_TEXTS: Final = "first_texts.jsonl"
WORDED: Final = ("section", "says", "sentence", "published", "measured", "ours", "any_workload", "input", "program_of")
"""The fields of a claim that tell what the source says, and what its verdict stands for."""
HASH_DIGITS: Final = 16
TESTED: Final = (
    "left", "relation", "right", "factor", "percent", "margin", "effect", "printed", "on", "populations", "averaged",
)  # fmt: skip
"""The fields of a claim that decide its verdict."""


class FirstForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first committed form of a claim; lines from the history hold more than is read here.

    Args:
        form: Tested fields that differ from their defaults.
        recorded: Date of the first record that judged the claim; empty where none did.
        gave: Verdicts of that record, one per reading, with their values and reasons.
        dropped: Date and commit since when the claim is gone.
    """

    claim: Name
    date: str
    says: str
    form: dict[str, Any]
    recorded: str = ""
    gave: tuple[dict[str, str], ...] = ()
    dropped: str = ""


class FirstText(msgspec.Struct, frozen=True):
    """A claim when it was recorded first, in hashes.

    Args:
        words: Hash of the fields `WORDED`.
        form: Hash of what `form_of` gives.
        settings: Hash of what `settings_of` gives.
        changed: Hash of the reason that it had for an earlier change; empty without one.
    """

    claim: Name
    date: str
    words: str
    form: str
    settings: str
    changed: str = ""


def form_of(claim: Claim) -> dict[str, Any]:
    """The fields of a claim that decide its verdict, without those at their defaults."""
    fields = msgspec.json.decode(msgspec.json.encode(claim))
    if not claim.effect:
        del fields["effect"]  # 0 is the effect of forms that are older than the rule on effects: they have none
    return {name: fields[name] for name in TESTED if name in fields}


def settings_of(experiment: Experiment, claim: Claim) -> dict[str, Any]:
    """What the runs that judge a claim depend on, without seeds, which may be added, and without other claims' runs."""
    of = {label for side in claim.sides for label in side.labels if label}
    on = {side.on for side in claim.sides if side.on}
    if not all(side.on for side in claim.sides):
        on |= set(claim.on) or {workload.label for workload in experiment.workload}
    at = set(claim.populations) or {population.label for population in experiment.population}
    return {
        "architectures": {label: experiment.architectures[label] for label in sorted(of)},
        "workloads": [workload for workload in experiment.workload if workload.label in on],
        "populations": [population for population in experiment.population if population.label in at],
        "network": experiment.network,
        "settled": experiment.settled,
        "unseeded": sorted(of & set(experiment.unseeded)),
    }


def text_of(experiment: Experiment, claim: Claim, date: str) -> FirstText:
    """The line of a claim in the file of texts."""
    words = {name: getattr(claim, name) for name in WORDED if getattr(claim, name)}
    name = claim_id(experiment.name, claim.id)
    settings = said(settings_of(experiment, claim))
    changed = _digest(claim.changed) if claim.changed else ""
    return FirstText(name, date, _digest(words), _digest(form_of(claim)), _digest(settings), changed)


def _digest(content: Any) -> str:
    return sha256_of(content)[:HASH_DIGITS]


def read_first_texts(folder: Path) -> dict[str, FirstText]:
    """The first texts by claim; empty where the folder has no such file."""
    path = folder / FIRST_TEXTS
    lines = path.read_bytes().splitlines() if path.exists() else []
    texts = [msgspec.json.decode(line, type=FirstText) for line in lines]
    return {text.claim: text for text in texts}


def read_first_forms(folder: Path) -> dict[str, FirstForm]:
    """The first forms by claim; empty where the folder has no such file."""
    path = folder / FIRST_FORMS
    lines = path.read_bytes().splitlines() if path.exists() else []
    forms = [msgspec.json.decode(line, type=FirstForm) for line in lines]
    return {form.claim: form for form in forms}


def append_first_forms(folder: Path, experiment: Experiment, record: Record) -> list[str]:
    """Append the first forms and texts of the claims that a record judges for the first time, and return their ids."""
    if record.experiment_sha256 != content_sha256(experiment):
        return []  # the experiment changed since: the judged forms may be others

    known_claims, known_texts = read_first_forms(folder), read_first_texts(folder)
    date = record.judged or record.date
    new_forms, new_texts = [], []
    for claim in experiment.claim:
        name, judgements = claim_id(experiment.name, claim.id), record.judgements_of(claim.id)
        if judgements and name not in known_texts:
            new_texts.append(text_of(experiment, claim, date))
        if judgements and name not in known_claims:
            verdicts = tuple(
                {
                    "verdict": judgement.verdict,
                    "ours": "; ".join(ours(claim, judgement)),
                    "why": judgement.why,
                    "reading": judgement.reading,
                }
                for judgement in judgements
            )
            new_forms.append(FirstForm(name, date, claim.says, form_of(claim), date, verdicts))

    for name, lines in ((FIRST_FORMS, new_forms), (FIRST_TEXTS, new_texts)):
        with (folder / name).open("ab") as file:
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    return [form.claim for form in new_forms]


def unexplained_changes(
    experiments: Sequence[Experiment], forms: Mapping[str, FirstForm], texts: Mapping[str, FirstText]
) -> list[str]:
    """The claims that are not what they were at first and do not say why, or the reverse, and those that are gone."""
    claims = {
        claim_id(experiment.name, claim.id): (experiment, claim)
        for experiment in experiments
        for claim in experiment.claim
    }
    silent = [
        name
        for name, (experiment, claim) in claims.items()
        if not _is_explained(experiment, claim, forms.get(name), texts.get(name))
    ]
    return silent + [name for name, form in forms.items() if name not in claims and not form.dropped]


def _is_explained(experiment: Experiment, claim: Claim, form: FirstForm | None, text: FirstText | None) -> bool:
    """Return true if a claim is what it was at first, or says why not; a further change needs a further reason."""
    has_changed = form is not None and (form_of(claim) != form.form or claim.says != form.says)
    if text is not None:
        now = text_of(experiment, claim, text.date)
        if (now.words, now.form, now.settings) != (text.words, text.form, text.settings):
            return bool(claim.changed) and now.changed != text.changed
    return bool(claim.changed) == has_changed
