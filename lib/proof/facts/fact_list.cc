#include "proof/facts/fact_list.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

Proof FactList::Take(const std::string& steps) {
  for (ProofFact& fact : facts_) {
    const auto not_seen = not_seen_.find({fact.about, fact.text});
    if (!steps.empty()) fact.text = fmt::format("{}: {}", steps, fact.text);
    if (equality_.obligations() == nullptr || fact.holds()) continue;
    equality_.obligations()->Open(
        fact.about, fact.text, fact.why_not,
        not_seen == not_seen_.end() ? std::vector<std::string>() : not_seen->second);
  }
  Proof proof;
  proof.facts = std::move(facts_);
  proof.assumptions = twins_.assumptions();
  for (const ProofFact& fact : proof.facts) {
    for (const Assumption& given : fact.given) proof.assumptions.Add(given);
  }
  return proof;
}

void FactList::Add(const std::string& about, std::string text, const std::string& why_not) {
  AddGiven(about, std::move(text), {}, why_not);
}

Grounds FactList::GroundsFrom(size_t first) const {
  Grounds grounds;
  for (size_t k = first; k < facts_.size(); ++k) {
    for (const Assumption& given : facts_[k].given) grounds.given.Add(given);
    for (const std::string& lemma : facts_[k].lemmas) grounds.AddLemma(lemma);
  }
  return grounds;
}

void FactList::AddRefuted(const std::string& about, std::string text, std::string why_not) {
  twins_.TakeGrounds();
  facts_.push_back({about, std::move(text), FactStatus::kRefuted, {}, {}, std::move(why_not)});
}

bool FactList::AddEqual(const std::string& about, std::string text, Expr mine, Expr theirs,
                        Expr known, const Facts& facts) {
  std::vector<std::string> given;
  mine = equality_.AsTruth(mine);
  theirs = equality_.AsTruth(theirs);
  known = equality_.AsTruth(known);
  bool equal = equality_.Equal(mine, theirs, known, facts);
  for (const Counted inputs : {Counted::kRequired, Counted::kAll}) {
    if (equal || mine == nullptr || theirs == nullptr) break;
    std::vector<std::string> vectors;
    const Expr x = CountedUp(inputs, mine, facts, &vectors);
    const Expr y = CountedUp(inputs, theirs, facts, &vectors);
    const Expr where = CountedUp(inputs, known, facts, &vectors);
    equal = !vectors.empty() && equality_.Equal(x, y, where, facts);
    if (equal) given = std::move(vectors);
  }
  std::string why_not;
  if (!equal) why_not = fmt::format("{} is not shown to equal {}", Text(mine), Text(theirs));
  return AddGiven(about, std::move(text), std::move(given), std::move(why_not));
}

bool FactList::AddNever(const std::string& about, std::string text, Expr condition,
                        const Facts& facts, const std::string& otherwise) {
  std::vector<std::string> vectors;
  Expr counted = nullptr;
  bool never = false;
  for (const Counted inputs : {Counted::kRequired, Counted::kAll}) {
    if (never) break;
    vectors.clear();
    counted = CountedUp(inputs, condition, facts, &vectors);
    never = counted != nullptr && counted->is_integer(0);
  }
  equality_.Record(never, never && !vectors.empty() ? counted : condition, equality_.False(),
                   nullptr, facts);
  if (!never) vectors.clear();
  return AddGiven(about, std::move(text), std::move(vectors), never ? "" : otherwise);
}

Expr FactList::CountedUp(Counted inputs, Expr e, const Facts& facts,
                         std::vector<std::string>* vectors) {
  const auto counts_up = [&](const std::string& input) {
    return inputs == Counted::kAll || CountsUp(input);
  };
  return counting_.CountedUp(e, counts_up, facts, vectors);
}

bool FactList::AddGiven(const std::string& about, std::string text, std::vector<std::string> given,
                        std::string why_not) {
  Grounds grounds = standing_;
  grounds.Add(twins_.TakeGrounds());
  for (const std::string& name : given) {
    if (!CountsUp(name)) {
      why_not = fmt::format("it holds if {} counts up, and no precondition says so", name);
    }
    grounds.given.Add({AssumptionKind::kPositions, name,
                       fmt::format("{} counts up from its first element", name),
                       AssumptionSource::kManifest});
  }
  if (why_not.empty() && grounds.doubted) why_not = "it rests on a value that is not proved";
  ProofFact fact{about, std::move(text), FactStatus::kOpen, grounds.lemmas, {}, std::move(why_not)};
  const auto all = grounds.given.all();
  fact.given.assign(all.begin(), all.end());
  if (fact.why_not.empty()) {
    fact.status = fact.given.empty() ? FactStatus::kProved : FactStatus::kGiven;
  }
  if (equality_.obligations() != nullptr) {
    not_seen_[{fact.about, fact.text}] = equality_.obligations()->TakeNotSeen();
  }
  facts_.push_back(std::move(fact));
  return facts_.back().holds();
}

bool FactList::CountsUp(const std::string& input) const {
  return std::any_of(
             relation_.preconditions.begin(), relation_.preconditions.end(),
             [&](const Precondition& p) { return p.code == "KV307" && p.subject == input; }) ||
         std::any_of(relation_.dropped.begin(), relation_.dropped.end(),
                     [&](const DroppedInput& d) {
                       return d.name == input && IsGiven(d, DroppedValue::kPositions);
                     });
}

bool FactList::ForEach(int64_t cases, const std::function<bool(int64_t)>& prove) {
  const size_t first = facts_.size();
  bool all = true;
  for (int64_t k = 0; k < cases; ++k) {
    const size_t start = facts_.size();
    all &= prove(k);
    for (size_t f = start; k > 0 && f < facts_.size(); ++f) {
      ProofFact& whole = facts_[first + f - start];
      if (whole.holds() && !facts_[f].holds()) {
        whole = facts_[f];
      } else if (whole.holds()) {
        for (const Assumption& given : facts_[f].given) {
          if (std::find(whole.given.begin(), whole.given.end(), given) == whole.given.end()) {
            whole.given.push_back(given);
          }
        }
        if (!whole.given.empty()) whole.status = FactStatus::kGiven;
      }
    }
    if (k > 0) facts_.resize(start);
  }
  return all;
}

}  // namespace kvlift
