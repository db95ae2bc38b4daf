# Sets this checkout up: `. scripts/setup.sh`, then `set_up_python` and, for the tests, `set_up_rabbitmq`,
# `set_up_chromium` and `set_up_prometheus`.
# Safe to run again; the second time it only compares a stamp. Variables that it honours:
#   VQUEUE_PYTHON         the Python to make .venv with (3.11 or newer)
#   VQUEUE_TORCH_INDEX    the wheel index that torch comes from, such as PyTorch's own for the CPU or a CUDA version.
#                         Another one than last time replaces torch; unset keeps what there is
#   VQUEUE_SKIP_RABBITMQ  1 leaves RabbitMQ out; its tests are skipped then
#   VQUEUE_SKIP_PROMETHEUS 1 leaves Prometheus out; the tests of alerts and dashboards are skipped then
#   VQUEUE_SKIP_CHROMIUM  1 leaves Chromium out; the console's tests in a browser are skipped then
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
TORCH=2.13.0
export PATH="$venv/bin:$PATH" PYTHONPATH="$root" PIP_DISABLE_PIP_VERSION_CHECK=1
# Threads that spin while they wait make a shared machine half as fast.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}

say() { echo "set-up: $*" >&2; }

# Runs a command silently; shows what it said only if it fails.
quietly() {
    local output
    if ! output=$("$@" 2>&1 </dev/null); then
        printf '%s\n' "$output" >&2
        say "this failed: $*"
        return 1
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

find_python() {
    local candidate
    for candidate in ${VQUEUE_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "Python 3.11 or newer is missing (apt-get install python3)"
    return 1
}

set_up_python() {
    local file=$venv/vqueue-stamp old='' index stamp python
    if [ -r "$file" ]; then old=$(cat "$file"); fi
    index=${VQUEUE_TORCH_INDEX:-$(index_in "$old")}
    stamp="$(sha256sum <"$root/pyproject.toml") $index $root"
    if [ -x "$venv/bin/python" ] && [ "$old" = "$stamp" ]; then
        return
    fi
    if [ -L "$venv" ]; then
        say ".venv is a link to $(readlink "$venv"), used as it is: nothing is installed or cleared there"
        return
    fi
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_python)
        say "making .venv with $("$python" --version)"
        if ! "$python" -c 'import ensurepip' 2>/dev/null; then
            install_packages python3-venv
        fi
        quietly "$python" -m venv --clear "$venv"
    fi
    if [ "$index" != "$(index_in "$old")" ] || ! "$venv/bin/python" -c "import torch" 2>/dev/null; then
        install_torch "$index"
    fi
    say "installing vqueue and what it needs"
    quietly pip install -e "$root[local,worker,flower,dev]"
    echo "$stamp" >"$file"
}

# The wheel index that a stamp names; nothing where torch came from the index that pip knows.
index_in() {
    sed -n 's/^[0-9a-f]*  - \([^ ]*\) .*/\1/p' <<<"$1"
}

# Torch alone and first: the other packages would accept any build of it, the largest included.
install_torch() {
    local from=()
    if [ -n "$1" ]; then from=(--index-url "$1"); fi
    say "installing torch $TORCH${1:+ from $1} (VQUEUE_TORCH_INDEX chooses the build)"
    # Builds of one version satisfy one another, so pip would keep the one that is there.
    quietly pip install "${from[@]}" --force-reinstall --no-deps "torch==$TORCH"
    quietly pip install "${from[@]}" "torch==$TORCH"
}

# Debian packages, without starting the services that they bring.
install_packages() {
    local policy=/usr/sbin/policy-rc.d made='' status=0
    say "installing $* (Debian packages)"
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
        made=yes
    fi
    quietly as_root apt-get update || true
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" || status=1
    if [ -n "$made" ]; then as_root rm -f "$policy"; fi
    return "$status"
}

set_up_rabbitmq() {
    if [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || [[ ${VQUEUE_BROKER_URL:-} == amqp* ]]; then
        return
    fi
    if [ "${VQUEUE_SKIP_RABBITMQ:-}" = 1 ]; then
        say "leaving RabbitMQ out: its tests are skipped"
        return
    fi
    # Without it the tests still run, and those that need it fail: nobody should take them for passed.
    install_packages rabbitmq-server || say "RabbitMQ could not be installed: its tests will fail"
    if [ -d /run/systemd/system ]; then
        quietly as_root systemctl disable rabbitmq-server || true # tests start one of their own
    fi
}

# With a font for Chinese, which pictures of pages need.
set_up_chromium() {
    if command -v chromium >/dev/null; then
        return
    fi
    if [ "${VQUEUE_SKIP_CHROMIUM:-}" = 1 ]; then
        say "leaving Chromium out: the console's tests in a browser are skipped"
        return
    fi
    install_packages chromium fonts-wqy-zenhei || say "Chromium could not be installed: its tests will fail"
}

# Prometheus with promtool, which check the alert rules and the dashboards against a real run.
set_up_prometheus() {
    if command -v promtool >/dev/null && command -v prometheus >/dev/null; then
        return
    fi
    if [ "${VQUEUE_SKIP_PROMETHEUS:-}" = 1 ]; then
        say "leaving Prometheus out: the tests of alerts and dashboards are skipped"
        return
    fi
    install_packages prometheus || say "Prometheus could not be installed: its tests will fail"
    if [ -d /run/systemd/system ]; then
        quietly as_root systemctl disable prometheus || true # tests start one of their own
    fi
}
