// The facts about an attention of the conversion and the source's that it stands for: what each
// reads, shows and adds, and the lemmas that turn one into the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/attention_reading.h"
#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/fact_list.h"
#include "proof/moved_rows.h"
#include "proof/pair.h"

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

  // Adds the facts; false unless all of them hold.
  bool Prove(const std::string& name, const AttentionReading& before,
             const AttentionReading& after);
  // How many queries each head of the source has.
  sym::Expr Tokens(const AttentionReading& reading) const;
  // How many heads of the source are rows of one of the conversion's heads; nullopt if they do not
  // fit each other.
  std::optional<int64_t> GroupsOf(const AttentionReading& before, const AttentionReading& after);

 private:
  // Compares each head of a group by itself, where heads are rows.
  bool CompareGroups(const std::string& name, const AttentionReading& before,
                     const AttentionReading& after);
  // Compares keys in the order that each model has them in.
  bool CompareAttentions(const std::string& name, const AttentionReading& before,
                         const AttentionReading& after);
  // Adds that rows that are not held any more, and slots without a row, are seen by no query.
  bool ShowsNoOther(const std::string& name, const AttentionReading& before,
                    const AttentionReading& after, const std::vector<MovedRows>& rows);
  // What is not so of: there are as many sequences, heads and tokens, heads are of the same sizes,
  // and nothing is broadcast. Empty if it is so.
  std::string OtherExtents(const AttentionReading& before, const AttentionReading& after);
  // The next fact rests on what hidden keys are hidden by, unless it is -inf on both sides. False
  // if a query is left without a key, whatever the host feeds, which is not told of keys that are
  // moved.
  bool RestOnHiding(const std::string& name, const AttentionReading& before,
                    const AttentionReading& after, const sym::Facts& facts, bool moved);
  // Compares what is read, shown and added. rows: the keys that are looked at, where the source has
  // them in another order.
  bool CompareKeys(const std::string& name, const AttentionReading& before,
                   const AttentionReading& after, const MovedRows* rows);
  // Adds that the same biases are added to the scores of keys that are seen, in any order.
  bool SameBias(const std::string& name, const std::vector<sym::Expr>& added,
                std::vector<sym::Expr> open, sym::Expr seen, const sym::Facts& facts);
  // The capacity of the cache that an expression reads; null if it reads none.
  sym::Expr CapacityOf(sym::Expr e);
  // Adds that no query sees a key that the source does not even have.
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
