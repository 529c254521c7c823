# shellcheck shell=bash disable=SC2034
# The directories of what is built once per user. Sourced by tools/dev; CMake runs
#   bash tools/dev.d/paths.sh onnx|venv
# which prints the directory, whether or not it exists. A complete one holds a file `.complete`.
# `tools/dev demo` has a Python environment with fewer packages, unless that of the tests exists.

ONNX_VERSION=1.23.2
ONNX_SHA256=008cb0467b2bbee41448acc7da8b6f4e704624cb0d327a2d5adafc7ce19bc5b8
# The configuration of ONNX. The name of the directory depends on it, the compiler and protobuf, so
# that a change of any of them makes a new build instead of linking a stale one.
ONNX_FLAGS=(
  -DCMAKE_BUILD_TYPE=Release
  "-DCMAKE_CXX_FLAGS_RELEASE=-Og -DNDEBUG"  # a third of the build time of -O3; nothing waits for ONNX
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DBUILD_SHARED_LIBS=OFF
  -DONNX_ML=ON
  -DONNX_USE_LITE_PROTO=OFF
  -DONNX_USE_PROTOBUF_SHARED_LIBS=ON
  -DONNX_BUILD_PYTHON=OFF
  -DONNX_BUILD_TESTS=OFF
  -DONNX_INSTALL=ON
)

# How ONNX is compiled: it makes no difference to the result. Many files at once take a third of the
# time, and GCC collects its garbage only above 1 GB.
ONNX_BUILD_FLAGS=(-DONNX_USE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=26)
if c++ --version 2>/dev/null | grep -q 'Free Software Foundation'; then
  ONNX_BUILD_FLAGS+=("-DCMAKE_CXX_FLAGS=--param ggc-min-heapsize=1000000")
fi

# The packages of `tools/dev demo`, in the versions of requirements.txt.
DEMO_PACKAGES=(onnx onnxruntime numpy ml_dtypes)

paths_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

cache_dir() { printf '%s/kvlift' "${XDG_CACHE_HOME:-$HOME/.cache}"; }

short_key() { sha256sum | cut -c1-10; }

onnx_dir() {
  local key
  key=$({ echo "${ONNX_FLAGS[@]}"; uname -m; c++ -dumpfullversion -dumpversion
          c++ --version | head -n1; protoc --version; } 2>/dev/null | short_key)
  printf '%s/onnx-%s-%s' "$(cache_dir)" "$ONNX_VERSION" "$key"
}

venv_dir() {
  local key
  key=$({ cat "$paths_dir/requirements.txt"; uname -m; python3 --version; } 2>/dev/null | short_key)
  printf '%s/venv-%s' "$(cache_dir)" "$key"
}

is_complete() { [[ -e $1/.complete ]]; }

demo_venv_dir() {
  local full
  full=$(venv_dir)
  if is_complete "$full"; then printf '%s' "$full"; else printf '%s-demo' "$full"; fi
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  case ${1-} in
    onnx) onnx_dir ;;
    venv) venv_dir ;;
    *) echo "usage: paths.sh onnx|venv" >&2; exit 2 ;;
  esac
fi
