# `make run` shows what this is; `make test` proves it. Both set up what they need.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
# Wheels come from wherever pip is configured to look; every file is checked against the lock's hashes.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The tests start two hundred programs, which should not all compile this project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

define make_environment
@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; install Python 3.11 or newer, or set PYTHON="; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11; set PYTHON= to a newer one"; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) has no venv; on Debian install python3-venv, or set PYTHON="; exit 1; }
@# Packages are installed on top of an environment that works: a server may be running from it.
@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "setting up $(VENV) (once; about a minute on an idle machine)"; $(PYTHON) -m venv --clear $(VENV); }
endef

$(READY): requirements-dev.lock pyproject.toml
	$(make_environment)
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# To run the program takes a third of the packages, so the first decision comes sooner; a complete environment does, too.
$(RUNS): requirements.lock requirements-build.lock pyproject.toml
	@$(MAKE) --silent --no-print-directory $(if $(wildcard $(READY)),$(READY),light)
	@touch $@

.PHONY: light
light:
	$(make_environment)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --require-hashes -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .

.PHONY: setup
setup: $(READY) ## Make the environment that all other targets use

.PHONY: run
run: $(RUNS) ## Start the real server with an example cluster, ask it, show the answers
	@$(BIN)/kubevirt-webhook demo

.PHONY: serve
serve: $(RUNS) ## Keep the server running with the example cluster
	@$(BIN)/kubevirt-webhook serve --cluster-from examples/cluster --config examples/settings.yaml \
	  --listen 127.0.0.1:8443 --ops-listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8090

# The control plane and Helm first, alone: their builds would take the time that the tests beside them are allowed.
.PHONY: binaries
binaries: $(READY)
	@$(BIN)/python -m hack.controlplane.build >/dev/null || echo "make: no control plane; the end-to-end tests will be skipped"
	@$(BIN)/python -m hack.controlplane.build --helm >/dev/null || echo "make: no Helm; tests of the chart cannot run"

# What is missing is built beside the tests that need it not; hack/suite.py says how.
.PHONY: test
test: $(READY) ## Run all tests, on a real control plane too
	@$(BIN)/python -m hack.suite $(TESTS)

.PHONY: unit
unit: $(READY) ## Run the tests that need no control plane
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not e2e and not page'

# What is left out of it, and why, stands in hack/interpreters.py.
.PHONY: interpreters
interpreters: $(READY) ## Run the unit tests on the other supported interpreters that this machine has
	@$(BIN)/python -m hack.interpreters $(INTERPRETERS) $(TESTS)

# Two environments below .venv/interpreters, which uv resolves. Not the locked versions: the ends of what is promised.
.PHONY: bounds
bounds: ## Run the unit tests with the lowest and the newest versions that pyproject.toml promises; RESOLUTION=lowest takes one
	@for resolution in $(or $(RESOLUTION),lowest newest); do \
	  $(PYTHON) -m hack.interpreters --resolution $$resolution $(TESTS); \
	done

.PHONY: e2e
e2e: binaries ## Run only the tests on a real control plane; KUBERNETES=1.34 takes an older one
	@E2E_REQUIRED=1 KUBERNETES=$(KUBERNETES) $(BIN)/python -m pytest -n 3 --dist worksteal tests/e2e

# Chromium from PATH or CHROMIUM=; without it `make test` skips these tests.
.PHONY: e2e-page
e2e-page: $(READY) ## Run the tests of the page in a real browser
	@PAGE_REQUIRED=1 $(BIN)/python -m pytest tests/page

# Look at them before you commit them.
.PHONY: page-pictures
page-pictures: $(READY) ## Take the pictures of the page in docs/images again
	@PAGE_REQUIRED=1 REWRITE_PICTURES=1 $(BIN)/python -m pytest -q -k picture tests/page

# The texts that users read. Read the diff that this makes: it is all that changed of them.
.PHONY: golden
golden: $(READY) ## Rewrite tests/golden/, which holds every text that users read
	@REWRITE_GOLDEN=1 $(BIN)/python -m pytest -q -m golden

.PHONY: messages
messages: $(READY) ## Write docs/messages.md, which explains every reason code
	@$(BIN)/python -m hack.messages

.PHONY: kubevirt
kubevirt: binaries ## Build a real KubeVirt, and run the tests beside it; KUBEVIRT=1.8.4, KUBERNETES=1.34 take others
	@$(BIN)/python -m hack.controlplane.build --kubevirt $(KUBEVIRT) >/dev/null
	@$(BIN)/python -m hack.controlplane.build --descheduler >/dev/null
	@E2E_REQUIRED=1 KUBEVIRT=$(KUBEVIRT) KUBERNETES=$(KUBERNETES) $(BIN)/python -m pytest -m kubevirt tests/e2e/kubevirt

