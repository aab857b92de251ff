"""The changes of an experiment's claims since they were first committed, as rows and lines of docs/papers.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from volery.reproduction.claims import Claim, Judgement
from volery.reproduction.demands import FIRST
from volery.reproduction.experiments import Experiment
from volery.reproduction.firstforms import (
    RULE,
    FirstForm,
    came_back,
    claim_id,
    differences,
    form_of,
    form_text,
    judged_text,
    workload_setting,
)

UNNAMED: Final = ("printed",)
"""Fields that differ from claim to claim where a rule changed them all, and that the claim shows anyway."""


def changes_rows(experiment: Experiment, forms: Mapping[str, FirstForm]) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the table of changed and dropped claims: claim, first form, what it gave, and why it was changed.

    Claims that only the rules of the ledger changed are left out (see `rule_lines`).
    """
    present = {claim.id: claim for claim in experiment.claim}
    for name, form in forms.items():
        head, _, short = name.partition("/")
        if head != experiment.name:
            continue
        claim = present.get(short)
        if claim is None or (claim.changed != RULE and differences(form.form, form_of(claim))):
            first = f"{form.says}<br>`{form_text(form)}`<br>{_committed(form)}"
            yield short, first, _gave(form), _why(short, claim, form, present)


def rule_lines(experiment: Experiment, forms: Mapping[str, FirstForm]) -> list[str]:
    """Lines about claims that the rules of the ledger changed: in what, and the first verdicts of these claims."""
    found: dict[str, list[str]] = {}
    for claim in experiment.claim:
        form = forms.get(claim_id(experiment.name, claim.id))
        if form is not None and claim.changed == RULE:
            what = differences(form.form, form_of(claim), leave_out=UNNAMED)
            gave = " and ".join(dict.fromkeys(f"*{one.verdict}*" for one in form.gave))
            line = "; ".join((*what, f"gave {gave}" if gave else "never recorded"))
            found.setdefault(line, []).append(f"`{claim.id}`")
    return [f"{line}: {', '.join(claims)}" for line, claims in found.items()]


def first_words(
    experiment: Experiment, claim: Claim, judgement: Judgement | None, forms: Mapping[str, FirstForm]
) -> list[str]:
    """The first recorded verdict where it is another than today's, and when the claim came after its results.

    Args:
        experiment: of the claim.
        claim: the claim.
        judgement: of today; None where it was not tried.
        forms: first forms by claim.
    """
    form = forms.get(claim_id(experiment.name, claim.id))
    if form is None:
        return []
    reading = judgement.reading if judgement is not None else ""
    then = list(dict.fromkeys(one.verdict for one in form.gave if not judgement or one.reading == reading))
    words = []
    if then and (judgement is None or judgement.verdict not in then):
        words.append(f"First record ({form.recorded}): {', '.join(then)}")
    if form.added_after and came_back(form.claim, forms) is None:
        words.append(f"Added on {form.date}, after the experiment's first record ({form.added_after})")
    return words


def _committed(form: FirstForm) -> str:
    return f"{form.date}, {form.commit}" if form.commit else form.date


def _gave(form: FirstForm) -> str:
    """The verdicts of the first record, and the form that it judged where that was another one."""
    if not form.recorded:
        text = "never recorded"
    else:
        verdicts = [
            f"{f'{one.reading}: ' if one.reading else ''}{one.verdict}{f': {one.why}' if one.why else ''} ({one.ours})"
            for one in form.gave
        ]
        when = f"{form.recorded}, {form.record_commit}" if form.record_commit else form.recorded
        text = f"{'<br>'.join(verdicts)}<br>{when}"
        if form.judged:
            text += f"; judged as `{judged_text(form)}`"
    return f"{text}<br>{form.note}" if form.note else text


def _why(short: str, claim: Claim | None, form: FirstForm, present: Mapping[str, Claim]) -> str:
    text = ""
    if claim is not None:
        text = claim.changed
    elif form.dropped:
        text = f"dropped on {form.dropped.replace(' ', ', ')}"
    back = f"back as `{short}{FIRST}`" if f"{short}{FIRST}" in present else ""
    return "; ".join(part for part in (text.rstrip("."), back) if part)


def setting_lines(experiment: Experiment, forms: Mapping[str, FirstForm]) -> list[str]:
    """Lines about workloads and architectures that the first forms of the claims were committed with."""
    workloads = {workload.label: workload_setting(workload) for workload in experiment.workload}
    lines: dict[str, None] = {}
    for claim in experiment.claim:
        name = claim_id(experiment.name, claim.id)
        form = came_back(name, forms) or forms.get(name)
        if form is None:
            continue
        for label, then in form.setting.workloads.items():
            lines |= dict.fromkeys(_line(f"workload {label}", then, workloads.get(label)))
        for label, of in form.setting.architectures.items():
            lines |= dict.fromkeys(_line(label, of, experiment.architectures.get(label)))
    return list(lines)


def _line(label: str, then: Any, now: Any) -> list[str]:
    if then == now:
        return []
    return [f"{label} was `{_shown(then)}`{'' if now is not None else ', and is gone'}"]


def _shown(setting: Any) -> str:
    return setting if isinstance(setting, str) else msgspec.json.encode(setting).decode()
