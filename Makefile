# Everyday commands. `make` alone lists them; scripts/demo and scripts/test need none of this.

BIN := .venv/bin
QUIET := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(QUIET) $(BIN)/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types imports unit e2e lab matrix assets docs bench-ablation bench-ablation-tag bench-staleness bench-algorithms bench clean

help:     ## list these commands
	@sed -n 's/^\([a-z0-9-]*\): *\(setup\)\{0,1\} *## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup:    ## make .venv, or bring it up to date
	sh scripts/setup

demo:     ## see a reward rise: scripts/demo
	sh scripts/demo

test:     ## every check: scripts/test
	sh scripts/test

lint: setup ## find mistakes and wrong formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: setup ## mend what can be mended by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: setup ## mypy, strict
	$(BIN)/mypy

imports: setup ## which package may import which
	$(BIN)/lint-imports

unit: setup ## tests without clusters of real processes
	$(PYTEST) --ignore=tests/e2e --ignore=tests/faults --ignore=tests/lab

e2e: setup ## tests on a cluster of real processes
	$(PYTEST) tests/e2e tests/faults

lab: setup ## tests on machines with a real systemd (needs root)
	DIGEND_LAB=required $(PYTEST) tests/lab

matrix: setup ## whole matrices, too long for every day
	$(PYTEST) -m matrix -o faulthandler_timeout=0 --timeout 1800

assets: setup ## make the demo's model and classifiers anew (about 10 minutes)
	$(BIN)/python -m scripts.assets.make

docs: setup ## write the pages, configs/digend.toml and configs/schema that come from the code
	$(BIN)/python -m digend.config.docs
	$(BIN)/python -m daemons.metrics.page

bench-ablation: setup ## the live ablation: real daemons on pinned cores, about 10 minutes
	$(QUIET) $(BIN)/python -m benchmarks.live_ablation

bench-ablation-tag: setup ## the same where generators are the bottleneck, three times in turns, about 10 minutes
	$(QUIET) $(BIN)/python -m benchmarks.live_ablation --case generation --prompts 16 --repeats 3

bench-staleness: setup ## reward with and without staleness, five seeds each, about 20 minutes
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[benchmarks]'
	$(QUIET) $(BIN)/python -m benchmarks.staleness_curves

bench-algorithms: setup ## the demo under each algorithm, about 10 minutes
	$(QUIET) $(BIN)/python -m benchmarks.algorithm_curves

bench: setup ## all that needs no running cluster; results on stdout
	for name in startup tag_search core_throughput robustness paper_figures thousand_workers; do \
	    $(QUIET) $(BIN)/python -m benchmarks.$$name || exit 1; done

clean:    ## remove what tools left behind; keeps .venv, .digend and runs
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -exec rm -rf {} +
