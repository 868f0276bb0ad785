#!/usr/bin/env bash
# Resolve requirements*.in into the hash-pinned locks, for every platform, without addresses or paths of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/${VENV:-.venv}/bin:$PATH"
command -v uv >/dev/null || { echo "error: uv not found (pip install uv)" >&2; exit 1; }
for name in requirements requirements-bridges requirements-otel requirements-dev requirements-spark; do
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links "$@" "$name.in" --output-file "$name.lock"
done
