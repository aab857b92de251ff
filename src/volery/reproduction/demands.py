"""The demands on every claim and workload of an experiment: what a reader must know to believe a verdict.

A claim quotes its source, and its tolerance comes from the source or from the ledger's rule (`tolerance.py`).
A workload that was made for the experiment names the one that it stands for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from volery.core.errors import InputError
from volery.reproduction.claims import EFFECT_PERCENT, STRICT, Claim
from volery.reproduction.tolerance import tolerance_of_claim
from volery.study.spec import is_synthetic

if TYPE_CHECKING:
    from volery.reproduction.experiments import Experiment, Workload

FIRST: Final = "-first"
"""Ends the id of a claim that came back in its first committed form; the demands on tolerances are younger."""


def check_demands(experiment: Experiment) -> None:
    """Check that every claim and workload meets the demands.

    Raises:
        InputError: naming the place of the first one that does not.
    """
    for i, workload in enumerate(experiment.workload):
        _check_workload(workload, f"{experiment.name}.workload[{i}]")
    for i, claim in enumerate(experiment.claim):
        place = f"{experiment.name}.claim[{i}]"
        _check_sentence(claim, place)
        if claim.relation == "about":
            _check_about(claim, place)
        if not claim.id.endswith(FIRST):
            _check_tolerance(claim, place)


def _check_workload(workload: Workload, place: str) -> None:
    if workload.stands_for and workload.is_source:
        raise InputError(f"{place}.is_source", "stands_for is given as well; leave one of them out")
    if workload.stands_for or workload.is_source:
        return
    if is_synthetic(workload.trace):
        raise InputError(
            f"{place}.stands_for",
            f"is missing: {workload.trace!r} is made here. Name the workload that it stands for, "
            'or is_source = "section ..." where the source defines it completely',
        )
    if workload.jobs is not None:
        raise InputError(
            f"{place}.stands_for",
            f"is missing: the first {workload.jobs} jobs are a slice. Name the workload that it stands for, "
            'or is_source = "section ..." where the source ran this slice',
        )


def _check_sentence(claim: Claim, place: str) -> None:
    if claim.sentence is None:
        raise InputError(
            f"{place}.sentence",
            'is missing; give the sentence as the source prints it, or sentence = "" with quoted = false',
        )
    if claim.quoted and not claim.sentence:
        raise InputError(
            f"{place}.sentence", "is empty; give the sentence as the source prints it, or quoted = false without it"
        )
    if claim.sentence and not claim.quoted:
        raise InputError(
            f"{place}.quoted", 'is false, but a sentence is given; our own words go to says, with sentence = ""'
        )


def _check_tolerance(claim: Claim, place: str) -> None:
    relation = claim.relation
    if relation != "about" and claim.printed:
        raise InputError(f"{place}.printed", f"goes with relation 'about', not with {relation!r}; leave it out")
    if relation == "within":
        if not claim.tolerance:
            raise InputError(
                f"{place}.tolerance",
                "is missing: 'within' needs the source of its percent or margin; a published number takes 'about'",
            )
        return
    if claim.tolerance:
        raise InputError(f"{place}.tolerance", f"goes with relation 'within', not with {relation!r}; leave it out")
    for name in ("percent", "margin"):
        if getattr(claim, name):
            raise InputError(
                f"{place}.{name}",
                f"{relation!r} has no tolerance of its own; leave it out, or write what the source allows as factor",
            )
    if relation not in STRICT and claim.effect != EFFECT_PERCENT:
        raise InputError(f"{place}.effect", f"goes with relation '<' or '>', not with {relation!r}; leave it out")
    if not claim.effect:
        raise InputError(f"{place}.effect", f"0 belongs to first forms that came back, whose ids end in {FIRST!r}")
    if claim.effect < EFFECT_PERCENT and not re.search(r"\d", claim.published):
        raise InputError(
            f"{place}.effect",
            f"{claim.effect:g} % is below the {EFFECT_PERCENT:g} % of every order, and published names no size; "
            "leave it out, or give the published size that it is",
        )


def _check_about(claim: Claim, place: str) -> None:
    if not claim.printed:
        raise InputError(
            f"{place}.printed", "is missing: 'about' needs the number as the source prints it, without its unit"
        )
    if isinstance(claim.right, str):
        raise InputError(f"{place}.right", "is a closed form; hold it with relation 'within', percent and tolerance")
    tolerance_of_claim(claim, f"{place}.printed")
