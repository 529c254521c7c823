// Writes the text of a verdict: VerifyText of texts.h.
#include <algorithm>
#include <map>

#include "absl/strings/str_replace.h"
#include "base/escape.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/proof_documents.h"
#include "kvlift/texts.h"
#include "report/text/collapse.h"
#include "report/text/table.h"

namespace kvlift::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string PlansText(const std::vector<PlanResult>& plans, const Style& style) {
  Rows rows;
  for (const PlanResult& p : plans) {
    rows.push_back({p.name, p.status, fmt::format("{}", p.steps), p.note});
  }
  if (rows.empty()) return {};
  return FormatTable({"plan", "result", {"steps", Align::kRight}, "note"}, rows, style, ToneOfCell);
}

// Outputs whose names differ only in numbers share a line, which shows the worst of them.
std::string OutputsText(const std::vector<OutputResult>& outputs, const Style& style) {
  std::map<std::string, size_t> places;
  std::vector<std::vector<const OutputResult*>> groups;
  for (const OutputResult& o : outputs) {
    const auto [it, added] = places.try_emplace(NamePattern(o.name), groups.size());
    if (added) groups.emplace_back();
    groups[it->second].push_back(&o);
  }
  Rows rows;
  for (const auto& group : groups) {
    const OutputResult& worst =
        **std::max_element(group.begin(), group.end(), [](const auto* a, const auto* b) {
          return a->ratio != b->ratio ? a->ratio < b->ratio : a->max_abs < b->max_abs;
        });
    std::vector<std::string> names;
    for (const OutputResult* o : group) names.push_back(o->name);
    const std::string where =
        group.size() == 1 || worst.where.empty() ? worst.where : worst.name + ": " + worst.where;
    rows.push_back({MergedName(names, Numbers::kStar), fmt::format("{:.2e}", worst.max_abs),
                    fmt::format("{:.2e}", worst.bound), where});
  }
  if (rows.empty()) return {};
  return "\n" +
         FormatTable(
             {"output", {"largest difference", Align::kRight}, {"bound", Align::kRight}, "where"},
             rows, style);
}

// Shows what detected each mutant; without `verbose` only the mutants that nothing detected.
std::string ControlText(const std::vector<ControlResult>& controls, bool verbose,
                        const Style& style) {
  Rows rows;
  for (const ControlResult& c : controls) {
    if (!verbose && !c.missed()) continue;
    rows.push_back({c.group, c.mutant,
                    c.missed()               ? "NOT DETECTED"
                    : !c.detected_by.empty() ? c.detected_by
                    : !c.not_run.empty()     ? "does not run: " + c.not_run
                                             : "excused: " + c.equivalent,
                    c.output});
  }
  if (rows.empty()) return {};
  return "\n" + FormatTable({"group", "mutant", "detected by", "output"}, rows, style, ToneOfCell);
}

std::string CounterexampleText(const Counterexample& c) {
  std::string text = EscapeTerminal(c.text) + "\n";
  if (!c.smallest.empty()) {
    text +=
        fmt::format("smallest step: past {}, {} new tokens, capacity {}: {}\n",
                    fmt::join(c.past, ", "), c.new_tokens, c.capacity, EscapeTerminal(c.smallest));
  }
  if (!c.after_node.empty()) {
    text += fmt::format("first nodes that differ: {} before, {} after\n",
                        EscapeTerminal(c.before_node), EscapeTerminal(c.after_node));
  }
  return text;
}

// Shows the values around the first one that differs: the last that is the same, and those behind.
std::string ValuesText(const std::vector<ComparedValue>& values, const Style& style) {
  constexpr std::ptrdiff_t kShown = 10;
  auto first = std::find_if(values.begin(), values.end(),
                            [](const ComparedValue& value) { return value.differs; });
  if (first == values.end()) return {};
  if (first != values.begin()) --first;
  const auto end = values.end() - first > kShown ? first + kShown : values.end();
  Rows rows;
  for (auto value = first; value != end; ++value) {
    const bool alike = value->before_node == value->after_node;
    rows.push_back({value->name, value->before_node, alike ? "the same" : value->after_node,
                    fmt::format("{:.2e}", value->distance), value->differs ? "different" : "same"});
  }
  return "\n" + FormatTable({"value", "before", "after", "largest difference", ""}, rows, style,
                            ToneOfCell);
}

