# make demo | test | test-slow | lint | bench | bench-full | revision MESSAGE="..." | schema-page | clean
# Each makes .venv by itself when it is missing. PYTHON chooses the interpreter, e.g. `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n 2 --dist worksteal

.PHONY: demo test test-slow lint bench bench-full revision schema-page clean

demo: $(VENV)/.installed
	$(BIN)/python examples/tiny_grpo.py

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

# The long versions of what `make test` tries in short, hours on a small machine: 500 kills a database, every step, thousands of flipped bits. The soak
# takes SLIME_STORE_SOAK_SECONDS (120) a database; HYPOTHESIS_PROFILE=thorough makes the fuzzing longer.
test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m slow -rA

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks --check

bench-full: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks --full --check

# Writes migrations/versions/NNNN_*.py from the difference between the models and the newest revision. Read it, correct
# it, and add its number to slime_store/schema/revisions.py. A released revision never changes. Views it does not see: a
# revision that changes one, or on PostgreSQL a column that one reads, drops the view first and creates it anew, with its
# whole SQL; what its columns mean is in slime_store/models/views. Then write the page on the schema: make schema-page.
revision: $(VENV)/.installed-dev
	@test -n "$(MESSAGE)" || { echo 'name it: make revision MESSAGE="add ..."'; exit 2; }
	set -e; draft=$$(mktemp -d); trap 'rm -rf "$$draft"' EXIT; \
	$(BIN)/alembic -x store="$$draft/store.db" upgrade head; \
	$(BIN)/alembic -x store="$$draft/store.db" revision --autogenerate -m "$(MESSAGE)"; \
	$(BIN)/ruff format migrations; $(BIN)/ruff check migrations

schema-page: $(VENV)/.installed-dev
	$(BIN)/python -m slime_store.schema.reference > docs/schema.md

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v < (3, 15) else \
	"slime_store needs Python 3.10 to 3.14, and $(PYTHON) is %d.%d; choose another: make PYTHON=python3.12" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -c .ci/constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -c .ci/constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
