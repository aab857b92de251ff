"""The changes of an experiment's claims since they were first committed, as rows and lines of docs/papers.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from volery.study.claims import Claim
from volery.study.demands import FIRST
from volery.study.experiments import Experiment
from volery.study.firstforms import (
    RULE,
    FirstForm,
    claim_id,
    differences,
    form_of,
    form_text,
    judged_text,
    workload_setting,
)

BY_THE_RULE: Final = "by the rules of the ledger for tolerances and strict orders"


def changes_rows(experiment: Experiment, forms: Mapping[str, FirstForm]) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the table of changed and dropped claims: claim, first form, what it gave, and why it was changed."""
    present = {claim.id: claim for claim in experiment.claim}
    for name, form in forms.items():
        head, _, short = name.partition("/")
        if head != experiment.name:
            continue
        claim = present.get(short)
        if claim is None or differences(form.form, form_of(claim)):
            first = f"{form.says}<br>`{form_text(form)}`<br>{_committed(form)}"
            yield short, first, _gave(form), _why(short, claim, form, present)


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
        text = BY_THE_RULE if claim.changed == RULE else claim.changed
    elif form.dropped:
        text = f"dropped on {form.dropped.replace(' ', ', ')}"
    back = f"back as `{short}{FIRST}`" if f"{short}{FIRST}" in present else ""
    return "; ".join(part for part in (text, back) if part)


def setting_lines(experiment: Experiment, forms: Mapping[str, FirstForm]) -> list[str]:
    """Lines about workloads and architectures that the first forms of the claims were committed with."""
    workloads = {workload.label: workload_setting(workload) for workload in experiment.workload}
    lines: dict[str, None] = {}
    for claim in experiment.claim:
        form = forms.get(claim_id(experiment.name, claim.id))
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
