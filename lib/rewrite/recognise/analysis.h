// The result of the steps "lower" and "recognise": the caches and attentions of a model, before any
// decision how to convert them.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/kinds.h"
#include "onnxio/model/model.h"
#include "rewrite/recognise/candidates.h"
#include "rewrite/types/conversion.h"
#include "rewrite/types/normalised.h"
#include "rewrite/types/options.h"
#include "rewrite/types/rule.h"

namespace kvlift {

// Why a cache stays as it is. kConverted: a TensorScatter writes it already. kLeftByOption: --only
// or --skip leaves it out. The other caches are converted in both cases. kRefused: the cache cannot
// be converted, and the whole conversion is refused unless partial conversion is allowed.
enum class StayCause { kRefused, kConverted, kLeftByOption };

struct StayReason {
  StayCause cause = StayCause::kRefused;
  Finding finding;

  static StayReason Refused(Finding why) { return {StayCause::kRefused, std::move(why)}; }
};

struct AnalysedCache {
  Candidate candidate;
  std::optional<CacheUpdate> update;  // set if a rule matched
  int update_index = -1;              // into Analysis::updates; -1: the cache is not converted
  std::optional<StayReason> reason;   // why the cache is not converted; absent if it is
  int layer = 0;
  CacheRole role = CacheRole::kKey;  // kKeyValue: both in one tensor
};

// Returns true if a TensorScatter writes the cache already, and the cache stays as it is.
inline bool IsConvertedAlready(const AnalysedCache& cache) {
  return cache.reason && cache.reason->cause == StayCause::kConverted;
}

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
  // Values that the model hands from step to step and that no attention reads, such as the state of
  // a convolution or of a recurrence.
  std::vector<CachePair> states;
  std::vector<Finding> near_misses;
};

// The step "lower": returns the lowered graph, with what became of the source's nodes. The rest of
// the analysis is empty. Returns InvalidArgument for a broken model.
absl::StatusOr<Analysis> Lower(const Model& model, UnreadMasks unread = UnreadMasks::kDrop);
// The step "recognise": fills in the rest, from a graph that could be raised. Uses the options
// only, skip and mode. Caches that TensorScatter writes already stay as they are, unless the
// options ask for a form of the result, or nothing else is left to convert and an attention over
// them is spelt out. Returns OutOfRange if the symbolic arithmetic takes more than sym::MaxSteps().
// What cannot be converted is in the analysis.
absl::Status Recognise(RuleTable rules, const ConvertOptions& options, Analysis* analysis);
// Runs both steps.
absl::StatusOr<Analysis> Analyse(const Model& model, RuleTable rules,
                                 const ConvertOptions& options = {});

// Returns true if a cache that can be converted grows.
bool HasGrowing(const Analysis& analysis);

// Returns the caches with an update index, by layer and role.
std::vector<const AnalysedCache*> ConvertedCaches(const Analysis& analysis);

// Returns the layer of the cache with this index into Analysis::updates; 0 if no
// cache has the index.
int LayerOf(const Analysis& analysis, int update_index);

// Returns OutOfRange if the graph asked for more than sym::MaxSteps().
absl::Status WithinSteps(const sym::Forms& forms);

// Returns the words of AttentionReport::mask, joined by "+": causal, sliding(W), top-left, padding,
// explicit, bias; "none" if there are none.
std::string DescribeMask(Analysis& analysis, const AttentionSite& site);

// Returns what `inspect` lists.
Inspection Report(Analysis& analysis);

}  // namespace kvlift