# What OpenShift 4.20, 4.21, 4.22 and 5.0 have: KubeVirt/Kubernetes.
PAIRS ?= 1.6.1/1.33 1.7.0/1.34 1.8.4/1.35 1.9.0/1.36
.PHONY: pairs
pairs: ## Run the tests beside each pair of KubeVirt and Kubernetes that OpenShift has; PAIRS=1.8.4/1.35 takes one
	@set -e; for pair in $(PAIRS); do $(MAKE) --no-print-directory kubevirt KUBEVIRT=$${pair%/*} KUBERNETES=$${pair#*/}; done

.PHONY: lint
lint: $(READY) ## Check style, types and the layers of the import graph
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@! command -v gofmt >/dev/null || { gofmt -l bench hack | (! grep .) || { echo "make: run gofmt on these"; exit 1; }; }

.PHONY: format
format: $(READY) ## Put the code into the project's style
	@$(BIN)/ruff check --fix-only --quiet . || true
	@$(BIN)/ruff format --quiet .

# By default an hour; an input that breaks a promise is written to tests/fuzz/corpus, and printed.
.PHONY: fuzz
fuzz: $(READY) ## Look for inputs that break a promise (FUZZ_SECONDS=3600)
	@$(BIN)/python -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),3600) $(FUZZ)

# Six minutes by default, SECONDS= for hours, SEED= to repeat one; MUTATION=stale-lists takes a fix back, which must be
# found. tests/robustness/README.md says more.
.PHONY: robustness
robustness: $(READY) ## Check a history of a real cluster in which things break; SECONDS=3600 takes an hour
	@$(BIN)/python -m tests.robustness $(if $(SECONDS),--seconds=$(SECONDS)) $(if $(SEED),--seed=$(SEED)) $(if $(MUTATION),--mutation=$(MUTATION)) $(ROBUSTNESS)

.PHONY: audit
audit: $(READY) ## Look the locked dependencies up in a database of vulnerabilities, if there is one
	@$(BIN)/python hack/audit.py

.PHONY: mutants
mutants: $(READY) ## Break KubeVirt's rules one by one, and see whether the tests notice
	@$(BIN)/python -m hack.mutants $(MUTANTS)

.PHONY: bench
bench: $(READY) ## Measure reviews beside Go's and the usual Python webhooks, and write the figures into the pages
	@$(BIN)/python -m bench.reviews $(BENCH)

.PHONY: bench-profile
bench-profile: $(READY) ## Show where a review's microseconds go, and draw the picture of it
	@$(BIN)/python -m bench.reviews.profile

.PHONY: figures
figures: $(READY) ## See whether the pages' figures are those of this code
	@$(BIN)/python -m bench.reviews.published

.PHONY: bench-placement
bench-placement: binaries ## Measure where a real kube-scheduler puts launcher pods
	@$(BIN)/python -m bench.placement $(BENCH)

.PHONY: bench-reliability
bench-reliability: binaries ## Attack the server at full size, and count what the reviews beside feel
	@$(BIN)/python -m bench.reliability $(BENCH)

# Nine minutes, and as many more for the first run, which builds Kyverno.
.PHONY: bench-cluster
bench-cluster: binaries ## Create pods and VMs through a real API server: with no webhook, this one, Kyverno and others
	@$(BIN)/python -m bench.cluster $(BENCH)

.PHONY: bench-start
bench-start: $(READY) ## Measure a replica's start and memory, with 5,000 nodes and namespaces too
	@$(BIN)/python -m bench.start $(BENCH)

# An hour, and forty minutes before it; KUBEVIRT_CRDS= takes KubeVirt's own definitions.
.PHONY: bench-churn
bench-churn: binaries ## Let a cluster of 5,000 nodes and 2,000 VMs change for an hour, and see whether a replica grows; SECONDS=600 for less
	@$(BIN)/python -m bench.churn $(if $(SECONDS),--seconds=$(SECONDS)) $(BENCH)

.PHONY: lab
lab: binaries ## Start a control plane with KubeVirt's CRDs and leave it running, for trying things
	@$(BIN)/python -m hack.lab

.PHONY: kubevirt-lab
kubevirt-lab: binaries ## The same with a real KubeVirt: VMs start, stop and migrate
	@$(BIN)/python -m hack.lab --kubevirt

# Root, Linux and Debian's packages; what is missing is said in one line.
.PHONY: node
node: $(READY) ## Start a real node with the image of the Dockerfile, and leave it running
	@$(BIN)/python -m hack.node

