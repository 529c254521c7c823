#!/usr/bin/env bash
# tools/dev wheel [--smoke] [PYTHON...]: makes manylinux wheels of what build/release holds, one for
# each interpreter (python3 if none is named; from Python 3.12 on one wheel serves all), in
# build/wheels. Libraries that are not part of every Linux are put into them by auditwheel.
#   --smoke  also installs and uses them in bare roots of Debian, without network: with the Python
#            of each root, and in the oldest root with each PYTHON. Needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev.d/paths.sh
source tools/dev.d/paths.sh

MOST_BYTES=15000000
SUITES=(bookworm trixie)
wheels=build/wheels

say() { printf '== %s\n' "$*"; }
die() { printf 'wheel: %s\n' "$*" >&2; exit 1; }

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# Prints the Python environment that builds for an interpreter; makes it unless it is there.
tools_for() {
  local python=$1 key home
  key=$({ cat tools/dev.d/wheel-requirements.txt; "$python" -VV; } | short_key)
  home=$(cache_dir)/wheel-$(version_of "$python")-$key
  if [[ ! -e $home/.complete ]]; then
    rm -rf "$home"
    "$python" -m venv "$home" >&2
    "$home/bin/pip" install --quiet --disable-pip-version-check \
      --requirement tools/dev.d/wheel-requirements.txt >&2 || die "cannot install auditwheel"
    touch "$home/.complete"
  fi
  printf '%s' "$home"
}

build_wheel() {
  local python=$1 home=$2 raw=$3
  PATH=$home/bin:$PATH "$home/bin/pip" wheel . --no-deps --no-build-isolation --wheel-dir "$raw" \
    --disable-pip-version-check --config-settings=cmake.define.KVLIFT_BUILT="$PWD/build/release" \
    --config-settings=build-dir="build/release/wheel-$(version_of "$python")" \
    --config-settings=build.targets=kvlift_native &&
    PATH=$home/bin:$PATH "$home/bin/auditwheel" repair --zip-compression-level 9 \
      --wheel-dir "$raw/repaired" "$raw"/*.whl
}

make_wheel() {
  local python=$1 home raw made
  home=$(tools_for "$python")
  raw=$(mktemp -d "${TMPDIR:-/tmp}/kvlift-wheel.XXXXXX")
  say "wheel for Python $(version_of "$python") (log: build/wheel.log)"
  build_wheel "$python" "$home" "$raw" >build/wheel.log 2>&1 || {
    tail -n 30 build/wheel.log >&2
    die "no wheel for Python $(version_of "$python")"
  }
  made=$(basename "$raw"/repaired/*.whl)
  mv "$raw/repaired/$made" "$wheels/"
  rm -rf "$raw"
  local bytes
  bytes=$(stat --format %s "$wheels/$made")
  printf '%s: %d bytes\n' "$wheels/$made" "$bytes"
  ((bytes < MOST_BYTES)) || die "$made has more than $MOST_BYTES bytes"
}

# Prints the folder of a bare root; makes it unless it is there.
root_of() {
  local suite=$1 root
  root=$(cache_dir)/root-$suite
  if [[ ! -e $root/.complete ]]; then
    rm -rf "$root"
    say "make a bare root: $suite" >&2
    debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" \
      >build/debootstrap.log 2>&1 || die "debootstrap fails, see build/debootstrap.log"
    touch "$root/.complete"
  fi
  printf '%s' "$root"
}

# Runs the smoke test in a root. `$2` is a Python in it, or one of this machine that is lent to it.
smoke_in() {
  local suite=$1 python=$2 lent=$3 root
  root=$(root_of "$suite")
  say "smoke test in $suite with $python"
  # shellcheck disable=SC2016
  ROOT=$root LENT=$lent unshare --mount --net bash -euc '
    mount -t tmpfs tmpfs "$ROOT/mnt"
    mount -t tmpfs tmpfs "$ROOT/tmp"
    mkdir -p "$ROOT/mnt/wheels" "$ROOT/mnt/model"
    mount --bind build/wheels "$ROOT/mnt/wheels"
    mount --bind testdata/models/llama_optimum "$ROOT/mnt/model"
    cp tools/dev.d/wheel_smoke.sh "$ROOT/mnt/"
    if [[ -n $LENT ]]; then
      mkdir -p "$ROOT/mnt/python"
      mount --bind "$LENT" "$ROOT/mnt/python"
    fi
    mount -t proc proc "$ROOT/proc"
    exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 \
      PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH="${LENT:+/mnt/python/lib}" \
      sh /mnt/wheel_smoke.sh "$1"
  ' smoke "$python"
}

smoke() {
  local suite python version
  ((EUID == 0)) || die "--smoke needs root, for chroot and mount"
  bash tools/dev.d/setup.sh debootstrap
  for python in "$@"; do
    version=$(version_of "$python")
    smoke_in "${SUITES[0]}" "/mnt/python/bin/python$version" \
      "$("$python" -c 'import sys; print(sys.base_prefix)')"
  done
  for suite in "${SUITES[@]}"; do smoke_in "$suite" /usr/bin/python3 ''; done
}

with_smoke=0
if [[ ${1-} == --smoke ]]; then
  with_smoke=1
  shift
fi
(($#)) || set -- python3
mkdir -p "$wheels"
rm -f "$wheels"/*.whl
for python in "$@"; do make_wheel "$python"; done
if ((with_smoke)); then smoke "$@"; fi
