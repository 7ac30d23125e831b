# `make demo` and `make test` set everything up by themselves; a second run does not reinstall.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test test-slow check format clean

demo: $(STAMP)
	$(BIN)/triphase demo

test: check
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: $(STAMP)
	$(BIN)/pytest -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf .venv demo
