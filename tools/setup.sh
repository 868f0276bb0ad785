#!/usr/bin/env bash
# The steps of `make setup`, each safe to repeat: venv, runtime, project, kernel, dev; of `make etcd`, `make chromium` and the like.
# A step that went well leaves a stamp in .venv/.made; make runs it again only when its sources are newer.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV="${VENV:-.venv}"
PYTHON="${PYTHON:-python3}"
MADE="$VENV/.made"

say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }
warn() { printf '\033[33mwarning:\033[0m %s\n' "$*" >&2; }
fail() { printf '\033[31merror:\033[0m %s\n' "$*" >&2; exit 1; }

step_venv() {
    command -v "$PYTHON" >/dev/null || fail "$PYTHON not found. Install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)."
    local version
    version="$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || fail "Python 3.11 or newer is needed, $PYTHON is $version. Name another one: make setup PYTHON=python3.12"
    if [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        return
    fi
    say "creating $VENV with Python $version"
    "$PYTHON" -m venv "$VENV" || {
        rm -rf "$VENV"
        fail "$PYTHON cannot create virtual environments (Debian: apt-get install python3-venv)."
    }
}

pip_install() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"; }

locked() {
    say "installing what $1 lists, checked by hash"
    pip_install --require-hashes -r "$1" || fail "could not install $1; the message above names the package."
}

step_runtime() { locked requirements.lock; }

step_dev() { locked requirements-dev.lock; }

step_project() {
    say "installing syncpoint itself, editable"
    SYNCPOINT_KERNEL=skip pip_install --no-deps --no-build-isolation --editable . || fail "could not install the project."
}

step_kernel() {
    [ -f src/syncpoint/base/kernel/build.py ] || return 0
    local compiler="${CC:-gcc}"
    if ! command -v "${compiler%% *}" >/dev/null; then
        warn "$compiler not found: the kernel runs uncompiled, several times slower. Install a C compiler" \
             "and Python's headers (Debian: apt-get install gcc python3-dev), then run make setup again."
        rm -f src/syncpoint/base/kernel/*.so
        exit 0 # no stamp, so that the next run tries again
    fi
    say "compiling the kernel"
    local log="$MADE/kernel.log"
    if ! "$VENV/bin/python" -m syncpoint.base.kernel.build >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        warn "the kernel did not compile (the whole output: $log): it runs uncompiled, several times slower." \
             "Often Python's headers are missing (Debian: apt-get install python3-dev)."
        rm -f src/syncpoint/base/kernel/*.so
        exit 0
    fi
}

# packaged PROGRAM SERVICE PACKAGE...: have a program that Debian packages. A server that its package has started is
# stopped again through its own service script; SERVICE is - where the package has none.
packaged() {
    local program="$1" service="$2" as_root=()
    shift 2
    PATH="$PATH:/usr/sbin"
    if command -v "$program" >/dev/null; then
        say "$program is there: $(command -v "$program")"
        return
    fi
    command -v apt-get >/dev/null || fail "$program not found, and no apt-get to install it. Put it into the PATH."
    [ "$EUID" -eq 0 ] || as_root=(sudo)
    say "installing $* with apt-get"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends "$@"
    if [ "$service" != - ] && service "$service" status >/dev/null 2>&1; then
        "${as_root[@]}" service "$service" stop || warn "the package started $service, which could not be stopped"
    fi
    command -v "$program" >/dev/null || fail "the package is installed, but $program is not in the PATH"
}

# etcd (3.4 or newer) keeps the metadata of clusters; promtool checks the rules that are generated for Prometheus, and a
# server of it takes them in a test; the console is tested in Chromium, bridges in front of
# Mosquitto (2.0 or newer) and RabbitMQ (3.10 or newer; 35 MB).
step_etcd() { packaged etcd etcd etcd-server; }
step_prometheus() { packaged promtool prometheus prometheus; }
step_chromium() { packaged chromium - chromium fonts-dejavu-core; }
step_mosquitto() { packaged mosquitto mosquitto mosquitto; }
step_rabbitmq() { packaged rabbitmq-server rabbitmq-server rabbitmq-server; }

[ $# -eq 1 ] || fail "usage: tools/setup.sh venv|runtime|project|kernel|dev|etcd|chromium|prometheus|mosquitto|rabbitmq"
"step_$1"
mkdir -p "$MADE"
touch "$MADE/$1"
