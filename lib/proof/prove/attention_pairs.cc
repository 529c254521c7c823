#include "proof/prove/attention_pairs.h"

#include <algorithm>
#include <utility>

#include "proof/reading/read_attention.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {

using sym::Expr;

namespace {

// The largest number of source attentions that are compared with one attention.
constexpr size_t kMostFreeTried = 8;

}  // namespace

bool AttentionPairs::ReadsPast(Expr e) const {
  for (ValueId source : sym::SourcesOf(e)) {
    for (const ManifestCache& cache : relation_.caches) {
      if (source == pair_.After(cache.input)) return true;
    }
    const ValueId kept = sym::QuantizedOperandOf(graph_, source);
    const bool known = kept != kNoValue && forms_.Of(kept).known_rank;
    if (known && ReadsPast(forms_.Of(kept).element)) return true;
  }
  return false;
}

bool AttentionPairs::Prove(NodeId node) {
  const ValueId result = graph_.outputs(node)[0];
  const AttentionReading after = ReadAttention(forms_, result);
  if (after.why_not.empty() && !ReadsPast(after.key) && !ReadsPast(after.value)) return false;
  const std::string name = pair_.NameOf(result);
  const ValueId theirs = pair_.Before(name);
  std::string unread;
  if (theirs != kNoValue) {
    const AttentionReading before = ReadAttention(forms_, theirs);
    unread = before.why_not;
    if (before.why_not.empty() || !after.why_not.empty()) {
      ProveSame(name, result, theirs, before, after);
      return true;
    }
  }
  // The source has no such attention by this name. Its attentions that are no twin yet are tried,
  // first those that read the same cache.
  const size_t facts = facts_.size();
  std::vector<const SourceAttention*> free = FreeAttentions(after);
  std::stable_partition(free.begin(), free.end(), [&](const SourceAttention* other) {
    return ReadsSameCache(after, other->reading);
  });
  if (free.size() > kMostFreeTried) free.resize(kMostFreeTried);
  for (const SourceAttention* other : free) {
    facts_.Shorten(facts);
    if (ProveSame(name, result, other->result, other->reading, after)) return true;
  }
  if (free.empty()) {
    facts_.Add(name, "is the source's attention",
               theirs == kNoValue ? "the source has no value of this name" : unread);
  } else if (free.size() > 1) {
    facts_.Shorten(facts);
    ProveSame(name, result, free[0]->result, free[0]->reading, after);
  }
  return true;
}

std::vector<const AttentionPairs::SourceAttention*> AttentionPairs::FreeAttentions(
    const AttentionReading& after) {
  const auto extents = after.extents.extents;
  const bool counted = extents.size() > 1 && extents[1]->kind() == sym::Kind::kInteger;
  std::vector<const SourceAttention*> free;
  for (const SourceAttention& other : SourceAttentions(counted ? extents[1]->value() : 0)) {
    if (!matches_.IsTaken(other.result)) free.push_back(&other);
  }
  return free;
}

void AttentionPairs::ProveBesideCaches(NodeId node) {
  const ValueId result = graph_.outputs(node)[0];
  const std::string name = pair_.NameOf(result);
  if (twins_.TwinOf(result) != kNoValue || pair_.Before(name) != kNoValue) return;
  const AttentionReading after = ReadAttention(forms_, result);
  if (!after.why_not.empty()) return;
  std::vector<const SourceAttention*> free = FreeAttentions(after);
  if (free.size() > kMostFreeTried) free.resize(kMostFreeTried);
  const size_t facts = facts_.size();
  for (const SourceAttention* other : free) {
    Grounds grounds = AddFacts(name, other->result, other->reading, after);
    if (!grounds.doubted) {
      SetPair(result, other->result, other->reading, after, std::move(grounds));
      return;
    }
    facts_.Shorten(facts);
  }
}

