# make run opens the dashboard, make test checks everything; both need only Python 3.11 to 3.14 and make.

PORT ?= 8501
FUZZ_SECONDS ?= 600
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
CODE := app kernels profiler

.PHONY: help run test test-gpu test-long fuzz lint chromium clean
.NOTPARALLEL:

help:
	@echo "make run        open the dashboard on http://127.0.0.1:$(PORT) (PORT=... to change)"
	@echo "make test       lint, type-check and run every test that needs no GPU"
	@echo "make test-gpu   run the tests that need an NVIDIA GPU"
	@echo "make test-long  try 2,000 bad inputs of each kind, others each time (half an hour)"
	@echo "make fuzz       fuzz the parsers of Runs and of ncu's CSV, 10 minutes each (FUZZ_SECONDS=... to change)"
	@echo "make clean      remove the virtual environment"

run: $(READY)
	@echo "Bytescope is starting on http://127.0.0.1:$(PORT) (Ctrl+C stops it)."
	@exec $(PY) -m streamlit run app/main.py --server.address 127.0.0.1 --server.port $(PORT) \
		--server.headless $(if $(DISPLAY)$(WAYLAND_DISPLAY),false --server.showEmailPrompt false,true)

test: $(READY_TO_TEST) lint chromium
	$(PY) -m pytest -m "not gpu"

test-gpu: $(READY_TO_TEST)
	$(PY) -m pytest -m gpu

test-long: $(READY_TO_TEST)
	$(PY) -m pytest --hypothesis-profile=long --timeout=3600 tests/test_hostile_*.py

# What the inputs grow to is kept in test-results/fuzz, where the next run goes on.
fuzz: $(READY_TO_TEST)
	$(PY) -m pip install --disable-pip-version-check -r requirements-fuzz.txt
	$(PY) -m benchmarks.fuzz run $(FUZZ_SECONDS) test-results/fuzz
	$(PY) -m benchmarks.fuzz ncu $(FUZZ_SECONDS) test-results/fuzz

lint: $(READY_TO_TEST)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy $(CODE)

# The stamps are newer than the requirements they hold, so pip runs only when those change.
$(READY): requirements.txt | $(PY)
	$(PY) -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@

$(READY_TO_TEST): requirements-dev.txt requirements-ray.txt requirements.txt | $(PY)
	$(PY) -m pip install --disable-pip-version-check -r requirements-dev.txt
	@touch $(READY) $@

# torch and triton, at the versions in requirements.txt, exist for Python 3.11 to 3.14.
$(PY):
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
		$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && break; \
		python=; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Bytescope needs Python 3.11 to 3.14 and found $$($(or $(PYTHON),python3) --version 2>/dev/null || echo "no $(or $(PYTHON),python3)")." \
			"Install one of them, or name it: make run PYTHON=python3.12" >&2; exit 2; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$python lacks its venv module. On Debian or Ubuntu: sudo apt-get install python3-venv" >&2; exit 2; \
	fi; \
	echo "Making $(VENV) with $$($$python --version); installing takes a few minutes the first time."; \
	$$python -m venv $(VENV)

# Browser tests drive Chromium. Without it they are skipped by name, and everything else still runs.
chromium:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then exit 0; fi >/dev/null; \
	if [ "$$(id -u)" = 0 ]; then as=; elif sudo -n true 2>/dev/null; then as="sudo -n"; else as=no; fi; \
	if [ "$$as" != no ] && command -v apt-get >/dev/null; then \
		echo "Installing chromium for the browser tests."; \
		$$as apt-get update -qq && $$as apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	fi; \
	command -v chromium >/dev/null || echo "Chromium is missing and could not be installed here: the browser tests" \
		"are skipped by name. On Debian: sudo apt-get install chromium"

clean:
	rm -rf $(VENV)
