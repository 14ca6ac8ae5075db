#!/usr/bin/env bash
# Makes everything that a release consists of, named by the version that the built programs report:
#
#   deploy/release.sh [OUT_DIR] [--images ENGINE] [--targets "cpu cuda fetch"]      default OUT_DIR: build/release
#
#   deepencoder-VERSION-linux-x86_64.tar.xz   the bundle of build/ (deploy/bundle.sh), which must be built
#   deepencoder-VERSION.cdx.json              its bill of materials (deploy/sbom.py), also in the bundle
#   deepencoder-VERSION.tgz                   the Helm chart
#   deepencoder-image-TARGET-VERSION.tar.gz   images, with --images: ENGINE is docker, podman or "buildah OPTIONS"
#   SHA256SUMS                                over all of them
#
# A tree with changes is refused unless ALLOW_CHANGES=1: what is released must be what a commit has.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/release engine='' targets="cpu cuda fetch"
while [ $# -gt 0 ]; do
  case "$1" in
    --images) engine="${2:?--images needs docker, podman or buildah}"; shift 2 ;;
    --targets) targets="${2:?--targets needs names}"; shift 2 ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) echo "release.sh: unknown argument '$1'" >&2; exit 2 ;;
    *) out="$1"; shift ;;
  esac
done

server=build/bin/deepencoder-server
[ -x $server ] || { echo "release.sh: $server is missing: build first (deploy/quickstart.sh)" >&2; exit 1; }
read -r version commit < <($server --version | sed -n 's/^deepencoder-server \([^ ]*\) (\(.*\))$/\1 \2/p')
[ -n "${version:-}" ] || { echo "release.sh: no version in: $($server --version)" >&2; exit 1; }
# The programs may be those of another commit than the rest of what is packed, or of none.
if [ "${ALLOW_CHANGES:-}" != 1 ]; then
  head=$(git rev-parse HEAD)
  [[ $head == "$commit"* ]] ||
    { echo "release.sh: $server was built from '$commit', but HEAD is $head: commit, build again (or ALLOW_CHANGES=1)" >&2; exit 1; }
  [ -z "$(git status --porcelain)" ] ||
    { echo "release.sh: the tree has changes: commit, build again (or ALLOW_CHANGES=1)" >&2; exit 1; }
fi
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

# ---------------------------------------------------------------- bundle
bash deploy/bundle.sh "$work/bundle"
mv "$work"/bundle/*.tar.xz "$out/"
cp "$work"/bundle/*/sbom.cdx.json "$out/deepencoder-$version.cdx.json"

# ---------------------------------------------------------------- chart
# As `helm package` lays it: a folder of the chart's name. The rules are a link in the tree and files here.
cp -rL deploy/helm "$work/deepencoder"
rm -rf "$work/deepencoder/examples"
sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: $version/" "$work/deepencoder/Chart.yaml"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u+rw,go=r,a+X \
  -cf - deepencoder | gzip -n >"$out/deepencoder-$version.tgz"

# ---------------------------------------------------------------- images
if [ -n "$engine" ]; then
  # shellcheck disable=SC2206
  engine=($engine)
  for target in $targets; do
    tag="deepencoder:$version-$target"
    build=("${engine[@]}" build)
    [ "${engine[0]##*/}" != buildah ] || build+=(--isolation chroot --network host --format docker --layers --pull=false)
    "${build[@]}" -f deploy/Dockerfile --target "$target" --build-arg VERSION="$version" --build-arg COMMIT="$commit" \
      -t "$tag" .
    archive="$out/deepencoder-image-$target-$version.tar"
    case "${engine[0]##*/}" in
      buildah) "${engine[@]}" push "$tag" "docker-archive:$archive:$tag" ;;
      *) "${engine[@]}" save -o "$archive" "$tag" ;;
    esac
    gzip -n "$archive"
  done
fi

(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
