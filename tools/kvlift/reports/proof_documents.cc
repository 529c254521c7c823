#include "kvlift/reports/proof_documents.h"

#include <algorithm>

#include "base/escape.h"
#include "contract/manifest.h"
#include "contract/manifest_json.h"
#include "fmt/format.h"
#include "report/text/table.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

// The facts of one kind. Kinds are in the order of their first fact.
struct Kind {
  std::string text;
  std::vector<const ProofFact*> facts;
};

std::vector<Kind> KindsOf(const Proof& proof) {
  std::vector<Kind> kinds;
  for (const ProofFact& fact : proof.facts) {
    auto it = std::find_if(kinds.begin(), kinds.end(),
                           [&](const Kind& kind) { return kind.text == fact.text; });
    if (it == kinds.end()) it = kinds.insert(kinds.end(), Kind{fact.text, {}});
    it->facts.push_back(&fact);
  }
  return kinds;
}

bool IsForFrozenSizes(const Proof& proof) {
  const auto& all = proof.assumptions.all();
  return std::any_of(all.begin(), all.end(),
                     [](const Assumption& a) { return a.kind == AssumptionKind::kFrozenSize; });
}

}  // namespace

ordered_json ProofDocument(const Proof& proof) {
  ordered_json json = {{"not_tried", nullptr}, {"facts", ordered_json::array()}};
  if (!proof.not_tried.empty()) json["not_tried"] = proof.not_tried;
  for (const ProofFact& fact : proof.facts) {
    ordered_json one = {{"about", fact.about},           {"text", fact.text},
                        {"status", WordOf(fact.status)}, {"lemmas", fact.lemmas},
                        {"given", ToJson(fact.given)},   {"why_not", nullptr}};
    if (!fact.why_not.empty()) one["why_not"] = fact.why_not;
    json["facts"].push_back(std::move(one));
  }
  return json;
}

std::string ProofText(const Proof& proof, bool all, const Style& style) {
  if (!proof.not_tried.empty()) {
    return fmt::format("nothing is proved for all shapes: {}\n", EscapeTerminal(proof.not_tried));
  }
  std::vector<std::vector<std::string>> rows;
  std::string open;
  for (const Kind& kind : KindsOf(proof)) {
    int proved = 0, shown = 0;
    for (const ProofFact* fact : kind.facts) {
      proved += fact->holds() ? 1 : 0;
      if (fact->holds() || (!all && shown++ > 0)) continue;
      const char* kind_of_fact = fact->status == FactStatus::kRefuted ? "refuted" : "only tested";
      open += fmt::format("{}: {} {}: {}\n", kind_of_fact, EscapeTerminal(fact->about), fact->text,
                          EscapeTerminal(fact->why_not));
    }
    rows.push_back({kind.text, fmt::format("{} of {}", proved, kind.facts.size())});
  }
  return rows.empty()
             ? std::string()
             : FormatTable({IsForFrozenSizes(proof) ? "for the frozen sizes" : "for all shapes",
                            {"proved", Align::kRight}},
                           rows, style) +
                   open;
}

}  // namespace kvlift::cli
