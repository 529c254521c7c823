// The places in a converted model that mutants break: writes of caches, and the attentions that
// read them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "exec/tensor.h"
#include "ir/graph.h"
#include "verify/mutants.h"

namespace kvlift {

// Operands of TensorScatter and of Attention.
inline constexpr int kCacheOperand = 0, kUpdateOperand = 1, kIndicesOperand = 2;
inline constexpr int kQueryOperand = 0, kKeyOperand = 1, kValueOperand = 2, kMaskOperand = 3,
                     kPastKeyOperand = 4, kNonpadOperand = 6;

class MutantSites {
 public:
  MutantSites(const Graph& graph, const Manifest& relation, const MutantLimits& limits);

  const Graph& graph() const { return graph_; }
  const Manifest& relation() const { return relation_; }
  const MutantLimits& limits() const { return limits_; }
  // TensorScatter nodes, and Attention nodes that are told how many keys are valid.
  const std::vector<NodeId>& scatters() const { return scatters_; }
  const std::vector<NodeId>& attentions() const { return attentions_; }
  // Those that mutants of one place are made for.
  std::vector<NodeId> WrittenPlaces() const { return Places(scatters_); }
  std::vector<NodeId> ReadingPlaces() const { return Places(attentions_); }
  // Says which place, where there are several: " (present.0.key)".
  std::string Label(NodeId n) const;

  ValueId Input(NodeId n, int k) const;
  std::string Name(NodeId n, int k) const;
  // The TensorScatter whose result reaches a value through slices and transposes.
  std::optional<NodeId> ScatterBehind(ValueId v) const;
  TensorType CacheType(NodeId scatter) const;
  std::optional<int64_t> HeadSize(NodeId attention, int operand) const;
  // Key heads; only where the cache has the layout BNSD.
  std::optional<int64_t> KeyHeads(NodeId attention) const;
  bool ReadByNodes(ValueId v) const;
  bool Captured(ValueId v) const;
  // What the value was when the model ran; absent if it was not seen.
  const SeenValue* Seen(const std::string& value) const;
  int64_t RankOf(const std::string& value) const;  // -1: not seen
  int32_t TypeOf(const std::string& value) const;  // 0: not seen

 private:
  std::vector<NodeId> Places(const std::vector<NodeId>& all) const;

  const Graph& graph_;
  const Manifest& relation_;
  const MutantLimits& limits_;
  std::vector<NodeId> scatters_, attentions_;
};

}  // namespace kvlift
