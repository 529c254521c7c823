#!/usr/bin/env bash
# tools/dev test --valgrind: runs every command on one small model under memcheck.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tools/dev.d/setup.sh valgrind
work=$(mktemp -d "${TMPDIR:-/tmp}/kvlift-valgrind.XXXXXX")
trap 'rm -rf "$work"' EXIT
model=testdata/models/llama_optimum

# kvlift STATUS ARGUMENT...: expects that exit status. It is 99 if memcheck finds an error.
kvlift() {
  local wanted=$1 status=0
  shift
  echo "== kvlift $*"
  valgrind --quiet --error-exitcode=99 --leak-check=no build/release/bin/kvlift "$@" \
    >"$work/out" 2>"$work/err" || status=$?
  if ((status != wanted)); then
    cat "$work/out" "$work/err" >&2
    echo "exit $status instead of $wanted" >&2
    exit 1
  fi
}

printf 'no model' >"$work/broken.onnx"
kvlift 0 inspect "$model/model.onnx" --details
kvlift 0 convert "$model/model.onnx" -o "$work/m.onnx" --max-seq-len 16
kvlift 0 check "$work/m.onnx"
kvlift 0 verify "$model/model.onnx" "$work/m.onnx"
kvlift 0 run "$model/model.onnx" --steps "$model/steps" --expect "$model/steps" --threads 2
kvlift 1 convert testdata/models/neg_concat_reversed_ts/model.onnx -o "$work/n.onnx"
kvlift 0 explain KV203
kvlift 3 inspect "$work/broken.onnx"
echo "memcheck found nothing"
