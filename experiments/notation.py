"""Verdicts and measured values in words, for the terminal and for docs/papers.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final

from experiments.claims import STRICT, Claim, ClaimCase, Judgement, Quantity, Side
from experiments.judgement import allowed
from experiments.measures import unit
from volery.look.text import NOTHING, TIMES, digits, duration

LONGEST_OWN_UNIT_S: Final = 1.0
"""From here on durations are told in seconds, as papers tell them: a reader compares the two."""
STEADY: Final = 0.005
"""A range over seeds and populations that is narrower than this share of the mean is not told."""


def amount(metric: str, number: float) -> str:
    """A value of a metric with its unit."""
    kind = unit(metric)
    if kind == "s":
        return duration(number) if abs(number) < LONGEST_OWN_UNIT_S else f"{digits(number)} s"
    return f"{digits(100 * number)} %" if kind == "%" else digits(number)


def spread(metric: str, mean: float, low: float, high: float) -> str:
    """A mean, with its range where there is one to speak of."""
    text = amount(metric, mean)
    if high - low <= STEADY * abs(mean):
        return text
    return f"{text} ({amount(metric, low)} to {amount(metric, high)})"


def ours(claim: Claim, judgement: Judgement) -> list[str]:
    """The measured values, one text per pair of architectures and workload; a dash where nothing was measured."""
    groups: dict[tuple[str, ...], list[ClaimCase]] = {}
    for case in judgement.cases:
        if case.left is not None:
            groups.setdefault((case.workload, *_names(case.left), *_names(case.right)), []).append(case)
    if not groups:
        return [NOTHING]
    varies = [len({key[place] for key in groups}) > 1 for place in range(5)]
    texts = []
    for key, cases in groups.items():
        named = (key[0] if varies[0] else "", key[1] if varies[1] or (varies[3] and not varies[0]) else "")
        name = " ".join(part for part in named if part)
        texts.append((f"{name}: " if name else "") + _values(claim, cases))
    return texts


BRIEF_CASES: Final = 3
"""Values that are told one by one; of more the lowest and the highest are told."""
PLAIN: Final = {"jrt": "response", "p50": "median", "attainment": "deadlines met"}
"""Words of metrics that a reader cannot know."""
EACH: Final = "each"
"""Stands for a side of different architectures, of which a range is told."""
MARKS: Final = "_-"
"""Marks between the words of a label."""
SECTIONS: Final = frozenset({
    "allotments", "counters", "deadlines", "provisioning", "settled", "transactions", "user_shares", "workflows",
    "workloads",
})  # fmt: skip
"""Words of metrics that tell where they stand and not what they are."""


def metric_text(metric: str, besides: Iterable[str] = ()) -> str:
    """A metric in words, as "short delay p99"; without the words that it shares with all metrics besides it."""
    parts = _metric_parts(metric)
    shared = set(parts).intersection(*map(_metric_parts, besides)) if besides else set()
    return " ".join(part for part in parts if part not in shared) or " ".join(parts)


def _metric_parts(metric: str) -> list[str]:
    parts = [part.removesuffix("_s") for part in metric.split(".") if part not in SECTIONS]
    return [" ".join(PLAIN.get(word, word) for word in part.split("_")) for part in parts]


def brief(claim: Claim, judgement: Judgement, *, is_ratio: bool = False) -> str:
    """The measured values in few words: whose they are, without ranges over seeds; of many cases the extremes.

    Args:
        is_ratio: whether two sides are told by their ratio alone.
    """
    groups: dict[tuple[str, ...], list[ClaimCase]] = {}
    for case in judgement.cases:
        if case.left is not None:
            groups.setdefault((case.workload, *_names(case.left), *_names(case.right)), []).append(case)
    if not groups:
        return NOTHING
    values = [_means(cases) for cases in groups.values()]
    if isinstance(claim.right, float):
        labels = _labels([key[0] for key in groups], [(key[1], "") for key in groups])
        return _listed(labels, [left for left, _ in values], lambda value: amount(claim.left.metric, value))

    pairs = [_side_names(claim, key) for key in groups]
    left_name, right_name = (_stem([pair[side] for pair in pairs]) for side in (0, 1))
    right_metric = claim.right.metric if isinstance(claim.right, Side) else claim.left.metric
    texts = [(amount(claim.left.metric, left), amount(right_metric, right)) for left, right in values]
    are_positive = all(left > 0 and right > 0 for left, right in values)
    if len(values) == 1 and not (is_ratio and are_positive):
        [(left_text, right_text)] = texts
        return f"{left_text}{bracketed(left_name)} against {right_text}{bracketed(right_name)}{_times(*values[0])}"
    labels = _labels([key[0] for key in groups], pairs)
    if not are_positive:
        cases = [f"{left} against {right}" for left, right in texts[:BRIEF_CASES]]
        ratios = ", ".join(f"{text}{label}" for text, label in zip(cases, labels, strict=False))
    else:
        ratios = _listed(labels, [left / right for left, right in values], _ratio)
    if len(values) > BRIEF_CASES:
        left_name, right_name = left_name or EACH, right_name or EACH
    return _worded(f"{left_name}/{right_name} {ratios}" if left_name and right_name else ratios)


def _side_names(claim: Claim, key: tuple[str, ...]) -> tuple[str, str]:
    """What tells the two sides of a case apart: architectures, else workloads, else metrics."""
    _, left_of, left_on, right_of, right_on = key
    if left_of != right_of:
        return left_of, right_of
    if left_on != right_on:
        return left_on, right_on
    if isinstance(claim.right, Side) and claim.right.metric != claim.left.metric:
        return metric_text(claim.left.metric), metric_text(claim.right.metric)
    return left_of, right_of


def _stem(names: Sequence[str]) -> str:
    """What several names begin with, up to a mark between words; a name that all share; or nothing."""
    beginning = _beginning(names)
    if all(name == beginning or name[len(beginning)] in MARKS for name in names):
        return beginning if beginning in names else beginning.rstrip(MARKS)
    return re.sub(r"(^|[_-])[^_-]*$", "", beginning)


def _beginning(names: Sequence[str]) -> str:
    shared = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in shared)


def _labels(workloads: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """What tells several cases apart, in brackets: the workload, and what differs in the names of the sides."""
    stems = [_stem(side) for side in zip(*pairs, strict=True)]
    has_stems = all(stem or not pair for stem, pair in zip(stems, pairs[0], strict=True))
    labels = []
    for workload, pair in zip(workloads, pairs, strict=True):
        rests = [name.removeprefix(stem).strip(MARKS) for name, stem in zip(pair, stems, strict=True)]
        words = [workload] if len({*workloads}) > 1 and workload not in pair else []
        words += dict.fromkeys(filter(None, rests)) if has_stems else ["/".join(filter(None, pair))]
        labels.append(bracketed(", ".join(words)) if len(pairs) > 1 else "")
    return labels


def bracketed(label: str) -> str:
    """A label behind a value; nothing where there is none."""
    return f" [{_worded(label)}]" if label else ""


def _worded(text: str) -> str:
    return text.replace("_", " ").strip()


def _listed(labels: Sequence[str], values: Sequence[float], text: Callable[[float], str]) -> str:
    """Values with their labels; equal ones once, and of many the lowest and the highest."""
    texts = [text(value) for value in values]
    if len({*texts}) == 1:
        return texts[0]
    if len(texts) > BRIEF_CASES:
        return f"{text(min(values))} to {text(max(values))}"
    return ", ".join(f"{value}{label}" for value, label in zip(texts, labels, strict=True))


def compared(claim: Claim, judgement: Judgement) -> list[tuple[str, float, str]]:
    """The two sides of a claim with one pair of measures: label, value and text of each; none where there are more."""
    pairs = {
        (case.left.of, case.right.of) for case in judgement.cases if case.left is not None and case.right is not None
    }
    workloads = {case.workload for case in judgement.cases}
    if len(pairs) != 1 or len(workloads) != 1 or not isinstance(claim.right, Side):
        return []
    left, right = _means(judgement.cases)
    [(left_name, right_name)] = pairs
    sides = ((left_name, left, claim.left.metric), (right_name, right, claim.right.metric))
    return [(name.replace("_", " "), value, amount(metric, value)) for name, value, metric in sides]


EIGHTHS: Final = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
"""Blocks of no to eight eighths of a letter's width."""


