# `make` alone prints what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install -qq

# the first Python that is new enough; PYTHON=... overrides
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

.PHONY: help
help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PY):
	@if [ -z "$(PYTHON)" ]; then echo "tachograph: needs Python 3.11 or newer with venv; install one or set PYTHON=" >&2; exit 2; fi
	@echo "tachograph: making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt pyproject.toml | $(PY)
	@echo "tachograph: installing what the runtime needs (once, needs a package index) ..."
	@$(PIP) -r requirements.txt && $(PIP) -e . --config-settings editable_mode=compat
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	@echo "tachograph: installing what tests and lint need (once) ..."
	@$(PIP) -r requirements-dev.txt
	@touch $@

.PHONY: setup
setup: $(VENV)/.dev ## make the virtual environment and install everything

.PHONY: canonical
canonical: $(VENV)/.runtime ## run the canonical task and record it in runs/canonical/v1
	@$(PY) -m tachograph run tasks/canonical/v1.yaml

.PHONY: canonical-check
canonical-check: $(VENV)/.runtime ## make the canonical run again and compare it byte for byte
	@$(PY) -m tachograph check runs/canonical/v1

.PHONY: policy-gates
policy-gates: $(VENV)/.runtime ## record the policy gate scenarios; SCENARIO=name for one
	@$(PY) -m dev.build policy_gates $(SCENARIO)

.PHONY: policy-gates-check
policy-gates-check: $(VENV)/.runtime ## check the policy gate runs; SCENARIO=name for one
	@$(PY) -m dev.build --check policy_gates $(SCENARIO)

.PHONY: failure-modes
failure-modes: $(VENV)/.runtime ## record the failure mode scenarios; SCENARIO=name for one
	@$(PY) -m dev.build failure_modes $(SCENARIO)

.PHONY: failure-modes-check
failure-modes-check: $(VENV)/.runtime ## check the failure mode runs; SCENARIO=name for one
	@$(PY) -m dev.build --check failure_modes $(SCENARIO)

.PHONY: evidence-build
evidence-build: $(VENV)/.runtime ## record every task; write index and generated pages
	@$(PY) -m dev.build

.PHONY: evidence-check
evidence-check: $(VENV)/.runtime ## make every committed run again and compare; runs, tasks and index both ways
	@$(PY) -m tachograph check

.PHONY: verify
verify: $(VENV)/.runtime ## check the records in themselves, without running anything
	@$(PY) -m tachograph verify

.PHONY: regression
regression: $(VENV)/.runtime ## the runs of BASE=commit (default HEAD) against today's code
	@$(PY) -m dev.regression "$(BASE)"

.PHONY: smoke
smoke: $(VENV)/.runtime ## capability table, policy, tasks, runs and index against each other
	@$(PY) -m dev.smoke smoke

.PHONY: smoke-runtime
smoke-runtime: $(VENV)/.dev ## the tests of loop, gate and retry
	@for part in loop/test_loop policy/test_gate loop/test_retry; do $(PY) -m pytest -q -p no:cacheprovider tests/runtime/$$part.py || exit 1; done
	@echo "smoke-runtime: loop, gate and retry pass"

.PHONY: trace-smoke
trace-smoke: $(VENV)/.runtime ## every trace against opentelemetry-proto, its tree and attributes
	@$(PY) -m dev.smoke trace-smoke

.PHONY: tool-smoke
tool-smoke: $(VENV)/.runtime ## each tool through an agent, with a good and a bad call
	@$(PY) -m dev.smoke tool-smoke

.PHONY: pythons
pythons: ## check the committed runs with every other CPython from 3.11 that is found
	@bash tests/pythons.sh

.PHONY: sabotage
sabotage: $(VENV)/.dev ## one-line mutations of the code: each must turn a check red; ARGS="--sample" or ids
	@$(PY) tests/sabotage/run.py $(ARGS)

.PHONY: policy-test
policy-test: $(VENV)/.runtime ## hold the policy and its overlays against policy/tests; ARGS="--junit FILE"
	@$(PY) -m tachograph policy test $(ARGS)

.PHONY: policy-coverage
policy-coverage: $(VENV)/.runtime ## change the policy bit by bit: every change must be noticed
	@$(PY) -m tachograph policy coverage $(ARGS)

.PHONY: fixture-build
fixture-build: $(VENV)/.runtime ## write the corpus manifest from the documents
	@$(PY) data/corpus/fixture.py build

.PHONY: fixture-check
fixture-check: $(VENV)/.runtime ## check the corpus against its manifest
	@$(PY) data/corpus/fixture.py check

.PHONY: test
test: $(VENV)/.dev ## run the tests
	@$(PY) -m pytest -q -n auto $(ARGS)

$(VENV)/.fuzz: requirements-fuzz.txt $(VENV)/.runtime
	@echo "tachograph: installing what fuzzing needs (once) ..."
	@$(PIP) -r requirements-fuzz.txt 2>/dev/null || true
	@touch $@

