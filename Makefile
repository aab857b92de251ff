# The two commands of README.md are `make demo` and `make test`; everything runs in the project's own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# One more than that: some tests wait more than they work.
TESTERS ?= 3

# Without compiled files, each process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-newest test-oldest lock static coverage lint types imports unit conformance bench bench-parts bench-table bench-serving bench-dashboard bench-matching bench-calibration bench-calibration-nats bench-prototypes bench-live bench-pipeline bench-browse storm chaos starts chaos-ci figure screenshot reproduce papers parity docs clean

# requirements/ holds the versions of all that is installed, with hashes. `locked` is what everybody gets; `newest` and
# `oldest` are what pyproject.toml permits, for `make test-newest` and `make test-oldest`.
VERSIONS := locked
RESOLUTION := $(if $(filter oldest,$(VERSIONS)),lowest-direct,highest)
# Python compiles what is imported, when it is: compiling all packages takes longer than all else here.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
UV := $(BIN)/python -m uv --quiet

ifeq ($(VERSIONS),oldest)
# An old release uses what newer ones of its own dependencies have deprecated.
export PYTEST_ADDOPTS := -W default::DeprecationWarning
endif

# $(call install,LOCK,EXTRAS): the project with the packages of requirements/LOCK.txt, or with what $(VERSIONS) says.
ifeq ($(VERSIONS),locked)
install = $(PIP) --require-hashes --requirement requirements/$(1).txt && $(PIP) --no-deps --no-build-isolation --editable .
else
install = $(PIP) --require-hashes --requirement requirements/lock.txt \
	&& $(UV) pip install --python $(BIN)/python --upgrade --resolution $(RESOLUTION) --editable '.$(2)'
endif

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Volery needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements/run.txt | $(BIN)/python
	$(call install,run,[live])
	touch $@

$(VENV)/.tools: pyproject.toml requirements/test.txt | $(BIN)/python
	$(call install,test,[dev])
	touch $(VENV)/.installed $@

demo: $(VENV)/.installed  ## run the main job on bundled synthetic work: Megha against Pigeon
	$(BIN)/volery demo -o results/demo

check: $(VENV)/.tools  ## for the minute between two edits: lint, types, unit tests without processes, every design once
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build
	$(BIN)/dmypy --status-file build/dmypy.json run
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/unit tests/experiments tests/scripts tests/test_tidy.py tests/test_docs.py tests/conformance/test_once.py

test: $(VENV)/.tools  ## everything that must pass before a change lands; lint, types and import rules run beside the tests
	$(MAKE) --no-print-directory -j 2 unit static

test-newest test-oldest: test-%:  ## the same with the newest or the lowest versions that pyproject.toml permits, installed below build/
	$(MAKE) --no-print-directory VERSIONS=$* VENV=build/$* test

static: lint types imports

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.tools
	$(BIN)/mypy

imports: $(VENV)/.tools
	$(BIN)/lint-imports

unit: $(VENV)/.tools
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

FUZZ_SEED ?= 1
FUZZ_CASES ?= 2000

conformance: export VOLERY_FUZZ_SEED = $(FUZZ_SEED)
conformance: export VOLERY_FUZZ_CASES = $(FUZZ_CASES)
conformance: $(VENV)/.tools  ## all tests: every check on every design and variant, every public simulator, every output and number that the documentation shows, one run of every experiment: an hour and more
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m ""

ROOMS := core roles policies architectures sim live workload metrics statistics study whatif playback faults conformance report cli
# Rooms whose own tests do not stand in tests/unit alone.
TESTS_OF_architectures := tests/scripts
TESTS_OF_cli := tests/live/cli
TESTS_OF_conformance := tests/conformance/test_mutants.py
TESTS_OF_faults := tests/faults/test_recovery.py
TESTS_OF_live := tests/live
TESTS_OF_playback := tests/live/playback

coverage: $(ROOMS:%=coverage-%)  ## the percentage of lines of each room that its own tests reach

coverage-%: $(VENV)/.tools
	@mkdir -p build
	@rm -f build/coverage.$* build/coverage.$*.*
	@$(BIN)/python -m coverage run --data-file=build/coverage.$* --source=src/volery/$* -m pytest -q -p no:cacheprovider -m "" tests/unit/$* $(TESTS_OF_$*) > build/coverage-$*.txt
	@$(BIN)/python -m coverage combine -q --append --data-file=build/coverage.$*
	@echo "$* $$($(BIN)/python -m coverage report --data-file=build/coverage.$* --format=total) %"

bench: $(VENV)/.installed  ## speed and memory as JSON, in CPU seconds
	$(BIN)/python benchmarks/lab.py

bench-parts: $(VENV)/.installed  ## CPU seconds of a summary, a comparison, the help and the reading of traces, as JSON
	$(BIN)/python -m benchmarks.parts

bench-table: $(VENV)/.installed  ## CPU seconds and peak memory of reading a million rows of `sacct -P`, as JSON; two minutes
	$(BIN)/python -m benchmarks.table

bench-matching: $(VENV)/.installed  ## the cost of matching against workers and constraints, as JSON, in CPU seconds; 20 seconds
	$(BIN)/python benchmarks/matching.py

bench-calibration: $(VENV)/.tools  ## how well the lab with calibrated costs predicts a live federation, as JSON
	$(BIN)/python benchmarks/calibration.py

bench-calibration-nats: $(VENV)/.tools  ## likewise over NATS, each host a process; needs nats-server
	$(BIN)/python -m benchmarks.calibration_nats

