// The ledger of assumptions: everything that a verdict takes for granted without proof or test.
//
// Every restriction adds an entry here: on the values that inputs are given, on the plans that are
// run, on how an input of one model is translated to the other. Inputs without an entry are given
// arbitrary values. Entries are data; texts for people are made from them and are never parsed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace kvlift {

enum class AssumptionKind {
  // A mask of the source holds only its values for "visible" and "hidden", such as 1 and 0.
  kMaskValues,
  kAllOnes,   // every element of an input is 1
  kAllZeros,  // every element of an input is 0
  // An input holds the positions P..T-1 of the new tokens, or a length derived from P and S.
  kPositions,
  kOneLength,     // all sequences of a batch have the same number of past tokens
  kMaskWidth,     // a mask input has P + S columns, or as many as the cache has slots (M)
  kDimension,     // two declared dimensions have the same size
  kFrozenSize,    // a dimension that the source leaves open has the size that the result declares
  kTreeMask,      // an input says which new tokens of a tree see each other (speculative decoding)
  kCapacity,      // largest sizes for which something holds: slots, tokens, sequences
  kNewTokens,     // the number of new tokens of a step is limited
  kIntegerRange,  // integer arithmetic does not overflow its type
  kIndexRange,    // indices of a table lie within the table
  kFinite,        // values are finite
  kNumberType,    // all numbers in a cache fit a narrower type than its own
  kScoreRange,    // no visible key of a query scores so low that hidden keys get weight
  kVisibleKey,    // every query sees at least one key
  kPadding,       // results for padding tokens are not compared
  // An axis of an input that holds neither sequences nor tokens has one size in a step of several
  // sequences and in the steps of each sequence alone, without padding tokens.
  kOtherDimension,
  kAlias,  // past and present must not share memory
  // The sequences of a batch do not influence each other, or the batch is one sequence.
  kSequences,
  kPastFlag,  // a bool input says whether there is a past
  kOther,     // any other condition, as its text says
};

// The origin of an assumption: who states it, has to satisfy it, or enforces it.
enum class AssumptionSource {
  kManifest,  // claimed by the manifest, or the relation that stands in for one
  kPlan,      // the plans of `verify` run no other case
  kHost,      // the host that feeds the model
  kOperator,  // an operator of the model fails where the condition does not hold
};

struct Assumption {
  AssumptionKind kind = AssumptionKind::kOther;
  std::string subject;    // name of an input or dimension, or id of a cache; empty: the whole model
  std::string condition;  // for people: "attention_mask.shape[1] = P + S"
  AssumptionSource source = AssumptionSource::kHost;
  bool checked = false;  // derived from the graphs, or enforced by an operator

  friend bool operator==(const Assumption&, const Assumption&) = default;
};

// Returns the entry (kNumberType) that a cache holds only some of the numbers of its type, such as
// "float16 numbers". `input` names the cache by its input in the source.
Assumption NumbersOfCache(const std::string& input, std::string_view numbers);

// A list of entries without duplicates, in the order in which they were added.
class Assumptions {
 public:
  void Add(Assumption assumption);
  void Add(const Assumptions& others);
  bool Has(AssumptionKind kind, std::string_view subject) const;
  bool empty() const { return all_.empty(); }
  absl::Span<const Assumption> all() const { return all_; }

 private:
  std::vector<Assumption> all_;
};

}  // namespace kvlift
