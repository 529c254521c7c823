// The facts of a case of steps, as they are found.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "proof/correspondence.h"
#include "proof/counting.h"
#include "proof/equality.h"
#include "proof/grounds.h"
#include "proof/proof.h"
#include "sym/forms.h"

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

  size_t size() const { return facts_.size(); }
  void Shorten(size_t size) { facts_.resize(size); }
  // The facts, with the steps that all of them are about in front of each; these may be empty.
  Proof Take(const std::string& steps);

  // The grounds of all facts from number `first` on, together.
  Grounds GroundsFrom(size_t first) const;
  // What all facts rest on that are added from now on.
  void RestOn(Grounds standing) { standing_ = std::move(standing); }
  // Adds that something is so, on the grounds of what was compared since the last fact. It is
  // proved if nothing stands in the way.
  void Add(const std::string& about, std::string text, const std::string& why_not);
  // Adds that something is not so.
  void AddRefuted(const std::string& about, std::string text, std::string why_not);
  // Adds that two elements are one, wherever `known` holds.
  bool AddEqual(const std::string& about, std::string text, sym::Expr mine, sym::Expr theirs,
                sym::Expr known, const sym::Facts& facts);
  // Adds that a condition never holds; `otherwise`: what stands in the way if that is not seen.
  bool AddNever(const std::string& about, std::string text, sym::Expr condition,
                const sym::Facts& facts, const std::string& otherwise);
  // Facts hold if they do in each of several cases, which give the same ones.
  bool ForEach(int64_t cases, const std::function<bool(int64_t)>& prove);

  std::string Text(sym::Expr e) const { return e == nullptr ? "?" : sym::ToString(e, &graph_); }

 private:
  // Whether the relation says, as data, that an input of the source counts up.
  bool CountsUp(const std::string& input) const;
  // Adds a fact that is proved given that these inputs count up, if preconditions say so.
  bool AddGiven(const std::string& about, std::string text, std::vector<std::string> given,
                std::string why_not);

  const Graph& graph_;
  const Manifest& relation_;
  const Correspondence& twins_;
  Counting counting_;
  Equality& equality_;
  Grounds standing_;
  std::vector<ProofFact> facts_;
  // Equalities that were not seen, as scripts, by what facts are about and their texts.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> not_seen_;
};

}  // namespace kvlift
