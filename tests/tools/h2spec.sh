#!/usr/bin/env bash
# Installs h2spec, the conformance suite for HTTP/2 servers, into .cache/go-bin and prints its path. Needs Go.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOBIN="$PWD/.cache/go-bin"
if [[ ! -x "$GOBIN/h2spec" ]]; then
    mkdir -p "$GOBIN"
    go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible >&2
fi
echo "$GOBIN/h2spec"
