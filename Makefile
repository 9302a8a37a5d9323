# `make` alone prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install -qq

# the first Python that is new enough; PYTHON=... overrides
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# outside test sets: tests that read them are skipped without
CORPORA := TACHOGRAPH_CORPORA="$${TACHOGRAPH_CORPORA-$(abspath $(wildcard ../shared/corpora))}"

.PHONY: help
help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PY):
	@if [ -z "$(PYTHON)" ]; then echo "tachograph: needs Python 3.11 or newer with venv; install one or set PYTHON=" >&2; exit 2; fi
	@echo "tachograph: making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)

# exact versions with hashes; `make lock` alone changes them
$(VENV)/.installed: requirements.lock pyproject.toml | $(PY)
	@echo "tachograph: installing what requirements.lock names (once, needs a package index) ..."
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e . --config-settings editable_mode=compat
	@touch $@

.PHONY: setup
setup: $(VENV)/.installed ## make the virtual environment and install everything

.PHONY: lock
lock: | $(PY) ## choose the newest versions in range and write requirements.lock
	@$(PY) -m venv $(VENV)/uv && $(VENV)/uv/bin/pip install --quiet uv
	@$(VENV)/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-header \
		--no-annotate --no-emit-index-url --no-emit-find-links --output-file requirements.lock requirements-dev.txt

.PHONY: canonical
canonical: $(VENV)/.installed ## run the canonical task and record it in runs/canonical/v1
	@$(PY) -m tachograph run tasks/canonical/v1.yaml

.PHONY: canonical-check
canonical-check: $(VENV)/.installed ## make the canonical run again and compare it byte for byte
	@$(PY) -m tachograph check runs/canonical/v1

.PHONY: policy-gates
policy-gates: $(VENV)/.installed ## record the policy gate scenarios; SCENARIO=name for one
	@$(PY) -m dev.build policy_gates $(SCENARIO)

.PHONY: policy-gates-check
policy-gates-check: $(VENV)/.installed ## check the policy gate runs; SCENARIO=name for one
	@$(PY) -m dev.build --check policy_gates $(SCENARIO)

.PHONY: failure-modes
failure-modes: $(VENV)/.installed ## record the failure mode scenarios; SCENARIO=name for one
	@$(PY) -m dev.build failure_modes $(SCENARIO)

.PHONY: failure-modes-check
failure-modes-check: $(VENV)/.installed ## check the failure mode runs; SCENARIO=name for one
	@$(PY) -m dev.build --check failure_modes $(SCENARIO)

.PHONY: evidence-build
evidence-build: $(VENV)/.installed ## record every task; write index and generated pages
	@$(PY) -m dev.build

.PHONY: evidence-check
evidence-check: $(VENV)/.installed ## make every committed run again and compare; runs, tasks and index both ways
	@$(PY) -m tachograph check

.PHONY: verify
verify: $(VENV)/.installed ## check the records in themselves, without running anything
	@$(PY) -m tachograph verify

.PHONY: regression
regression: $(VENV)/.installed ## the runs of BASE=commit (default HEAD) against today's code
	@$(PY) -m dev.regression "$(BASE)"

.PHONY: smoke
smoke: $(VENV)/.installed ## capability table, policy, tasks, runs and index against each other
	@$(PY) -m dev.smoke smoke

.PHONY: smoke-runtime
smoke-runtime: $(VENV)/.installed ## the tests of loop, gate and retry
	@$(PY) -m pytest -q -n 2 -p no:cacheprovider tests/runtime
	@echo "smoke-runtime: loop, gate and retry pass"

.PHONY: trace-smoke
trace-smoke: $(VENV)/.installed ## every trace against opentelemetry-proto, its tree and attributes
	@$(PY) -m dev.smoke trace-smoke

.PHONY: tool-smoke
tool-smoke: $(VENV)/.installed ## each tool through an agent, with a good and a bad call
	@$(PY) -m dev.smoke tool-smoke

.PHONY: policy-test
policy-test: $(VENV)/.installed ## hold the policy and its overlays against policy/tests; ARGS="--junit FILE"
	@$(PY) -m tachograph policy test $(ARGS)

.PHONY: policy-coverage
policy-coverage: $(VENV)/.installed ## change the policy bit by bit: every change must be noticed
	@$(PY) -m tachograph policy coverage $(ARGS)

.PHONY: fixture-build
fixture-build: $(VENV)/.installed ## write the corpus manifest from the documents
	@$(PY) data/corpus/fixture.py build

.PHONY: fixture-check
fixture-check: $(VENV)/.installed ## check the corpus against its manifest
	@$(PY) data/corpus/fixture.py check

.PHONY: test
test: $(VENV)/.installed ## run the tests
	@$(CORPORA) $(PY) -m pytest -q -n 2 $(ARGS)

.PHONY: ci
ci: ## all that CI does, in a fresh clone of what is committed
	@$(CORPORA) bash dev/ci.sh

.PHONY: live-demo
live-demo: $(VENV)/.installed ## a real model on this machine runs a task, and the run is recorded (113 MB, once)
	@$(PY) live/demo.py $(ARGS)

.PHONY: next
next: $(VENV)/.installed ## the core in next/: types, one-way imports, its tests, its runs checked and verified
	@cd next && ../$(VENV)/bin/mypy && ../$(VENV)/bin/lint-imports --no-logo 2>&1 | tail -6
	@cd next && $(CORPORA) ../$(PY) -m pytest -q -n 2
	@cd next && export PYTHONPATH=. && ../$(PY) -m tachograph run && ../$(PY) -m tachograph check \
		&& ../$(PY) -m tachograph verify && ../$(PY) -m tachograph replay \
		&& ../$(PY) -m tachograph policy test

.PHONY: lint
lint: $(VENV)/.installed ## ruff, mypy --strict, one-way imports
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo 2>&1 | tail -6

