# One command from a fresh machine: `make demo` shows it, `make test` proves it.
# Only Python 3.11+ is needed; uv is used where present and installed into .venv where not.

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null)
RUN := .venv/bin
# Certificates as the system has them: a company's own authority is known there.
export UV_SYSTEM_CERTS := 1
export UV_NATIVE_TLS := 1
# Sessions, engines and tests start thousands of interpreters: compiled modules are kept, whatever the machine says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup ui demo run-server screenshots quick test check bench chaos fuzz clean

setup: .venv/ready

.venv/ready: pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "etude needs Python 3.11 or newer")'
ifeq ($(UV),)
	@test -x $(RUN)/python || $(PYTHON) -m venv .venv
	@$(RUN)/python -m pip --version >/dev/null 2>&1 || $(RUN)/python -m ensurepip >/dev/null
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV= $(RUN)/uv sync --quiet --frozen --inexact --python $(RUN)/python
else
	$(UV) sync --quiet --frozen --inexact --python $(PYTHON)
endif
	@touch $@

# The page of `etude serve`, built by Node.js into the package; without Node.js, with the one from the package index.
ui: src/etude/web/index.html

src/etude/web/index.html: $(shell find ui -path ui/node_modules -prune -o -type f -print 2>/dev/null)
	@bash ui/build.sh

demo: setup
	@$(MAKE) --no-print-directory ui || echo "The page could not be built; everything else works without it."
	@ETUDE_HOME=$(CURDIR)/.demo $(RUN)/etude demo

# The server on this machine, with its state in .demo and the settings of a laptop.
run-server: setup
	@$(MAKE) --no-print-directory ui || echo "The page could not be built; everything else works without it."
	ETUDE_HOME=$(CURDIR)/.demo ETUDE_CONFIG=$(CURDIR)/deploy/laptop.toml $(RUN)/etude serve

# Every view of the page as a picture, light, dark and on a phone, for a person to look at.
screenshots: setup ui
	@$(RUN)/python -m tests.e2e.screenshots screenshots
	@echo "The pictures are in screenshots/."

# The tests to run while typing: no server, no root, no installation.
quick: setup
	$(RUN)/pytest --quick --numprocesses 2 --dist worksteal

test: setup ui
	@bash tests/install.sh
	$(RUN)/pytest --numprocesses 2 --dist loadfile

check: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

bench: setup
ifeq ($(UV),)
	$(RUN)/uv sync --quiet --frozen --inexact --group bench --group bench-queue --python $(RUN)/python
else
	$(UV) sync --quiet --frozen --inexact --group bench --group bench-queue
endif
	$(RUN)/python -m bench

# Every fuzz target for an hour; FUZZ_CASES=100000 counts cases instead.
fuzz: setup
	@bash tests/install.sh
	FUZZ_S=$(or $(FUZZ_S),3600) FUZZ_CASES=$(or $(FUZZ_CASES),0) $(RUN)/pytest tests/fuzz -s

chaos: setup
	CHAOS=long $(RUN)/pytest tests/chaos

clean:
	rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
