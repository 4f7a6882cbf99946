#!/bin/bash
# Packs this machine's bpftrace with its libraries and its loader, for a GPU machine that has none and can fetch
# nothing. bench/gpu/overhead.py unpacks it there.
#
# usage: bench/gpu/pack_bpftrace.sh [FILE]     default: .gpu/bpftrace.tar.xz
set -euo pipefail
cd "$(dirname "$0")/../.."
file=${1:-.gpu/bpftrace.tar.xz}
bpftrace=$(command -v bpftrace) || { echo "no bpftrace here; hint: apt-get install bpftrace" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mkdir -p "$folder/bpftrace/lib" "$(dirname "$file")"
cp --dereference "$bpftrace" "$folder/bpftrace/bpftrace"
ldd "$bpftrace" | grep -o '/[^ ]*' | xargs cp --dereference --target-directory "$folder/bpftrace/lib"
mv "$folder"/bpftrace/lib/ld-linux-* "$folder/bpftrace/ld.so"
# An empty environment and no library of this machine: what runs so runs elsewhere.
env -i "$folder/bpftrace/ld.so" --inhibit-cache --library-path "$folder/bpftrace/lib" "$folder/bpftrace/bpftrace" --version
tar --create --directory "$folder" bpftrace | xz -6 --threads=0 >"$file"
ls -l --human-readable "$file"