bool AttentionPairs::ReadsSameCache(const AttentionReading& after,
                                    const AttentionReading& before) const {
  if (after.key == nullptr || before.key == nullptr) return false;
  const std::vector<ValueId> mine = sym::SourcesOf(after.key), theirs = sym::SourcesOf(before.key);
  return std::any_of(
      relation_.caches.begin(), relation_.caches.end(), [&](const ManifestCache& cache) {
        return std::count(mine.begin(), mine.end(), pair_.After(cache.input)) > 0 &&
               std::count(theirs.begin(), theirs.end(), pair_.Before(cache.source.input)) > 0;
      });
}

bool AttentionPairs::ProveSame(const std::string& name, ValueId mine, ValueId theirs,
                               const AttentionReading& before, const AttentionReading& after) {
  Grounds grounds = AddFacts(name, theirs, before, after);
  const bool proved = !grounds.doubted;
  SetPair(mine, theirs, before, after, std::move(grounds));
  return proved;
}

Grounds AttentionPairs::AddFacts(const std::string& name, ValueId theirs,
                                 const AttentionReading& before, const AttentionReading& after) {
  twins_.TakeGrounds();
  facts_.RestOn(required_.GroundsOf(theirs));
  const size_t first = facts_.size();
  const bool proved = attention_facts_.Prove(name, before, after);
  Grounds grounds = facts_.GroundsFrom(first);
  grounds.doubted = !proved;
  return grounds;
}

void AttentionPairs::SetPair(ValueId mine, ValueId theirs, const AttentionReading& before,
                             const AttentionReading& after, Grounds grounds) {
  if (!grounds.doubted) {
    matches_.Take(theirs);
    proved_.insert({theirs, before});
  }
  SetTwin(mine, theirs, before, after, std::move(grounds));
}

void AttentionPairs::SetTwin(ValueId mine, ValueId theirs, const AttentionReading& before,
                             const AttentionReading& after, Grounds grounds) {
  const int64_t groups = attention_facts_.GroupsOf(before, after).value_or(1);
  if (before.joined != after.joined) {
    const Expr size = before.joined ? before.size_of_value : after.size_of_value;
    const bool apart = forms_.Of(before.joined ? mine : theirs).shape.size() == 4;
    // The size is null if the attention was not read.
    if (!apart || size == nullptr) return;
    if (groups == 1) {
      twins_.SetTwinWithHeadsInLastAxis(mine, theirs, size, std::move(grounds));
    } else if (before.joined) {
      twins_.SetTwinWithGroupsAsTokensAndHeadsInLastAxis(
          mine, theirs, groups, attention_facts_.Tokens(before), size, std::move(grounds));
    }
  } else if (forms_.Of(theirs).shape.size() == 3 && forms_.Of(mine).shape.size() == 4) {
    const auto& extents = after.extents.extents;
    if (extents.size() > 1 && extents[1]->kind() == sym::Kind::kInteger) {
      twins_.SetTwinWithBatchTimesHeads(mine, theirs, extents[1]->value(), std::move(grounds));
    }
  } else if (groups > 1) {
    twins_.SetTwinWithGroupsAsTokens(mine, theirs, groups, attention_facts_.Tokens(before),
                                     std::move(grounds));
  } else {
    twins_.SetTwin(mine, theirs, Sameness::kWhole, std::move(grounds));
  }
  const std::vector<Expr>& shape = forms_.Of(theirs).shape;
  if (shape.size() == 5 && shape[2]->kind() == sym::Kind::kInteger) {
    twins_.SplitHeads(mine, shape[2]->value());
  }
}

const std::vector<AttentionPairs::SourceAttention>& AttentionPairs::SourceAttentions(
    int64_t heads) {
  const auto [it, fresh] = source_attentions_.try_emplace(heads);
  if (!fresh) return it->second;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (pair_.IsInAfter(n) || graph_.outputs(n).empty()) continue;
    const ValueId result = graph_.outputs(n)[0];
    if (result == kNoValue) continue;
    AttentionReading reading = ReadAttention(forms_, result, heads);
    if (reading.why_not.empty()) it->second.push_back({result, std::move(reading)});
  }
  return it->second;
}

}  // namespace kvlift
