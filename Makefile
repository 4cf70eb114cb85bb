# Needs python3 (3.11 or later, with venv) and make; everything else goes into .venv.
# `make help` lists what there is.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := build/demo
NODES  ?= 64
SEED   ?= 7
HOST   ?= 127.0.0.1
PORT   ?= 8000
STUDY  ?= examples/study-lab.toml
SEEDS  ?= 1-10
TABLES ?= docs/study

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test serve lint bench study docs wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.stamp-run ## generate a cluster, solve a round, print decision, budgets and proofs
	@mkdir -p $(DEMO)
	@echo "cpalloc generate --nodes $(NODES) --seed $(SEED) --output $(DEMO)/round.json"
	@$(BIN)/cpalloc generate --nodes $(NODES) --seed $(SEED) --output $(DEMO)/round.json
	@echo "cpalloc solve $(DEMO)/round.json --output $(DEMO)/answer.json"
	@$(BIN)/cpalloc solve $(DEMO)/round.json --output $(DEMO)/answer.json
	@echo "cpalloc check $(DEMO)/round.json $(DEMO)/answer.json"
	@$(BIN)/cpalloc check $(DEMO)/round.json $(DEMO)/answer.json

test: $(VENV)/.stamp-dev ## run the tests, in parallel
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

serve: $(VENV)/.stamp-run ## serve over HTTP on HOST:PORT (127.0.0.1:8000)
	$(BIN)/cpalloc serve --host $(HOST) --port $(PORT)

# The checks run to the end even when an early one fails, so that one run shows everything.
lint: $(VENV)/.stamp-dev ## ruff (rules, format), mypy --strict, import contracts, deptry
	@failed=; \
	run() { echo "== $$*"; "$$@" || failed="$$failed $$1"; }; \
	PATH="$(CURDIR)/$(BIN):$$PATH"; \
	run ruff check .; \
	run ruff format --check .; \
	run mypy --strict; \
	run lint-imports; \
	run deptry src --optional-dependencies-dev-groups dev,bench; \
	if [ -n "$$failed" ]; then echo "lint: failed:$$failed" >&2; exit 1; fi

bench: $(VENV)/.stamp-dev ## time the phases of a round
	$(BIN)/python -m pytest bench --benchmark-only $(PYTEST_ARGS)

# Results are kept in build/study, so that a study that was stopped goes on, and one with more seeds runs only those.
study: $(VENV)/.stamp-run ## simulate STUDY with SEEDS (1-10) and write tables and a page to TABLES (docs/study)
	@mkdir -p build/study $(TABLES)
	COLUMNS=180 $(BIN)/cpalloc compare $(STUDY) --seeds $(SEEDS) --output build/study --all \
	  --report $(TABLES)/$(basename $(notdir $(STUDY))).html --parquet $(TABLES)/$(basename $(notdir $(STUDY))).parquet \
	  > $(TABLES)/$(basename $(notdir $(STUDY))).txt

docs: $(VENV)/.stamp-dev ## write the generated documents again: OpenAPI and JSON Schema
	$(BIN)/python -m cpalloc.api.openapi docs/openapi.json
	$(BIN)/python -W ignore::RuntimeWarning:runpy -m cpalloc.schema.jsonschema --write docs/schema

wheel: $(VENV)/.stamp-dev ## build the source distribution and the wheel into dist/
	$(BIN)/python -m build

clean: ## remove the venv, builds and caches
	rm -rf $(VENV) build dist .benchmarks .hypothesis .import_linter_cache .grimp_cache \
	  .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the venv: made once, installed into again only when pyproject.toml changes ---------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "cpalloc needs Python 3.11 or later; $$($(PYTHON) --version 2>&1) is what '$(PYTHON)' is." \
	       "Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: it has no ensurepip." \
	       "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.stamp-run
