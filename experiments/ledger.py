"""The ledger of claims: all that the folder of experiments holds, read at once.

papers.toml                       the sources, with their chapters
headlines/KEY.toml                what a source is known for (see `experiments.headlines`)
NAME.toml, results/NAME.json      experiments, and their records (see `experiments.records`)
first_forms.jsonl                 how every claim was first tested (see `experiments.first_forms`)
things/SOURCE.toml                all that five sources describe (see `experiments.things`)
explanations/NAME.md              text about an experiment, or a chapter of a source
summaries/KEY.md                  a source on one screen
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from experiments.claims import (
    FAILING,
    HOLDING,
    NOT_TRIED,
    OF_THE_PROGRAM,
    OUR_QUESTION,
    PROGRAM,
    Claim,
    Judgement,
    Name,
    Verdict,
)
from experiments.experiment import PAPERS, Experiment, claim_id, names, read_experiment, read_toml
from experiments.first_forms import FirstForm, read_first_forms
from experiments.headlines import Evidence, Headline, Shown, read_headlines, shown
from experiments.records import Record, read_record, record_path, state
from experiments.things import THINGS, Source, Status, Thing, read_sources, status_of
from experiments.undecided import UndecidedClaim, undecided_claims
from volery.core.errors import InputError, suggestion

EXPLANATIONS: Final = "explanations"
SUMMARIES: Final = "summaries"


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source of claims.

    Args:
        key: Name of the source in experiments, and of its page.
        chapters: Explanations that come before those of its experiments.
        in_place_of_text: What was read in its place, where its text was not at hand.
    """

    key: Name
    title: Name
    citation: Name
    chapters: tuple[Name, ...] = ()
    in_place_of_text: str = ""