.PHONY: e2e-node
e2e-node: $(READY) ## Run the tests on a real node with the image; PART="install helm" takes some of them
	@$(BIN)/python -m hack.node $(BIN)/python -m pytest -p no:cacheprovider $(if $(PART),$(PART:%=tests/node/test_%.py),tests/node) $(TESTS)

.PHONY: node-gate
node-gate: $(READY) ## Run the shortest test on a real node where the machine can, and only if it has not passed for this image
	@$(BIN)/python -m hack.node.gate

# An hour at first: KubeVirt, Debian's libvirt and qemu, and the images of both are built. Guests are emulated where the
# processor has no virtualization. PART="boot migration" takes some of the tests.
.PHONY: guests
guests: $(READY) ## Run the tests on a real KubeVirt whose guests boot and migrate; PART=boot takes some of them
	@$(BIN)/python -m hack.guests $(BIN)/python -m pytest -p no:cacheprovider $(if $(PART),$(PART:%=tests/guests/test_%.py),tests/guests) $(TESTS)

.PHONY: guests-gate
guests-gate: $(READY) ## Boot and migrate one guest where the machine can, and only if that has not passed for these sources
	@$(BIN)/python -m hack.guests.gate

.PHONY: guests-lab
guests-lab: $(READY) ## Start a real KubeVirt that runs guests, and leave it running
	@$(BIN)/python -m hack.guests

.PHONY: guests-recording
guests-recording: $(READY) ## Record a drain of guests for docs/drain.md; it takes asciinema and Node.js
	@$(BIN)/python -m hack.guests.recording
	@$(BIN)/python -m hack.guests $(BIN)/python -m hack.guests.recording
	@$(BIN)/python -m hack.guests.recording --draw

.PHONY: lock
lock: $(READY) ## Resolve the dependencies; LOCK=--upgrade takes the newest versions, not those already locked
	@$(BIN)/python hack/lock.py $(LOCK)

# A digest is of one day: run it regularly, and let CI test what it brings.
.PHONY: base-image
base-image: $(READY) ## Pin the image's base by the digest that its tag has now
	@$(BIN)/python -m hack.image.base

.PHONY: manifests
manifests: binaries ## Print the webhook configurations again, render the overlays, and write the chart
	@$(BIN)/python hack/manifests.py

.PHONY: docs
docs: $(READY) ## Write outputs and the reference again, then build the site
	@$(BIN)/python -m hack.outputs
	@$(BIN)/python -m hack.messages >/dev/null
	@$(BIN)/python -m hack.reference
	@$(BIN)/python -m hack.picture
	@$(MAKE) --no-print-directory site

# What builds the site has an environment of its own: nothing that is tested needs it. Links are checked, strictly.
SITE := $(VENV)-docs
$(SITE)/.ready: requirements-docs.lock
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; install Python 3.11 or newer, or set PYTHON="; exit 1; }
	@$(SITE)/bin/python -m pip --version >/dev/null 2>&1 || { echo "setting up $(SITE) (once; about a minute on an idle machine)"; $(PYTHON) -m venv --clear $(SITE); }
	@$(SITE)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-docs.lock
	@touch $@

.PHONY: site
site: $(SITE)/.ready ## Build the documentation's site into build/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs --quiet build --clean
	@$(SITE)/bin/python -m hack.site.check build/site

.PHONY: plugin
plugin: $(READY) ## Build the kubectl plugin and its manifest for krew; URL= says where the archive will be
	@$(BIN)/python -m hack.plugin $(if $(URL),--url $(URL))

.PHONY: bundle
bundle: $(READY) ## Write the bundle for OperatorHub; IMAGE= names the image, MAINTAINER="NAME=EMAIL" who offers it
	@test -n "$(IMAGE)" || { echo "make: name the image, for example make bundle IMAGE=REPOSITORY@sha256:DIGEST"; exit 2; }
	@$(BIN)/python -m hack.bundle --image $(IMAGE) $(if $(MAINTAINER),--maintainer "$(MAINTAINER)")

.PHONY: dist
dist: $(READY) ## Build the wheel
	@$(BIN)/python -m hatchling build -t wheel

# Twice: first it writes the version and cuts the changelog, then, from the commit with both, it makes all files.
.PHONY: release
release: $(READY) ## Make a release: VERSION=1.2.0 IMAGE=REPOSITORY@sha256:DIGEST ARCHIVE=image.tar
	@test -n "$(VERSION)" || { echo "make: name the version, for example make release VERSION=1.2.0"; exit 2; }
	@$(BIN)/python -m hack.release $(VERSION) $(if $(IMAGE),--image $(IMAGE)) $(if $(ARCHIVE),--archive $(ARCHIVE)) $(RELEASE)
