"""The first forms of claims: how each was tested before its result was known.

first_forms.jsonl holds one line per claim that ever was in the lab book, with its first verdicts. Recording a claim for
the first time appends its line, and nothing edits a line. A claim that is tested otherwise today says why: `changed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from experiments.claims import Claim, Name
from experiments.experiment import Experiment, claim_id
from experiments.notation import ours
from experiments.records import Record, content_sha256

FIRST_FORMS: Final = "first_forms.jsonl"
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


def form_of(claim: Claim) -> dict[str, Any]:
    """The fields of a claim that decide its verdict, without those at their defaults."""
    fields = msgspec.json.decode(msgspec.json.encode(claim))
    if not claim.effect:
        del fields["effect"]  # 0 is the effect of forms that are older than the rule on effects: they have none
    return {name: fields[name] for name in TESTED if name in fields}


def read_first_forms(folder: Path) -> dict[str, FirstForm]:
    """The first forms by claim; empty where the folder has no such file."""
    path = folder / FIRST_FORMS
    lines = path.read_bytes().splitlines() if path.exists() else []
    forms = [msgspec.json.decode(line, type=FirstForm) for line in lines]
    return {form.claim: form for form in forms}


def append_first_forms(folder: Path, experiment: Experiment, record: Record) -> list[str]:
    """Append the first forms of the claims that a record judges for the first time, and return their ids."""
    if record.experiment_sha256 != content_sha256(experiment):
        return []  # the experiment changed since: the judged forms may be others

    known_claims = read_first_forms(folder)
    date = record.judged or record.date
    new_forms = []
    for claim in experiment.claim:
        name, judgements = claim_id(experiment.name, claim.id), record.judgements_of(claim.id)
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

    with (folder / FIRST_FORMS).open("ab") as file:
        file.writelines(msgspec.json.encode(form) + b"\n" for form in new_forms)
    return [form.claim for form in new_forms]


def unexplained_changes(experiments: Sequence[Experiment], forms: Mapping[str, FirstForm]) -> list[str]:
    """The claims that differ from their first form without a word or the reverse, and those gone without a word."""
    claims = {claim_id(experiment.name, claim.id): claim for experiment in experiments for claim in experiment.claim}
    silent = [
        name
        for name, claim in claims.items()
        if bool(claim.changed) != (name in forms and form_of(claim) != forms[name].form)
    ]
    return silent + [name for name, form in forms.items() if name not in claims and not form.dropped]