class Papers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file papers.toml.

    Args:
        introduction: Explanation that opens the page of all sources; the counts stand before its first section.
    """

    introduction: Name
    paper: Annotated[tuple[Paper, ...], msgspec.Meta(min_length=1)]


class ClaimVerdict(msgspec.Struct, frozen=True):
    """The verdict on a claim, over its readings, on one kind of workload.

    Args:
        judgements: the judgements that it sums up; the first is that of the text.
        stand_in: whether they are on stand-ins.
    """

    verdict: Verdict
    judgements: tuple[Judgement, ...] = ()
    stand_in: bool = False


class Ledger(msgspec.Struct, frozen=True):
    """All experiments with their sources, records and first forms.

    Args:
        experiments, records: Experiments and their records, by name.
        first_forms: First forms by claim.
        sources: Sources that were read whole, by number.
        headlines: By the key of a source, what it is known for.
        programs: By the id of a claim, the claims that test the program of the source in place of its words.
    """

    folder: Path
    papers: Papers
    experiments: dict[str, Experiment]
    records: dict[str, Record | None]
    first_forms: dict[str, FirstForm]
    sources: dict[str, Source]
    headlines: dict[str, tuple[Headline, ...]]
    programs: dict[str, tuple[tuple[Experiment, Claim], ...]]

    def experiments_of(self, paper: Paper) -> list[Experiment]:
        return [experiment for experiment in self.experiments.values() if experiment.paper == paper.key]

    def judgements(self, experiment: Experiment, claim: Claim) -> list[Judgement]:
        """The judgements of a claim; none where it was not tried."""
        record = self.records[experiment.name]
        return record.judgements_of(claim.id) if record is not None else []

    def verdicts_of(self, experiment: Experiment, claim: Claim) -> list[ClaimVerdict]:
        """The verdicts on a claim, one per kind of workload; none on one that tests a program for another claim.

        Where a claim has several readings, the first is that of its text, and its verdict is that of the claim. But
        where the text fails and the program of the source does what it says, the claim is of the program.
        """
        if claim.program_of:
            return []
        judgements = self.judgements(experiment, claim)
        others = [
            judgement
            for program, program_claim in self.programs.get(claim_id(experiment.name, claim.id), ())
            for judgement in self.judgements(program, program_claim)
        ]
        verdicts = []
        for stand_in in dict.fromkeys(judgement.stand_in for judgement in judgements):
            readings = [judgement for judgement in judgements if judgement.stand_in == stand_in]
            programs = others + [judgement for judgement in readings[1:] if judgement.reading == PROGRAM]
            verdict = readings[0].verdict
            if verdict in FAILING and any(judgement.verdict in HOLDING for judgement in programs):
                verdict = OF_THE_PROGRAM
            verdicts.append(ClaimVerdict(verdict, tuple(dict.fromkeys([*readings, *programs])), stand_in))
        return verdicts or [ClaimVerdict(OUR_QUESTION if claim.ours else NOT_TRIED)]

    def verdicts(self, experiments: Iterable[Experiment]) -> Counter[str]:
        """The number of verdicts of each kind, over readings; a claim without a judgement is not tried."""
        return Counter(
            verdict.verdict
            for experiment in experiments
            for claim in experiment.claim
            for verdict in self.verdicts_of(experiment, claim)
        )

    def undecided(self) -> list[tuple[Experiment, UndecidedClaim]]:
        """The judgements that more seeds may decide, with their experiments, in the order of these."""
        return [
            (experiment, claim)
            for experiment in self.experiments.values()
            if (record := self.records[experiment.name]) is not None
            for claim in undecided_claims(experiment, record)
        ]

    def shown(self, evidence: Sequence[Evidence], place: str) -> list[Shown]:
        """The variants of a headline, or the rows of its switch, with what was recorded of them.

        Raises:
            InputError: below `place`, when one names a claim, reading, workload or population that is not there.
        """
        rows = []
        for number, each in enumerate(evidence):
            named = [self.claim(name, f"{place}[{number}].claims") for name in each.claims]
            claims = [(claim, self.judgements(experiment, claim)) for experiment, claim in named]
            rows.append(shown(each, claims, f"{place}[{number}]"))
        return rows

    def status_of(self, thing: Thing) -> Status:
        """What is to be said of a thing, by the verdicts on its claims.

        Raises:
            InputError: naming the thing, when a claim of it does not exist.
        """
        claims = [self.claim(name, f"{THINGS}: {thing.id}.claims") for name in thing.claims]
        return status_of(thing, [one.verdict for named in claims for one in self.verdicts_of(*named)])

    def claim(self, name: str, place: str) -> tuple[Experiment, Claim]:
        """A claim by its id, with its experiment.

        Raises:
            InputError: at `place`, when there is none of that id.
        """
        experiment = self.experiments.get(name.partition("/")[0])
        if experiment is not None:
            for claim in experiment.claim:
                if claim_id(experiment.name, claim.id) == name:
                    return experiment, claim
        claims = [claim_id(each.name, claim.id) for each in self.experiments.values() for claim in each.claim]
        raise InputError(place, f"{name!r} is no claim{suggestion(name, claims)}")

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
    headlines = read_headlines(folder)
    unknown = sorted(headlines.keys() - set(keys))
    if unknown:
        raise InputError(f"headlines/{unknown[0]}.toml", f"{unknown[0]!r} is not in {PAPERS}; add it there")
    forms, sources = read_first_forms(folder), read_sources(folder)
    return Ledger(folder, papers, experiments, records, forms, sources, headlines, _programs(experiments))


def _programs(experiments: Mapping[str, Experiment]) -> dict[str, tuple[tuple[Experiment, Claim], ...]]:
    """By the id of a claim, those that test the program of its source.

    Raises:
        InputError: one of them names no claim, or one that tests a program itself.
    """
    claims = {claim_id(name, claim.id): claim for name, experiment in experiments.items() for claim in experiment.claim}
    programs: dict[str, tuple[tuple[Experiment, Claim], ...]] = {}
    for name, experiment in experiments.items():
        for number, claim in enumerate(experiment.claim):
            if claim.program_of:
                tested = claim.program_of if "/" in claim.program_of else claim_id(name, claim.program_of)
                place = f"{name}.claim[{number}].program_of"
                if tested not in claims:
                    raise InputError(place, f"{tested!r} is no claim{suggestion(tested, claims)}")
                if claims[tested].program_of:
                    raise InputError(place, f"{tested!r} tests a program itself; name the claim of the text")
                programs[tested] = (*programs.get(tested, ()), (experiment, claim))
    return programs


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
