# make lab        sets everything up and runs the lab (ARGS="--profile quick" for a small one)
# make test       sets everything up and runs the tests
# make nbval      runs the solved notebooks at full size and compares their tables with the bands, 8 minutes
# make notebooks  builds the notebooks, the self-checks' numbers and all else that is generated
# make calibrate  measures the bands of the tables again, about two hours
# make bench      sets everything up, with the library that the speed is compared with, and runs the benchmark

PYTHON ?= python3
BIN := .venv/bin

.PHONY: lab test nbval notebooks calibrate bench format clean

lab: .venv/installed
	$(BIN)/lab16 run $(ARGS)

test: .venv/installed
	$(BIN)/python -m pytest $(ARGS)

nbval: .venv/installed
	rm -rf solutions/notebooks/results # else what an earlier call trained is shown
	$(BIN)/python -m pytest --nbval solutions/notebooks $(ARGS)

notebooks: .venv/installed
	$(BIN)/python solutions/build.py $(ARGS)

calibrate: .venv/installed
	for profile in full quick; do \
		PYTHONPATH=solutions $(BIN)/python benchmarks/calibrate.py run --profile $$profile && \
		PYTHONPATH=solutions $(BIN)/python benchmarks/calibrate.py mistakes --profile $$profile || exit 1; \
	done
	PYTHONPATH=solutions $(BIN)/python benchmarks/calibrate.py write

bench: .venv/installed-bench
	PYTHONPATH=solutions $(BIN)/python benchmarks/speed.py $(ARGS)

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The constraints pin every package, so that what was tested is what is installed.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with PYTHON=..."; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,browser,cluster]'
	touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,browser,cluster,bench]'
	touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
