# shellcheck shell=bash
# The one recipe for ONNX. Sourced by setup.sh; CMake runs it where ONNX is missing (pip install):
#   bash tools/dev.d/onnx.sh
# which builds ONNX into the cache of the user, unless it is there, and prints the directory.
set -euo pipefail
# shellcheck source=tools/dev.d/paths.sh
source "$(dirname "${BASH_SOURCE[0]}")/paths.sh"

# The cmake wheel that builds ONNX if the system's cmake is older than 3.26.
CMAKE_WHEEL=cmake==4.4.4
CMAKE=${CMAKE:-cmake}
: "${program:=onnx}"

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$program" "$*" >&2; exit 1; }

# Takes the lock of the cache, which goes with the shell, and sets `work` to a new directory there.
open_work() {
  local cache
  cache=$(cache_dir)
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  if command -v flock >/dev/null; then flock 9; fi
  # The lock is held, so any work directory here is from a run that was killed.
  rm -rf "$cache"/work.*
  work=$(mktemp -d "$cache/work.XXXXXX")
}

# True if the system has an ONNX that find_package accepts; CMake then prefers that one.
system_has_onnx() {
  local probe=$1/probe
  mkdir -p "$probe"
  cat >"$probe/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES NONE)
find_package(ONNX 1.23 CONFIG REQUIRED)
EOF
  "$CMAKE" -S "$probe" -B "$probe/build" -G Ninja &>/dev/null
}

# Makes a Python environment of its own for what the build downloads. Prints its pip.
own_pip() {
  local python=$1/python
  [[ -e $python ]] || python3 -m venv "$python" >&2
  printf '%s/bin/pip' "$python"
}

# Prints the path of the source archive; downloads it unless an intact one exists.
onnx_archive() {
  local work=$1 name=onnx-$ONNX_VERSION.tar.gz kept pip
  kept=$(cache_dir)/$name
  local check="$ONNX_SHA256  $kept"
  if ! sha256sum --check --status <<<"$check" 2>/dev/null; then
    pip=$(own_pip "$work")
    "$pip" download --quiet --disable-pip-version-check --no-deps \
      --no-binary onnx --dest "$work/archive" "onnx==$ONNX_VERSION" >&2 ||
      die "cannot download the source package of onnx $ONNX_VERSION"
    mv -f "$work/archive/$name" "$kept"
    sha256sum --check --status <<<"$check" || {
      rm -f "$kept"
      die "the SHA-256 of $name is not $ONNX_SHA256"
    }
  fi
  printf '%s' "$kept"
}

# Prints the path of a cmake of 3.26 or newer.
new_cmake() {
  local work=$1 version pip
  version=$("$CMAKE" --version | sed -n '1s/.* //p')
  if printf '3.26\n%s\n' "$version" | sort --version-sort --check=quiet; then
    command -v "$CMAKE"
    return
  fi
  pip=$(own_pip "$work")
  "$pip" install --quiet --disable-pip-version-check "$CMAKE_WHEEL" >&2 ||
    die "cannot install $CMAKE_WHEEL"
  printf '%s/cmake' "${pip%/*}"
}

build_onnx() {
  local target=$1 work=$2 archive cmake log
  log=$(cache_dir)/onnx-build.log
  say "build ONNX $ONNX_VERSION, once, some minutes (log: $log)"
  new_cmake "$work/for_cmake" >"$work/cmake" 2>"$work/cmake.log" &
  cmake=$!
  archive=$(onnx_archive "$work/for_archive") || { wait "$cmake" || true; exit 1; }
  wait "$cmake" || { cat "$work/cmake.log" >&2; exit 1; }
  cmake=$(<"$work/cmake")
  tar -xzf "$archive" -C "$work"
  {
    "$cmake" -S "$work/onnx-$ONNX_VERSION" -B "$work/build" -G Ninja \
      -DCMAKE_INSTALL_PREFIX="$work/install" "${ONNX_FLAGS[@]}" \
      "${ONNX_BUILD_FLAGS[@]}" &&
      "$cmake" --build "$work/build" &&
      "$cmake" --install "$work/build"
  } >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "ONNX does not build; the whole log is in $log"
  }
  touch "$work/install/.complete"
  rm -rf "$target"
  mv "$work/install" "$target"
}

# Builds ONNX unless it is there, whatever the system has: CMake has looked there already.
onnx_alone() {
  local onnx work
  onnx=$(onnx_dir)
  if ! is_complete "$onnx"; then
    # The environment that pip builds in is none for the programs of Python that are run here.
    unset PYTHONPATH PYTHONHOME PIP_BUILD_TRACKER
    open_work
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    if ! is_complete "$onnx"; then build_onnx "$onnx" "$work" >&2; fi
  fi
  printf '%s' "$onnx"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then onnx_alone; fi
