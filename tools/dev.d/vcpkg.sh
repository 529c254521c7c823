#!/usr/bin/env bash
# Builds the libraries that wheels need, as archives, by the vcpkg in build/vcpkg. cibuildwheel runs
# it before it builds; VCPKG_TRIPLET names the platform.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${VCPKG_TRIPLET:?names the platform}"
vcpkg=build/vcpkg
if [[ $VCPKG_TRIPLET == *windows* ]]; then
  "$vcpkg/bootstrap-vcpkg.bat" -disableMetrics
else
  "$vcpkg/bootstrap-vcpkg.sh" -disableMetrics
fi
"$vcpkg/vcpkg" install --triplet "$VCPKG_TRIPLET" --x-install-root="$vcpkg/installed" \
  protobuf abseil fmt cli11 nlohmann-json openssl utf8proc
