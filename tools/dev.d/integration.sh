#!/usr/bin/env bash
# tools/dev integration optimum|olive: runs the code of docs/optimum.md or docs/olive.md with the
# real package, in an environment of its own (several GB, below the cache), with a wheel of this kvlift.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev.d/paths.sh
source tools/dev.d/paths.sh

case ${1-} in
  optimum | olive) ;;
  *) echo "usage: tools/dev integration optimum|olive" >&2; exit 2 ;;
esac
key=$({ cat tests/integration/requirements.txt; python3 -VV; } | short_key)
home=$(cache_dir)/integration-$key
if [[ ! -e $home/.complete ]]; then
  printf '== install Optimum and Olive: %s\n' "$home"
  rm -rf "$home"
  python3 -m venv "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check \
    --requirement tests/integration/requirements.txt
  touch "$home/.complete"
fi
bash tools/dev.d/wheel.sh
"$home/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
  build/wheels/*.whl
# As root, the network is taken away.
isolated=()
if ((EUID == 0)); then isolated=(unshare --net); fi
KVLIFT_ROOT=$PWD "${isolated[@]}" "$home/bin/python" tests/integration/pages.py "$1"
