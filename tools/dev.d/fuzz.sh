#!/usr/bin/env bash
# tools/dev fuzz TARGET SECONDS: runs libFuzzer on one target, starting from the text cases and what
# earlier runs kept (in the cache of tools/dev). Inputs that break the target are written to
# build/fuzz/findings. Once the bug is fixed, the input is kept as testdata/fuzz/TARGET_NAME, which
# fuzz_replay_test runs.
#
# tools/dev fuzz soundness SECONDS [SEED]: compares pairs of models that the proof calls equal with
# the oracle (tests/soundness/campaign.h). SECONDS may be a number of pairs, such as 500000p, or the
# seed of one source, such as 17000042b. Failures are written to build/soundness.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev.d/paths.sh
source tools/dev.d/paths.sh

if [[ ${1-} == soundness ]]; then
  if [[ $# -lt 2 || $# -gt 3 || ! $2 =~ ^[0-9]+[pb]?$ || ! ${3-1} =~ ^[0-9]+$ ]]; then
    echo "usage: tools/dev fuzz soundness SECONDS|PAIRSp|SOURCEb [SEED]" >&2
    exit 2
  fi
  bash tools/dev.d/setup.sh
  cmake --preset release >/dev/null
  cmake --build build/release --parallel "$(nproc)" --target soundness
  exec build/release/bin/soundness "$2" "${3-1}" build/soundness
fi

targets=$(sed -n 's/^foreach(target \(.*\))$/\1/p' tests/fuzz/CMakeLists.txt)
target=${1-}
seconds=${2-}
if [[ $# -ne 2 || " $targets " != *" $target "* || ! $seconds =~ ^[0-9]+$ ]]; then
  echo "usage: tools/dev fuzz TARGET SECONDS; targets: $targets" >&2
  exit 2
fi

bash tools/dev.d/setup.sh clang
bash tools/dev.d/setup.sh "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
bash tools/dev.d/setup.sh

cmake --preset fuzz >/dev/null
cmake --build build/fuzz --parallel "$(nproc)" --target "fuzz_$target" write_seeds

corpus=$(cache_dir)/fuzz/$target
findings=build/fuzz/findings
mkdir -p "$corpus" "$findings"
build/fuzz/bin/write_seeds "$target" "$corpus"
exec build/fuzz/bin/"fuzz_$target" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2560 \
  -max_len=300000 -print_final_stats=1 -artifact_prefix="$findings/$target-" "$corpus"
