"""A results folder as a site: the report's page, and answers to what it asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from volery.report.explore import embed
from volery.report.explore.answers import Answers, Why
from volery.report.explore.content import ToldRun, explored
from volery.report.explore.server import LOCAL_NAMES, Site
from volery.report.folder import read_results
from volery.report.html import render


def site_of(folder: Path, why: Sequence[ToldRun], ask_why: Why, names: Sequence[str] = LOCAL_NAMES) -> Site:
    """Everything that a server needs of a results folder, read once.

    Args:
        folder: of the results.
        why: what runs that explain themselves say of the tasks that waited longest.
        ask_why: tells of one of these runs, by its number, any job or task.
        names: host names that requests may be addressed to.

    Raises:
        InputError: when a file of the folder is missing or damaged.
    """
    results = read_results(folder)
    found = explored(results, why, serves=True)
    page = render(results, found.content).encode()
    answers = Answers(found, ask_why)
    return Site(page, embed.policy(embed.script(), serves=True), answers.answer, tuple(names), answers.prepare)
