#!/bin/bash
# Runs one static binary on the kernels that Debian ships and on this one, and writes what came of it to
# docs/kernels.md. Older kernels run in an emulated machine, since not every host can nest a real one.
#
# usage: bench/kernels.sh [SERIES...]     default: 6.1 6.12
set -euo pipefail
cd "$(dirname "$0")/.."
trial=bench/kernels
cache=${GPUWHY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuwhy}/kernels
triple=x86_64-unknown-linux-gnu
static=${CARGO_TARGET_DIR:-$PWD/target}/static
work=$static/kernels
# An emulated machine takes about half a minute; one that hangs must not hang the script.
limit=300

main() {
    install_missing clang-19 gcc make pkg-config libelf-dev zlib1g-dev autoconf automake autopoint bison flex gawk \
        libtool qemu-system-x86 busybox-static cpio
    build
    make_initramfs
    : >"$work/rows"
    for series in "$@"; do
        boot "$series" >>"$work/rows"
    done
    as_root "$trial/trial.sh" "$work/root/gpuwhy" "$work/root/testbed" >>"$work/rows" 2>"$work/host.log"
    write_table "$work/rows" >docs/kernels.md
    cat "$work/rows"
    ! grep -v '| ok |$' "$work/rows" >&2
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_missing() {
    local missing=() package
    for package in "$@"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || {
        as_root apt-get update -q
        as_root apt-get install -qy --no-install-recommends "${missing[@]}"
    } >&2
}

# A target folder of its own: other flags in the shared one would have every other build start over. One command, so
# that both programs share the vendored libraries.
build() {
    CARGO_TARGET_DIR=$static RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target "$triple" \
        -p gpuwhy --bin gpuwhy --features gpuwhy/vendored -p gpuwhy-testbed --example unpack
}

make_initramfs() {
    local root=$work/root built=$static/$triple/release
    rm -rf "$work"
    mkdir -p "$root"/{bin,dev,proc,sys,tmp}
    cp /bin/busybox "$root/bin"
    cp "$built/gpuwhy" "$trial/init" "$trial/trial.sh" "$root"
    "$built/examples/unpack" "$root/testbed" >/dev/null
    # The workload loads its libraries with dlopen, as real programs do, so it brings its loader and libc along.
    ldd "$root/testbed/workload" | grep -o '/[^ ]*' | xargs cp --parents --dereference --target-directory "$root"
    (cd "$root" && find . | cpio --quiet --create --format newc) >"$work/initramfs"
}

# The newest kernel of a series; what is in the cache stays.
vmlinuz() {
    local folder=$cache/$1 partial=$cache/$1.partial package
    if [ ! -d "$folder" ]; then
        package=$(apt-cache pkgnames "linux-image-$1." | grep -- '-cloud-amd64-unsigned$' | sort -V | tail -n 1)
        [ -n "$package" ] || { echo "the package sources have no cloud kernel $1" >&2; return 1; }
        rm -rf "$partial"
        mkdir -p "$partial"
        (cd "$partial" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg-deb -x ./*.deb .) >&2
        mv "$partial/boot" "$folder"
        rm -rf "$partial"
    fi
    echo "$folder"/vmlinuz-*
}

# Prints the rows of a kernel, and one more if it did not get to the end of them.
boot() {
    local kernel rows=$work/$1.rows
    kernel=$(vmlinuz "$1")
    : >"$rows"
    timeout "$limit" qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 2G -nographic -no-reboot -monitor none \
        -kernel "$kernel" -initrd "$work/initramfs" -append 'console=ttyS0 quiet panic=-1' \
        -serial "file:$work/$1.log" -serial "file:$rows" </dev/null || true
    grep '^|' "$rows" || true
    grep -q '^end' "$rows" || {
        echo "| $1 | | | | | | | did not finish |"
        tail -n 20 "$work/$1.log" >&2
    }
}

write_table() {
    cat <<'END'
# Kernels

What one static binary does on each kernel, written by `./dev kernels` (`bench/kernels.sh`). Kernels named *cloud* are
Debian's, in an emulated machine that is slow to run whatever it has woken; the last one is the host's. The path at the
top of a kernel's rows is the one the tracer takes by itself.

Two threads make a known number of calls; every ninth sleeps for 5 ms, and another one waits for a thread that is known.
*Counted* must be equal to *made*, for each thread and function too; *kept* is the number of rows, and *split* how many
of them are exactly running + run queue + blocked. *Sleep* is the part of a sleeping call that was blocked. The verdict
also wants the right reason and waker for each wait, nothing lost, and no program or probe refused.

Then a thread launches 4,000 times a second, seen in bursts only, between which its probes are removed: *seen* is the
share of the launches that was seen, *off* how far the estimated number is from the true one. At last one launches 20 times a
second and all stacks are taken: *stacks* is the share that was walked to its end, once unwind tables were there.

| kernel | attach path | made | counted | kept | split | sleep | seen | off | stacks | verdict |
|---|---|---|---|---|---|---|---|---|---|---|
END
    cat "$1"
}

[ $# -gt 0 ] || set -- 6.1 6.12
main "$@"
