// The ledger of assumptions: everything that a verdict takes for granted and does not show.
//
// Every restriction of what is fed, of which plans run and of how an input is translated is created
// by adding an entry here. What has no entry is fed freely. Entries are data; texts for people are
// made from them and never read back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace kvlift {

enum class AssumptionKind {
  kMaskValues,    // an input of the source holds nothing but visible and hidden, 1 and 0
  kAllOnes,       // every element of an input is 1
  kAllZeros,      // every element of an input is 0
  kPositions,     // an input holds the positions P..T-1 of the step's tokens
  kOneLength,     // all sequences of a batch have the same number of past tokens
  kMaskWidth,     // a mask input has P + S columns, or as many as the cache has slots
  kDimension,     // two declared dimensions of one name are the same size
  kTreeMask,      // an input says which new tokens of a tree see each other
  kCapacity,      // sizes up to which something holds: slots, tokens, sequences
  kNewTokens,     // the number of new tokens of a step is limited
  kIntegerRange,  // integer arithmetic stays within its type
  kIndexRange,    // indices of a table lie within the table
  kFinite,        // values are finite
  kScoreRange,    // keys that a query sees do not score far below hidden ones
  kVisibleKey,    // each query sees a key
  kPadding,       // rows of padding tokens are not compared
  kAlias,         // past and present may not share memory
  kSequences,     // sequences of a batch do not influence each other
  kPastFlag,      // a flag says whether there is a past
  kOther,         // the condition says what
};

// Who has to keep to the assumption, or enforces it.
enum class AssumptionSource {
  kManifest,  // a claim of the relation
  kPlan,      // the plans run nothing else
  kHost,      // whoever feeds the model
  kOperator,  // an operator refuses to run otherwise
};

struct Assumption {
  AssumptionKind kind = AssumptionKind::kOther;
  std::string subject;    // an input, a cache's id, a dimension; empty: the whole model
  std::string condition;  // "attention_mask.shape[1] = P + S"
  AssumptionSource source = AssumptionSource::kHost;
  bool checked = false;  // the claim was derived from the graphs, or an operator enforces it

  friend bool operator==(const Assumption&, const Assumption&) = default;
};

// The words that the JSON uses for them.
std::string_view WordOf(AssumptionKind kind);
std::string_view WordOf(AssumptionSource source);
// The kind or source that a word stands for; nullopt for any other word.
std::optional<AssumptionKind> AssumptionKindOf(std::string_view word);
std::optional<AssumptionSource> AssumptionSourceOf(std::string_view word);

// Entries in the order in which they were added, each once.
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