def bar(share: float, width: int) -> str:
    """A bar of letters for a share of 0 to 1; the smallest that is not zero shows."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    whole, part = divmod(eighths, 8)
    return (EIGHTHS[8] * whole + (EIGHTHS[part] if part else "")) or EIGHTHS[0]


def _means(cases: Sequence[ClaimCase]) -> tuple[float, float]:
    """The means over populations of the left and of the right side; 0 where the right side is a number."""
    left = [case.left.mean for case in cases if case.left is not None]
    right = [case.right.mean for case in cases if case.right is not None]
    return sum(left) / len(left), sum(right) / len(right) if right else 0.0


def _ratio(value: float) -> str:
    """A ratio; below one as one over a number."""
    return f"{digits(value)}{TIMES}" if value >= 1 - STEADY else f"1/{digits(1 / value)}"


def _names(quantity: Quantity | None) -> tuple[str, str]:
    return ("", "") if quantity is None else (quantity.of, quantity.on)


def _values(claim: Claim, cases: Sequence[ClaimCase]) -> str:
    left_quantities = [case.left for case in cases if case.left is not None]
    text = _over(claim.left.metric, left_quantities)
    if isinstance(claim.right, float):
        return text
    right_quantities = [case.right for case in cases if case.right is not None]
    against = _over(claim.right.metric if isinstance(claim.right, Side) else claim.left.metric, right_quantities)
    a, b = (sum(quantity.mean for quantity in side) / len(side) for side in (left_quantities, right_quantities))
    return f"{text} against {against}{_times(a, b)}"


def _times(a: float, b: float) -> str:
    """The ratio a / b as text; below one as one over a number."""
    if a <= 0 or b <= 0:
        return ""
    return f", {_ratio(a / b)}"


def _over(metric: str, quantities: Sequence[Quantity]) -> str:
    mean = sum(quantity.mean for quantity in quantities) / len(quantities)
    low = min(quantity.low for quantity in quantities)
    high = max(quantity.high for quantity in quantities)
    return spread(metric, mean, low, high)


def verdict(judgement: Judgement) -> str:
    """The verdict with its reason."""
    return f"{judgement.verdict}: {judgement.why}" if judgement.why else judgement.verdict


def claim_text(claim: Claim, *, is_former: bool = False) -> str:
    """The inequality that stands for the claim.

    Args:
        is_former: true for a form under the former rules, where an order needed no effect.
    """
    right = claim.right
    if isinstance(right, float):
        target = amount(claim.left.metric, claim.factor * right)
    elif isinstance(right, str):
        target = f"{claim.factor:g} {TIMES} {right}" if claim.factor != 1 else right
    else:
        is_same_metric = right.metric == claim.left.metric and right.labels != claim.left.labels
        subject = right.metric if not is_same_metric else "that"
        target = " ".join(part for part in (subject, _of(right.labels), f"on {right.on}" if right.on else "") if part)
        target = f"{claim.factor:g} {TIMES} {target}" if claim.factor != 1 else target
    left_text = " ".join(
        part for part in (claim.left.metric, _of(claim.left.labels), f"on {claim.left.on}" if claim.left.on else "")
        if part
    )  # fmt: skip
    return f"{left_text} {claim.relation} {target}{_room(claim, is_former=is_former)}"


def _room(claim: Claim, *, is_former: bool) -> str:
    """The tolerance, or what an order must exceed."""
    if claim.relation in STRICT:
        return "" if is_former or claim.right == 0.0 else f" by {claim.effect:g} % and more"
    room = allowed(claim)
    parts = [f"{100 * room.share:.3g} %"] * bool(room.share)
    parts += [_margin(claim, room.margin)] * bool(room.margin)
    return f" \u00b1 {' + '.join(parts)}" if parts else ""


def _margin(claim: Claim, margin: float) -> str:
    """The absolute tolerance; that of a share in points, since percent are relative."""
    if unit(claim.left.metric) == "%":
        return f"{100 * margin:g} percentage points"
    return amount(claim.left.metric, margin)


def _of(labels: Sequence[str]) -> str:
    named = ", ".join(label for label in labels if label)
    return f"of {named}" if named else ""
