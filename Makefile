# make demo, test, test-spark, check, fuzz, bench, study, docs: each sets up what it needs in .venv and then does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

TIME ?= 30

.PHONY: demo test test-spark check fuzz bench bench-spark study docs clean

demo: $(VENV)/demo.done
	$(BIN)/veilmap demo --out demo

test: $(VENV)/test.done
	$(BIN)/python -m pytest -n auto --dist loadgroup

# A master and two workers on this machine; half a gigabyte to install, so on its own.
test-spark: $(VENV)/spark.done
	$(BIN)/python -m pytest tests/test_spark.py tests/test_conformance.py

check: $(VENV)/test.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every reader for TIME seconds: executions and crashes. It begins where the last run ended; make clean forgets.
fuzz: $(VENV)/fuzz.done
	$(BIN)/python -m fuzz --seconds $(TIME)

bench: $(VENV)/test.done
	$(BIN)/python -m benchmarks.bars

bench-spark: $(VENV)/spark.done
	$(BIN)/python -m benchmarks.large_spark

study: $(VENV)/test.done
	$(BIN)/veilmap reproduce --out study

docs: $(VENV)/test.done
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo .fuzz

$(VENV)/made.done:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	touch $@

$(VENV)/demo.done: $(VENV)/made.done pyproject.toml constraints.txt
	$(INSTALL) --editable '.[demo,plot]'
	touch $@

$(VENV)/test.done: $(VENV)/made.done pyproject.toml constraints.txt
	$(INSTALL) --editable '.[geo,plot,sql,demo,match]' --group dev
	touch $@

$(VENV)/spark.done: $(VENV)/test.done
	$(INSTALL) --editable '.[spark]'
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || sh .ci/java.sh || echo "There is no Java: tests of Spark will be skipped."
	touch $@

$(VENV)/fuzz.done: $(VENV)/test.done
	$(INSTALL) --group fuzz
	touch $@
