# Everything a developer runs. Works with GNU make 3.81 and later (what macOS has).
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CODE   := $(wildcard src tests examples benchmarks experiments)

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench experiments soak clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## Make .venv with the exact versions of constraints.txt, and Kasen in it

# Rebuilt only when what it depends on has changed; a .venv that is already there is brought up to date.
$(STAMP): pyproject.toml constraints.txt
	@python=$$(sh scripts/preflight.sh) && { test -x $(BIN)/python || "$$python" -m venv $(VENV); }
	@echo "Installing into $(VENV); the first time this takes some minutes, as Spark is large."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "Compiling the kernels; this takes some minutes, once."
	@$(BIN)/python -m kasen.engine.kernels
	@touch $@

run: setup ## Run the demonstration
	$(BIN)/kasen demo

# Three workers: two compute while the third waits for processes that its tests have started.
test: setup ## Run the tests on two cores (all but the soak tests)
	@sh scripts/preflight.sh >/dev/null
	$(BIN)/python -m pytest -q -n 3

check: setup ## Lint, formatting, types, who may import whom, and what stands twice
	$(BIN)/ruff check $(CODE) scripts
	$(BIN)/ruff format --check $(CODE) scripts
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/duplicates.py src

bench: setup ## Measure Kasen against its peers (every script in benchmarks/)
	@sh scripts/run_all.sh benchmarks $(BIN)/python

experiments: setup ## Regenerate the figures of the papers (every script in experiments/)
	@sh scripts/run_all.sh experiments $(BIN)/python

soak: setup ## Run the tests that take minutes
	@sh scripts/preflight.sh >/dev/null
	$(BIN)/python -m pytest -q -m soak

clean: ## Remove .venv, caches and everything that programs wrote
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log examples/*/out examples/*/big benchmarks/out experiments/out
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
