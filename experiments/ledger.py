"""The ledger of claims: all that the folder of experiments holds, read at once.

papers.toml                       the sources, with their chapters and headline claims
NAME.toml, results/NAME.json      experiments, and their records (see `experiments.records`)
first_forms.jsonl                 how every claim was first tested (see `experiments.first_forms`)
things/SOURCE.toml                all that five sources describe (see `experiments.things`)
explanations/NAME.md              text about an experiment, or a chapter of a source
summaries/KEY.md                  a source on one screen
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

from experiments.claims import NOT_TRIED, Claim, Judgement, Name
from experiments.experiment import PAPERS, Experiment, claim_id, names, read_experiment, read_toml
from experiments.first_forms import FirstForm, read_first_forms
from experiments.records import Record, read_record, record_path, state
from experiments.things import Source, read_sources
from volery.core.errors import InputError, suggestion

EXPLANATIONS: Final = "explanations"
SUMMARIES: Final = "summaries"


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source of claims.

    Args:
        key: Name of the source in experiments, and of its page.
        headlines: Ids of the claims that its page shows.
        chapters: Explanations that come before those of its experiments.
    """

    key: Name
    title: Name
    citation: Name
    headlines: tuple[Name, ...] = ()
    chapters: tuple[Name, ...] = ()


class Papers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file papers.toml.

    Args:
        introduction: Explanation that opens the page of all sources; the counts stand before its first section.
    """

    introduction: Name
    paper: Annotated[tuple[Paper, ...], msgspec.Meta(min_length=1)]


class Ledger(msgspec.Struct, frozen=True):
    """All experiments with their sources, records and first forms.

    Args:
        experiments, records: Experiments and their records, by name.
        first_forms: First forms by claim.
        sources: Sources that were read whole, by number.
    """

    folder: Path
    papers: Papers
    experiments: dict[str, Experiment]
    records: dict[str, Record | None]
    first_forms: dict[str, FirstForm]
    sources: dict[str, Source]

    def experiments_of(self, paper: Paper) -> list[Experiment]:
        return [experiment for experiment in self.experiments.values() if experiment.paper == paper.key]

    def judgements(self, experiment: Experiment, claim: Claim) -> list[Judgement]:
        """The judgements of a claim; none where it was not tried."""
        record = self.records[experiment.name]
        return record.judgements_of(claim.id) if record is not None else []

    def verdicts(self, experiments: Iterable[Experiment]) -> Counter[str]:
        """The number of verdicts of each kind; a claim without a judgement is not tried."""
        counts = Counter[str]()
        for experiment in experiments:
            for claim in experiment.claim:
                judgements = self.judgements(experiment, claim)
                counts.update([judgement.verdict for judgement in judgements] or [NOT_TRIED])
        return counts

    def claim(self, name: str, place: str) -> tuple[Experiment, Claim]:
        """A claim by its id, with its experiment.

        Raises:
            InputError: at `place`, when there is none of that id.
        """
        claims = {
            claim_id(experiment.name, claim.id): (experiment, claim)
            for experiment in self.experiments.values()
            for claim in experiment.claim
        }
        if name not in claims:
            raise InputError(place, f"{name!r} is no claim{suggestion(name, claims)}")
        return claims[name]

    def text(self, folder: str, name: str) -> str:
        """The hand-written text of that name; empty where there is none."""
        path = self.folder / folder / f"{name}.md"
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def read_ledger(folder: Path) -> Ledger:
    """Read the folder of experiments.

    Raises:
        InputError: when something in it is wrong or missing.
    """
    papers: Papers = read_toml(folder / PAPERS, Papers)
    experiments = {name: read_experiment(folder, name) for name in names(folder)}
    keys = [paper.key for paper in papers.paper]
    for experiment in experiments.values():
        if experiment.paper not in keys:
            raise InputError(f"{experiment.name}.paper", f"{experiment.paper!r} is not in {PAPERS}; add it there")

    records = {name: read_record(record_path(folder, name)) for name in experiments}
    return Ledger(folder, papers, experiments, records, read_first_forms(folder), read_sources(folder))


def judged_claims(experiment: Experiment, record: Record) -> Iterator[tuple[Claim, Judgement]]:
    """The claims of an experiment with their recorded judgements; those that are newer than the record are left out."""
    for claim in experiment.claim:
        for judgement in record.judgements_of(claim.id):
            yield claim, judgement


def listing(folder: Path) -> list[tuple[Experiment, Record | None, str]]:
    """Every experiment with its record and its state in words.

    Raises:
        InputError: when an experiment or a record is wrong.
    """
    rows = []
    for name in names(folder):
        experiment = read_experiment(folder, name)
        record = read_record(record_path(folder, name))
        rows.append((experiment, record, state(experiment, record)))
    return rows
