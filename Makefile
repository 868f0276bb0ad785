# The project's commands. `make help` lists them. Everything is installed into .venv; nothing else is touched.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
KERNEL := $(wildcard src/syncpoint/base/kernel/*.py src/syncpoint/base/kernel/*.pxd)

export PYTHON VENV

.PHONY: help setup dev etcd prometheus chromium mosquitto rabbitmq console demo demo-spark demo-disaster test test-near test-long test-clients test-kafka check life crossings status house sim planted sim-long faults faults-spark rules-spark rollout-drill upgrade-drill loss-drill regions-drill screenshots console-disaster bench bench-cluster bench-peers bench-spark bench-gate protos wheel locks clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(MADE)/kernel ## create .venv, install the server and compile its kernel
	@echo "Ready: $(BIN)/syncpoint serve"

dev: $(MADE)/kernel $(MADE)/dev ## as setup, with what tests and the demonstration need

prometheus: $(MADE)/venv ## install Prometheus and promtool (apt-get): tests of the rules for Prometheus need them
	@tools/setup.sh prometheus

etcd: $(MADE)/venv ## install etcd (apt-get): clusters on this machine and their tests need it
	@tools/setup.sh etcd

chromium: $(MADE)/venv ## install Chromium (apt-get): the tests of the console need it
	@tools/setup.sh chromium

mosquitto: $(MADE)/venv ## install Mosquitto (apt-get): the tests of bridges for MQTT need it
	@tools/setup.sh mosquitto

rabbitmq: $(MADE)/venv ## install RabbitMQ (apt-get): the tests of bridges for RabbitMQ need it
	@tools/setup.sh rabbitmq

console: dev ## build the console from console/ (needs node and npm)
	@$(BIN)/python tools/console.py build

demo: dev ## publish 336,776 real flight records, kill the server in the middle, lose none
	@$(BIN)/python demo/flights.py $(DEMO)

demo-disaster: dev ## lose one site after the other under load, with a gateway in front of two, lose no message; DEMO=--short
	@$(BIN)/python demo/disaster.py $(DEMO)

demo-spark: dev ## replicate the flight records between two servers with Spark, kill both in turn; DEMO="--rows 50000", DEMO=--clusters
	@$(BIN)/python demo/replicate.py $(DEMO)

check: dev ## style, types, layers, and the quick unit tests
	@$(BIN)/python tools/test_parts.py check

life: dev ## follow one message through the code and renew tools/life/roads.md
	@$(BIN)/python tools/life

metrics: dev ## write the table of docs/metrics.md from the families that there are
	@$(BIN)/python tools/metrics_page.py

status: dev ## write docs/status.md from docs/status.toml and the marks of tests
	@$(BIN)/python tools/status.py

crossings: dev ## write tests/integration/crossings.md from the table of features and events that tests cross
	@$(BIN)/python tools/crossings.py

house: dev ## draw the rooms of src/syncpoint into docs/ARCHITECTURE.md
	@$(BIN)/python tools/house.py

test: dev ## check, unit, property, uncompiled kernel, simulation, official clients, clusters, faults, Spark: 25 minutes; RESULT=FILE keeps the outcome for `syncpoint rollout`
	@tools/setup.sh etcd || echo "without etcd the tests of clusters are skipped" >&2
	@tools/setup.sh mosquitto || echo "without Mosquitto the tests of bridges for MQTT are skipped" >&2
	@tools/setup.sh rabbitmq || echo "without RabbitMQ the tests of bridges for RabbitMQ are skipped" >&2
	@$(BIN)/python tools/test_parts.py all $(if $(RESULT),--result $(RESULT))

test-near: dev ## the tests near what changed, in under four minutes: SINCE=main for all that is not on main
	@$(BIN)/python tools/near.py $(SINCE)

test-long: dev ## all of `make test` in a random order, the tests that take longest, and all examples of properties (two hours)
	@$(BIN)/python tools/test_parts.py all --long

test-clients: dev ## the official clients of Python, Node, Go and Java, and REST, on a node and in a cluster; result into tests/clients/results.md; CLIENTS="--only go,java"
	@$(BIN)/python -m tests.clients.run $(CLIENTS)

test-kafka: dev ## topics of a real Kafka broker and files into a server, through Spark's own sources; needs Java and Maven
	@SYNCPOINT_KAFKA=1 $(BIN)/python -m pytest -q -p no:cacheprovider tests/spark/test_federation_streams*.py

sim: dev ## replay one simulation and all that happens in it: make sim SEED=42 [KIND=chains|delivery|scheduled|cluster|imported|consumers|pipelines|cluster-pipelines]
	@$(BIN)/python tools/sim.py $(or $(SEED),42) --kind $(or $(KIND),chains)

planted: dev ## plant every bug there is into shipped modules: simulation has to notice each (make test plants a fourth)
	@SYNCPOINT_PLANTED=all $(BIN)/python -m pytest -q -p no:cacheprovider -n 2 tests/simulation

sim-long: dev ## simulate as many seeds as fit into SECONDS_MAX (an hour), from FIRST on: [KIND=chains|delivery|scheduled|cluster|imported|consumers|pipelines|cluster-pipelines]
	@$(BIN)/python tools/sim.py --seconds $(or $(SECONDS_MAX),3600) --first $(or $(FIRST),100000) --kind $(or $(KIND),chains)

faults: dev ## break networks, disks, etcd and clocks of a real cluster, under load (needs root); result into tests/faults/results.md; FAULTS="--seed 2 --only pairs"
	@SYNCPOINT_FAULTS_TABLE=tests/faults/results.md $(BIN)/python -m tests.faults.scenarios $(FAULTS)

faults-spark: dev ## kill and spoil copies on Spark at every point, judge by ids; result into tests/faults_spark/results.md; between clusters: FAULTS=--clusters; under patterns: FAULTS=--patterns
	@SYNCPOINT_FAULTS_TABLE=tests/faults_spark/results.md $(BIN)/python -m pytest -q -p no:cacheprovider tests/faults_spark $(FAULTS)

rollout-drill: dev ## roll out good, failing, slow and wrongly configured releases, and restart every role under load: DRILL="restarts slow"
	@$(BIN)/python -m tests.faults.rollout_drill $(DRILL)

upgrade-drill: dev ## every process of a cluster, and a server, becomes another commit and goes back, under load: BEFORE=COMMIT DRILL="cluster server"
	@$(BIN)/python -m tests.faults.upgrade_drill $(BEFORE) $(DRILL)

loss-drill: dev ## kill a zone for good, and at twice the load, and hold what happens against what was foretold: DRILL="headroom zone"
	@$(BIN)/python -m tests.faults.loss_drill $(DRILL)

regions-drill: dev ## two regions and a branch: deadlines with and without federation under faults and partitions, a hub (needs Java): DRILL="faults --seconds 5,30"
	@$(BIN)/python -m tests.faults.regions_drill $(DRILL)

screenshots: dev chromium etcd ## take the pictures of docs/console.md again (six minutes): FOLDER=docs/console
	@$(BIN)/python -m tests.faults.console_pictures $(or $(FOLDER),docs/console)

console-disaster: dev chromium ## kill a zone of a watched cluster under load, and take pictures of the console before, during and after: FOLDER=build/bad-day
	@$(BIN)/python -m tests.faults.bad_day $(or $(FOLDER),build/bad-day)

bench: dev ## measure this machine: publish, deliver, restart, many topics
	@$(BIN)/python -m bench $(BENCH)

bench-gate: dev ## compare eight figures with the last release, in turns, and renew their table: BEFORE=COMMIT
	@$(BIN)/python -m bench guard --write $(if $(BEFORE),--before $(BEFORE)) $(BENCH)

bench-cluster: dev ## measure a cluster of 3 x 3 disks, all roles on this machine: BENCH="--failover 30 --scale"
	@$(BIN)/python -m bench cluster $(BENCH)

bench-peers: dev ## the same load against other brokers found on this machine
	@$(BIN)/python -m bench.peers $(BENCH)

rules-spark: dev ## SQL rules on Spark against the server's evaluation, on a million random messages: RULES="--messages 1000000 --seed 1"
	@$(BIN)/python -m tests.spark.rules_kit $(RULES)

bench-spark: dev ## pipelines on Spark, beside Parquet, rows and Kafka (needs Java): BENCH="--only source --runs 3"
	@$(BIN)/python -m bench spark $(BENCH)

protos: dev ## rebuild wire/descriptors.binpb and wire/stubs from proto/
	@$(BIN)/python tools/protos.py compile

wheel: dev ## build what users install into dist/: a wheel with the compiled kernel, and the sources
	@$(BIN)/python tools/build_wheel.py

locks: dev ## resolve the requirements again (needs uv)
	@tools/locks.sh

clean: ## remove build products and caches, keep .venv
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info
	@find src -name '*.so' -path '*/kernel/*' -delete
	@find src/syncpoint/base/kernel -name '*.c' -delete 2>/dev/null || true
	@find src tests tools demo bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@rm -f $(MADE)/kernel

# What is done once. A stamp is older than what it was made from: then, and only then, its step runs again.

$(MADE)/venv: tools/setup.sh
	@tools/setup.sh venv

$(MADE)/runtime: $(MADE)/venv requirements.lock
	@tools/setup.sh runtime

$(MADE)/project: $(MADE)/runtime pyproject.toml setup.py
	@tools/setup.sh project

$(MADE)/kernel: $(MADE)/project $(KERNEL)
	@tools/setup.sh kernel

$(MADE)/dev: $(MADE)/runtime requirements-dev.lock
	@tools/setup.sh dev
