// Finds operators that compute tokens of a step, or sequences, together: the class behind the
// functions of cross_token_ops.h. Internal to lib/rewrite.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "rewrite/plan/cross_token_ops.h"

namespace kvlift::internal {

// Returns true for types that hold real numbers, quantised ones included. Larger integers are
// positions, token ids and masks.
bool HoldsReals(int32_t elem_type);

// Implements the functions of cross_token_ops.h that have the names of its public members.
class CrossTokenFinder {
 public:
  explicit CrossTokenFinder(const Analysis& a);

  NodeId FindCrossTokenOp();
  NodeId FindMixingWithPads(OverflowTests tests);
  NodeId FindCountedTokens();
  NodeId FindReorderedSequences();
  NodeId FindBatchReduction();
  NodeId FindOtherTokens();

 private:
  void LeaveOutCacheWrites(absl::Span<const CacheUpdate> updates);
  void AddBatchOfHostInputs();
  void AddEqualSymbols(absl::flat_hash_set<sym::DimSymbol>* dims) const;
  static std::optional<std::pair<sym::DimSymbol, sym::DimSymbol>> EqualSymbols(sym::Expr predicate);
  bool CombinesSequences(NodeId n);
  bool HoldsSequences(sym::Expr extent) const;
  bool ReadsBatch(NodeId n);
  // A property of the batch that a value may depend on: the number of sequences, or also (kAny) the
  // position of a sequence among them.
  enum class BatchUse { kNumberOfSequences, kAny };
  bool DependsOnBatch(ValueId v, BatchUse use = BatchUse::kAny);
  bool DependsOnBatch(sym::Expr e, sym::Expr extent, absl::Span<const sym::Expr> shape,
                      absl::flat_hash_map<std::pair<sym::Expr, sym::Expr>, bool>* known);
  template <typename Holds>
  bool DropsAxisOfData(NodeId n, const Holds& holds);
  bool MakesReals(NodeId n) const;
  static bool IsUnknownExtent(sym::Expr extent);
  static std::vector<int64_t> AllAxes(int64_t rank);
  bool CountsElements(NodeId n) const;
  template <typename Is>
  bool DataOn(ValueId v, const std::vector<int64_t>& axes, const Is& is);
  bool IntegersOn(NodeId n, const std::vector<int64_t>& axes);
  bool CombinesIntegersOfTokens(NodeId n);
  bool IsLastPosition(NodeId n);
  bool IsPosition(ValueId input);
  bool CountsTokens(NodeId n);
  bool ChoosesByTokens(NodeId n);
  bool HoldsTokens(sym::Expr extent) const;
  NodeId FindLastForAll();
  bool ReadsLast(ValueId v, const absl::flat_hash_set<ValueId>& made_of_last);

  // Returns true if steps may hold padding tokens: several sequences with several tokens each.
  bool HoldsPads() const { return several_tokens_ && several_sequences_; }

  bool SeesEarlierOnly(NodeId n) const;
  bool Computes(NodeId n);
  bool ReadsMoved(NodeId n, bool (*leaves)(sym::Expr));
  bool IsMoved(ValueId v, bool (*leaves)(sym::Expr));
  bool LoadsMoved(sym::Expr e, bool (*leaves)(sym::Expr));
  static bool IsOfOtherSequence(sym::Expr place);
  static bool IsShifted(sym::Expr place);
  static bool DependsOnCondition(sym::Expr place);
  bool HasRowPerToken(NodeId n);
  bool ReadsOtherTokens(ValueId v);
  bool ReadsData(sym::Expr e) const;
  std::vector<int64_t> ReducedAxes(NodeId n, int64_t rank) const;
  static void AddSymbols(sym::Expr extent, absl::flat_hash_set<sym::DimSymbol>* dims);
  bool HoldsRows(sym::Expr extent) const;
  bool RowsOn(NodeId n, int operand, const std::vector<int64_t>& axes);
  bool RowsFrom(NodeId n, int64_t first);
  bool ReduceMixes(NodeId n);
  bool TestsForOverflow(NodeId n);
  bool CumSumMixes(NodeId n);
  bool EinsumMixes(NodeId n);
  bool QuantizedSoftmaxMixes(NodeId n);
  bool CountsKeptTokens(NodeId n) const;
  bool MixesRows(NodeId n);
  bool BodiesMix(NodeId n);
  bool MixesKeys(NodeId n);
  void FindReadersOfRows(absl::Span<const CacheUpdate> updates);
  bool WeighsRows(NodeId n) const;
  bool LeadsToWeights(NodeId n) const;
  ValueId Operand(NodeId n, int k) const;

  const Graph& graph_;
  sym::Forms& forms_;
  absl::flat_hash_set<sym::DimSymbol> rows_, past_, sequences_, tokens_;
  // Nodes that are not judged: those of attentions and cache updates, and, if FindMixingWithPads
  // leaves them out, tests for overflow.
  absl::flat_hash_set<NodeId> replaced_;
  absl::flat_hash_set<NodeId> readers_;  // nodes that read rows of caches in front of a softmax
  bool keys_are_rows_ = false;           // HoldsRows counts keys, too
  bool several_tokens_ = false, several_sequences_ = false;
};

}  // namespace kvlift::internal
