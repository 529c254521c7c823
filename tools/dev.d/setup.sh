#!/usr/bin/env bash
# Installs what a build and the tests need: system packages, ONNX, the Python test environment. With
# --demo it leaves out what only the tests need.
# Skips what exists already, without network access. It may be killed at any point and run several
# times at once: a result is complete when its `.complete` file exists.
set -euo pipefail
program=setup
# shellcheck source=tools/dev.d/onnx.sh
source "$(dirname "${BASH_SOURCE[0]}")/onnx.sh"

PACKAGES=(
  g++ cmake ninja-build protobuf-compiler libprotobuf-dev libabsl-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libssl-dev libutf8proc-dev pkg-config libgtest-dev libgmock-dev
  libbenchmark-dev python3 python3-dev python3-venv dpkg-dev file
)
# For tests that are skipped without them: the HTML report in a browser, drawings by Graphviz.
OPTIONAL_PACKAGES=(chromium chromium-driver graphviz zsh fish mandoc)

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
  local what=$1 onnx venv
  install_packages "${PACKAGES[@]}"
  onnx=$(onnx_dir)
  venv=$(venv_dir)
  if [[ $what == demo ]]; then venv=$(demo_venv_dir); fi
  if is_complete "$onnx" && is_complete "$venv"; then return; fi

  local work
  open_work
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
