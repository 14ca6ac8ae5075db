#!/usr/bin/env bash
# Packs build/ into a tarball that runs on any x86-64 host with glibc 2.36 or newer: programs, the CUDA backend if it was
# built, and every library they need except glibc and CUDA's (the host's driver and cuBLASLt are used).
#
#   deploy/bundle.sh [--with-tests] [OUT_DIR]      default build/bundle
#
# Makes OUT_DIR/deepencoder-VERSION-linux-x86_64.tar.xz and its .sha256; --with-tests adds deepencoder-stress (a build with
# DEEPENCODER_TESTS=ON) and "-tests" to the name. On the host:
#   tar xf deepencoder-*.tar.xz && deepencoder-*/deepencoder-server --model DIR
# cuBLASLt is looked for in /usr/local/cuda/lib64; elsewhere set LD_LIBRARY_PATH to its folder.
set -euo pipefail
cd "$(dirname "$0")/.."
built=(build/bin/deepencoder-server build/bin/deepencoder) tests=''
if [ "${1:-}" = --with-tests ]; then
  built+=(build/tests/deepencoder-stress) tests=-tests
  shift
fi
out="${1:-build/bundle}"
bash deploy/packages.sh bundle
for program in "${built[@]}"; do
  [ -x "$program" ] || { echo "bundle.sh: $program is missing: build first (deploy/quickstart.sh)" >&2; exit 1; }
done
version=$(build/bin/deepencoder-server --version | sed -n 's/^deepencoder-server \([^ ]*\).*/\1/p')
name="deepencoder-${version:?no version}-linux-x86_64$tests"
root="$out/$name"
rm -rf "$root"
mkdir -p "$root/lib"
cp "${built[@]}" "$root/"
programs=("${built[@]##*/}")

# Everything that is linked, as the loader finds it here. Left out: what belongs to the host's glibc.
host='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libnss_|libutil|libanl)[.-]'
ldd "${programs[@]/#/$root/}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do
    basename "$library" | grep -qE "$host" || cp -L "$library" "$root/lib/"
  done
if ldd "$root/deepencoder-server" | grep 'not found'; then exit 1; fi

if [ -e build/lib/libdeepencoder_cuda.so ]; then
  cp build/lib/libdeepencoder_cuda.so "$root/lib/"
else
  echo "bundle.sh: no CUDA backend in build/: the bundle encodes on the CPU only"
fi
chmod -R u+w "$root"
strip --strip-unneeded "${programs[@]/#/$root/}" "$root"/lib/*.so*
for program in "${programs[@]}"; do patchelf --set-rpath '$ORIGIN/lib' "$root/$program"; done
for library in "$root"/lib/*.so*; do
  case "$library" in
    */libdeepencoder_cuda.so) patchelf --set-rpath '$ORIGIN:/usr/local/cuda/lib64' "$library" ;;
    *) patchelf --set-rpath '$ORIGIN' "$library" ;;
  esac
done
cp LICENSE README.md "$root/"
# What it consists of, and under which licences: the list, and the packages' own texts.
python3 deploy/sbom.py "${built[@]}" \
  $([ ! -e build/lib/libdeepencoder_cuda.so ] || echo build/lib/libdeepencoder_cuda.so) >"$root/sbom.cdx.json"
mkdir "$root/licenses"
python3 -c 'import json, sys
for part in json.load(open(sys.argv[1]))["components"]:
    for item in part["properties"]:
        if item["name"] == "deepencoder:copyright": print(part["name"], item["value"])' "$root/sbom.cdx.json" |
  while read -r package text; do cp -L "$text" "$root/licenses/$package.txt"; done
chmod -R u+w "$root/licenses"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" -cf - "$name" |
  xz -6 -T0 >"$out/$name.tar.xz"
(cd "$out" && sha256sum "$name.tar.xz" >"$name.tar.xz.sha256")
echo "$out/$name.tar.xz: $(stat -c %s "$out/$name.tar.xz" | numfmt --to=iec) packed, $(du -sb "$root" | cut -f1 | numfmt --to=iec) unpacked, $(ls "$root/lib" | wc -l) libraries"
