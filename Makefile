# `make app`, `make demo` and `make test` set everything up by themselves; a second run does not reinstall.
PYTHON ?= python3
BIN := .venv/bin
APP := .venv/installed-app
STAMP := .venv/installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
OTHERS := .venv-avalanche
unexport PYTHONDONTWRITEBYTECODE  # modules are compiled when they are first imported, not all of them at once

.PHONY: app demo test test-slow test-avalanche bench bench-avalanche check format clean

demo: $(APP)
	$(BIN)/triphase demo

# A page in the browser on which a model is taught: make app [MODEL=folder-of-the-model]
app: $(APP)
	$(BIN)/triphase serve $(or $(MODEL),my-model)

test: check tests/page/node_modules
	$(BIN)/pytest -n 3 --dist loadfile -m "not slow"

test-slow: $(STAMP)
	$(BIN)/pytest -m slow

# What needs Avalanche, Continuum and datasets, in an environment of their own on top of this one.
test-avalanche: $(STAMP)
	test -x $(OTHERS)/bin/python || $(BIN)/python -m venv --without-pip $(OTHERS)
	$(BIN)/python -c "import sysconfig; print('$(CURDIR)/src', sysconfig.get_path('purelib'), sep='\n')" \
		> $$($(OTHERS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/triphase.pth
	$(OTHERS)/bin/python -m pip install --quiet -c constraints.txt -r tests/requirements-avalanche.txt
	$(OTHERS)/bin/python -m pip install --quiet --no-deps continuum==1.2.7  # it asks for a dozen linters
	$(OTHERS)/bin/python -m pytest tests/test_avalanche.py tests/test_sources_torch_datasets.py \
		tests/test_sources_hugging_face.py

# Speed, as ratios: make bench DATA=folder-of-cifar-100-binary [WEIGHTS=mobilenet_v1_folded.safetensors]
bench: $(STAMP)
	$(BIN)/python benchmarks/speed/ratios.py --data $(DATA) $(if $(WEIGHTS),--weights $(WEIGHTS))
	$(BIN)/python benchmarks/speed/options.py
	$(BIN)/python benchmarks/speed/predict.py
	$(BIN)/python benchmarks/speed/memory.py --data $(DATA)
	$(BIN)/python benchmarks/speed/growth.py --data $(DATA) --figure benchmarks/results/growth.png

bench-avalanche: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -r benchmarks/speed/requirements-avalanche.txt
	$(BIN)/python benchmarks/speed/against_avalanche.py --data $(DATA)

# The accessibility checker of the page's tests; without npm they are skipped.
tests/page/node_modules: tests/page/package-lock.json
	if command -v npm > /dev/null; then cd tests/page && npm ci --no-audit --no-fund --loglevel=error; fi

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What the app and the demo need, without what only the checks need.
$(APP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what triphase needs into .venv, once."
	$(INSTALL) -e ".[app]"
	touch $(APP)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e ".[dev]"
	touch $(APP) $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv $(OTHERS) demo