bench-prototypes: $(VENV)/.tools  ## the prototypes of two papers on 120 live nodes against the lab, as JSON; needs the traces; an hour
	$(BIN)/python -m benchmarks.prototypes

bench-serving: $(VENV)/.tools  ## speed, latency and memory of a federation in one process, as JSON
	$(BIN)/python benchmarks/serving.py

bench-dashboard: $(VENV)/.tools  ## what open pages cost a federation and a browser, as JSON; needs chromium; twenty minutes
	$(BIN)/python -m benchmarks.dashboard

# Ray stands in an environment of its own, beside the tree; where it cannot be had, its line says so.
PEERS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/volery/peers
LIVE := build/bench-live.jsonl

bench-live: $(VENV)/.tools  ## the federation over NATS with TLS, real processes, and Ray and Dask beside it, as JSON; needs nats-server
	mkdir -p build
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --require-hashes --requirement requirements/peers.txt || true
	$(BIN)/python -m benchmarks.federation | tee $(LIVE)
	$(BIN)/python benchmarks/live.py "megha processes" "megha reliable processes" --jobs 10000 | tee -a $(LIVE)
	$(BIN)/python benchmarks/peers.py dask | tee -a $(LIVE)
	$(PEERS)/bin/python benchmarks/peers.py ray | tee -a $(LIVE) || true
	$(BIN)/python benchmarks/peers.py --against $(LIVE) | tee -a $(LIVE)

bench-pipeline: $(VENV)/.installed  ## speed of schedulers assembled from stages, as JSON, in CPU seconds
	$(BIN)/python benchmarks/pipeline.py

bench-browse: $(VENV)/.tools  ## what a results folder of 10,000,000 jobs costs to look at, as JSON; needs chromium and 2 GB of disk
	$(BIN)/python benchmarks/browse.py

storm: $(VENV)/.installed  ## 2,000 fault storms per family of designs
	$(BIN)/volery storm -a megha -a megha-2021 -a pigeon --seeds 2000 -p $(JOBS)

CHAOS := --design megha
SEED := 1
chaos: $(VENV)/.tools  ## ten minutes of harm to a live federation of real processes; needs nats-server
	$(BIN)/python -m tests.live.chaos --minutes 10 --seed $(SEED) $(CHAOS)

starts: $(VENV)/.tools  ## 300 starts of all hosts at once, but one that is dead for good: each is at work within its limit; needs nats-server
	$(BIN)/python -m tests.live.chaos.starts

chaos-ci: $(VENV)/.tools  ## ninety seconds of it for each of four designs, two with certificates
	$(BIN)/python -m tests.live.chaos --minutes 1.5 --seed $(SEED) --design megha --tls
	$(BIN)/python -m tests.live.chaos --minutes 1.5 --seed $(SEED) --design megha-2021 --amounts --tls
	$(BIN)/python -m tests.live.chaos --minutes 1.5 --seed $(SEED) --design pigeon
	$(BIN)/python -m tests.live.chaos --minutes 1.5 --seed $(SEED) --design sparrow

figure: $(VENV)/.installed  ## the figure of README.md, from the command that stands above it there
	$(BIN)/volery compare megha pigeonc pigeonc:constraint_counting=published-code --trace syn:250x300 --workers 10000 \
		--constraints sharma2011 --seeds 3 -o build/first --force
	$(BIN)/volery report build/first --pictures build/first/pictures
	cp build/first/pictures/delay-0-all.svg docs/figures/first-delay.svg

screenshot: $(VENV)/.tools  ## the picture of the dashboard in docs/how-to/watch-a-federation.md; needs chromium
	$(BIN)/python -m tests.live.dashboard.screenshot

reproduce: $(VENV)/.installed  ## every experiment of the lab book, and the pages of its claims (long)
	$(BIN)/python -m experiments run -p $(JOBS)
	$(MAKE) --no-print-directory papers

papers: $(VENV)/.installed  ## the pages of the lab book from its records: docs/papers, docs/findings.md, and every claim in build/papers/index.html
	$(BIN)/python -m experiments pages

parity: $(VENV)/.tools  ## run every scenario on a real Slurm (installed, as root; half an hour), and compare it with the lab; docs/reference/parity.md
	$(BIN)/python -m parity record -p $(JOBS)
	$(BIN)/python -m parity page

docs: $(VENV)/.docs  ## the documentation as a site, in build/docs/index.html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs

$(VENV)/.docs: requirements/docs.txt $(VENV)/.installed
	$(call install,docs,[docs])
	touch $@

# One resolution for every Python and machine; what a smaller set has too, it has in the version of the tests.
COMPILE = $(UV) pip compile --no-config --universal --python-version 3.11 --generate-hashes --upgrade --no-emit-index-url \
	--no-annotate --custom-compile-command 'make lock'
lock: | $(BIN)/python  ## renew requirements/ from pyproject.toml, with the newest versions that it permits
	$(PIP) --require-hashes --requirement requirements/lock.txt
	$(COMPILE) pyproject.toml --extra dev --group build --output-file requirements/test.txt
	$(COMPILE) pyproject.toml --extra live --group build --constraint requirements/test.txt --output-file requirements/run.txt
	$(COMPILE) pyproject.toml --extra docs --group build --constraint requirements/test.txt --output-file requirements/docs.txt
	$(COMPILE) --group peers --output-file requirements/peers.txt
	$(COMPILE) --group lock --output-file requirements/lock.txt

clean:
	rm -rf $(VENV) build results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