// Shows whether each cache may be updated in place, and why.
std::string AliasText(const std::vector<AliasCertificate>& aliases, const Style& style) {
  Rows rows;
  for (const AliasCertificate& a : aliases) {
    rows.push_back({a.cache, std::string(WordOf(a.claim)), a.safe ? "in place" : "copy",
                    !a.safe           ? a.reason
                    : a.order.empty() ? std::string("nobody else reads the past")
                                      : fmt::format("{}", fmt::join(a.order, ", "))});
  }
  if (rows.empty()) return {};
  return "\n" + FormatTable({"cache", "claim", "update", "why"},
                            CollapseRows(std::move(rows),
                                         {{0, Numbers::kBareRanges}, {3, Numbers::kRanges}}),
                            style, ToneOfCell);
}

// Shows how outputs were judged, and where differences begin.
std::string OracleText(const VerifyReport& r) {
  if (r.oracle.steps_seen == 0) return {};
  int bitwise = 0, bounded = 0, fixed = 0;
  double ratio = 0;
  for (const OutputResult& o : r.outputs) {
    bitwise += o.bitwise;
    bounded += o.by_bound;
    fixed += o.by_fixed_bound;
    ratio = std::max(ratio, o.ratio);
  }
  std::string text = fmt::format(
      "oracle: {} of {} steps; comparisons: {} bitwise, {} judged by computed bounds\n"
      "        (largest difference / bound {:.2g}), {} by the fixed bound\n",
      r.oracle.steps, r.oracle.steps_seen, bitwise, bounded, ratio, fixed);
  for (const std::string& what : r.oracle.without_meaning) {
    text += fmt::format("oracle: no meaning for {}\n", EscapeTerminal(what));
  }
  for (const auto& [output, columns] : r.oracle.sampled) {
    text += fmt::format("oracle: {} of {} columns of {}\n", columns.first, columns.second,
                        EscapeTerminal(output));
  }
  if (!r.rounding.first.empty()) {
    text += fmt::format("differences begin at node {} ({})\n", EscapeTerminal(r.rounding.first),
                        EscapeTerminal(r.rounding.first_operator));
  }
  return text;
}

// Shows which layers were run, and which other layers they stand for.
std::string LayersText(const VerifyReport& r, bool verbose) {
  std::string text;
  std::vector<std::string> unrun;
  for (const LayerVerdict& layer : r.layers) {
    if (layer.same_nodes) {
      unrun.push_back(layer.name);
    } else if (layer.others.empty()) {
      text += fmt::format("run: {}\n", layer.name);
    } else {
      text +=
          fmt::format("run: {}, for {} more that are the same but for their weights: {}\n",
                      layer.name, layer.others.size(), MergedName(layer.others, Numbers::kRanges));
    }
  }
  if (!unrun.empty()) {
    text += fmt::format("not run: {}: the same operators on the same weights in both models\n",
                        fmt::join(unrun, ", "));
  }
  if (verbose && !r.whole_because.empty()) {
    text += fmt::format("run whole: {}\n", EscapeTerminal(r.whole_because));
  }
  if (r.half_types.computed_in_float32) {
    int steps = 0;
    double ratio = 0;
    for (const PlanResult& plan : r.half_types.plans) steps += plan.steps;
    for (const OutputResult& o : r.half_types.outputs) {
      if (o.bound > 0) ratio = std::max(ratio, o.max_abs / o.bound);
    }
    const std::string& why = r.half_types.not_run;
    text += "half precision: computed in float32; ";
    text += steps > 0 ? fmt::format(
                            "in their own types both models agree in {} steps\n"
                            "                (largest difference / bound {:.2g})\n",
                            steps, ratio)
                      : fmt::format("not run in their own types: {}\n",
                                    why.empty() ? "no plan runs" : EscapeTerminal(why));
    if (r.half_types.decisions > 0) {
      text += fmt::format(
          "                rounding turns {} of {} decisions (TopK, ArgMax, comparisons), in "
          "which\n"
          "                the conversion follows the source\n",
          r.half_types.unlike, r.half_types.decisions);
    }
  }
  return text.empty() ? text : text + "\n";
}

