"""The first forms of all claims: the file that shows how a claim was tested before its result was known.

first_forms.jsonl holds one line per claim that ever was in the ledger. A line is appended when the claim's first record
is written, and is never edited: it carries a SHA-256 of its own content, and one of all lines before it, so that an
edited line does not fit unless all later lines are rewritten too. A claim that is tested in another form today says
why, and the page shows what it was and what it gave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError
from volery.reproduction.claims import EFFECT_PERCENT, FIRST, STRICT, Claim, Judgement, Name
from volery.reproduction.experiments import Experiment, Workload
from volery.reproduction.ledger import Record, content_sha256
from volery.reproduction.notation import claim_text, ours

FIRST_FORMS: Final = "first_forms.jsonl"
TESTED: Final = (
    "left", "relation", "right", "factor", "percent", "margin", "effect", "printed", "on", "populations", "averaged",
)  # fmt: skip
"""The fields of a claim that decide its verdict."""
ROUNDING: Final = 1e-9
RULE: Final = "rule"
"""Stands for a change that the rules of the whole ledger made: a number for a tolerance of its own, or a bound that is
as narrow as the first one. Claims that are younger than these rules cannot name them."""


class Gave(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict of the first record.

    Args:
        verdict: in the words of that time.
        reading: of the architectures, where they have several.
    """

    verdict: str
    ours: str
    why: str = ""
    reading: str = ""


class ClaimSetting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The workloads and architectures of a claim's experiment, by the labels that the claim uses."""

    workloads: dict[str, dict[str, Any]] = {}
    architectures: dict[str, Any] = {}


class FirstForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The first committed form of a claim, and the verdict of its first record.

    Args:
        claim: "experiment/claim".
        commit: that first held it, where the history told it.
        form: the tested form, without fields at their defaults.
        recorded: date of the first record that judged it; empty where none did.
        record_commit: of that record, where the history told it.
        gave: its verdicts, one per reading.
        judged: the form that the first record judged, where the claim was changed before it.
        dropped: since when the claim is no longer in the ledger: date and commit.
        note: what an audit found besides.
        added_after: date of the first record of its experiment, where the claim was added to it later.
        lines_sha256: of all lines before this one; empty where the history told the line.
        sha256: of all the rest.
    """

    claim: Name
    date: str
    commit: str = ""
    says: str
    form: dict[str, Any]
    setting: ClaimSetting = ClaimSetting()
    recorded: str = ""
    record_commit: str = ""
    gave: tuple[Gave, ...] = ()
    judged: dict[str, Any] = {}
    dropped: str = ""
    note: str = ""
    added_after: str = ""
    lines_sha256: str = ""
    sha256: str = ""


def claim_id(experiment: str, claim: str) -> str:
    """The id of a claim in the whole ledger."""
    return f"{experiment}/{claim}"


def form_of(claim: Claim) -> dict[str, Any]:
    """The fields of a claim that decide its verdict, without those at their defaults.

    An effect of 0 is left out too: forms that are older than the rule on effects have none.
    """
    fields = _plain(claim)
    if not claim.effect:
        del fields["effect"]
    return {name: fields[name] for name in TESTED if name in fields}


def _plain(struct: Claim | Workload) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(struct))
    return fields


def setting_of(experiment: Experiment, claim: Claim) -> ClaimSetting:
    """The workloads and architectures that the labels of a claim name in its experiment."""
    named = [side.on for side in claim.sides if side.on]
    if len(named) < len(claim.sides):
        named += claim.on or [workload.label for workload in experiment.workload]
    labels = [label for side in claim.sides for label in side.labels if label]
    return ClaimSetting(
        {one.label: workload_setting(one) for one in experiment.workload if one.label in named},
        {label: experiment.architectures[label] for label in dict.fromkeys(labels)},
    )


def workload_setting(workload: Workload) -> dict[str, Any]:
    """The definition of a workload, without its label and what it stands for."""
    fields = _plain(workload)
    return {key: given for key, given in fields.items() if key not in ("label", "stands_for", "is_source")}


def sealed(form: FirstForm) -> FirstForm:
    """The same with the hash of its content."""
    return msgspec.structs.replace(form, sha256=_hash(form))


def _hash(form: FirstForm) -> str:
    content = msgspec.json.encode(msgspec.structs.replace(form, sha256=""), order="deterministic")
    return hashlib.sha256(content).hexdigest()


def read_first_forms(folder: Path) -> dict[str, FirstForm]:
    """The first forms by claim; empty where the folder has no such file.

    Raises:
        InputError: a line is damaged, was edited, or tells a claim a second time.
    """
    path = folder / FIRST_FORMS
    chain, is_chained = hashlib.sha256(), False
    found: dict[str, FirstForm] = {}
    for number, line in enumerate(_content(path).splitlines(keepends=True), start=1):
        place = f"{path}:{number}"
        try:
            form = msgspec.json.decode(line, type=FirstForm)
        except msgspec.DecodeError as error:
            raise InputError(place, f"is no first form: {error}; restore the line as it was") from None
        if _hash(form) != form.sha256:
            raise InputError(
                place,
                f"the first form of {form.claim!r} does not fit its sha256: the line was edited. Restore it; "
                "a claim that is tested otherwise now says so in its experiment, with `changed`",
            )
        is_chained = is_chained or not form.commit
        if form.lines_sha256 != (chain.hexdigest() if is_chained else ""):
            raise InputError(
                place,
                f"the first form of {form.claim!r} does not fit the lines before it: one of them was edited, added or "
                "removed. Restore the file; after a merge keep one side, and `volery reproduce --papers` adds the rest",
            )
        if form.claim in found:
            raise InputError(place, f"the first form of {form.claim!r} is told a second time; remove this line")
        found[form.claim] = form
        chain.update(line)
    return found


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None


def append_first_forms(folder: Path, experiment: Experiment, record: Record) -> list[str]:
    """Append the first forms of all claims that a record judges for the first time, and return their ids.

    None are appended where the experiment changed since the record: the judged forms would be others.

    Raises:
        InputError: the file was edited, or cannot be written.
    """
    if record.experiment_sha256 != content_sha256(experiment):
        return []
    known = read_first_forms(folder)
    dates = [form.recorded for form in known.values() if form.recorded and form.claim.startswith(f"{experiment.name}/")]
    new = [form for form in _first_forms(experiment, record, min(dates, default="")) if form.claim not in known]
    path = folder / FIRST_FORMS
    chain = hashlib.sha256(_content(path))
    for form in new:
        line = msgspec.json.encode(sealed(msgspec.structs.replace(form, lines_sha256=chain.hexdigest()))) + b"\n"
        chain.update(line)
        try:
            with path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None
    return [form.claim for form in new]


def _first_forms(experiment: Experiment, record: Record, added_after: str) -> Iterator[FirstForm]:
    date = record.judged or record.date
    for claim in experiment.claim:
        judgements = [one for one in record.judgements if one.claim == claim.id]
        if judgements:
            gave = (Gave(one.verdict, "; ".join(ours(claim, one)), one.why, one.reading) for one in judgements)
            yield FirstForm(
                claim=claim_id(experiment.name, claim.id),
                date=date,
                says=claim.says,
                form=form_of(claim),
                setting=setting_of(experiment, claim),
                recorded=date,
                gave=tuple(gave),
                added_after=added_after,
            )


def check_first_forms(
    forms: Mapping[str, FirstForm], experiments: Sequence[Experiment], records: Mapping[str, Record | None]
) -> None:
    """Check the ledger against its first forms.

    Raises:
        InputError: a claim is tested in another form and does not say why, has a record and no first form, or is gone.
    """
    present = set()
    for experiment in experiments:
        record = records.get(experiment.name)
        judged = {one.claim for one in record.judgements} if record is not None else set()
        for i, claim in enumerate(experiment.claim):
            name = claim_id(experiment.name, claim.id)
            present.add(name)
            _check_claim(claim, name, forms, f"{experiment.name}.claim[{i}]", recorded=claim.id in judged)
    for name, form in forms.items():
        if name not in present and not form.dropped:
            raise InputError(
                name.replace("/", ".claim: "),
                f"is in {FIRST_FORMS} and no longer in the ledger. Put the claim back in its first form: "
                f"{form_text(form.form)}",
            )


def _check_claim(claim: Claim, name: str, forms: Mapping[str, FirstForm], place: str, *, recorded: bool) -> None:
    first = forms.get(name)
    base = came_back(name, forms)
    if claim.id.endswith(FIRST) and (first is None or not first.commit):
        if base is None:
            raise InputError(place, f"{claim.id!r} is the first form of no claim; give it an id without {FIRST!r}")
        if differences(base.form, form_of(claim)):
            raise InputError(
                place, f"{claim.id!r} is not the first form of {base.claim}, which is: {form_text(base.form)}"
            )
    if first is None:
        if recorded:
            again = f"`volery reproduce {name.partition('/')[0]} --judge`"
            raise InputError(place, f"{claim.id!r} has a record and no first form; {again} adds it to the file")
        if claim.changed:
            raise InputError(
                f"{place}.changed", f"{claim.id!r} has no first form that it could differ from; leave it out"
            )
        return
    different = differences(first.form, form_of(claim))
    if different and not claim.changed:
        raise InputError(
            f"{place}.changed",
            f"is missing: {claim.id!r} is not tested in its first form ({different[0]}). "
            "Say why it was changed, or restore the form",
        )
    if claim.changed and not different:
        raise InputError(f"{place}.changed", f"{claim.id!r} is tested in its first form; leave it out")
    if claim.changed == RULE and not (first.commit and follows_the_rule(first.form, form_of(claim))):
        raise InputError(
            f"{place}.changed",
            f"{RULE!r} stands for the rules of the ledger, and {claim.id!r} was changed by more: "
            f"{'; '.join(different)}. Say why, or restore the form",
        )


def follows_the_rule(first: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return true if the rules of the ledger explain every difference between two tested forms.

    They do where the source's number is tested as a number now, where an order or a bound is as narrow as it was, and
    where the tolerance of a "within" is not wider.
    """
    changed = {name for name in TESTED if first.get(name) != now.get(name)}
    if changed & {"left", "on", "populations", "averaged"}:
        return False
    was, is_now = first["relation"], now["relation"]
    if is_now == "about":
        return "right" not in changed or not any(isinstance(form["right"], dict | str) for form in (first, now))
    if "right" in changed or was[0] != is_now[0]:
        return False
    if is_now == "within":
        narrower = (now.get(name, 0.0) <= first.get(name, 0.0) for name in ("percent", "margin"))
        return "factor" not in changed and all(narrower)
    sign = 1 if is_now[0] == "<" else -1
    effect = now.get("effect", EFFECT_PERCENT) / 100 if is_now in STRICT else 0.0
    bound, allowed = now.get("factor", 1.0) * (1 - sign * effect), first.get("factor", 1.0)
    return bool(sign * bound <= sign * allowed + ROUNDING)


