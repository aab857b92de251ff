"""The picture of schedulers mapped to the reference architecture (SC18, figure 4)."""

from __future__ import annotations

from itertools import chain
from xml.etree import ElementTree

from volery.architectures import lookup
from volery.core.stages import Stage
from volery.report.mappings import declared, from_paper
from volery.report.stageplot import COLUMNS, stages_svg


def test_every_stage_stands_in_one_box_and_has_a_square_per_scheduler() -> None:
    assert sorted(chain(*COLUMNS)) == sorted(Stage)
    rows = [next(row for row in from_paper() if row.name == "Borg"), declared(lookup("borg"))]
    drawn = stages_svg(rows)
    words = [one.text or "" for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")]
    assert all(any(word.startswith(f"{stage.value} ") for word in words) for stage in Stage)
    for mark, shown in (("partial", "~"), ("undetermined", "?"), ("full", "✓")):
        assert words.count(shown) == 1 + sum(row.marks[stage] == mark for row in rows for stage in Stage)
