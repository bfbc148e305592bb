# One command each for people and for CI (.ci/run calls the same). The first one makes .venv, which is all they need.
#
#   make demo     the main job without a daemon: a pipeline of commands, then the library's example
#   make test     the tests; ARGS='-k cancel' chooses among them
#   make check    format, lint, types, import contracts, and whether the migrations agree with the tables
#   make real     recorded workflows through a daemon that is killed on the way; ARGS='--seed 7' repeats a run
#   make soak     crash recovery for SOAK_MINUTES=60: fresh seeds, kills, faults; exits 1 at the first failure
#   make bench    throughput, memory and start-up figures, as JSON lines
#   make clean    remove what these commands made, .venv included

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
TEST_PROCESSES ?= 2
SOAK_MINUTES ?= 60

.PHONY: help demo test check real soak bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "schedd needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: .venv/.installed
	$(BIN)/schedctl run examples/ci.yaml
	$(BIN)/python examples/ci_pipeline.py

test: .venv/.installed
	$(BIN)/pytest -n $(TEST_PROCESSES) $(ARGS)

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=daemon:bench $(BIN)/mypy bench/*.py examples/*.py
	$(BIN)/lint-imports
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; set -x; \
	$(BIN)/python -m schedd.store.migrate "$$scratch/schedd.db"; \
	$(BIN)/alembic -x db="$$scratch/schedd.db" check

real: .venv/.installed
	$(BIN)/python bench/real.py $(ARGS)

soak: .venv/.installed
	$(BIN)/python bench/soak.py --minutes $(SOAK_MINUTES) --processes $(TEST_PROCESSES) $(ARGS)

bench: .venv/.installed
	$(BIN)/python bench/throughput.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/startup.py

clean:
	rm -rf .venv dist build bench/out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
