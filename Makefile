# make quickstart   environment, then the whole job on real text: prepare, plan, train, evaluate, report
# make test         environment, then everything that is checked before a change is taken
# make test-fast    the same without the slow tests
# make verify       drawn layouts of small models held against one process; writes the table in docs/numerics.md
# make drill        300 kills of drawn ranks at drawn instants and 100 frozen ranks, over eight layouts
# make examine      the doctor's examination: some 380 runs in which something drawn is wrong, or nothing; writes the table
#                   in docs/diagnosis.md
# make lint         style, types and import floors only
# make clean        remove the environment and caches; runs and prepared text are kept

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help quickstart test test-fast verify drill examine lint clean
.DELETE_ON_ERROR:

help:
	@sed -n '1,/^$$/s/^# //p' Makefile

quickstart: $(VENV)/quickstart.installed
	$(BIN)/stoker run examples/quickstart/recipe.yaml

test: lint
	$(PYTEST)

test-fast: lint
	$(PYTEST) -m "not slow"

verify: $(VENV)/test.installed
	$(BIN)/python benchmarks/verified_layouts.py
	$(PYTEST) -m thorough

drill: $(VENV)/test.installed
	$(BIN)/python benchmarks/drills.py

examine: $(VENV)/test.installed
	$(BIN)/python benchmarks/examination.py --seeds final

lint: $(VENV)/test.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Torch first, so that pip settles everything else around that one version.
$(VENV)/torch.installed: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Stoker needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version); use make PYTHON=..." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install torch==2.13.0 -c constraints.txt
	@touch $@

$(VENV)/quickstart.installed: $(VENV)/torch.installed pyproject.toml
	$(PIP) install -c constraints.txt -e '.[quickstart]'
	@touch $@

$(VENV)/test.installed: $(VENV)/torch.installed pyproject.toml
	$(PIP) install -c constraints.txt -e '.[test,lint]'
	@touch $@ $(VENV)/quickstart.installed
