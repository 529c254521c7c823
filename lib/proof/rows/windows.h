// Source caches that keep the last W rows only (kind "window"). The present has min(P' + S, W)
// rows, P' being the number of rows in the past.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/graphs/pair.h"
#include "proof/lower/branches.h"

namespace kvlift {

// The window that a cache of the source keeps.
struct WindowOfRows {
  int64_t rows = 0;           // W
  sym::Expr past = nullptr;   // P', a dimension of the source
  sym::Expr total = nullptr;  // P' + S
};

// Reads the window that a cache of the source keeps from `forms` of the pair's graph. Returns
// nullopt if the shapes of its past and present do not have the form above.
std::optional<WindowOfRows> ReadWindow(const GraphPair& pair, const ManifestCache& cache,
                                       sym::Forms& forms);

// Returns the kinds of step to prove: one while windows fill and one once they are full, if any
// cache is a window or a ring; otherwise one for all steps.
std::vector<SourceCase> WindowCases(const Manifest& relation);

// Removes the dim_param of the row axis of each cache with a window if an input that is no such
// cache declares the same name: once a window is full, its past has fewer rows than other pasts,
// whatever the model declares.
void SeparateWindowLengths(const Manifest& relation, onnx::ModelProto* source);

// Gives one dim_param to the row axes of all other growing pasts, and one to those of windows, and
// renames it wherever inputs declare one of the old names: by the relation these pasts hold the
// same number of rows, P, in every step (KV304), and windows of one size, the only ones that are
// proved, the newest of as many. Sliding buffers are not among them: what they declare is a number
// of slots.
void ShareLengths(const Manifest& relation, onnx::ModelProto* source);

}  // namespace kvlift
