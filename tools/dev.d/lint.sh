#!/usr/bin/env bash
# tools/dev lint [--all]: runs clang-format and clang-tidy, and compiles each header alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

all=0
case ${1-} in
  '') ;;
  --all) all=1 ;;
  *) echo "usage: tools/dev lint [--all]" >&2; exit 2 ;;
esac

bash tools/dev.d/setup.sh clang clang-format clang-tidy
bash tools/dev.d/setup.sh

sources=('lib/*.cc' 'lib/*.h' 'rewrites/*.cc' 'tools/*.cc' 'tools/*.h' 'tests/*.cc' 'tests/*.h')
changed() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=HEAD
  { git diff --name-only --diff-filter=d "$base" -- "${sources[@]}"
    git ls-files --others --exclude-standard -- "${sources[@]}"; } | sort -u
}
if ((all)); then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- "${sources[@]}")
else
  mapfile -t files < <(changed)
fi
if ((!${#files[@]})); then
  echo "nothing to lint"
  exit 0
fi

status=0
clang-format --dry-run -Werror "${files[@]}" || status=1

cmake --preset tidy >/dev/null
mapfile -t units < <(printf '%s\n' "${files[@]}" | grep '\.cc$' || true)
if ((${#units[@]})); then
  printf '%s\0' "${units[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build/tidy || status=1
fi
cmake --build build/tidy --target all_verify_interface_header_sets -- -k 0 || status=1
exit "$status"
