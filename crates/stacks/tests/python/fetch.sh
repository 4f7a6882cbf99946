#!/bin/bash
# Puts a Python that this Debian does not have yet, with its own C library, into a folder, and nothing into the system:
#
#     fetch.sh 3.14 ~/.cache/gpuwhy/python/3.14
#
# It runs through its own loader, so the machine's C library may be older. Packages come from the mirror that apt uses
# and are checked against the archive's key.
set -euo pipefail
version=$1
folder=$2
wanted="python$version-minimal libpython$version-minimal libpython$version-stdlib python$version libpython$version-dev
    libc6 libgcc-s1 libexpat1 zlib1g libffi8 libssl3t64 libzstd1 liblzma5 libbz2-1.0"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/\?$')
index=main/binary-amd64/Packages.xz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

get() { curl -fsS --retry 3 -o "$work/$2" "${mirror%/}/$1"; }
check() { echo "$1  $work/$2" | sha256sum --check --quiet; }

get dists/sid/InRelease signed
gpgv --quiet --keyring /usr/share/keyrings/debian-archive-keyring.gpg --output "$work/release" "$work/signed"
get "dists/sid/$index" packages.xz
check "$(awk -v name="$index" '/^SHA256:/ { on = 1 } on && $3 == name { print $1; exit }' "$work/release")" packages.xz
xz -dc "$work/packages.xz" > "$work/packages"

rm -rf "$folder"
mkdir -p "$folder/root/usr/lib" "$folder/root/usr/lib64" "$folder/bin"
ln -s usr/lib "$folder/root/lib"
ln -s usr/lib64 "$folder/root/lib64"
for package in $wanted; do
    read -r file sum < <(awk -v name="$package" '
        /^Package: /           { found = ($2 == name) }
        found && /^Filename: / { file = $2 }
        found && /^SHA256: /   { print file, $2; exit }' "$work/packages")
    get "$file" package.deb
    check "$sum" package.deb
    dpkg-deb --fsys-tarfile "$work/package.deb" | tar -x --keep-directory-symlink -C "$folder/root"
done

cat > "$folder/bin/python$version" <<RUN
#!/bin/sh
PYTHONHOME="$folder/root/usr" exec "$folder/root/usr/lib64/ld-linux-x86-64.so.2" \\
    --library-path "$folder/root/usr/lib/x86_64-linux-gnu:\$LD_LIBRARY_PATH" "$folder/root/usr/bin/python$version" "\$@"
RUN
chmod +x "$folder/bin/python$version"
"$folder/bin/python$version" -c 'import asyncio, ctypes, sys; print(sys.version)'
