// Caches of which the source keeps the last W rows only (kind "window"): its present has
// min(P' + S, W) rows, P' of them being the past's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "proof/branches.h"
#include "proof/pair.h"

namespace kvlift {

struct WindowOfRows {
  int64_t rows = 0;           // W
  sym::Expr past = nullptr;   // P', a dim of the source
  sym::Expr total = nullptr;  // P' + S
};

// The window that a cache of the source keeps; nothing if its shapes do not say so.
std::optional<WindowOfRows> ReadWindow(const GraphPair& pair, const ManifestCache& cache);

// Filling and full ones, of the source or rings; one case of all steps if neither keeps windows.
std::vector<SourceCase> WindowCases(const Manifest& relation);

}  // namespace kvlift
