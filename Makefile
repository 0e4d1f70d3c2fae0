# Two commands: `make demo` and `make test`. Each sets itself up in .venv; all that is fetched comes from the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PROJECTS := ruleworld-data/pyproject.toml dynarule/pyproject.toml benchmarks/pyproject.toml
# No stage may look for models or data on a hub.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help demo test test-slow lint ruff mypy pytest docs coverage clean

help:
	@echo "make demo       every method on the bundled model, with an HTML report (QUICK=1: one question a task)"
	@echo "make test       all tests but the slow ones, and the linters"
	@echo "make test-slow  the tests that take minutes or an environment of their own"
	@echo "make docs       the documentation with its reference, in build/site"
	@echo "make coverage   tests of ruleworld-data with line coverage"
	@echo "make clean      remove .venv, caches and runs"

# The CPU build of torch comes first: a plain install would fetch gigabytes of CUDA libraries.
$(INSTALLED): constraints.txt $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, found $$($(PYTHON) --version); try: make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
	  -e "ruleworld-data[evaluate,lm-eval,solver]" -e "dynarule[documents,encoders,serve,train]" -e "benchmarks[dense,endpoint,gguf,models]" \
	  confusable-homoglyphs hypothesis jsonschema mkdocs-material "mkdocstrings[python]" mypy pandas-stubs pytest pytest-cov pytest-xdist \
	  ranx ruff types-PyYAML
	@touch $@

demo: $(INSTALLED)
	$(BIN)/rwbench run demo --limit $(if $(QUICK),1,2) --jobs 2 --out runs
	$(BIN)/rwbench trace runs --method dynarule-plus --size 1000
	@echo "Next, a pretrained model, SmolLM2-135M: $(BIN)/rwbench models add smollm2"

# mypy takes a minute on one core, which the tests need not wait for.
test: ruff
	@$(MAKE) --no-print-directory --jobs 2 mypy pytest

pytest: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

test-slow: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt -e "ruleworld-data[ray]" torchao bitsandbytes
	$(BIN)/python -m pytest -m slow

lint: ruff mypy

ruff: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(INSTALLED)
	$(BIN)/mypy

docs: $(INSTALLED)
	$(BIN)/mkdocs build --quiet --config-file .docs/mkdocs.yml

coverage: $(INSTALLED)
	$(BIN)/python -m pytest tests/data --cov=ruleworld_data --cov-report=term-missing:skip-covered

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage runs
