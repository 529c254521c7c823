// Everything that the rules say about a model, before any decision to convert.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "rewrite/candidates.h"
#include "rewrite/convert.h"
#include "rewrite/normalise.h"
#include "rewrite/rule.h"

namespace kvlift {

// The finding of a cache that the user asks to leave: no obstacle.
inline constexpr char kLeftAlone[] = "KV230";

struct AnalysedCache {
  Candidate candidate;
  std::optional<CacheUpdate> update;  // with index into Analysis::updates
  int update_index = -1;
  std::optional<Finding> reason;  // set if there is no update, or nothing can use it
  int layer = 0;
  std::string role;
};

struct AnalysedAttention {
  NodeId node = kNoNode;
  std::optional<AttentionSite> site;
  std::optional<Finding> reason;
};

struct Analysis {
  std::shared_ptr<const Graph> graph;  // functions inlined, opset raised, normalised
  Normalised normalised;               // without its model
  std::unique_ptr<sym::Forms> forms;
  std::optional<Finding> not_raised;  // KV201: then nothing else was analysed
  std::vector<AnalysedCache> caches;
  std::vector<CacheUpdate> updates;
  std::vector<AnalysedAttention> attention;
  std::vector<Finding> near_misses;
};

absl::StatusOr<Analysis> Analyse(const Model& model, RuleTable rules,
                                 const ConvertOptions& options = {});

// OverLimit if the graph asked for more than sym::MaxSteps().
absl::Status WithinSteps(const sym::Forms& forms);

// A state that no attention reads is handed from step to step beside the caches.
bool HasStates(const Analysis& analysis);

// Words for the contract's "mask": none, causal, padding, sliding(W), explicit, top-left.
std::string DescribeMask(Analysis& analysis, const AttentionSite& site);

Inspection Report(Analysis& analysis);

}  // namespace kvlift
