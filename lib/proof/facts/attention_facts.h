// Facts about one attention of the converted model and the attention of the source that it
// replaces: the same queries, keys, values, visible keys, bias, scale and softmax precision, and
// the lemmas that relate the two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/facts/fact_list.h"
#include "proof/graphs/attention_reading.h"
#include "proof/graphs/pair.h"
#include "proof/rows/moved_rows.h"

namespace kvlift {

class AttentionFacts {
 public:
  AttentionFacts(const GraphPair& pair, const Manifest& relation, const Correspondence& twins,
                 Equality* equality, FactList* facts)
      : pair_(pair),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        relation_(relation),
        twins_(twins),
        equality_(equality),
        facts_(facts) {}

  // Adds the facts about the attention `name`, its result in the converted model. Returns true if
  // all of them hold.
  bool Prove(const std::string& name, const AttentionReading& before,
             const AttentionReading& after);
  // Returns the extent of the query axis of an attention of the source; null if the attention was
  // not read.
  sym::Expr Tokens(const AttentionReading& reading) const;
  // Returns the number of query heads of the source that are rows of one head in the converted
  // model: 1 if both have the same heads, and nullopt if the numbers of heads do not fit.
  std::optional<int64_t> GroupsOf(const AttentionReading& before, const AttentionReading& after);

 private:
  // Compares each query head of a group separately if heads of a group are rows of one head.
  bool CompareGroups(const std::string& name, const AttentionReading& before,
                     const AttentionReading& after);
  // Compares the attentions; if the cache rows are in another order (MovedRows), region by region.
  bool CompareAttentions(const std::string& name, const AttentionReading& before,
                         const AttentionReading& after);
  // Adds the facts that no query sees a row that has left the source's window, and that no query
  // sees a slot without a row.
  bool ShowsNoOther(const std::string& name, const AttentionReading& before,
                    const AttentionReading& after, const std::vector<MovedRows>& rows);
  // Names the extents (sequences, heads, tokens, head sizes) that differ, or the operand that may
  // be broadcast. Empty if all extents are the same.
  std::string OtherExtents(const AttentionReading& before, const AttentionReading& after);
  // Makes the next fact rest on the numbers by which keys are hidden, unless both models use -inf.
  // Returns false, and adds an open fact, if a query without a visible key is found that no input
  // of the host decides about. The fact also rests on padding that leaves each token a key, if a
  // mask of the host could hide them all. `moved`: the cache rows are in another order, and such
  // queries are not searched for.
  bool RestOnHiding(const std::string& name, const AttentionReading& before,
                    const AttentionReading& after, const sym::Facts& facts, bool moved);
  // Returns true if all elements that an expression reads are those of graph inputs.
  bool ReadsOnlyInputs(sym::Expr e) const;
  // Compares queries, keys, values, visible keys, bias and scale. `rows`: the region of keys to
  // compare if the source has its rows in another order; null for all keys in the same order.
  bool CompareKeys(const std::string& name, const AttentionReading& before,
                   const AttentionReading& after, const MovedRows* rows);
  // Adds the fact that both models add the same summands, in any order, to the scores of keys that
  // are visible (`seen`). `open`: the source's summands.
  bool SameBias(const std::string& name, const std::vector<sym::Expr>& added,
                std::vector<sym::Expr> open, sym::Expr seen, const sym::Facts& facts);
  // Returns M of the cache that an expression of the converted model reads; null if it reads no
  // cache.
  sym::Expr CapacityOf(sym::Expr e);
  // Adds the fact that no query sees a key behind the source's last one.
  bool HidesRest(const std::string& name, const AttentionReading& before,
                 const AttentionReading& after, const sym::Facts& facts);

  const GraphPair& pair_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Manifest& relation_;
  const Correspondence& twins_;
  Equality* equality_;
  FactList* facts_;
};

}  // namespace kvlift
