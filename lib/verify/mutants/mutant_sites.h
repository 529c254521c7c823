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
#include "exec/memory/tensor.h"
#include "ir/graph.h"
#include "verify/mutants/mutants.h"

namespace kvlift {

// Operand indices of TensorScatter, and of Attention. Source: TensorScatter-24, Attention-24.
inline constexpr int kCacheOperand = 0, kUpdateOperand = 1, kIndicesOperand = 2;
inline constexpr int kQueryOperand = 0, kKeyOperand = 1, kValueOperand = 2, kMaskOperand = 3,
                     kPastKeyOperand = 4, kNonpadOperand = 6;

class MutantSites {
 public:
  // All arguments must outlive the object.
  MutantSites(const Graph& graph, const Manifest& relation, const MutantLimits& limits);

  const Graph& graph() const { return graph_; }
  const Manifest& relation() const { return relation_; }
  const MutantLimits& limits() const { return limits_; }
  // Return all TensorScatter nodes, and all Attention nodes with the operand nonpad_kv_seqlen.
  const std::vector<NodeId>& scatters() const { return scatters_; }
  const std::vector<NodeId>& attentions() const { return attentions_; }
  // Return the nodes for which mutants of a single node are made: the last one, or all with
  // MutantLimits::everywhere.
  std::vector<NodeId> WrittenPlaces() const { return Places(scatters_); }
  std::vector<NodeId> ReadingPlaces() const { return Places(attentions_); }
  // Returns a suffix for a mutant's name that names its node: " (present.0.key)". Empty if mutants
  // are made for one node only.
  std::string Label(NodeId n) const;

  ValueId Input(NodeId n, int k) const;     // operand k; kNoValue if omitted
  std::string Name(NodeId n, int k) const;  // the name of operand k; empty if omitted
  // Returns the TensorScatter whose result is the value, or reaches it through Slice, Transpose,
  // Identity and DequantizeLinear; nullopt if there is none.
  std::optional<NodeId> ScatterBehind(ValueId v) const;
  // Returns the declared type of the cache that a TensorScatter writes.
  TensorType CacheType(NodeId scatter) const;
  // Returns D of the cache behind a key or value operand; nullopt if it is not declared.
  std::optional<int64_t> HeadSize(NodeId attention, int operand) const;
  // Returns Nk of the cache behind the key operand; nullopt unless its layout is BNSD.
  std::optional<int64_t> KeyHeads(NodeId attention) const;
  bool ReadByNodes(ValueId v) const;  // a node of the main graph reads the value
  bool Captured(ValueId v) const;     // a body reads the value
  // Returns the observations of the value while the model ran; null if it was not observed.
  const SeenValue* Seen(const std::string& value) const;
  int64_t RankOf(const std::string& value) const;  // -1: not observed
  int32_t TypeOf(const std::string& value) const;  // a TensorProto::DataType; 0: not observed

 private:
  std::vector<NodeId> Places(const std::vector<NodeId>& all) const;

  const Graph& graph_;
  const Manifest& relation_;
  const MutantLimits& limits_;
  std::vector<NodeId> scatters_, attentions_;
};

}  // namespace kvlift
