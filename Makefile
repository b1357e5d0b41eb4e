PY := .venv/bin/python
# Tests run in as many processes as there are processors, at most four: more were not tried. End-to-end tests wait more, so that one more is at work.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PROCESSES := $(shell echo $$(($(CORES) < 4 ? $(CORES) : 4)))
MORE := $(shell echo $$(($(CORES) < 3 ? $(CORES) + 1 : 4)))

help: ; @awk '/^\#\# /{text = substr($$0, 4)} /^[a-z0-9]+:/{if (text) printf "%-14s %s\n", substr($$1, 1, index($$1, ":") - 1), text; text = ""}' Makefile
.venv: requirements/dev.txt ; @echo "Setting up .venv ..." && python3 -m venv .venv && .ci/retry $(PY) -m pip install -q --require-hashes -r requirements/dev.txt && $(PY) -m pip install -q --no-deps --no-build-isolation -e . && touch .venv || { rm -rf .venv; exit 1; }
## Show what Linkwise does, without a cluster
demo: .venv ; @docs/demo/run
## Draw the pictures of the documents, with Chromium
picture: .venv ; @docs/demo/picture
# End-to-end tests are not even collected, which would take as long as many unit tests.
UNIT := --ignore=tests/e2e
## Run the unit tests, and property tests with half their examples
test: .venv ; EXAMPLES=0.5 $(PY) -m pytest -n $(PROCESSES) $(UNIT) $(COVERAGE)
# Apart, since it takes half as much processor time again; on Python 3.14 it takes little.
## Run the unit tests, and fail if they reach less than 95 % of the code
coverage: ; $(MAKE) test COVERAGE='--cov --cov-report=term:skip-covered --no-cov-on-fail'
## Build the programs that end-to-end tests run: about 15 minutes where there are none yet
controlplane: ; @PYTHONPATH=tests python3 -m controlplane.build $(PROGRAMS)
# Some modules also run on the next version of Kubernetes: KUBERNETES=1.37 make e2e
SELECTED := $(if $(filter-out 1.36,$(KUBERNETES)),e2e and versions,e2e)
# A part of them: make e2e TESTS=tests/e2e/test_gangs.py PROGRAMS=core, which builds no other programs than a control plane's
TESTS := tests/e2e
## Run the end-to-end tests, or those in TESTS=..., on KUBERNETES=1.36 or 1.37
e2e: .venv controlplane ; $(PY) -m pytest -m "$(SELECTED)" -n $(MORE) --dist loadfile --no-loadscope-reorder --tb=short --durations=20 --rerun-failed $(TESTS)
# For how long each target is fuzzed, and with which inputs: make fuzz SECONDS=600 SEED=1
SECONDS := 60
SEED := 0
## Fuzz each reader of untrusted input for SECONDS=60, and run the long forms of property tests
fuzz: readers properties
## Fuzz each reader of untrusted input for SECONDS=60, and compare 2,000 searches for victims with all sets
readers: .venv ; FUZZ_SECONDS=$(SECONDS) FUZZ_SEED=$(SEED) $(PY) -m pytest -m fuzz -n $(PROCESSES) --tb=short tests/fuzz
# How many times as many examples as in the unit tests: make properties EXAMPLES=100 SEED=1
EXAMPLES := 10
## Run the property tests with EXAMPLES=10 times as many inputs
properties: .venv ; EXAMPLES=$(EXAMPLES) $(PY) -m pytest -m hypothesis -n $(PROCESSES) $(UNIT) --tb=short --timeout=3600 --hypothesis-seed=$(SEED)
## Start a control plane with Linkwise, to try it
up: .venv ; @PYTHONPATH=tests $(PY) -m controlplane.up
SOAKED := $(addprefix tests/e2e/,test_all_or_none.py test_all_or_none_beside.py test_bypass.py test_ca_rotation.py test_counted.py test_dashboard_load.py test_dra.py test_double_booking.py test_faults.py test_gang_chaos.py test_gang_load.py test_image.py test_sidecar_killed.py test_rolling.py test_tenant.py test_tenant_commits.py test_tenant_planning.py test_verdicts.py beside/test_load.py claims/test_faults.py claims/test_others.py test_preemption.py)
## Run the long forms of the end-to-end tests, RUNS=20 times
soak: .venv controlplane ; RUNS=$${RUNS:-20} $(PY) -m pytest -m e2e --tb=short --durations=20 $(SOAKED)
## Stop what `make up` started
down: .venv ; @PYTHONPATH=tests $(PY) -m controlplane.down
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
## Build the wheel into dist/
wheel: .venv ; $(PY) -m hatchling build -t wheel -d dist
## Build what packagers of the command build from into dist/
sdist: .venv ; $(PY) -m hatchling build -t sdist -d dist
# The command as one file for each system; each Python adds 20 MB: make zipapp SYSTEMS=linux-amd64 PYTHONS=3.12
SYSTEMS := linux-amd64 linux-arm64 darwin-arm64
PYTHONS := 3.11 3.12 3.13 3.14
## Build the command as one file for each system
zipapp: wheel ; set -e; for system in $(SYSTEMS); do $(PY) -m tools.release.zipapp dist/linkwise-$(VERSION)-py3-none-any.whl $$system $(PYTHONS); done
# The manifest for krew, where the archives are published: make krew ADDRESS=https://downloads.example
## Write the manifest for krew
krew: .venv ; $(PY) -m tools.release.krew "$(ADDRESS)" dist/linkwise-$(VERSION)-*.tar.gz > dist/linkwise.yaml
## Build the image and its bill of materials, as root on Debian with buildah and mmdebstrap
image: .venv ; $(PY) -m tools.release.image dist
# Of one image for each processor, where buildah may push: make index TO=docker://registry.example/linkwise:0.1.0
## Push an index of the images in dist/image-*, and print its digest
index: .venv ; @$(PY) -m tools.release.index "$(TO)" dist/image-*/*.tar
# With the helm of this machine, or another: make package HELM=/path/to/helm
HELM := helm
## Package the chart into dist/
package: ; $(HELM) package charts/linkwise --destination dist
# The tag is that of the release: make notes TAG=v0.1.0
TAG = v$(VERSION)
## Write the notes of a release, and check that its parts have one version
notes: .venv ; mkdir -p dist && $(PY) -m tools.release.notes "$(TAG)" > dist/notes.md
## Write the SHA-256 of each file of a release
sums: ; cd dist && sha256sum linkwise-$(VERSION)* linkwise.yaml > SHA256SUMS
SITE := dist/docs
## Build the site of the documents into dist/site, and fail on a link that leads nowhere
docs: $(SITE) ; $(SITE)/bin/sphinx-build -q -E -W --keep-going -c docs/site . dist/site
$(SITE): requirements/docs.txt ; python3 -m venv $@ && .ci/retry $@/bin/pip install -q --require-hashes -r requirements/docs.txt && touch $@ || { rm -rf $@; exit 1; }
## Check style, types and layers
lint: .venv ; .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports
## Render manifests/ from the templates of charts/linkwise
manifests: .venv ; PYTHONPATH=tests $(PY) -m controlplane.chart
## Measure the figures of docs/benchmarks.md
bench: .venv ; PYTHONPATH=tests $(PY) -m tools.bench
# Releases of the last seven days are left out: most malicious ones are found and withdrawn within days.
LOCK = uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-strip-extras -q --exclude-newer $(shell date -u -d '7 days ago' +%F)
## Pin all dependencies by hash
lock: ; $(LOCK) pyproject.toml --group dev -o requirements/dev.txt && $(LOCK) --group webhook --group certs --group scorer --group agent -c requirements/dev.txt -o requirements/image.txt && $(LOCK) pyproject.toml -c requirements/dev.txt -o requirements/command.txt && $(LOCK) --group docs -c requirements/dev.txt -o requirements/docs.txt
# By the JSON API of the package registry; not in the lock itself.
AUDIT := dist/audit
## Look for known vulnerabilities of the pinned dependencies
advisories:
	python3 -m venv $(AUDIT) && .ci/retry $(AUDIT)/bin/pip install -q pip-audit==2.10.1
	for part in dev image command docs; do $(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/$$part.txt || exit 1; done
# The messages of the kubelet's gRPC APIs. Options are dropped, because they are for Go alone.
KUBELET := k8s.io/kubelet@v0.36.3
API := agent/kubelet/api
# Those of the tests' driver for claims.
API_OF_TESTS := controlplane/node/api
## Generate the messages of the kubelet's gRPC APIs
protos: .venv
	@set -e; from=$$(.ci/retry go mod download -json $(KUBELET) | sed -n 's/.*"Dir": "\(.*\)",/\1/p'); to=$$(mktemp -d); trap 'rm -r $$to' EXIT; \
	copy() { mkdir -p $$to/$$1; for name in $$2; do sed '/^option /d; /gogo/d' $$from/pkg/apis/$$name/api.proto > $$to/$$1/$${name%/*}.proto; done; }; \
	copy $(API) 'deviceplugin/v1beta1 podresources/v1'; copy $(API_OF_TESTS) 'dra/v1 pluginregistration/v1'; \
	$(PY) -m grpc_tools.protoc -I$$to --python_out=. --pyi_out=. $$to/$(API)/*.proto; \
	$(PY) -m grpc_tools.protoc -I$$to --python_out=tests $$to/$(API_OF_TESTS)/*.proto
# Changes of dependencies appear here before they are locked.
NEWEST := dist/newest
## Run the unit tests with the newest versions of all dependencies
newest:
	rm -rf $(NEWEST) && python3 -m venv $(NEWEST) && .ci/retry $(NEWEST)/bin/python -m pip install -q --upgrade pip
	.ci/retry $(NEWEST)/bin/python -m pip install -q --upgrade -e . --group dev && $(NEWEST)/bin/python -m pip list
	$(NEWEST)/bin/python -m pytest -n $(PROCESSES)
# Of packages that the command needs; theirs have the newest versions, such as of click, which old versions of typer import with a warning.
LOWEST := dist/lowest
# Old versions of typer have other words for wrong options, and those of msgspec another order in schemas.
WORDED := test_main.py::test_wrong_command_line_is_one_line test_schema.py::test_published_schemas_match_the_types
## Run the unit tests with the lowest versions that the command allows, on the lowest Python
lowest:
	rm -rf $(LOWEST) && python3.11 -m venv $(LOWEST) && .ci/retry $(LOWEST)/bin/python -m pip install -q uv==0.13.9
	.ci/retry $(LOWEST)/bin/uv pip install -q --python $(LOWEST) --resolution lowest-direct -r pyproject.toml --group test
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST) --no-deps --no-build-isolation -e . && $(LOWEST)/bin/python -m pip list
	$(LOWEST)/bin/python -m pytest -n $(PROCESSES) $(UNIT) -W "ignore:'click:DeprecationWarning" $(addprefix --deselect=tests/linkwise/cli/,$(WORDED))
## Remove the virtual environment and all caches
clean: ; rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
.PHONY: help demo picture test coverage controlplane e2e soak fuzz readers properties up down wheel sdist zipapp krew image index package notes sums docs lint manifests bench lock advisories protos newest lowest clean
