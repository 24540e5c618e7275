# Needs make and Python 3.11 or later, nothing else. `make help` lists the targets.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint $(CONSTRAINTS)
# Simulator: `make sim SEEDS=1000` runs that many random worlds; `make sim SEED=42` runs one again.
SEEDS ?= 200
SEED ?=
# Fuzzing: `make fuzz INPUTS=10000000 ARGS=crypto.entry`.
INPUTS ?= 1000000
# More for pytest: `make test ARGS="tests/crypto -k padding"`.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run check test test-tools lint format bench bench-quality docs sim fuzz mutants clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1|/' | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

# The first Python that is new enough: $(PYTHON) when given, else python3 and its numbered names.
$(BIN)/python:
	@found=; \
	for candidate in $(if $(PYTHON),'$(PYTHON)',python3 python3.14 python3.13 python3.12 python3.11); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found="$$candidate"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make: Crystal needs Python 3.11 or later, and $(if $(PYTHON),$(PYTHON) is none,no python3 on the PATH is one)." >&2; \
	  echo "      Install one, or name it: make $(firstword $(MAKECMDGOALS) setup) PYTHON=/path/to/python3.12" >&2; \
	  exit 3; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: that Python cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 3; }

$(VENV)/.runtime: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing Crystal and what it runs on"
	@$(PIP) --editable '.[relay]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing the development tools"
	@$(PIP) --editable '.[relay,documents,dev]'
	@touch $@

setup: $(VENV)/.dev ## make .venv with everything for development

run: $(VENV)/.runtime ## install what is missing, then show Crystal at work: a relay, a Core and two Nodes
	@$(BIN)/crystal demo

# What the tests start beside what is in .venv: Swift, Helm, and when apt-get may install them Ceph's object gateway and a keyring.
# What cannot be installed is no failure; it is tried again the next time.
$(VENV)/.servers: scripts/install_test_servers.py requirements/swift.txt requirements/cluster.txt | $(VENV)/.dev
	@if $(BIN)/python -m scripts.install_test_servers; then touch $@; fi

check: $(VENV)/.dev ## run the linters (without pyright) and the quick tests: under 3 minutes on 2 cores
	@$(BIN)/python -m scripts.check quick $(ARGS)

# With ARGS those tests alone, without the linters.
test: $(VENV)/.dev $(VENV)/.servers ## run linters (without pyright) and all tests; installs the servers that tests run on (as root: Ceph, a keyring, Chromium, nginx, Redis, by apt-get)
	@$(BIN)/python -m scripts.check all $(ARGS)

# What cannot be installed is no failure: its tests are skipped, and say why.
test-tools: $(VENV)/.dev ## run real AI programs, in pinned versions, with Crystal beside them (3.2 GB by npm and pip, into .tools); ARGS="-k codex" chooses
	@$(BIN)/python -m scripts.install_test_tools || true
	@$(BIN)/python -m pytest -n 2 --dist load tests/tools $(ARGS)

lint: $(VENV)/.dev ## run the linters: ruff, import rules, house rules, mypy, pyright
	@$(BIN)/python -m scripts.check lint

format: $(VENV)/.dev ## rewrite the sources in the one format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

$(VENV)/.bench: $(VENV)/.dev
	@echo "Installing what Crystal is measured against"
	@$(PIP) --editable '.[relay,documents,dev,bench]'
	@touch $@

bench: $(VENV)/.bench ## run the benchmarks and write bench/RESULTS.md (QUICK=1 for a short look)
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick)

bench-quality: $(VENV)/.dev ## measure what search finds on sets with known answers and write bench/QUALITY.md
	@$(BIN)/python -m bench.quality $(ARGS)

# The site's builder is in an environment of its own: nothing else needs it.
.venv-docs/.done: requirements/docs.txt | $(BIN)/python
	@echo "Installing what builds the documentation site"
	@$(BIN)/python -m venv .venv-docs
	@.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --requirement requirements/docs.txt
	@touch $@

docs: $(VENV)/.dev .venv-docs/.done ## write the generated pages, check the links in all pages, and build the documentation site in site/
	@$(BIN)/python -m scripts.make_cli_reference
	@$(BIN)/python -m scripts.make_man_pages
	@$(BIN)/python -m scripts.make_mcp_reference
	@$(BIN)/python -m scripts.make_mcp_greeting
	@$(BIN)/python -m scripts.make_mcp_answers
	@$(BIN)/python -m scripts.check_links
	@$(BIN)/python -m scripts.make_site
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet && echo "The site: site/index.html"

sim: $(VENV)/.dev ## run the simulated world for SEEDS random seeds, or SEED once
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

fuzz: $(VENV)/.dev ## fuzz each parser of foreign bytes with INPUTS inputs (1,000,000); ARGS="crypto --jobs 2" chooses
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS) $(ARGS)

# All mutants take days: what was run stays in .mutants/, and the next run goes on. ARGS="mirror --minutes 60" runs an hour of one part.
mutants: $(VENV)/.dev ## change the code in one place after the other, and list the changes that no test finds
	@nice -n 15 $(BIN)/python -m scripts.mutants $(ARGS)

clean: ## remove the environment and everything generated
	@rm -rf $(VENV) .venv-swift .venv-docs .site-pages site .venv-inspector .venv-cluster .tools build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz .import_linter_cache .grimp_cache .mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
