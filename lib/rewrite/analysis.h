// Everything that the rules say about a model, before any decision to convert.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/kinds.h"
#include "rewrite/candidates.h"
#include "rewrite/convert.h"
#include "rewrite/normalise.h"
#include "rewrite/rule.h"

namespace kvlift {

// The finding of a cache that --only or --skip leaves as it is. It does not stop the conversion.
inline constexpr char kLeftAlone[] = "KV230";

struct AnalysedCache {
  Candidate candidate;
  std::optional<CacheUpdate> update;  // set if a rule matched
  int update_index = -1;              // into Analysis::updates; -1: the cache is not converted
  std::optional<Finding> reason;      // why the cache is not converted; absent if it is
  int layer = 0;
  CacheRole role = CacheRole::kKey;  // kKeyValue: both in one tensor
};

// Either `site` or `reason` is set.
struct AnalysedAttention {
  NodeId node = kNoNode;  // the node that a rule judged, or the softmax if no rule did
  std::optional<AttentionSite> site;
  std::optional<Finding> reason;  // why no rule takes the attention over
};

struct Analysis {
  std::shared_ptr<const Graph> graph;  // functions inlined, opset raised, normalised
  Normalised normalised;               // its model is in `graph`
  std::unique_ptr<sym::Forms> forms;
  std::optional<Finding> not_raised;  // KV201; if set, all below is empty but near_misses
  std::vector<AnalysedCache> caches;
  std::vector<CacheUpdate> updates;          // the caches that can be converted
  std::vector<AnalysedAttention> attention;  // by node
  std::vector<Finding> near_misses;
};

// Uses the options only, skip, mode and window. Returns InvalidArgument for a broken model and
// OutOfRange if its symbolic arithmetic takes more than sym::MaxSteps(). What cannot be converted
// is in the result.
absl::StatusOr<Analysis> Analyse(const Model& model, RuleTable rules,
                                 const ConvertOptions& options = {});

// Returns OutOfRange if the graph asked for more than sym::MaxSteps().
absl::Status WithinSteps(const sym::Forms& forms);

// Returns true if the model hands a state that no attention reads (of a convolution or recurrence)
// from step to step.
bool HasStates(const Analysis& analysis);

// Returns the words of AttentionReport::mask, joined by "+": causal, sliding(W), top-left, padding,
// explicit, bias; "none" if there are none.
std::string DescribeMask(Analysis& analysis, const AttentionSite& site);

// Returns what `inspect` lists.
Inspection Report(Analysis& analysis);

}  // namespace kvlift
