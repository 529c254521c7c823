// Finds for each attention of the converted model the one of the source that it replaces, proves
// the facts about both, and sets its twin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/dependence/padding_independence.h"
#include "proof/facts/attention_facts.h"
#include "proof/facts/fact_list.h"
#include "proof/facts/matches.h"
#include "proof/facts/required_inputs.h"
#include "proof/graphs/attention_reading.h"
#include "proof/graphs/grounds.h"
#include "proof/graphs/pair.h"

namespace kvlift {

class AttentionPairs {
 public:
  // Everything that is passed must outlive this.
  AttentionPairs(const GraphPair& pair, const Manifest& relation, RequiredInputs& required,
                 Correspondence* twins, Equality* equality, Matches* matches, FactList* facts)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        relation_(relation),
        required_(required),
        twins_(*twins),
        matches_(*matches),
        facts_(*facts),
        attention_facts_(pair, relation, *twins, equality, facts) {}

  // Adds the facts about an Attention node of the converted model, whose operands must have been
  // matched before. Returns false, and adds none, if it reads no cache.
  bool Prove(NodeId node);

  // Adds the facts about an Attention node of the converted model that reads no cache and has no
  // twin, such as one of cross-attention, if an attention of the source is proved to be the same.
  void ProveBesideCaches(NodeId node);

  // The attentions of the source whose counterpart is proved, by their results.
  const ReadAttentions& proved() const { return proved_; }

 private:
  struct SourceAttention {
    ValueId result = kNoValue;
    AttentionReading reading;
  };

  bool ReadsPast(sym::Expr e) const;
  // Returns all attentions of the source with this number of heads.
  const std::vector<SourceAttention>& SourceAttentions(int64_t heads);
  // Returns true if the keys of both attentions come from the same cache.
  bool ReadsSameCache(const AttentionReading& after, const AttentionReading& before) const;
  // Adds the facts about two attentions, whose results are `mine` and `theirs`, and sets the twin.
  // Returns true if all facts hold.
  bool ProveSame(const std::string& name, ValueId mine, ValueId theirs,
                 const AttentionReading& before, const AttentionReading& after);
  // Adds the facts about two attentions, and returns their grounds; `theirs` is the result in the
  // source. The grounds are doubted if a fact does not hold.
  Grounds AddFacts(const std::string& name, ValueId theirs, const AttentionReading& before,
                   const AttentionReading& after);
  // Sets the twin of a result, `theirs` in the source. Unless the grounds are doubted, the source's
  // attention becomes one of proved(), and is no twin of another attention.
  void SetPair(ValueId mine, ValueId theirs, const AttentionReading& before,
               const AttentionReading& after, Grounds grounds);
  // Returns the attentions of the source with as many heads that are no twin yet.
  std::vector<const SourceAttention*> FreeAttentions(const AttentionReading& after);
  // Sets the twin of an attention's result. In either model heads may be folded into the batch,
  // joined on the last axis, or be rows of one head; in the source they may be on two axes.
  void SetTwin(ValueId mine, ValueId theirs, const AttentionReading& before,
               const AttentionReading& after, Grounds grounds);

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  const Manifest& relation_;
  RequiredInputs& required_;
  Correspondence& twins_;
  Matches& matches_;
  FactList& facts_;
  AttentionFacts attention_facts_;
  ReadAttentions proved_;
  // The attentions of the source, by number of heads.
  absl::flat_hash_map<int64_t, std::vector<SourceAttention>> source_attentions_;
};

}  // namespace kvlift
