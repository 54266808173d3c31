# Every chore is one command, and each one makes what it needs; `make help` lists them.
# The environment is .venv. On a machine where pip finds several builds of torch, choose with TORCH_INDEX (docs/dependencies.md).
PYTHON ?= python3
TORCH_INDEX ?=
WORKERS ?= 2
SEARCH_EXAMPLES ?= 5000
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
TORCH := $(shell grep '^torch==' requirements/ci.txt)

# One thread a process: the tests' models are tiny, and threads that wait for each other cost more than they bring.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
.PHONY: help setup demo test proof search theorem mutants check lint types imports sizes waist format bench docs clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv with the exact versions of requirements/ci.txt and this package, editable

# pip is pinned because newer ones ignore caps on versions in isolated build environments; for the same reason the package is
# built without isolation, by the setuptools that is pinned like everything else. torch goes first, alone, so that no other
# package can ask for another build of it.
$(STAMP): pyproject.toml requirements/ci.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the pinned environment needs Python 3.11 or later: make setup PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip==26.1
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	$(PIP) --requirement requirements/ci.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)  ## load a real model and generate the same text plainly and speculatively
	$(BIN)/draftproof pull
	$(BIN)/python examples/demo.py

test: $(STAMP)  ## run the test suite (no downloads, under ten minutes on two cores)
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS)

proof: $(STAMP)  ## sum the exact law of the whole decode loop over the full product of cases
	$(TEST_ENV) $(BIN)/python -m pytest tests/exact tests/search -n $(WORKERS) -m proof

search: $(STAMP)  ## look for laws, drafts and parameters that a rule does not keep (SEARCH_EXAMPLES of them)
	$(TEST_ENV) SEARCH_EXAMPLES=$(SEARCH_EXAMPLES) $(BIN)/python -m pytest tests/exact/test_random_laws.py tests/search -n $(WORKERS) -m search

theorem: $(STAMP)  ## check the proofs in proofs/ where Coq is installed, and say what is missing where it is not
	$(BIN)/python tools/theorem.py

mutants: $(STAMP)  ## plant faults in a copy of the package, one at a time, and see that tests fail (resumable)
	$(TEST_ENV) PYTHONPATH=tools $(BIN)/python -m mutants --workers $(WORKERS)

check: lint types imports sizes waist docs theorem  ## formatting, lint, types, the direction of imports, sizes, declared members, the pages, the proofs

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports --no-logo

sizes: $(STAMP)
	$(BIN)/python tools/check_sizes.py src benchmarks examples tools tests

waist: $(STAMP)
	$(BIN)/python tools/check_waist.py src benchmarks examples labs tools tests

format: $(STAMP)  ## rewrite the sources as `check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)  ## check that the pages agree with the tree: links, named files, make targets, folders
	$(BIN)/python tools/check_docs.py

bench: $(STAMP)  ## measure the default model against plain decoding and transformers (about ten minutes, resumable)
	$(BIN)/draftproof pull
	$(BIN)/python benchmarks/real_models.py smollm2 --repeat 2 --out out/smollm2.jsonl
	$(BIN)/python benchmarks/real_models.py report out/smollm2.jsonl

clean:  ## remove what the commands above made, the environment included
	rm -rf $(VENV) build dist out site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -rf proofs/out proofs/*.vo proofs/*.vok proofs/*.vos proofs/*.glob proofs/.*.aux
