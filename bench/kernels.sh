#!/bin/bash
# Runs one static binary on kernels that Debian ships and on this one, and writes what came of it to
# docs/kernels.md. Others than this one run in an emulated machine, since not every host can nest a real one.
#
# usage: bench/kernels.sh [SERIES...]     default: 5.10 6.1 6.12 newest
set -euo pipefail
cd "$(dirname "$0")/.."
trial=bench/kernels
cache=${GPUWHY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuwhy}/kernels
triple=x86_64-unknown-linux-gnu
static=${CARGO_TARGET_DIR:-$PWD/target}/static
work=$static/kernels
# An emulated machine takes a few minutes; one that hangs must not hang the script.
limit=1200

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
    write_document "$work/rows" >docs/kernels.md
    cat "$work/rows"
    # Only the oldest may be refused.
    ! grep '^|' "$work/rows" | grep -v -e '| ok |$' -e '^| 5\.10\..*| refused |$' >&2
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

# Where a series is looked for: a suite of Debian that is not among the machine's own sources, or none; and its package.
origin() {
    case $1 in
    5.10) echo bullseye '^linux-image-5\.10\..*-cloud-amd64-unsigned$' ;;
    newest) echo sid '^linux-binary-unsigned-[0-9.+deb]*-cloud-amd64$' ;;
    *) echo own "^linux-image-${1//./\\.}\\..*-cloud-amd64-unsigned\$" ;;
    esac
}

# apt with a configuration of its own for what is not among the machine's sources, which stay as they are.
apt_of() {
    local suite=$1 place=$work/apt/$1 command=$2
    shift 2
    if [ "$suite" = own ]; then
        "$command" -o APT::Sandbox::User=root "$@"
        return
    fi
    local options=(-o Dir::Etc::SourceList="$place/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$place/lists" -o Dir::Cache="$place/cache" -o APT::Sandbox::User=root)
    if [ ! -d "$place" ]; then
        mkdir -p "$place/lists/partial" "$place/cache/archives/partial"
        source_of "$suite" >"$place/sources.list"
        apt-get "${options[@]}" -qq update
    fi
    "$command" "${options[@]}" "$@"
}

# From where the machine gets its own Debian.
source_of() {
    local archive
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n '/\/debian\/$/{p;q}')
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $1 main"
}

# The newest kernel of a series; what is in the cache stays.
vmlinuz() {
    local folder=$cache/$1 partial=$cache/$1.partial package suite pattern
    if [ ! -d "$folder" ]; then
        read -r suite pattern < <(origin "$1")
        package=$(apt_of "$suite" apt-cache pkgnames linux- | grep -E "$pattern" | sort -V | tail -n 1)
        [ -n "$package" ] || { echo "the package sources have no kernel $1" >&2; return 1; }
        rm -rf "$partial"
        mkdir -p "$partial/unpacked" "$partial/kernel"
        (cd "$partial" && apt_of "$suite" apt-get download -qq "$package" && dpkg-deb -x ./*.deb unpacked) >&2
        find "$partial/unpacked" -name 'vmlinuz*' -type f -exec mv {} "$partial/kernel" \;
        mv "$partial/kernel" "$folder"
        rm -rf "$partial"
    fi
    echo "$folder"/vmlinuz*
}

# Prints the rows of a kernel, and one more if it did not get to the end of them.
boot() {
    local kernel rows=$work/$1.rows
    kernel=$(vmlinuz "$1")
    : >"$rows"
    timeout "$limit" qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 2G -nographic -no-reboot -monitor none \
        -kernel "$kernel" -initrd "$work/initramfs" -append 'console=ttyS0 quiet panic=-1' \
        -serial "file:$work/$1.log" -serial "file:$rows" </dev/null || true
    grep -e '^|' -e '^feature ' "$rows" || true
    grep -q '^end' "$rows" || {
        echo "| $1 | - | - | - | - | - | - | - | - | - | - | did not finish |"
        tail -n 20 "$work/$1.log" >&2
    }
}

write_document() {
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
share of the launches that was seen, *off* how far the estimated number is from the true one. Then one launches 20 times a
second and all stacks are taken: *stacks* is the share that was walked to its end, once unwind tables were there. At last a
job waits for batches that another process makes too slowly (`gpuwhy demo slow-pipe`): *found* is the first cause that is
found, and the verdict wants that process to be to blame. A kernel that is refused must be refused by `gpuwhy trace` in the
words of `gpuwhy check`, which stand under *found*.

| kernel | attach path | made | counted | kept | split | sleep | seen | off | stacks | found | verdict |
|---|---|---|---|---|---|---|---|---|---|---|---|
END
    grep '^|' "$1"
    cat <<'END'

## Features

Whether a kernel is taken is decided by what it has, not by its version: distributions add newer features to kernels with
old numbers. `gpuwhy check` tries each feature, says what it needs and what a trace lacks without it, and `--json` has the same
under `features`. What answers depend on and is off is a warning in the trace.

END
    write_features <"$1"
}

# A row for each feature and a column for each kernel.
write_features() {
    awk -F, '
        !sub(/^feature /, "") { next }
        !($1 in is_kernel) { is_kernel[$1]; kernels[++kernel_count] = $1 }
        !($2 in is_name) { is_name[$2]; names[++name_count] = $2 }
        { state[$1, $2] = $3 == "true" ? "on" : $3 == "false" ? "**off**" : "?" }
        END {
            line = "| feature |"; rule = "|---|"
            for (k = 1; k <= kernel_count; k++) { line = line " " kernels[k] " |"; rule = rule "---|" }
            print line; print rule
            for (n = 1; n <= name_count; n++) {
                line = "| " names[n] " |"
                for (k = 1; k <= kernel_count; k++)
                    line = line " " ((kernels[k], names[n]) in state ? state[kernels[k], names[n]] : "-") " |"
                print line
            }
        }'
}

[ $# -gt 0 ] || set -- 5.10 6.1 6.12 newest
main "$@"
