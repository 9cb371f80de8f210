# `make help` lists the targets. Each one makes the environment first, when it is missing or older than the lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.DEFAULT_GOAL := help
.PHONY: help install up demo test test-long check bench chaos lock secrets clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make the environment in .venv from requirements.lock

$(INSTALLED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Twelvefold needs Python 3.11 or newer, and $(PYTHON) is older or missing."; \
	  echo "Name another one, for example: make install PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "Making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing what requirements.lock names into $(VENV) (about a minute the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@printf '%s\n' \
	  '#!$(CURDIR)/$(BIN)/python' \
	  '"""Start the command line of the checkout that this environment belongs to."""' \
	  'import sys' \
	  'from pathlib import Path' \
	  '' \
	  'sys.path.insert(0, str(Path(__file__).resolve().parents[2]))' \
	  '' \
	  'from console.cli import main' \
	  '' \
	  'sys.exit(main())' > $(BIN)/twelvefold
	@chmod +x $(BIN)/twelvefold
	@touch $@
	@echo "Ready: $(BIN)/twelvefold --help"

up: install ## Start everything on this machine; Ctrl-C stops it and keeps the data
	@$(BIN)/twelvefold up

demo: install ## Play one scenario from trigger to delivery over real HTTP and SMTP
	@$(BIN)/twelvefold demo

# Those that kill and stall real processes need the machine to themselves; the rest shares its cores.
test: install ## Run the fast tests
	$(BIN)/python -m pytest -q -n logical --maxprocesses 4 --dist worksteal -m "not long" --ignore=tests/kills --ignore=tests/broker
	$(BIN)/python -m pytest -q -m "not long" tests/kills tests/broker

test-long: install ## Run the tests that take minutes; WHERE=tests/kills for a part of them, JOBS=2 for two at a time
	$(BIN)/python -m pytest -q -n $(or $(JOBS),0) -m long $(WHERE)

check: install ## Lint, format, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: install ## Measure this machine against the performance targets
	$(BIN)/python -m tests.bench

chaos: install ## Run the tests that end processes at the worst moment
	$(BIN)/python -m pytest -q -m kills

# Regenerated with the oldest Python that is supported, since newer ones need a subset of its packages.
lock: install ## Bring requirements.lock in line with pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --all-extras --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file=requirements.lock pyproject.toml
	@if grep -nE '://|^-|(^|[^a-z])/[a-z]' requirements.lock; then \
	  echo "requirements.lock names an address or a path of this machine; remove it."; exit 1; fi

# What stands there already is kept. The folder is closed to others; the files are open to the containers' own user.
secrets: ## Write the secrets that docker-compose.yml reads, in secrets/
	@umask 022; mkdir -p secrets; chmod 700 secrets; cd secrets; \
	put() { test -s "$$1" || { printf '%s\n' "$$2" > "$$1"; echo "secrets/$$1"; }; }; \
	random() { od -An -N32 -v -tx1 /dev/urandom | tr -d ' \n'; }; \
	for name in owner_password app_password redis_password link_secrets github_webhook_secrets; do \
	  put $$name "$$(random)"; done; \
	put flower_login "operator:$$(random)"; \
	put owner_database_url "postgresql://twelvefold_owner:$$(cat owner_password)@postgres:5432/twelvefold"; \
	put database_url "postgresql://twelvefold_app:$$(cat app_password)@postgres:5432/twelvefold"; \
	put broker_url "redis://:$$(cat redis_password)@redis:6379/0"

clean: ## Remove the environment and all caches; data of `make up` stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
