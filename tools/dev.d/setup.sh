#!/usr/bin/env bash
# Installs what a build and the tests need: system packages, ONNX, the Python test environment. With
# --demo it leaves out what only the tests need.
# Skips what exists already, without network access. It may be killed at any point and run several
# times at once: a result is complete when its `.complete` file exists.
set -euo pipefail
# shellcheck source=tools/dev.d/paths.sh
source "$(dirname "${BASH_SOURCE[0]}")/paths.sh"

# The cmake wheel that builds ONNX if the system's cmake is older than 3.26.
CMAKE_WHEEL=cmake==4.4.4
PACKAGES=(
  g++ cmake ninja-build protobuf-compiler libprotobuf-dev libabsl-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libssl-dev libutf8proc-dev pkg-config libgtest-dev libgmock-dev
  libbenchmark-dev python3 python3-dev python3-venv dpkg-dev file
)
# For tests that are skipped without them: the HTML report in a browser, drawings by Graphviz.
OPTIONAL_PACKAGES=(chromium chromium-driver graphviz zsh fish mandoc)

say() { printf '== %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Prints the packages of $@ that are not installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query --show --showformat='${db:Status-Status} ${binary:Package}\n' "$@" \
    2>/dev/null | sed -n 's/^installed \([^:]*\).*/\1/p') || true
  for package in "$@"; do
    grep -qxF "$package" <<<"$installed" || echo "$package"
  done
}

install_packages() {
  local missing as_root=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system; needed, whatever the names here: $*"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    if ! { command -v sudo && sudo -n true; } &>/dev/null; then
      printf 'setup: these packages are missing and need root to install:\n\n' >&2
      printf '  sudo apt-get install --no-install-recommends %s\n\n' "${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  say "install ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=300)
  local install=("${apt[@]}" install --yes --no-install-recommends "${missing[@]}")
  "${install[@]}" </dev/null >/dev/null 2>&1 || {
    "${apt[@]}" update </dev/null
    "${install[@]}" </dev/null >/dev/null
  } || die "cannot install ${missing[*]}"
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
  cmake -S "$probe" -B "$probe/build" -G Ninja &>/dev/null
}

# Prints the path of the source archive; downloads it unless an intact one exists.
onnx_archive() {
  local work=$1 name=onnx-$ONNX_VERSION.tar.gz kept
  kept=$(cache_dir)/$name
  local check="$ONNX_SHA256  $kept"
  if ! sha256sum --check --status <<<"$check" 2>/dev/null; then
    python3 -m venv "$work/download" >&2
    "$work/download/bin/pip" download --quiet --disable-pip-version-check --no-deps \
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
  local work=$1
  if printf '3.26\n%s\n' "$(cmake --version | sed -n '1s/.* //p')" | sort --version-sort --check=quiet
  then
    command -v cmake
    return
  fi
  python3 -m venv "$work/cmake" >&2
  "$work/cmake/bin/pip" install --quiet --disable-pip-version-check "$CMAKE_WHEEL" >&2 ||
    die "cannot install $CMAKE_WHEEL"
  printf '%s' "$work/cmake/bin/cmake"
}

build_onnx() {
  local target=$1 work=$2 archive cmake log
  log=$(cache_dir)/onnx-build.log
  say "build ONNX $ONNX_VERSION, once, some minutes (log: $log)"
  archive=$(onnx_archive "$work")
  cmake=$(new_cmake "$work")
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

# Makes a Python environment with the packages that the other arguments ask of pip.
make_venv() {
  local target=$1
  shift
  say "make the Python environment: $target"
  rm -rf "$target"
  python3 -m venv "$target"
  "$target/bin/pip" install --quiet --no-compile --disable-pip-version-check "$@" ||
    die "cannot install the Python packages"
  touch "$target/.complete"
}

# Installs what is downloaded and not compiled: optional packages and the Python environment.
fetch_the_rest() {
  local venv=$1 what=$2 requirements=$paths_dir/requirements.txt
  local wanted=(--constraint "$requirements" "${DEMO_PACKAGES[@]}")
  if [[ $what == tests ]]; then
    (install_packages "${OPTIONAL_PACKAGES[@]}") ||
      say "without ${OPTIONAL_PACKAGES[*]} some tests are skipped"
    wanted=(--requirement "$requirements")
  fi
  if ! is_complete "$venv"; then make_venv "$venv" "${wanted[@]}"; fi
}

# $1: what it is for, "demo" or "tests".
main() {
  local what=$1 cache onnx venv
  install_packages "${PACKAGES[@]}"
  cache=$(cache_dir)
  onnx=$(onnx_dir)
  venv=$(venv_dir)
  if [[ $what == demo ]]; then venv=$(demo_venv_dir); fi
  if is_complete "$onnx" && is_complete "$venv"; then return; fi

  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9
  # The lock is held, so any work directory here is from a run that was killed.
  rm -rf "$cache"/work.*
  local work
  work=$(mktemp -d "$cache/work.XXXXXX")
  # shellcheck disable=SC2064
  trap "wait; rm -rf '$work'" EXIT
  fetch_the_rest "$venv" "$what" &
  local rest=$!
  if ! is_complete "$onnx" && ! system_has_onnx "$work"; then build_onnx "$onnx" "$work"; fi
  wait "$rest"
}

case ${1-} in
  '') main tests ;;
  --demo) main demo ;;
  *) install_packages "$@" ;;
esac