.PHONY: policy-pairs
policy-pairs: $(VENV)/.dev ## compare 5,000 generated pairs of rules on tools and of principals with trying everything
	@TACHOGRAPH_POLICY_PAIRS=5000 $(PY) -m pytest -q tests/review/compare/test_conditions.py \
		tests/review/compare/test_tool_reach.py tests/review/compare/test_by_principal.py \
		tests/review/compare/test_time_windows.py

.PHONY: fuzz
fuzz: $(VENV)/.fuzz ## bounded fuzzing of the gate and of what reads untrusted text; ARGS="--seconds 60 --seed 7"
	@$(PY) fuzz/run.py $(ARGS)

.PHONY: faults
faults: $(VENV)/.dev ## kill, tear, fill and flip: runs must survive it; ARGS="--only NAME", "--sample" or "--list"
	@$(PY) -m tests.faults.run $(ARGS)

.PHONY: group-orders
group-orders: $(VENV)/.dev ## calls that run together, in 200 orders each: the record must not change
	@TACHOGRAPH_GROUP_ORDERS=full $(PY) -m pytest -q -n auto tests/properties/test_groups*.py tests/runtime/journal/test_kept_groups.py

.PHONY: forgeries
forgeries: $(VENV)/.dev ## forge every field of every recorded run: check must find it; ARGS="--sample"
	@$(PY) -m tests.evidence.forgeries $(ARGS)

$(VENV)/.live: requirements-live.txt $(VENV)/.dev
	@echo "tachograph: installing the SDKs of live models and of seals (once) ..."
	@$(PIP) -r requirements-live.txt
	@touch $@

.PHONY: test-live
test-live: $(VENV)/.live ## the tests of live models, with the real SDKs over loopback, and of seals
	@$(PY) -m pytest -q tests/providers tests/evidence/sending/test_seal.py tests/test_tutorial.py $(ARGS)

$(VENV)/.adapters: requirements-langchain.txt requirements-agents.txt $(VENV)/.dev
	@echo "tachograph: installing the frameworks that adapters are tested with (once) ..."
	@$(PIP) -r requirements-langchain.txt -r requirements-agents.txt langchain-openai langchain-anthropic
	@touch $@

$(VENV)/.hello-worlds: requirements-hello-worlds.txt $(VENV)/.dev
	@echo "tachograph: installing the libraries beside ours in docs/hello-worlds.md (once, 270 MB) ..."
	@$(PY) -m venv $(VENV)/hello-worlds
	@$(VENV)/hello-worlds/bin/pip install --quiet --disable-pip-version-check -r requirements-hello-worlds.txt
	@touch $@

.PHONY: test-adapters
test-adapters: $(VENV)/.adapters $(VENV)/.live $(VENV)/.hello-worlds ## the adapters with the real LangChain and OpenAI Agents SDK; hello worlds
	@$(PY) -m pytest -q tests/adapters $(ARGS)

$(VENV)/.agentdojo: requirements-agentdojo.txt $(VENV)/.dev
	@echo "tachograph: installing the suites of AgentDojo (once, 290 MB) ..."
	@$(PY) -m venv $(VENV)/agentdojo
	@$(VENV)/agentdojo/bin/pip install --quiet --disable-pip-version-check -r requirements-agentdojo.txt
	@touch $@

.PHONY: agentdojo
agentdojo: $(VENV)/.agentdojo ## what policies without and with lists stop of AgentDojo's injected tasks
	@$(PY) -m pytest -q -s tests/corpora/test_agentdojo_suites.py $(ARGS)

$(VENV)/.browser: requirements-browser.txt $(VENV)/.dev
	@echo "tachograph: installing what drives a browser (once) ..."
	@$(PIP) -r requirements-browser.txt
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .tachograph/browser axe-core@4; \
	else echo "tachograph: no npm: the axe-core tests are skipped" >&2; fi
	@touch $@

.PHONY: browser
browser: $(VENV)/.browser ## pages and site in a real Chromium: keys, search, axe-core; PICTURES=DIR writes pictures
	@TACHOGRAPH_PICTURES="$(PICTURES)" $(PY) -m pytest -q -rs -s tests/browser

.PHONY: receivers
receivers: $(VENV)/.dev ## Phoenix and MLflow on this machine: recorded runs sent and read back (1.3 GB, once)
	@$(PY) tests/receivers/run.py $(ARGS)

.PHONY: live-demo
live-demo: $(VENV)/.runtime ## a real model on this machine runs a task, and the run is recorded (113 MB, once)
	@$(PY) live/demo.py $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## ruff, mypy --strict, one-way imports
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo 2>&1 | tail -6

.PHONY: seal-demo
seal-demo: $(VENV)/.dev ## seal a copy with keys that are thrown away, attack it, show what verify says
	@$(PY) -m dev.seal_demo

.PHONY: bench
bench: $(VENV)/.dev ## measure costs as ratios; gates nothing
	@$(PY) bench/run.py $(ARGS)

.PHONY: release-check
release-check: ## all that CI does, with nothing left to a sample; takes an hour
	@.ci/run --full
