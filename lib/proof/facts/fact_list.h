// Collects the facts about one kind of step (SourceCase). Facts that are added rest on everything
// that `twins` translated or compared since the last fact.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/counting.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/grounds.h"
#include "proof/graphs/proof.h"
#include "sym/forms/forms.h"

namespace kvlift {

class FactList {
 public:
  FactList(sym::Forms& forms, const Manifest& relation, const Correspondence& twins,
           Equality& equality)
      : graph_(forms.graph()),
        relation_(relation),
        twins_(twins),
        counting_(forms),
        equality_(equality) {}

  // The number of facts so far.
  size_t size() const { return facts_.size(); }
  // Drops all facts from number `size` on.
  void Shorten(size_t size) { facts_.resize(size); }
  // Moves the facts out. `steps` names the kind of step and is put in front of each text; empty for
  // all steps. Facts that do not hold are also reported to the obligations.
  Proof Take(const std::string& steps);

  // Everything that the facts from number `first` on rest on, taken together.
  Grounds GroundsFrom(size_t first) const;
  // Sets what all facts that are added from now on rest on as well. Replaces what an earlier call
  // set.
  void RestOn(Grounds standing) { standing_ = std::move(standing); }
  // Adds a fact about `about`. It holds if `why_not` is empty and nothing that it rests on is in
  // doubt; otherwise it is open.
  void Add(const std::string& about, std::string text, const std::string& why_not);
  // Adds a refuted fact.
  void AddRefuted(const std::string& about, std::string text, std::string why_not);
  // Adds the fact that two elements are equal wherever `known` holds; null means an element that is
  // not known, which makes the fact open. `facts` bounds the indices. If they are equal only where
  // position inputs count up, the fact rests on that. Returns true if the fact holds.
  bool AddEqual(const std::string& about, std::string text, sym::Expr mine, sym::Expr theirs,
                sym::Expr known, const sym::Facts& facts);
  // Adds the fact that a condition never holds. `otherwise` is the reason if that is not shown.
  // Returns true if the fact holds.
  bool AddNever(const std::string& about, std::string text, sym::Expr condition,
                const sym::Facts& facts, const std::string& otherwise);
  // Calls `prove` for each case from 0 to `cases` - 1. Each call has to add the same facts; one
  // copy is kept, which holds only if it holds in every case. Returns true if all calls did.
  bool ForEach(int64_t cases, const std::function<bool(int64_t)>& prove);

  // The expression as text; "?" for null.
  std::string Text(sym::Expr e) const { return e == nullptr ? "?" : sym::ToString(e, &graph_); }

 private:
  // Returns true if the manifest requires that this input of the source holds P..T-1 (as
  // "requires", or as the subject of KV307).
  bool CountsUp(const std::string& input) const;
  // Returns e with the inputs that count up replaced (Counting): those of which the manifest
  // requires it or, to say which others would have to, all.
  enum class Counted { kRequired, kAll };
  sym::Expr CountedUp(Counted inputs, sym::Expr e, const sym::Facts& facts,
                      std::vector<std::string>* vectors);
  // Adds a fact that rests on the inputs in `given` counting up. The fact is open if the manifest
  // does not require that of all of them.
  bool AddGiven(const std::string& about, std::string text, std::vector<std::string> given,
                std::string why_not);

  const Graph& graph_;
  const Manifest& relation_;
  const Correspondence& twins_;
  Counting counting_;
  Equality& equality_;
  Grounds standing_;
  std::vector<ProofFact> facts_;
  // The equalities that each fact failed to show, as SMT-LIB scripts, by the fact's `about` and
  // text.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> not_seen_;
};

}  // namespace kvlift
