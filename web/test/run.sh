#!/usr/bin/env bash
# Serves a trace of the demo and one of a million events with the real binary and looks at every page of both in a browser.
#
# usage: web/test/run.sh GPUWHY LARGE_TRACE     pictures of the pages: $GPUWHY_SHOTS [default: target/web]
set -euo pipefail
cd "$(dirname "$0")/../.."
gpuwhy=$1
large=$2
folder=$(mktemp -d)
served=()
trap 'kill "${served[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT

# Serves a trace on a port that is free and says where.
serve() {
    local trace=$1 log=$2 deadline=$((SECONDS + 20))
    "$gpuwhy" dashboard --db "$trace" --addr 127.0.0.1:0 >"$log" 2>&1 &
    served+=($!)
    until grep -qo 'http://127.0.0.1:[0-9]*' "$log"; do
        if [ $SECONDS -gt $deadline ]; then
            cat "$log" >&2
            exit 1
        fi
        sleep 0.1
    done
    url=$(grep -o 'http://127.0.0.1:[0-9]*' "$log" | head -1)
}

"$gpuwhy" demo slow-worker-io --out "$folder/demo.db" >/dev/null
serve "$folder/demo.db" "$folder/demo.log"
export GPUWHY_URL=$url/
serve "$large" "$folder/large.log"
export GPUWHY_LARGE_URL=$url/
export GPUWHY_SHOTS=${GPUWHY_SHOTS:-$PWD/target/web}
mkdir -p "$GPUWHY_SHOTS"
npm --prefix web test
