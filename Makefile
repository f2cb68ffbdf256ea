# One command each; every one installs what it needs into .venv and leaves nothing running.
#
#   make demo [DB=mysql|mariadb]   the whole path on real servers, under load, verified; PIPELINE=1: shards and several sinks;
#                                  SOURCES=1: several sources to one server, in one order
#   make test [WORKERS=4]          lint, then every test but the slow ones; what CI runs
#   make test-all [WORKERS=4]      every server, every test
#   make lint                      ruff, mypy, import contracts
#   make fuzz-ddl [DB=...] [N=2000] random DDL on one server (DB=mysql80, mariadb114, ...); log, text and server compared
#   make conformance               the real Debezium beside us on MySQL and MariaDB, records compared
#   make chaos [ROUNDS=5 SEED=1 JOBS=2 SINKS=1 MORE=...]  faults at random moments under load, the outcome compared; into several sinks
#   make truth [MINUTES=60 SEED=1] faults one after another; words and lags shown by every view, against what the harness knows
#   make fuzz [SECONDS=30 SEED=1 TARGET=properties]  damaged bytes and nonsense: log events, signals, settings, HTTP, connectors, segments, members; DDL with one more token
#   make sinks                     every sink by the behaviour suites on real servers, with all crash points
#   make mutations                 each mechanism switched off in turn; a test must notice
#   make compose-test [FROM=COMMIT]  compose.yaml through a signal, an ALTER, a restart of every service, down and up, an upgrade
#   make bench [WORKLOADS=...] [ROWS=...] [MORE="--compare docs/bench/result.json"]  rows per second and CPU per row, beside peers; into docs/bench
#   make dist                      source archive, wheel, locked requirements, SBOM and hashes; into dist/
#   make docs                      the documentation as a site, into build/site
#   make clean                     remove .venv and what tools leave behind (not the cache of downloads)

DB ?= mysql
BIN := .venv/bin
RUN_EXTRAS := producer,page,spark,verify
ALL_EXTRAS := $(RUN_EXTRAS),test,lint,dist,docs
PACKAGES := conformance devservers kafkaio kernels mysqlio rowcodec schemas producer spark_jobs tidemark tests $(wildcard bench)

.PHONY: help demo test test-all lint fuzz-ddl conformance chaos truth fuzz sinks mutations compose-test bench dist docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

.venv/.installed-run: pyproject.toml tools/setup.sh
	@tools/setup.sh $(RUN_EXTRAS)
	@touch $@

.venv/.installed-all: pyproject.toml tools/setup.sh
	@tools/setup.sh $(ALL_EXTRAS)
	@touch $@ .venv/.installed-run

# `exec`: the command is make's own child, so that a signal to make reaches it.
demo: .venv/.installed-run
	@exec $(BIN)/tidemark demo --db $(DB) $(if $(PIPELINE),--pipeline) $(if $(SOURCES),--sources)

lint: .venv/.installed-all
	@$(BIN)/ruff check --quiet $(PACKAGES)
	@$(BIN)/mypy --no-error-summary
	@out=$$($(BIN)/lint-imports --no-logo) || { echo "$$out"; exit 1; }
	@echo "lint: ruff, mypy and the import contracts are content"

# The first collection compiles all that the tests import. One process does it while mypy, which has one thread, is at work;
# else each worker would.
.venv/.collected: .venv/.installed-all
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

# Tests wait for servers half of the time: four workers keep two cores busy, each with servers of its own, a file on one of them.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: .venv/.installed-all
	@$(MAKE) --no-print-directory --jobs 2 lint .venv/.collected && exec $(PYTEST) -m "not slow"

test-all: lint
	@TIDEMARK_TEST_SERVERS=all exec $(PYTEST)

N ?= 2000
FUZZ_DB := $(if $(filter mysql,$(DB)),mysql80,$(if $(filter mariadb,$(DB)),mariadb114,$(DB)))
fuzz-ddl: .venv/.installed-all
	@exec $(BIN)/python -m tests.catalog.random_ddl $(FUZZ_DB) $(N)

conformance: .venv/.installed-all
	@exec $(BIN)/python -m tests.conformance

chaos: .venv/.installed-all
	@exec $(BIN)/python -m tests.chaos --rounds $(or $(ROUNDS),5) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2) $(if $(SINKS),--sinks) $(MORE)

truth: .venv/.installed-all
	@exec $(BIN)/python -m tests.truth --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

fuzz: .venv/.installed-all
	@exec $(BIN)/python -m tests.fuzz $(or $(SECONDS),30) $(or $(SEED),1) $(if $(TARGET),"$(TARGET)")

sinks: .venv/.installed-all
	@exec $(BIN)/python -m tests.sinks

mutations: .venv/.installed-all
	@exec $(BIN)/python -m tests.mutations

compose-test: .venv/.installed-all
	@exec $(BIN)/python -m tests.compose $(if $(FROM),--from $(FROM))

bench: .venv/.installed-all
	@exec $(BIN)/python -m bench $(WORKLOADS) $(if $(ROWS),--rows $(ROWS)) --store docs/bench $(MORE)

dist: .venv/.installed-all
	@exec $(BIN)/python tools/make_dist.py

docs: .venv/.installed-all
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: build/site/index.html"

clean:
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist demo-data
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
