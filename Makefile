# Two commands on a fresh machine with Python 3.11+, git and make:
#   make demo   installs into .venv and runs the main job
#   make test   installs what the tests need and runs the whole suite
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint install clean

.venv/.run: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/.dev: .venv/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	touch $@

install: .venv/.run

demo: .venv/.run
	$(BIN)/servebound compare paper-7.2-i0032 --plots out/demo
	@echo
	$(BIN)/servebound compare --trace azure-conv-200 --first 8 --kv-capacity 1500 --offline --time-limit 20 --plots out/demo
	@echo
	@echo "The pictures are in $(CURDIR)/out/demo"

test: .venv/.dev lint
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv out results
