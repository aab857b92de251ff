"""One recorded run of every experiment comes out as recorded: what the ledger shows is what the code gives today."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.experiment import names, read_experiment, traces_folder
from experiments.records import read_record, record_path
from experiments.reproduction import plan_experiment
from experiments.reruns import affordable, spot_check
from volery.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.mark.slow
@pytest.mark.parametrize("name", names(FOLDER))
def test_a_run_of_every_experiment_comes_out_as_recorded(name: str) -> None:
    experiment = read_experiment(FOLDER, name)
    record = read_record(record_path(FOLDER, name))
    if record is None or not record.digests:
        pytest.skip("not run" if record is None else "it measures inputs alone")
    run, traces = affordable(record), traces_folder(FOLDER)
    try:
        planned = plan_experiment(experiment, traces)
    except InputError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))  # a solver that this environment lacks
    missing = planned.missing.get((run.workload, run.population))
    if missing is not None:
        pytest.skip(missing.why)
    found = spot_check(experiment, record, 1, traces=traces, runs=[run])
    assert found.differing == (), "the code gives another result than the one on the page; run the experiment again"