std::string VerdictLine(const VerifyReport& r, const Style& style) {
  const auto count = [&](const auto& which) {
    return std::count_if(r.controls.begin(), r.controls.end(), which);
  };
  const auto detected = count([](const ControlResult& c) { return !c.detected_by.empty(); });
  const auto unrun =
      count([](const ControlResult& c) { return c.detected_by.empty() && !c.not_run.empty(); });
  const auto excused = count([](const ControlResult& c) {
    return c.detected_by.empty() && c.not_run.empty() && !c.equivalent.empty();
  });
  const auto other = [](int64_t number, const char* what) {
    return number > 0 ? fmt::format(", {} {}", number, what) : std::string();
  };
  const Tone tone = Accepts(r.verdict, Accept::kProved)    ? Tone::kGood
                    : r.verdict == VerdictKind::kDifferent ? Tone::kBad
                                                           : Tone::kWarning;
  const char* drawn =
      r.random_weights && r.verdict != VerdictKind::kInconclusive ? " for drawn weights" : "";
  return fmt::format("verdict: {}{} ({} plans, {} of {} mutants detected{}{})\n",
                     style.Paint(tone, VerdictName(r.verdict)), drawn, r.plans.size(), detected,
                     r.controls.size(), other(excused, "excused"), other(unrun, "do not run"));
}

// Returns what entries that are printed on one line have in common. They may be about different
// layers, but scores of different sizes are different conditions.
std::string PatternOf(const Assumption& entry) {
  if (entry.kind != AssumptionKind::kScoreRange) return NamePattern(entry.condition);
  return absl::StrReplaceAll(entry.condition, {{entry.subject, NamePattern(entry.subject)}});
}

}  // namespace

std::string LedgerText(const Assumptions& ledger, bool verbose) {
  std::vector<std::pair<bool, std::vector<std::string>>> lines;  // whether checked, conditions
  std::map<std::pair<bool, std::string>, size_t> places;
  for (const Assumption& a : ledger.all()) {
    if (a.checked && !verbose) continue;
    const auto [it, added] = places.try_emplace({a.checked, PatternOf(a)}, lines.size());
    if (added) lines.emplace_back(a.checked, std::vector<std::string>());
    lines[it->second].second.push_back(a.condition);
  }
  std::string text;
  for (const auto& [checked, conditions] : lines) {
    text += fmt::format("{}: {}\n", checked ? "checked" : "assumed",
                        EscapeTerminal(MergedName(conditions, Numbers::kRanges)));
  }
  return text;
}

std::string VerifyText(const VerifyReport& r, bool verbose, const Style& style) {
  std::string text = LayersText(r, verbose) + PlansText(r.plans, style) +
                     OutputsText(r.outputs, style) + OracleText(r);
  if (const std::string proved = ProofText(r.proof, verbose, style); !proved.empty()) {
    text += "\n" + proved;
  }
  if (verbose) text += AliasText(r.aliases, style);
  for (const auto& [what, reached] : r.coverage) {
    if (verbose) text += fmt::format("coverage: {}: {}\n", what, EscapeTerminal(reached));
  }
  text += LedgerText(r.assumptions, verbose);
  text += ControlText(r.controls, verbose, style);
  if (r.counterexample) {
    text += CounterexampleText(*r.counterexample) + ValuesText(r.counterexample->values, style);
  }
  if (!r.reason.empty()) text += EscapeTerminal(r.reason) + "\n";
  return text + VerdictLine(r, style);
}

}  // namespace kvlift::cli
