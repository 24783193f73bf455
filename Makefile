# make run opens the dashboard, make test checks everything; both need only Python 3.11 to 3.14 and make.

PORT ?= 8501
FUZZ_SECONDS ?= 600
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
CODE := app kernels profiler
# LOCKED=1 takes exactly the files that requirements.lock names, each checked against its hash.
WANTED := $(if $(LOCKED),--require-hashes -r requirements.lock,-r requirements.txt)
TOOLS := .venv-tools
READY_TOOLS := $(TOOLS)/.ready
AUDIT := $(TOOLS)/audit.json

.PHONY: help run test test-gpu test-long fuzz lint chromium lock audit-dependencies licences clean
.NOTPARALLEL:

help:
	@echo "make run        open the dashboard on http://127.0.0.1:$(PORT) (PORT=... to change; LOCKED=1: see docs/security.md)"
	@echo "make test       lint, type-check and run every test that needs no GPU"
	@echo "make test-gpu   run the tests that need an NVIDIA GPU"
	@echo "make test-long  try 2,000 bad inputs of each kind, others each time (half an hour)"
	@echo "make fuzz       fuzz the parsers of Runs and of ncu's CSV, 10 minutes each (FUZZ_SECONDS=... to change)"
	@echo "make lock       pin what requirements.txt allows, with hashes, in requirements.lock (UPGRADE=1: the newest)"
	@echo "make audit-dependencies   look the pinned versions up among known vulnerabilities; needs the network"
	@echo "make licences   list the licences of what is installed in docs/licences.md"
	@echo "make clean      remove the virtual environments"

run: $(READY)
	@echo "Bytescope is starting on http://127.0.0.1:$(PORT) (Ctrl+C stops it)."
	@exec $(PY) -m streamlit run app/main.py --server.address 127.0.0.1 --server.port $(PORT) \
		--server.headless $(if $(DISPLAY)$(WAYLAND_DISPLAY),false --server.showEmailPrompt false,true)

# Browsers want the machine for themselves. After them what only computes runs beside what starts processes and servers,
# which waits most of the time; it is printed last.
test: $(READY_TO_TEST) lint chromium
	@log=$$(mktemp); beside=; status=0; \
	trap 'exit 130' INT TERM; trap 'kill $$beside 2> /dev/null; rm -f "$$log"' EXIT; \
	$(PY) -m pytest -m "not gpu and browser" || status=1; \
	$(PY) -m pytest -m "not gpu and computes" > "$$log" 2>&1 & beside=$$!; \
	$(PY) -m pytest -m "not gpu and not browser and not computes" || status=1; \
	wait $$beside || status=1; cat "$$log"; exit $$status

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
$(READY): requirements.txt $(if $(LOCKED),requirements.lock) | $(PY)
	$(PY) -m pip install --disable-pip-version-check $(WANTED)
	@touch $@

$(READY_TO_TEST): requirements-dev.txt requirements-ray.txt requirements-oidc.txt requirements.txt | $(PY)
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

# Every file of each version is named, for Python 3.11 and later on every system, whatever is installed here.
lock: $(READY_TOOLS)
	$(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		$(if $(UPGRADE),--upgrade) requirements.txt --output-file requirements.lock

# pip-audit writes its file only where it could ask; 1 is its word for a vulnerability.
audit-dependencies: $(READY_TOOLS)
	@rm -f $(AUDIT); \
	$(TOOLS)/bin/pip-audit --requirement requirements.lock --disable-pip --progress-spinner off --timeout 15 \
		--format json --output $(AUDIT) 2>$(AUDIT).log; found=$$?; \
	if [ ! -s $(AUDIT) ]; then \
		echo "Nothing was audited: the database of vulnerabilities could not be asked ($$(tail -n 1 $(AUDIT).log | cut -c -200))." \
			"Run make audit-dependencies where there is a network." >&2; exit 2; \
	fi; \
	cat $(AUDIT).log; \
	if [ $$found != 0 ]; then cat $(AUDIT); exit $$found; fi

licences: $(READY) $(READY_TOOLS)
	@sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' requirements.lock | sort -u >$(TOOLS)/locked
	@$(PY) -m pip list --format=freeze | sed 's/==.*//' | tr 'A-Z_.' 'a-z--' | sort -u >$(TOOLS)/installed
	@{ \
		echo "# Licences"; echo; \
		echo "Of what requirements.lock names, as each package states it; written by \`make licences\`."; echo; \
		$(TOOLS)/bin/pip-licenses --python=$(PY) --from=mixed --with-system --format=markdown --order=name \
			--packages $$(cat $(TOOLS)/locked); \
		echo; echo "In requirements.lock, but not installed where this list was made, and so not read:"; echo; \
		comm -23 $(TOOLS)/locked $(TOOLS)/installed | sed 's/^/* /'; \
	} >$(TOOLS)/licences.md
	@mv $(TOOLS)/licences.md docs/licences.md

# The tools have an environment of their own: what they need is no part of what is locked.
$(READY_TOOLS): requirements-tools.txt | $(PY)
	$(PY) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --disable-pip-version-check -r requirements-tools.txt
	@touch $@

clean:
	rm -rf $(VENV) $(TOOLS)
