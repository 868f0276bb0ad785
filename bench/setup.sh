#!/usr/bin/env bash
# Installs what the measurements need from the distribution, only where it is missing, and says what it does.
#
#   bench/setup.sh          the load generator's build: g++, make, pkg-config, gRPC for C++
#   bench/setup.sh peers    also the systems we are compared with: Redis, RabbitMQ (NATS is built by bench/peers.py with Go)
#
# Needs root (or sudo) only when something is missing. Package installation must not leave servers running: those that
# a package starts by itself are stopped again through their own service script, and ones that ran before are left alone.
set -euo pipefail

packages=(g++ make pkg-config libgrpc++-dev libprotobuf-dev)
services=()
if [[ "${1:-}" == "peers" ]]; then
  packages+=(redis-server rabbitmq-server)
  services+=(redis-server rabbitmq-server)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "bench/setup.sh: nothing to install"
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  as_root=(sudo)
fi
echo "bench/setup.sh: installing ${missing[*]} with apt-get"
started_by_us=()
for service in "${services[@]}"; do
  service "$service" status >/dev/null 2>&1 || started_by_us+=("$service")
done
epmd_ran_before=0
if command -v epmd >/dev/null && epmd -names >/dev/null 2>&1; then
  epmd_ran_before=1
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${missing[@]}"
for service in "${started_by_us[@]}"; do
  if service "$service" status >/dev/null 2>&1; then
    echo "bench/setup.sh: the package started $service; stopping it"
    "${as_root[@]}" service "$service" stop
  fi
done
# RabbitMQ's installation asks its own tools for the version and leaves Erlang's port mapper behind.
if [[ $epmd_ran_before -eq 0 ]] && command -v epmd >/dev/null && epmd -names >/dev/null 2>&1; then
  echo "bench/setup.sh: stopping the port mapper (epmd) the installation left running"
  "${as_root[@]}" epmd -kill >/dev/null || true
fi
echo "bench/setup.sh: done"
