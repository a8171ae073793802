# The commands of this project; CI runs the same ones. `make test` needs nothing but make and python3 (3.11 or newer,
# with venv).

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= server,cli,console,top,speed,metrics,dev
RUN_EXTRAS := server,cli,top,speed
BIN := $(VENV)/bin
PY := $(BIN)/python

# Tests start some hundred Python processes. Without bytecode files, each would compile the whole product again, which
# is a fifth of the cost of starting one.
unexport PYTHONDONTWRITEBYTECODE

# Stamp files make the second run quick. They are in the environment, so that a fresh environment has none.
INSTALLED := $(VENV)/.installed
GENERATED := $(VENV)/.generated
RUNNABLE := $(VENV)/.runnable
BUILDABLE := $(VENV)/.buildable
PROTOS := $(shell find protos -name '*.proto' 2>/dev/null)
# What someone who tries the project needs: a tenth of the whole environment, unless that is already installed.
READY := $(if $(wildcard $(INSTALLED)),$(GENERATED),$(RUNNABLE))

# What building an image needs: still less.
IMAGE_READY := $(if $(wildcard $(INSTALLED)),$(GENERATED),$(BUILDABLE))

# What is type-checked and linted, if it exists.
TYPED := $(wildcard protos client services pipeline tools benchmarks tests conftest.py hatch_build.py)
# The newest committed image of the protocol, with which every change is compared.
RELEASED := $(shell ls protos/released/*.json 2>/dev/null | sort -V | tail -n 1)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup protos style types test test-slow test-changed durations sim model mutants mutation up demo bench
.PHONY: timeline report screenshot ingest-kills docs conformance format
.PHONY: release-protos clean
.PHONY: image-base lock sbom image image-pipeline image-pipeline-check image-check chaos sabotages attack manifests

help: ## Say what the words mean.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(GENERATED) ## Make the environment and install the project into it, editable.

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and 3.11 or newer is needed. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make an environment in $(VENV). On Debian and Ubuntu try: apt-get install python3-venv"; exit 1; }
	@echo "Installing into $(VENV), which takes a minute or more the first time"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(1)]'
	@touch $@
endef

$(INSTALLED): pyproject.toml hatch_build.py
	$(call install,$(EXTRAS))

$(RUNNABLE): pyproject.toml hatch_build.py $(PROTOS)
	$(call install,$(RUN_EXTRAS))

$(GENERATED): $(INSTALLED) $(PROTOS)
	$(PY) hatch_build.py
	@touch $@

protos: $(INSTALLED) ## Write the protobuf modules beside their .proto files.
	$(PY) hatch_build.py
	@touch $(GENERATED)

style: setup ## Lint, format check, import arrows, protocol lint and breaking changes.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(if $(RELEASED),$(BIN)/buf breaking --against $(RELEASED),@echo "buf breaking: nothing has been released yet")

types: setup ## Check types, strictly.
	$(BIN)/mypy $(TYPED)

test: style types ## Style, types and the daily tests, which show every rule; ends with pytest's summary line.
	$(PY) -m pytest --numprocesses 3 --dist loadgroup $(if $(PYTEST_ARGS),,--tier daily --conformance) $(PYTEST_ARGS)

test-slow: setup ## All other tests: attacks, faults, kills, upgrades, Spark jobs, tests of the test tools.
	$(PY) -m pytest --numprocesses 3 --dist loadgroup --tier slow --conformance

test-changed: setup ## The daily tests that what is not committed can reach, or what changed since SINCE=commit.
	$(PY) -m tests.changed $(if $(SINCE),--since $(SINCE))

durations: setup ## Run every test, and note which take long, in tests/durations.txt.
	$(PY) -m pytest --numprocesses 2 --dist loadgroup --durations-to tests/durations.txt

# The plan goes through the environment, because JSON has quotes.
export PLAN
sim: setup ## Play clusters under faults: SEEDS=1-2000, or FRESH=500; SEED=n runs one, with PLAN=… OUT=file SHRINK=1.
	$(PY) -m tests.simulation $(SIM_ARGS) \
	  $(if $(SEED),--seed $(SEED) --plan "$$PLAN" $(if $(OUT),--out $(OUT)) $(if $(SHRINK),--shrink),\
	  $(if $(FRESH),--fresh $(FRESH),--seeds $(or $(SEEDS),1-2000)))

model: setup ## Compare the share-partition's core with a naive model after each step: STEPS=1000000, SEED=1 of the first history.
	$(PY) -m tests.model --steps $(or $(STEPS),1000000) --seed $(or $(SEED),1)

mutants: setup ## Plant bugs, one at a time, and count the seeds until the simulator finds each: MUTANTS='name …'.
	$(PY) -m tests.simulation.mutants $(MUTANTS)

mutation: setup ## Draw small changes to the product and count those that fast tests or 40 seeds find: SAMPLE=40 (per room).
	$(PY) -m tests.mutation --sample $(or $(SAMPLE),40) $(MUTATION_ARGS)

up: $(READY) ## Run a cluster on this machine: embedded store and all roles.
	$(BIN)/sharegroups up

demo: $(READY) ## Play the whole story on this machine; ends with a table that accounts for every record. DEMO_ARGS='--input FILE'
	$(BIN)/sharegroups demo --keep $(KEEP) $(DEMO_ARGS)

bench: setup ## Run the benchmarks; each prints one JSON line.
	$(PY) -m benchmarks $(BENCH_ARGS)

timeline: setup ## Print the way of one job from produce() to its handler, step by step: TIMELINE_ARGS='--per-second 1000'.
	$(PY) -m benchmarks.timeline $(TIMELINE_ARGS)

# Where the demo leaves its data for `report`; the next demo replaces it.
KEEP ?= build/demo
report: setup ## Write a page about the demo that runs or ran last; or about a STORE=url, its history in DATA. OUT=report.html
	@$(PY) -m tools.report --out '$(or $(OUT),report.html)' \
	  $(if $(STORE),--store '$(STORE)' --data '$(or $(DATA),metrics-data)',$(if $(DATA),--data '$(DATA)',--demo '$(KEEP)'))

screenshot: setup ## Photograph the docs' page, or another one, in light and dark; needs Chromium. OUT=report.html
	@$(PY) -m tools.screenshot --page '$(or $(OUT),docs/images/page.html)'

ingest-kills: setup ## Kill ingest jobs twenty times, end their queries as often, and count what is in Parquet. KILLS=20
	@$(PY) -m tests.integration.share_metrics --kills $(or $(KILLS),20)

docs: setup ## Rewrite the generated pages of docs/.
	$(PY) -m tools.conformance --write
	$(PY) -m tools.reference --write
	$(PY) -m tools.pictures --write

conformance: setup ## Write which test shows which rule of docs/spec to build/conformance.md.
	$(PY) -m tools.conformance --whole

image-base: ## Make a base image from Debian's packages, where the official one cannot be pulled; needs root.
	deploy/docker/base.sh

# For the Python of the base image, and newer ones; each line has the hashes of all its wheels. Only UPGRADE=1 changes a
# version that is still within pyproject.toml's bounds.
LOCK = $(BIN)/uv pip compile --quiet --universal --generate-hashes --custom-compile-command 'make lock' \
  --python-version $(shell sed -n 's/^ARG BASE=python:\([0-9]*\.[0-9]*\).*/\1/p' deploy/docker/Dockerfile) \
  $(if $(UPGRADE),--upgrade)
lock: setup ## Lock what the images install: versions within pyproject.toml's bounds, with hashes; UPGRADE=1 for the newest.
	$(LOCK) --extra server --extra cli --extra speed --output-file deploy/docker/lock.txt pyproject.toml
	$(LOCK) --extra cli --extra metrics --output-file deploy/docker/pipeline-lock.txt pyproject.toml
	echo setuptools | $(LOCK) --output-file deploy/docker/pipeline-build-lock.txt -

sbom: setup ## Write an SBOM and a licence list of what each image installs into build/sbom: SBOM=services for one image.
	$(PY) -m tools.sbom $(SBOM)

# The driver's libraries. They have their own stamp, because nothing else needs them.
CHAOS_READY := $(VENV)/.chaos
$(CHAOS_READY): $(INSTALLED)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[chaos]'
	@touch $@

# Only what builds the wheel: the image contains the rest.
$(BUILDABLE): pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >$@.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement $@.txt
	@touch $@

IMAGE ?= sharegroups:dev
image: $(IMAGE_READY) ## Build the image of all roles: IMAGE=name:tag, IMAGE_BASE=base.
	PYTHON=$(PY) deploy/docker/image.sh $(IMAGE) services

PIPELINE_IMAGE ?= sharegroups-pipeline:dev
image-pipeline: $(IMAGE_READY) ## Build the image of the Spark job: PIPELINE_IMAGE=name:tag, IMAGE_BASE=base.
	PYTHON=$(PY) deploy/docker/image.sh $(PIPELINE_IMAGE) pipeline

image-pipeline-check: image-pipeline ## Try that image beside a store: it ingests each entry once, and reports.
	PIPELINE_IMAGE_UNDER_TEST=$(PIPELINE_IMAGE) $(PY) -m pytest tests/image/test_pipeline_image.py

image-check: image $(CHAOS_READY) ## Try that image in containers: health, read-only root, records through all roles.
	IMAGE_UNDER_TEST=$(IMAGE) $(PY) -m pytest tests/image tests/chaos/drivers/test_containers.py

chaos: image $(CHAOS_READY) ## Kill, pause and cut clusters in containers, and judge: CHAOS_ARGS='--only recovery --seed 1'.
	CHAOS_IMAGE=$(IMAGE) $(PY) -m tests.chaos $(CHAOS_ARGS)

sabotages: setup ## Run nodes that do one thing wrong, and see that the judge of the chaos experiments refuses each: SABOTAGES='name …'.
	$(PY) -m tests.chaos.sabotage $(SABOTAGES)

attack: setup ## Attack a cluster beside a canary and workers with books: every attack once, or by chance for SECONDS=3600; ATTACK_ARGS=--tls.
	$(if $(SECONDS),,$(PY) -m pytest -q -m attack tests/attack)
	@$(PY) -m tests.attack $(if $(SECONDS),--seconds $(SECONDS)) $(ATTACK_ARGS)

manifests: setup ## Check the Kubernetes overlays and render them into build/manifests; IMAGE=name@sha256:… for production.
	$(PY) -m pytest -q tests/packaging/test_manifests*.py
	deploy/kubernetes/render.sh build/manifests $(IMAGE)

format: setup ## Put Python and .proto files into house format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/buf format --write

release-protos: setup ## Keep an image of the protocol that later changes must stay compatible with: VERSION=0.1.0
	@test -n "$(VERSION)" || { echo "Which version? Try: make release-protos VERSION=0.1.0"; exit 1; }
	mkdir -p protos/released
	$(BIN)/buf build --exclude-source-info --output protos/released/kip932-$(VERSION).json

clean: ## Remove the environment and all caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
