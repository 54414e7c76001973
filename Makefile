# Everything a person does with this project. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.compiled
KERNELS := $(shell find grouplearn/kernels/source -name "*.[ch]pp") grouplearn/kernels/build/compiling.py
FLIGHTS := build/flights.duckdb

EXAMPLES ?= 60
SEED ?= $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types contracts unit thorough lowest dispatch aarch64 sanitize forecasts dialects fuzz extension wheel bench docs clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

INSTALL := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet -c constraints.txt --editable

# Each installation compiles the kernels for this processor.
$(DEMO): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): packages (some 150 MB) and kernels for this processor, about two minutes on two cores."
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(INSTALL) '.[demo]'
	@touch $@

$(INSTALLED): $(DEMO)
	@echo "Setting up what the tests need (some 700 MB)."
	@$(INSTALL) '.[all,demo]' --group test
	@touch $@

# This is for those who change the kernels.
$(STAMP): $(INSTALLED) $(KERNELS)
	$(BIN)/python -m grouplearn.kernels.build.compiling >/dev/null
	touch $@

demo: $(DEMO)  ## set up, then train one model per carrier on 336,776 real flights
	@$(BIN)/python -m grouplearn.kernels.build.compiling >/dev/null
	mkdir -p build
	$(BIN)/python -m grouplearn.frontends.shell.flights $(FLIGHTS)
	$(BIN)/grouplearn $(FLIGHTS) -echo -f sql/examples/flights.sql

test: check  ## set up, then pass everything: lint, types, import contracts, tests

check: lint types contracts unit

lint: $(STAMP)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## strict mypy
	$(BIN)/mypy

contracts: $(STAMP)  ## imports go downward only
	$(BIN)/lint-imports

# A third of their time tests wait for processes that begin or end: four files at a time keep two cores busy.
unit: $(STAMP)  ## the tests, four files at a time
	$(BIN)/python -m pytest -n 4 --dist loadfile

thorough: $(STAMP)  ## the tests with every case, of which `make test` tries some where each trains models or starts a cluster (nightly)
	GROUPLEARN_THOROUGH=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lowest:  ## the tests with the oldest versions that pyproject.toml allows, in an environment of their own
	PYTHON=$(PYTHON) .ci/lowest $(TESTS)

dispatch: $(STAMP)  ## the tests that another processor could decide, as if on others (minutes)
	PYTHON=$(BIN)/python .ci/dispatch

aarch64: $(STAMP)  ## the kernels of ARM, emulated: the same bits as here? (needs qemu; minutes)
	PYTHON=$(BIN)/python .ci/aarch64 $(TESTS)

sanitize: $(INSTALLED)  ## the tests of the kernels, looking for accesses beyond arrays and undefined behaviour (minutes)
	PYTHON=$(BIN)/python .ci/sanitize

forecasts: $(STAMP)  ## forecasts against those of R's package forecast (needs r-cran-forecast; a minute)
	$(BIN)/python .ci/forecasts

dialects: $(STAMP)  ## predictions by exported SQL in a real Postgres against ours (needs postgresql; a minute)
	GROUPLEARN_POSTGRES=1 $(BIN)/python -m pytest -q tests/exchange/test_postgres.py

fuzz: $(STAMP)  ## random statements over random tables, an hour of them, and poisoned files; EXAMPLES=5 of each rule, SEED=1 again
	GROUPLEARN_EXPLORE=1 GROUPLEARN_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/metamorphic -n 2 --hypothesis-seed=$(SEED)
	GROUPLEARN_EXPLORE=1 $(BIN)/python -m pytest tests/catalog/test_poisoned.py -n 2

extension: $(STAMP)  ## build the extension for the duckdb shell and for Python (of some: VERSIONS="1.5.6 2.0.0")
	$(BIN)/python -m grouplearn.frontends.native.build $(VERSIONS)

wheel:  ## a wheel with the extension in it, in dist/, tried where there is no compiler (minutes)
	PYTHON=$(PYTHON) .ci/wheel

bench: $(STAMP)  ## time us and the alternatives side by side (minutes)
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script || exit 1; done

# With --quiet mkdocs counts no warnings, and a broken link would pass.
docs: $(DEMO)  ## the site of docs/, in build/site
	@$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict -f .ci/mkdocs.yml

clean:  ## remove what the other targets made
	rm -rf $(VENV) build udfs/extensions grouplearn/kernels/*.so *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
