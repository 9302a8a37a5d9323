# `make` alone prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install -qq --no-compile
RUN := $(PY) -m tachograph

# the first Python that is new enough; PYTHON=... overrides
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# outside test sets: tests that read them are skipped without
CORPORA := TACHOGRAPH_CORPORA="$${TACHOGRAPH_CORPORA-$(abspath $(wildcard ../shared/corpora))}"

# of tests: one more than a machine with two cores has, since some of them wait; who is done takes tests of the others
WORKERS ?= 3
TESTS := $(PY) -m pytest -q -n $(WORKERS) --dist worksteal

# SCENARIO=name chooses one of the tasks of a kind
tasks_of = $(addprefix $(1)/,$(or $(SCENARIO),$(sort $(notdir $(basename $(wildcard tasks/$(1)/*.yaml))))))

.PHONY: help
help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PY):
	@if [ -z "$(PYTHON)" ]; then echo "tachograph: needs Python 3.11 or newer with venv; install one or set PYTHON=" >&2; exit 2; fi
	@echo "tachograph: making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)

# Exact versions with hashes; `make lock` alone changes them. Python reads the path of an editable install in the
# encoding of the locale, so it is written as a relative one: a checkout may lie in a folder of any name.
$(VENV)/.installed: requirements.lock pyproject.toml | $(PY)
	@echo "tachograph: installing what requirements.lock names (once, needs a package index) ..."
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e . --config-settings editable_mode=compat
	@for file in $(VENV)/lib/python3*/site-packages/__editable__.tachograph*.pth; do echo ../../../.. > "$$file"; done
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
	@$(RUN) run canonical/v1

.PHONY: canonical-check
canonical-check: $(VENV)/.installed ## make the canonical run again and compare it byte for byte
	@$(RUN) check canonical/v1

.PHONY: policy-gates
policy-gates: $(VENV)/.installed ## record the policy gate scenarios; SCENARIO=name for one
	@$(RUN) run $(call tasks_of,policy_gates)

.PHONY: policy-gates-check
policy-gates-check: $(VENV)/.installed ## check the policy gate runs; SCENARIO=name for one
	@$(RUN) check $(call tasks_of,policy_gates)

.PHONY: failure-modes
failure-modes: $(VENV)/.installed ## record the failure mode scenarios; SCENARIO=name for one
	@$(RUN) run $(call tasks_of,failure_modes)

.PHONY: failure-modes-check
failure-modes-check: $(VENV)/.installed ## check the failure mode runs; SCENARIO=name for one
	@$(RUN) check $(call tasks_of,failure_modes)

.PHONY: evidence-build
evidence-build: $(VENV)/.installed ## record every task, write the list of runs and the schema of policies
	@$(RUN) run
	@$(RUN) policy schema > policy/v1.schema.json

.PHONY: evidence-check
evidence-check: $(VENV)/.installed ## make every recorded run again and compare; runs, tasks and list both ways
	@$(RUN) check

.PHONY: verify
verify: $(VENV)/.installed ## check the records in themselves, without running anything
	@$(RUN) verify

.PHONY: regression
regression: BASE ?= HEAD
regression: $(VENV)/.installed ## the runs of BASE=commit (default HEAD) against today's code
	@place="$$(mktemp -d)" && trap 'rm -rf "$$place"' EXIT \
		&& git archive "$(BASE)" policy tools data tasks $$(git ls-tree --name-only "$(BASE)" profiles) runs $$(git ls-tree --name-only "$(BASE)" mcp.lock) | tar -x -C "$$place" \
		&& home="$$PWD" && cd "$$place" && "$$home/$(PY)" -m tachograph check

.PHONY: smoke
smoke: $(VENV)/.installed ## the table of runs, policies, tasks and runs against each other
	@$(PY) -m pytest -q -p no:cacheprovider tests/smoke/test_tree.py

.PHONY: smoke-runtime
smoke-runtime: $(VENV)/.installed ## the tests of loop, gate and retry
	@$(TESTS) -p no:cacheprovider tests/test_scenarios.py tests/properties

.PHONY: trace-smoke
trace-smoke: $(VENV)/.installed ## every trace against opentelemetry-proto, its tree and attributes
	@$(PY) -m pytest -q -p no:cacheprovider tests/smoke/test_traces.py

.PHONY: tool-smoke
tool-smoke: $(VENV)/.installed ## each tool through an agent, with a good and a bad call
	@$(PY) -m pytest -q -p no:cacheprovider tests/smoke/test_tools.py

.PHONY: policy-test
policy-test: $(VENV)/.installed ## ask the policies what policy/tests says
	@$(RUN) policy test $(ARGS)

.PHONY: wheel
wheel: $(VENV)/.installed ## build a wheel, install it into an empty environment, and start a project there
	@bash dev/wheel.sh

.PHONY: fixture-build
fixture-build: $(VENV)/.installed ## write the corpus manifest from the documents
	@$(PY) data/corpus/fixture.py build

.PHONY: fixture-check
fixture-check: $(VENV)/.installed ## check the corpus against its manifest
	@$(PY) data/corpus/fixture.py check

.PHONY: bench
bench: $(VENV)/.installed ## measure what governing costs, as ratios; ROUNDS=50
	@$(PY) dev/bench.py

$(VENV)/agentdojo/.installed: requirements.txt requirements-agentdojo.txt | $(PY)
	@echo "tachograph: installing the suites of AgentDojo apart (once, 290 MB, needs a package index) ..."
	@$(PY) -m venv $(VENV)/agentdojo
	@$(VENV)/agentdojo/bin/pip --disable-pip-version-check install -qq -r requirements.txt -r requirements-agentdojo.txt
	@touch $@

$(VENV)/comparison/.installed: requirements.txt requirements-comparison.txt | $(PY)
	@echo "tachograph: installing LangGraph and Strands Agents apart (once, 180 MB, needs a package index) ..."
	@$(PY) -m venv $(VENV)/comparison
	@$(VENV)/comparison/bin/pip --disable-pip-version-check install -qq -r requirements.txt -r requirements-comparison.txt
	@touch $@

.PHONY: release-check
release-check: $(VENV)/agentdojo/.installed $(VENV)/comparison/.installed ## what has to hold for a release, and is too large for CI
	@PYTHONPATH=. $(VENV)/agentdojo/bin/python -P dev/agentdojo.py
	@PYTHONPATH=. $(VENV)/comparison/bin/python -P dev/comparison.py

$(VENV)/receivers/.installed: requirements-receivers.txt | $(PY)
	@echo "tachograph: installing what requirements-receivers.txt names (once, 1.3 GB) ..."
	@$(PY) -m venv --clear $(VENV)/receivers
	@$(VENV)/receivers/bin/pip --disable-pip-version-check install -qq -r requirements-receivers.txt
	@touch $@

.PHONY: receivers
receivers: $(VENV)/.installed $(VENV)/receivers/.installed ## show all runs to Phoenix and MLflow, and ask
	@$(PY) dev/receivers.py

.PHONY: lint
lint: $(VENV)/.installed ## ruff, mypy --strict, one-way imports
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo 2>&1 | tail -6

.PHONY: test
test: $(VENV)/.installed ## run the tests
	@$(CORPORA) $(TESTS) $(ARGS)

.PHONY: ci
ci: ## all that CI does, in a fresh clone of what is committed
	@$(CORPORA) bash dev/ci.sh

.PHONY: live-demo
live-demo: $(VENV)/.installed ## a real model on this machine answers under the policy (113 MB, once)
	@$(PY) live/demo.py $(ARGS)