def came_back(name: str, forms: Mapping[str, FirstForm]) -> FirstForm | None:
    """The first form that a claim with "-first" in its id brings back; an experiment may come back with "_first"."""
    if not name.endswith(FIRST):
        return None
    experiment, _, claim = name.partition("/")
    bases = (claim_id(one, claim.removesuffix(FIRST)) for one in (experiment, experiment.removesuffix("_first")))
    return next((forms[base] for base in bases if base in forms), None)


def differences(first: Mapping[str, Any], now: Mapping[str, Any], *, leave_out: Sequence[str] = ()) -> list[str]:
    """The fields that differ between two tested forms, in words."""
    return [
        f"{name} was {_shown(first.get(name))}, is {_shown(now.get(name))}"
        for name in TESTED
        if first.get(name) != now.get(name) and name not in leave_out
    ]


def _shown(field: Any) -> str:
    return "not given" if field is None else msgspec.json.encode(field).decode()


def form_text(tested: Mapping[str, Any]) -> str:
    """A tested form of a claim as an inequality, with what it is restricted to."""
    fields = {"id": "first", "section": "-", "says": "-", "published": "-", **tested}
    text = claim_text(msgspec.convert(fields, Claim), is_former="effect" not in tested)
    for name in ("on", "populations"):
        if name in tested:
            text += f" [{name} {', '.join(tested[name])}]"
    return text + (" [averaged over populations]" if tested.get("averaged") else "")


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
            first = f"{form.says}<br>`{form_text(form.form)}`<br>{_committed(form)}"
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
        judgement: of today; None where it was not tried.
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
            text += f"; judged as `{form_text(form.judged)}`"
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
    return [f"{label} was `{_setting_text(then)}`{'' if now is not None else ', and is gone'}"]


def _setting_text(setting: Any) -> str:
    return setting if isinstance(setting, str) else msgspec.json.encode(setting).decode()
