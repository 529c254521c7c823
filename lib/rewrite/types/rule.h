// The registration of rules. A rule is one file in rewrites/: NAME.cc defines `const Rule& NAME()`
// in namespace kvlift::rewrites; the build generates the sorted table behind AllRules().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "base/findings.h"
#include "ir/graph.h"
#include "rewrite/types/attention_site.h"
#include "rewrite/types/cache_update.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The answer of a rule: a match, a near miss with its reason, or neither where the rule does not
// apply.
template <typename T>
struct Recognised {
  std::optional<T> match;
  std::optional<Finding> refusal;

  static Recognised Match(T value) { return {std::move(value), std::nullopt}; }
  static Recognised Refuse(Finding finding) { return {std::nullopt, std::move(finding)}; }
  static Recognised NotThis() { return {}; }
};

struct Rule {
  std::string_view name;
  std::string_view summary;  // one line, for `explain`
  // Exactly one of the two is set. A cache rule judges one pair; an attention rule judges one node,
  // given the caches that were recognised.
  Recognised<CacheUpdate> (*cache)(sym::Forms& forms, const CachePair& pair) = nullptr;
  Recognised<AttentionSite> (*attention)(sym::Forms& forms, NodeId node,
                                         absl::Span<const CacheUpdate> caches) = nullptr;
};

using RuleTable = absl::Span<const Rule* const>;
// Returns all rules, sorted by name. The build generates this function from rewrites/.
RuleTable AllRules();

// Returns a finding with the names of the nodes and values; kNoNode and kNoValue are left out.
// Without any node it names up to three readers of the values.
Finding MakeFinding(std::string_view code, std::string text, const Graph& graph,
                    absl::Span<const NodeId> nodes, absl::Span<const ValueId> values = {});

}  // namespace kvlift
