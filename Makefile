PY := .venv/bin/python

.venv: requirements/dev.txt ; @echo "Setting up .venv ..." && python3 -m venv .venv && $(PY) -m pip install -q --require-hashes -r requirements/dev.txt && $(PY) -m pip install -q --no-deps --no-build-isolation -e . && touch .venv || { rm -rf .venv; exit 1; }
demo: .venv ; @docs/demo/run
test: .venv ; $(PY) -m pytest -n 2 --cov --cov-report=term:skip-covered --no-cov-on-fail
# The programs of a control plane and of all else that the tests run, about 15 minutes where there are none yet.
controlplane: ; @PYTHONPATH=tests python3 -m controlplane.build $(PROGRAMS)
# Some modules also run on the next version of Kubernetes: KUBERNETES=1.37 make e2e
SELECTED := $(if $(filter-out 1.36,$(KUBERNETES)),e2e and versions,e2e)
# A part of them: make e2e TESTS=tests/e2e/test_gangs.py PROGRAMS=core, which builds no other programs than a control plane's
TESTS := tests/e2e
e2e: .venv controlplane ; $(PY) -m pytest -m "$(SELECTED)" -n 3 --dist loadfile --no-loadscope-reorder --tb=short --durations=20 $(TESTS)
# For how long each target is fuzzed, and with which inputs: make fuzz SECONDS=600 SEED=1
SECONDS := 60
SEED := 0
fuzz: .venv ; FUZZ_SECONDS=$(SECONDS) FUZZ_SEED=$(SEED) $(PY) -m pytest -m fuzz -n 2 --tb=short tests/fuzz
up: .venv ; @PYTHONPATH=tests $(PY) -m controlplane.up
SOAKED := $(addprefix tests/e2e/,test_bypass.py test_ca_rotation.py test_counted.py test_double_booking.py test_faults.py test_gang_chaos.py test_gang_load.py test_sidecar_killed.py test_rolling.py test_tenant.py test_tenant_commits.py test_tenant_planning.py beside/test_load.py)
soak: .venv controlplane ; RUNS=$${RUNS:-20} $(PY) -m pytest -m e2e --tb=short --durations=20 $(SOAKED)
down: .venv ; @PYTHONPATH=tests $(PY) -m controlplane.down
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
wheel: .venv ; $(PY) -m hatchling build -t wheel -d dist
# The command as one file for each system; each Python adds 20 MB: make zipapp SYSTEMS=linux-amd64 PYTHONS=3.12
SYSTEMS := linux-amd64 linux-arm64 darwin-arm64
PYTHONS := 3.11 3.12 3.13 3.14
zipapp: wheel ; set -e; for system in $(SYSTEMS); do $(PY) -m release.zipapp dist/linkwise-$(VERSION)-py3-none-any.whl $$system $(PYTHONS); done
# The manifest for krew, where the archives are published: make krew ADDRESS=https://downloads.example
krew: .venv ; $(PY) -m release.krew "$(ADDRESS)" dist/linkwise-$(VERSION)-*.tar.gz > dist/linkwise.yaml
# The image and its bill of materials, without a registry; as root on Debian with buildah and mmdebstrap
image: .venv ; $(PY) -m release.image dist
lint: .venv ; .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports
# The resources of manifests/, from the templates of charts/linkwise
manifests: .venv ; PYTHONPATH=tests $(PY) -m controlplane.chart
bench: .venv ; PYTHONPATH=tests $(PY) -m bench
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q
lock: ; $(LOCK) pyproject.toml --group dev -o requirements/dev.txt && $(LOCK) --group webhook --group certs --group scorer --group agent -c requirements/dev.txt -o requirements/image.txt && $(LOCK) pyproject.toml -c requirements/dev.txt -o requirements/command.txt
# The messages of the kubelet's gRPC APIs. Options are dropped, because they are for Go alone.
KUBELET := k8s.io/kubelet@v0.36.3
API := agent/kubelet/api
protos: .venv
	@set -e; from=$$(go mod download -json $(KUBELET) | sed -n 's/.*"Dir": "\(.*\)",/\1/p'); to=$$(mktemp -d); trap 'rm -r $$to' EXIT; \
	mkdir -p $$to/$(API); for name in deviceplugin/v1beta1 podresources/v1; do \
	sed '/^option /d; /gogo/d' $$from/pkg/apis/$$name/api.proto > $$to/$(API)/$${name%/*}.proto; done; \
	$(PY) -m grpc_tools.protoc -I$$to --python_out=. --pyi_out=. $$to/$(API)/*.proto
clean: ; rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
.PHONY: demo test controlplane e2e soak fuzz up down wheel zipapp krew image lint manifests bench lock protos clean
