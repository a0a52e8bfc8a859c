# Every target starts from a bare checkout: it makes first what it needs, and skips what is already there.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest --dist loadgroup
export PYTHON

# A stamp is named after the content it was made from, so a checkout of another commit is noticed too.
digest = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-16)
# What there is of Python outside the wheel grows step by step; mypy refuses folders that do not exist.
SOURCES := $(wildcard worker operator tests examples benchmarks)
PYTHON_READY := $(VENV)/.ready-$(call digest,pyproject.toml uv.lock tools/setup-python tools/uv)
SERVERS_READY := .cache/servers/.ready-$(call digest,uv.lock tools/setup-servers)
DATABASES_READY := .cache/databases/.ready-$(call digest,tools/setup-databases)
CLIENTS_READY := .cache/clients/.ready-$(call digest,tests/process/clients/go/go.mod tools/setup-clients)
DOCS_READY := .cache/docs/.ready-$(call digest,uv.lock tools/setup-docs tools/uv)
# Behind the link .cache/kubernetes/bin, in the user's cache directory, where all checkouts find it.
KUBERNETES := $(sort $(wildcard tests/cluster/tools/*/go.*)) tools/setup-kubernetes
SHARED = $${XDG_CACHE_HOME:-$$HOME/.cache}/delayq
KUBERNETES_READY := .cache/kubernetes/bin/.ready-$(call digest,$(KUBERNETES))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(PYTHON_READY) $(SERVERS_READY) $(DATABASES_READY) $(CLIENTS_READY) $(KUBERNETES_READY) $(DOCS_READY) ## Make .venv, find Redis and database servers and PHP, build Kubernetes

$(PYTHON_READY):
	@tools/setup-python
	@rm -f $(VENV)/.ready-* && touch $@

$(SERVERS_READY): | $(PYTHON_READY)
	@tools/setup-servers
	@rm -f .cache/servers/.ready-* && touch $@

$(DATABASES_READY):
	@tools/setup-databases
	@rm -f .cache/databases/.ready-* && touch $@

$(CLIENTS_READY):
	@tools/setup-clients
	@mkdir -p $(@D) && rm -f $(@D)/.ready-* && touch $@

$(KUBERNETES_READY): | $(PYTHON_READY)
	@tools/setup-kubernetes

$(DOCS_READY):
	@tools/setup-docs
	@rm -f .cache/docs/.ready-* && touch $@

.PHONY: run
run: $(PYTHON_READY) ## Run examples/hello: 1,000 delayed tasks on a Redis of their own
	@$(BIN)/python examples/hello/run.py

PARTS := redis process cluster images node
# All cases on one Redis and the verbs on each; `make test-all` leaves nothing out. See docs/contributing/testing.md.
SELECT := -m "not full" --redis=sample

# The parts run side by side, see tests/__main__.py: what they need is made before, once.
.PHONY: test
test: $(DATABASES_READY) $(CLIENTS_READY) $(DOCS_READY) setup-node ## Run the checks and the tests of all tiers
	@$(BIN)/python -m tests

.PHONY: test-all
test-all: $(DATABASES_READY) $(CLIENTS_READY) $(DOCS_READY) setup-node ## Run every test on every Redis, topology and Python: the matrix
	@$(BIN)/python -m tests SELECT='--redis=all --hypothesis-profile=full' test-pythons

# As many at a time as two cores bear: of tests that wait more than they compute, more.
.PHONY: test-alone $(PARTS:%=test-%)
test-alone: $(SERVERS_READY) $(DATABASES_READY) $(KUBERNETES_READY) $(DOCS_READY) ## Run the tests that no other part has
	@$(PYTEST) -n 2 $(SELECT) $(PARTS:%=--ignore=tests/%) --ignore=tests/histories
test-redis: $(SERVERS_READY) ## Run what the client and the scripts do, on every Redis
	@$(PYTEST) -n 3 $(SELECT) tests/redis
test-process: $(SERVERS_READY) $(DATABASES_READY) $(CLIENTS_READY) ## Run workers and scanners through faults and fail-overs
	@$(PYTEST) -n 4 $(SELECT) tests/process tests/histories
# Kubernetes, written in Go, computes a sixth less when it collects its garbage less often.
test-cluster: $(SERVERS_READY) $(DATABASES_READY) $(KUBERNETES_READY) ## Run the operator on real API servers
	@GOGC=400 $(PYTEST) -n 3 $(SELECT) tests/cluster
test-images: setup-node $(DATABASES_READY) ## Try the images
	@$(PYTEST) -n 2 $(SELECT) tests/images
test-node: setup-node ## Run it all on Kubernetes nodes with pods, as root
	@GOGC=400 $(PYTEST) -n 2 $(SELECT) tests/node

.PHONY: test-pythons
test-pythons: $(SERVERS_READY) ## Run unit and contract tests on the other declared Pythons that this machine has
	@tools/test-pythons

.PHONY: setup-node
setup-node: $(SERVERS_READY) $(KUBERNETES_READY) ## Install what a node takes and build the images, if this machine can have one
	@tools/setup-node --if-possible
	@tools/build-images --if-possible

.PHONY: test-quick
test-quick: $(PYTHON_READY) $(SERVERS_READY) ## Run unit, contract and Redis tests on one Redis (80 seconds)
	@$(PYTEST) -n 2 --redis=7.0 --hypothesis-profile=quick -m "not slow" tests/unit tests/contract tests/redis

# mypy's cache is this checkout's own: shared with one that lacked a module, it reported errors that were not there.
.PHONY: check
check: $(PYTHON_READY) ## Check format, lint, types and layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary $(SOURCES)
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python --warnings | sed '/^0 errors, 0 warnings/d'
	@$(BIN)/lint-imports --no-logo --no-cache   # its cache misses a package that gained an __init__.py

.PHONY: format
format: $(PYTHON_READY) ## Format the code and fix what ruff can fix
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

.PHONY: crds
crds: $(PYTHON_READY) ## Write the CRDs and their pages from the model
	@$(BIN)/python -m tools.crds
	@$(BIN)/python -m tools.reference.crd docs/reference
	@$(BIN)/python -m tools.reference.document docs/reference

# Each warning is an error, except with --quiet, which counts none. The theme's own is about a version of MkDocs that uv.lock does not pin.
MKDOCS := NO_MKDOCS_2_WARNING=1 .cache/docs/bin/mkdocs
.PHONY: docs
docs: $(DOCS_READY) ## Build the documentation site into .cache/site, strictly (20 seconds)
	@$(MKDOCS) build
	@echo "its search needs a server: make docs-serve"

.PHONY: docs-serve
docs-serve: $(DOCS_READY) ## Serve the site with its search on http://127.0.0.1:8000, and build it again when a page changes
	@$(MKDOCS) serve --no-strict --dev-addr 127.0.0.1:8000

.PHONY: bench
bench: $(PYTHON_READY) $(SERVERS_READY) ## Measure speed, lateness, memory and idle cost; BENCH_ARGS="--quick --only A,C"
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

.PHONY: bench-http
bench-http: $(PYTHON_READY) $(SERVERS_READY) ## Measure tasks stored per second over HTTP beside the Python client; BENCH_ARGS="--rounds 3"
	@$(BIN)/python -m benchmarks.http $(BENCH_ARGS)

.PHONY: bench-operator
bench-operator: $(PYTHON_READY) $(KUBERNETES_READY) ## Measure the operator with 1,000 DelayQueues; BENCH_ARGS="--queues 100 --idle 10"
	@$(BIN)/python -m benchmarks.operator $(BENCH_ARGS)

.PHONY: bench-loss
bench-loss: $(PYTHON_READY) $(SERVERS_READY) ## Measure what Redis loses under each setting, and write the table to docs/explanation/guarantees.md
	@$(BIN)/python -m benchmarks.loss

.PHONY: bench-shards
bench-shards: $(PYTHON_READY) $(SERVERS_READY) ## Measure 1, 2, 4 and 8 shards on one Redis and on a Cluster; BENCH_ARGS="--quick"
	@$(BIN)/python -m benchmarks.shards $(BENCH_ARGS)

.PHONY: bench-resident
bench-resident: $(PYTHON_READY) $(SERVERS_READY) ## Measure the memory of idle processes beside those of another commit; BENCH_ARGS="--against HEAD~1"
	@$(BIN)/python -m benchmarks.resident $(BENCH_ARGS)

.PHONY: bench-shop
bench-shop: $(PYTHON_READY) $(SERVERS_READY) ## Measure the memory of a shop with five kinds of task beside Celery's
	@$(BIN)/python -m benchmarks.shop $(BENCH_ARGS)

.PHONY: bench-pairs
bench-pairs: $(PYTHON_READY) $(SERVERS_READY) ## Measure speed beside another commit, in alternation; BENCH_ARGS="--against HEAD~1"
	@$(BIN)/python -m benchmarks.pairs $(BENCH_ARGS)

.PHONY: bench-scaling
bench-scaling: $(PYTHON_READY) ## Simulate random traces beside a fleet always at its maximum; BENCH_ARGS="--count 400 --seed 7"
	@$(BIN)/python -m benchmarks.simulation.random_traces $(BENCH_ARGS)

.PHONY: bench-scale
bench-scale: $(PYTHON_READY) $(SERVERS_READY) ## Measure up to 10 million tasks: memory, calls, restart (4 GB); BENCH_ARGS="--sizes 10000,1000000"
	@$(BIN)/python -m benchmarks.scale $(BENCH_ARGS)

.PHONY: soak
soak: $(PYTHON_READY) $(SERVERS_READY) ## Play a day without work and a day of a million tasks, in minutes: what grows? BENCH_ARGS="--hours 2"
	@$(BIN)/python -m benchmarks.soak $(BENCH_ARGS)

.PHONY: bench-images
bench-images: $(PYTHON_READY) $(SERVERS_READY) images ## Measure size of the images, and time from start to first claim; BENCH_ARGS="--runs 3"
	@$(BIN)/python -m benchmarks.images $(BENCH_ARGS)

.PHONY: bench-node
bench-node: $(PYTHON_READY) $(SERVERS_READY) $(KUBERNETES_READY) ## Measure a rush met from zero workers on a real node (takes root); BENCH_ARGS=--keep
	@tools/setup-node
	@tools/build-images
	@$(BIN)/python -m benchmarks.node $(BENCH_ARGS)

FAULTS_ARGS ?= --keep
.PHONY: faults
faults: $(PYTHON_READY) $(SERVERS_READY) $(DATABASES_READY) ## Transfer money under every guard and fault, and write the table to docs/explanation/guarantees.md (takes root); FAULTS_ARGS="--guards none"
	@command -v ip >/dev/null || tools/apt-install iproute2
	@$(BIN)/python -m tests.faults $(FAULTS_ARGS)

.PHONY: images
images: $(SERVERS_READY) ## Build the images, as tests on a node run them, into .cache/images
	@tools/build-images

.PHONY: cluster
cluster: $(SERVERS_READY) $(KUBERNETES_READY) ## Start a Kubernetes of one node with delayq on it, in the background (takes root)
	@tools/setup-node
	@tools/build-images
	@$(BIN)/python -m tools.cluster up

.PHONY: cluster-down
cluster-down: $(PYTHON_READY) ## Remove the Kubernetes of `make cluster`
	@$(BIN)/python -m tools.cluster down

.PHONY: build
build: $(PYTHON_READY) ## Build the wheel into dist/
	@$(BIN)/hatchling build -t wheel -d dist

# With what there is: nothing is made in order to be removed.
.PHONY: clean
clean: ## Remove what make made in this checkout, and the cluster; what checkouts share stays, see clean-caches
	@if [ -e .cache/cluster ] && ! $(BIN)/python -m tools.cluster down; then \
		echo "the cluster is still there: make cluster-down"; exit 1; fi
	rm -rf $(VENV) .cache dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

.PHONY: clean-caches
clean-caches: ## Remove what all checkouts share: Kubernetes and images, built again in 15 minutes
	rm -rf "$(SHARED)"
