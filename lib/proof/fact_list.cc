#include "proof/fact_list.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

Proof FactList::Take(const std::string& steps) {
  for (ProofFact& fact : facts_) {
    if (!steps.empty()) fact.text = fmt::format("{}: {}", steps, fact.text);
  }
  for (const ProofFact& fact : facts_) {
    if (equality_.obligations() != nullptr && !fact.holds()) {
      equality_.obligations()->Open(fact.about, fact.text, fact.why_not);
    }
  }
  Proof proof;
  proof.facts = std::move(facts_);
  return proof;
}

void FactList::Add(const std::string& about, std::string text, const std::string& why_not) {
  facts_.push_back({about,
                    std::move(text),
                    why_not.empty() ? FactStatus::kProved : FactStatus::kOpen,
                    {},
                    {},
                    why_not});
}

bool FactList::AddEqual(const std::string& about, std::string text, Expr mine, Expr theirs,
                        Expr known, const Facts& facts) {
  std::vector<std::string> given;
  mine = equality_.AsTruth(mine);
  theirs = equality_.AsTruth(theirs);
  known = equality_.AsTruth(known);
  bool equal = equality_.Equal(mine, theirs, known, facts);
  if (!equal && mine != nullptr && theirs != nullptr) {
    std::vector<std::string> vectors;
    const Expr x = counting_.CountedUp(mine, facts, &vectors);
    const Expr y = counting_.CountedUp(theirs, facts, &vectors);
    const Expr where = counting_.CountedUp(known, facts, &vectors);
    equal = !vectors.empty() && equality_.Equal(x, y, where, facts);
    if (equal) given = std::move(vectors);
  }
  std::string why_not;
  if (!equal) why_not = fmt::format("{} is not seen to be {}", Text(mine), Text(theirs));
  return AddGiven(about, std::move(text), std::move(given), std::move(why_not));
}

bool FactList::AddNever(const std::string& about, std::string text, Expr condition,
                        const Facts& facts, const std::string& otherwise) {
  std::vector<std::string> vectors;
  const Expr counted = counting_.CountedUp(condition, facts, &vectors);
  const bool never = counted != nullptr && counted->is_integer(0);
  if (!never) vectors.clear();
  return AddGiven(about, std::move(text), std::move(vectors), never ? "" : otherwise);
}

bool FactList::AddGiven(const std::string& about, std::string text, std::vector<std::string> given,
                        std::string why_not) {
  for (const std::string& name : given) {
    if (IsPrecondition(name)) continue;
    why_not = fmt::format("it holds if {} counts up, and no precondition says so", name);
  }
  ProofFact fact{about, std::move(text), FactStatus::kOpen, {}, {}, std::move(why_not)};
  if (fact.why_not.empty()) fact.status = given.empty() ? FactStatus::kProved : FactStatus::kGiven;
  for (const std::string& name : given) {
    fact.given.push_back({AssumptionKind::kPositions, name,
                          fmt::format("{} counts up from its first element", name),
                          AssumptionSource::kManifest});
  }
  facts_.push_back(std::move(fact));
  return facts_.back().holds();
}

bool FactList::IsPrecondition(const std::string& input) const {
  return std::any_of(
      relation_.preconditions.begin(), relation_.preconditions.end(),
      [&](const Precondition& p) { return p.text.find(input) != std::string::npos; });
}

bool FactList::ForEach(int64_t cases, const std::function<bool(int64_t)>& prove) {
  const size_t first = facts_.size();
  bool all = true;
  for (int64_t k = 0; k < cases; ++k) {
    const size_t start = facts_.size();
    all &= prove(k);
    for (size_t f = start; k > 0 && f < facts_.size(); ++f) {
      ProofFact& whole = facts_[first + f - start];
      if (whole.holds() && !facts_[f].holds()) whole = facts_[f];
    }
    if (k > 0) facts_.resize(start);
  }
  return all;
}

}  // namespace kvlift
