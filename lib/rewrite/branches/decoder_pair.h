// The two decoders of a merged decoder, side by side in one graph over the same inputs: the first
// call, which has no past, and later calls, which have one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "rewrite/branches/cross_caches.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The prefix of the names of the first call's values.
inline constexpr char kFirstCall[] = "/kvlift/first/";

// A past of later calls, and the axis along which its present is longer.
struct Growth {
  ValueId past;
  int axis;
  sym::Expr length;  // extent of the past, a dim symbol
  sym::Expr added;   // extent of the present minus `length`
};

// Returns both models as one. Names of the first call get the prefix kFirstCall, except those in
// `shared`, the constants of the source's main graph.
absl::StatusOr<onnx::ModelProto> Combine(const onnx::ModelProto& later,
                                         const onnx::ModelProto& first,
                                         const absl::flat_hash_set<std::string>& shared);

// Returns the graph inputs that the values are computed from.
absl::flat_hash_set<ValueId> InputsBehind(const Graph& graph, absl::Span<const ValueId> roots);

class DecoderPair {
 public:
  // model: what Combine returned.
  static absl::StatusOr<std::unique_ptr<DecoderPair>> Create(onnx::ModelProto model);

  const Graph& graph() const { return *graph_; }
  sym::Forms& forms() { return *forms_; }
  // Return the graph outputs, as later calls and as the first call compute them, in the same order.
  absl::Span<const ValueId> later() const { return later_; }
  absl::Span<const ValueId> first() const { return first_; }

  // Return the floating-point inputs of rank 3 or more that only one of the calls reads.
  std::vector<ValueId> OnlyLater() const { return Only(later_, first_); }
  std::vector<ValueId> OnlyFirst() const { return Only(first_, later_); }

  // Returns the inputs that a present of later calls extends along one axis: those of OnlyLater(),
  // and those whose length is `zero_at_first`, the extent that is 0 in first calls, whether or not
  // the first call reads them; nullopt if no extent tells the calls apart.
  std::vector<Growth> Growths(const std::optional<sym::DimSymbol>& zero_at_first);

  // Pairs the inputs of OnlyLater() that do not grow with the outputs that only the first call
  // computes, each in their order. Empty if there are more outputs than inputs.
  std::vector<CrossAttentionCache> Crossings(absl::Span<const Growth> growths);

  // Returns a substitution for extents of graph inputs that describes calls with empty pasts: the
  // lengths of `growths` become 0, and extents that one of the calls needs to be equal become one
  // expression.
  sym::Pool::Substitution EmptyPasts(absl::Span<const Growth> growths,
                                     absl::Span<const CrossAttentionCache> crossings);

  // Returns the model with these extents declared for its inputs.
  onnx::ModelProto WithExtents(const sym::Pool::Substitution& s);

 private:
  std::vector<ValueId> Only(absl::Span<const ValueId> mine, absl::Span<const ValueId> other) const;

  bool IsEmptyConstant(ValueId v) const;

  std::optional<Growth> GrowthOf(ValueId past, ValueId present);

  // Keeps Solve from replacing an extent of the new tokens: an equation that broadcasting suggests
  // for it does not hold for every call that runs.
  void Protect(const sym::DimSymbol& dim);

  // Solves e = 0 for the extent that is declared last and not protected, and adds it to *s. Does
  // nothing if e contains indices or loads.
  void Solve(sym::Expr e, sym::Pool::Substitution* s);

  std::unique_ptr<Graph> graph_;
  std::unique_ptr<sym::Forms> forms_;
  std::vector<ValueId> later_, first_;
  absl::flat_hash_set<sym::DimSymbol> protected_;
};

}  // namespace kvlift
