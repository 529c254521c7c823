// The two decoders of a merged one, side by side in one graph over the same inputs: the first call,
// which has no past, and later ones.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "rewrite/cross_caches.h"
#include "sym/forms.h"

namespace kvlift {

inline constexpr char kFirstCall[] = "/kvlift/first/";

// A past, the axis it grows along in the branch with a past, and by how much.
struct Growth {
  ValueId past;
  int axis;
  sym::Expr length;
  sym::Expr added;
};

// Both models as one. Names of the first call's values start with kFirstCall; constants of the
// source's main graph, `shared`, stay.
absl::StatusOr<onnx::ModelProto> Combine(const onnx::ModelProto& later,
                                         const onnx::ModelProto& first,
                                         const absl::flat_hash_set<std::string>& shared);

// The graph inputs that the values are computed from.
absl::flat_hash_set<ValueId> InputsBehind(const Graph& graph, absl::Span<const ValueId> roots);

// Both calls in one graph over the same inputs.
class DecoderPair {
 public:
  static absl::StatusOr<std::unique_ptr<DecoderPair>> Create(onnx::ModelProto model);

  const Graph& graph() const { return *graph_; }
  sym::Forms& forms() { return *forms_; }
  absl::Span<const ValueId> later() const { return later_; }
  absl::Span<const ValueId> first() const { return first_; }

  // Float inputs of rank 3 or more that only the later call reads.
  std::vector<ValueId> OnlyLater() const { return Only(later_, first_); }
  std::vector<ValueId> OnlyFirst() const { return Only(first_, later_); }

  std::vector<Growth> Growths();

  // Inputs of later calls that do not grow, and outputs that only the first call gives, in order.
  std::vector<Crossing> Crossings(absl::Span<const Growth> growths);

  // Extents of the inputs where the pasts are empty. Extents that both calls need to be equal are.
  sym::Pool::Substitution EmptyPasts(absl::Span<const Growth> growths,
                                     absl::Span<const Crossing> crossings);

  // The same model with these extents declared.
  onnx::ModelProto WithExtents(const sym::Pool::Substitution& s);

 private:
  std::vector<ValueId> Only(absl::Span<const ValueId> mine, absl::Span<const ValueId> other) const;

  bool IsEmptyConstant(ValueId v) const;

  std::optional<Growth> GrowthOf(ValueId past, ValueId present);

  // The extents of the tokens are free: an equation between them that broadcasting suggests does
  // not hold for all calls that run.
  void Protect(const sym::DimSymbol& dim);

  // e = 0 gives the extent that is declared last, unless it is protected.
  void Solve(sym::Expr e, sym::Pool::Substitution* s);

  std::unique_ptr<Graph> graph_;
  std::unique_ptr<sym::Forms> forms_;
  std::vector<ValueId> later_, first_;
  absl::flat_hash_set<sym::DimSymbol> protected_;
};

}  // namespace kvlift
