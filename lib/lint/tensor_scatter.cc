#include <algorithm>

#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "lint/lint_nodes.h"
#include "lint/node_shapes.h"

namespace kvlift {
namespace {

constexpr size_t kCache = 0, kUpdate = 1, kIndices = 2;

// Returns the sequence axis of a cache of known rank, or -1 if it is out of range or the batch
// axis.
int SequenceAxis(int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  return axis <= 0 || axis >= rank ? -1 : static_cast<int>(axis);
}

void LintIndices(const Graph& graph, NodeId node, const NodeShapes& s, int axis, bool linear,
                 std::vector<Lint>* lints) {
  if (!s.Has(kIndices)) return;
  const int32_t type = s.ElemType(kIndices);
  if (type != 0 && type != onnx::TensorProto::INT64) {
    AddLint(graph, node, "KV120",
            fmt::format("write_indices needs int64, found {}", ElementTypeName(type)), lints);
  }
  const int rank = s.Rank(kIndices);
  const auto batch = s.Extent(kCache, 0), length = s.Extent(kIndices, 0);
  if (rank >= 0 && rank != 1) {
    AddLint(graph, node, "KV120", fmt::format("write_indices needs rank 1, found {}", rank), lints);
  } else if (batch && length && *batch != *length) {
    AddLint(
        graph, node, "KV120",
        fmt::format("write_indices needs one index per sequence ({}), found {}", *batch, *length),
        lints);
  }
  const onnx::TensorProto* constant = graph.constant(s.Value(kIndices));
  const auto values =
      constant != nullptr
          ? ReadInts(*constant)
          : absl::StatusOr<std::vector<int64_t>>(absl::NotFoundError("no constant"));
  if (!values.ok()) return;
  const auto capacity = s.Extent(kCache, axis), rows = s.Extent(kUpdate, axis);
  for (int64_t start : *values) {
    const bool beyond = linear && capacity && rows && start > *capacity - *rows;
    if (start < 0 || beyond) {
      AddLint(
          graph, node, "KV125",
          fmt::format("a constant write index of {} leaves the buffer {}", start, s.Show(kCache)),
          lints);
      return;
    }
  }
}

}  // namespace

void LintTensorScatter(const Graph& graph, NodeId node, std::vector<Lint>* lints) {
  const NodeShapes s(graph, node);
  if (!s.Has(kCache) || !s.Has(kUpdate)) return;
  const std::string mode = StringAttribute(graph.node(node), "mode", "linear");
  if (mode != "linear" && mode != "circular") {
    AddLint(graph, node, "KV123",
            fmt::format("mode needs \"linear\" or \"circular\", found \"{}\"", mode), lints);
  }
  const int64_t declared = IntAttribute(graph.node(node), "axis", -2);
  const int rank = s.Rank(kCache);
  if (rank < 0) return;
  const int axis = SequenceAxis(declared, rank);
  if (axis < 0) {
    AddLint(graph, node, "KV122",
            fmt::format("axis needs to name an axis of {} behind the batch, found {}",
                        s.Show(kCache), declared),
            lints);
    return;
  }
  if (s.Rank(kUpdate) >= 0 && s.Rank(kUpdate) != rank) {
    AddLint(graph, node, "KV124",
            fmt::format("update needs the rank of the cache, found {} for {}", s.Show(kUpdate),
                        s.Show(kCache)),
            lints);
    return;
  }
  for (int k = 0; k < rank; ++k) {
    const auto cache = s.Extent(kCache, k), update = s.Extent(kUpdate, k);
    if (!cache || !update) continue;
    if (k == axis && *update > *cache) {
      AddLint(
          graph, node, "KV121",
          fmt::format("the update {} is longer than the cache {}", s.Show(kUpdate), s.Show(kCache)),
          lints);
    } else if (k != axis && *update != *cache) {
      AddLint(graph, node, "KV124",
              fmt::format("axis {} of the update {} differs from the cache {}", k, s.Show(kUpdate),
                          s.Show(kCache)),
              lints);
    }
  }
  if (s.ElemType(kCache) != 0 && s.ElemType(kUpdate) != 0 &&
      s.ElemType(kCache) != s.ElemType(kUpdate)) {
    AddLint(graph, node, "KV124",
            fmt::format("the update is {}, the cache {}", ElementTypeName(s.ElemType(kUpdate)),
                        ElementTypeName(s.ElemType(kCache))),
            lints);
  }
  LintIndices(graph, node, s, axis, mode == "linear", lints);
}

}  // namespace kvlift
