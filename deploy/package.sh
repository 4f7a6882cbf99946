#!/bin/bash
# Makes a Debian package and a tarball of a static binary, with completions, manual pages and a systemd unit.
#
# usage: deploy/package.sh [--try]     --try: installs the package into a fresh Debian, runs it there, and removes it again
set -euo pipefail
cd "$(dirname "$0")/.."
triple=$(uname -m)-unknown-linux-gnu
static=${CARGO_TARGET_DIR:-$PWD/target}/static
work=$static/package
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
arch=$(dpkg --print-architecture)
name=gpuwhy-$version-linux-$(uname -m)

main() {
    build
    # Nothing that is mounted there is ours to remove.
    unmount
    rm -rf --one-file-system "$work"
    fill "$work/deb"
    make_deb
    make_tarball
    ls -l "$work"/*.deb "$work"/*.tar.gz
    [ "${1:-}" != --try ] || try
}

# A target folder of its own: other flags in the shared one would have every other build start over.
build() {
    CARGO_TARGET_DIR=$static RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target "$triple" \
        -p gpuwhy --bin gpuwhy --features gpuwhy/vendored
}

fill() {
    local root=$1 binary=$static/$triple/release/gpuwhy share=$1/usr/share
    install -D "$binary" "$root/usr/bin/gpuwhy"
    mkdir -p "$share"/bash-completion/completions "$share"/zsh/vendor-completions "$share"/fish/vendor_completions.d
    "$binary" completions bash --manual "$share/man/man1" >"$share/bash-completion/completions/gpuwhy"
    "$binary" completions zsh >"$share/zsh/vendor-completions/_gpuwhy"
    "$binary" completions fish >"$share/fish/vendor_completions.d/gpuwhy.fish"
    gzip -9n "$share"/man/man1/*
    install -Dm 644 deploy/gpuwhy.service "$root/usr/lib/systemd/system/gpuwhy.service"
    install -Dm 644 -t "$share/doc/gpuwhy" README.md LICENSE
    install -Dm 644 -t "$share/doc/gpuwhy/examples" deploy/alerts.toml deploy/prometheus-alerts.yml deploy/grafana.json deploy/annotate.py
    cp -r docs "$share/doc/gpuwhy/docs"
    rm -rf "$share/doc/gpuwhy/docs/results"
}

make_deb() {
    mkdir -p "$work/deb/DEBIAN"
    cat >"$work/deb/DEBIAN/control" <<TEXT
Package: gpuwhy
Version: $version
Architecture: $arch
Maintainer: gpuwhy <maintainers@gpuwhy.invalid>
Installed-Size: $(du -sk --exclude=DEBIAN "$work/deb" | cut -f 1)
Section: admin
Priority: optional
Description: why is my GPU waiting?
 Watches unmodified programs from the Linux kernel, keeps what it saw in one
 local file, and explains stalls: the cause, the thread to blame, the line it
 is at, and the chain of evidence from one to the other.
TEXT
    # The unit is installed and left for the administrator to enable. A trace belongs to who has taken it: it stays.
    cat >"$work/deb/DEBIAN/prerm" <<'TEXT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now gpuwhy.service >/dev/null 2>&1 || true
fi
TEXT
    chmod 755 "$work/deb/DEBIAN/prerm"
    dpkg-deb --root-owner-group --build "$work/deb" "$work/gpuwhy_${version}_$arch.deb" >/dev/null
}

make_tarball() {
    mkdir "$work/$name"
    cp -r "$work/deb/usr/." "$work/$name"
    tar --owner 0 --group 0 --numeric-owner -C "$work" -czf "$work/$name.tar.gz" "$name"
}

# What a user would do on a new machine, in a Debian of its own that shares this kernel.
try() {
    command -v debootstrap >/dev/null || apt-get install -qy --no-install-recommends debootstrap >/dev/null
    local root=$work/debian cached=${GPUWHY_CACHE:-$HOME/.cache/gpuwhy}/debian.tar suite
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    if [ ! -e "$cached" ]; then
        debootstrap --variant=minbase "$suite" "$work/new" "$(mirror)" >"$work/debootstrap.log"
        mkdir -p "$(dirname "$cached")"
        tar -C "$work/new" -cf "$cached.part" . && mv "$cached.part" "$cached"
        rm -rf "$work/new"
    fi
    mkdir "$root"
    tar -C "$root" -xf "$cached"
    trap unmount EXIT
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --make-rslave "$root/sys"
    (cd "$root" && find . -xdev -path ./proc -prune -o -path ./sys -prune -o -type f -print | sort) >"$work/before"
    cp "$work"/*.deb "$root/tmp/gpuwhy.deb"
    local run=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root")
    "${run[@]}" dpkg -i /tmp/gpuwhy.deb
    "${run[@]}" gpuwhy --version
    "${run[@]}" gpuwhy check
    "${run[@]}" sh -c 'cd /tmp && gpuwhy demo'
    "${run[@]}" test -e /usr/share/man/man1/gpuwhy-trace.1.gz
    "${run[@]}" dpkg --purge gpuwhy
    rm -rf "$root"/tmp/* "$root/run/gpuwhy"
    (cd "$root" && find . -xdev -path ./proc -prune -o -path ./sys -prune -o -type f -print | sort) >"$work/after"
    # The package manager's own notes remain.
    diff <(grep -v '^./var/l' "$work/before") <(grep -v '^./var/l' "$work/after")
    echo "installed, ran and was removed without a trace in a fresh $suite"
}

unmount() {
    umount -R "$work/debian/proc" "$work/debian/sys" 2>/dev/null || true
}

# Where this machine has its own packages from.
mirror() {
    sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* \
        2>/dev/null | head -n 1
}

main "$@"
