#!/bin/sh
# Installs the wheel that fits the Python $1 from /mnt/wheels, without network, and uses it. It runs
# in a bare root (tools/dev.d/wheel.sh), where nothing but that Python is installed.
set -eu
python=$1
"$python" --version
fits=$("$python" - <<'PY'
import glob
import sys
minor = sys.version_info[1]
tags = [f"-cp3{minor}-cp3{minor}-"] + ["-cp312-abi3-"] * (minor >= 12)
print(*[w for w in glob.glob("/mnt/wheels/*.whl") if any(t in w for t in tags)][:1])
PY
)
if [ -z "$fits" ]; then
  echo "SKIPPED: no wheel for this Python"
  exit 0
fi
"$python" -m venv /tmp/venv
/tmp/venv/bin/pip install --quiet --no-index --disable-pip-version-check "$fits"
cd /tmp
PATH=/tmp/venv/bin:$PATH
kvlift --version
python -c 'import kvlift; print("import kvlift", kvlift.__version__)'
kvlift convert /mnt/model/model.onnx -o out.onnx --verify --quiet
kvlift verify /mnt/model/model.onnx out.onnx | tail -n 1
python -c '
import kvlift
result = kvlift.convert("/mnt/model/model.onnx")
assert result and result.verify(), result
print("convert and verify in Python:", result)'
kvlift fleet check . -o results --jobs 1 >fleet.txt 2>&1 || { cat fleet.txt; exit 1; }
tail -n 1 fleet.txt

# What is loaded is in the wheel, or on every Linux that the tag of the wheel names.
site=$(python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
for file in "$site"/kvlift/*.so "$site"/kvlift.libs/*.so*; do ldd "$file"; done |
  awk '/=>/ { print $1, $3 } /not found/ { exit 1 }' | sort -u >loaded.txt
foreign=$(grep -v '/kvlift\.libs/' loaded.txt |
  grep -vE '^(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libz)\.so\.[0-9]+ ' || true)
if [ -n "$foreign" ]; then
  echo "libraries that are neither in the wheel nor on every Linux: $foreign" >&2
  exit 1
fi
own=$(grep '/kvlift\.libs/' loaded.txt | cut -d' ' -f1 | sort -u | wc -l)
echo "libraries: $own from the wheel, and" \
  "$(grep -v '/kvlift\.libs/' loaded.txt | cut -d' ' -f1 | tr '\n' ' ')"
echo "smoke test passed: $(basename "$fits")"
