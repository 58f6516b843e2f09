# Bare `make` lists what there is. Everything is done by the programs in bin/.
.DEFAULT_GOAL := help
.PHONY: help setup demo down test test-terraform test-compose proof lint pins clean

PYTHON ?= python3
UPGRADE ?=
BASE ?=
PROOF ?=

help: ## list the targets
	@echo 'Deltaworks: a streaming lakehouse that Airflow runs. Start with "make demo".'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1 | \2/p' $(MAKEFILE_LIST) | awk -F' [|] ' '{ printf "%-21s %s\n", $$1, $$2 }'

setup: ## make the environments (.venv) and fetch the jars (.jars); what is current is left alone
	@$(PYTHON) bin/setup

demo: setup ## start everything, wait until gold is fresh and the ledger balances, and show it
	@bin/deltaworks demo

down: ## stop every process of the local stack
	@bin/deltaworks down

test: ## lint and all tests; bin/test unit tidy runs single groups
	@$(PYTHON) bin/setup --environments
	@bin/test --set-up "$(PYTHON)"

test-terraform: ## terraform/ against mocked providers and an emulator of AWS; what is not on this machine is skipped with the reason
	@$(PYTHON) bin/setup --only terraform
	@bin/test terraform

test-compose: setup ## docker-compose.yml for real: build, up, kills, the comparison of the demo, down (BASE=IMAGE or FILE.tar)
	@.venv/spark/bin/python -m tests.compose $(if $(BASE),--base "$(BASE)")

proof: setup ## die at every step of every kind of table, do every fault to a stack, test by other seeds and without direct plans; long (PROOF="--app shop" does that part of the first alone)
	@.venv/spark/bin/python -m tests.proof $(PROOF)
	@$(if $(PROOF),true,.venv/spark/bin/python -m tests.chaos.faults --random-seeds 20 --page)
	@$(if $(PROOF),true,.venv/spark/bin/python -m tests.shapes --shapes 40)
	@$(if $(PROOF),true,.venv/spark/bin/python -m tests.differential --seeds 10 --first $$(date +%s))
	@$(if $(PROOF),true,bin/test --seed random --whole unit spark stack)
	@$(if $(PROOF),true,bin/test --ordinary --whole unit spark stack)

lint: setup ## Ruff and mypy
	@bin/test lint

pins: setup ## renew requirements/*.txt and jars.sha256 from *.in and ivy.xml (UPGRADE=--upgrade takes newer versions)
	@cd requirements && for name in tools build spark airflow terraform; do \
	  ../.venv/tools/bin/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 \
	    $(UPGRADE) $$name.in --output-file $$name.txt || exit 1; done
	@$(PYTHON) bin/setup --relist

clean: ## remove environments, jars and caches; data in .deltaworks stays
	@rm -rf .venv .jars .mypy_cache .ruff_cache .pytest_cache reports
	@find . -path ./.deltaworks -prune -o -type d '(' -name __pycache__ -o -name .ruff_cache ')' -prune -exec rm -rf {} +
