#include "documents.h"

#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "fmt/format.h"
#include "proof_documents.h"
#include "report/table.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

ordered_json ReasonJson(const std::optional<Finding>& reason) {
  if (!reason) return nullptr;
  return {{"code", reason->code}, {"text", reason->text}, {"nodes", reason->nodes}};
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json CacheJson(const CacheReport& c) {
  return {{"id", c.id},
          {"layer", c.layer},
          {"role", c.role},
          {"input", c.input},
          {"output", c.output},
          {"kind", c.kind},
          {"axis", c.axis},
          {"layout", c.layout},
          {"dtype", c.dtype},
          {"growing", c.growing},
          {"capacity", TextOrNull(c.capacity)},
          {"update", TextOrNull(c.update)},
          {"write_start", TextOrNull(c.write_start)},
          {"convertible", !c.reason.has_value()},
          {"reason", ReasonJson(c.reason)}};
}

ordered_json AttentionJson(const AttentionReport& a) {
  return {{"id", a.id},
          {"form", a.form},
          {"q_heads", a.q_heads},
          {"kv_heads", a.kv_heads},
          {"head_dim", a.head_dim},
          {"v_head_dim", a.v_head_dim},
          {"scale", a.scale},
          {"softcap", a.softcap},
          {"mask", a.mask},
          {"convertible", !a.reason.has_value()},
          {"reason", ReasonJson(a.reason)},
          {"nodes", a.nodes}};
}

std::string_view StatusName(ConvertStatus status) {
  switch (status) {
    case ConvertStatus::kConverted:
      return "converted";
    case ConvertStatus::kPartial:
      return "partial";
    case ConvertStatus::kRefused:
      return "refused";
    default:
      return "nothing";
  }
}

ordered_json Number(double v) { return std::isfinite(v) ? ordered_json(v) : ordered_json(nullptr); }

std::string Line(const Finding& finding) {
  std::string text = fmt::format("{}  {}", finding.code, EscapeTerminal(finding.text));
  if (!finding.nodes.empty()) {
    text += fmt::format("\n       at {}", EscapeTerminal(finding.nodes[0]));
    if (finding.nodes.size() > 1) text += fmt::format(" and {} more", finding.nodes.size() - 1);
  }
  return text + "\n";
}

// Each reason once.
std::string Reasons(const Inspection& inspection) {
  std::vector<Finding> seen;
  const auto add = [&seen](const std::optional<Finding>& reason) {
    if (reason && std::find(seen.begin(), seen.end(), *reason) == seen.end()) {
      seen.push_back(*reason);
    }
  };
  for (const CacheReport& c : inspection.caches) add(c.reason);
  for (const AttentionReport& a : inspection.attention) add(a.reason);
  std::string text;
  constexpr size_t kMaxReasons = 12;
  for (size_t k = 0; k < seen.size() && k < kMaxReasons; ++k) text += Line(seen[k]);
  if (seen.size() > kMaxReasons) {
    text += fmt::format("and {} more\n", seen.size() - kMaxReasons);
  }
  return text;
}

ordered_json RoundingJson(const RoundingReport& r) {
  ordered_json json = {{"step", TextOrNull(r.step)}, {"values", r.values},
                       {"unchanged", r.unchanged},   {"compared", r.compared},
                       {"bitwise", r.bitwise},       {"first_difference", nullptr}};
  if (!r.first.empty()) {
    json["first_difference"] = {{"node", r.first}, {"operator", r.first_operator}};
  }
  return json;
}

ordered_json OracleJson(const OracleReport& r) {
  return {{"steps", r.steps},
          {"steps_seen", r.steps_seen},
          {"without_meaning", r.without_meaning},
          {"doubtful", r.doubtful},
          {"worst_ratio", Number(r.worst_ratio)},
          {"disagreements", r.disagreements},
          {"disagreement", TextOrNull(r.disagreement.value_or(""))}};
}

}  // namespace

ordered_json InspectDocument(const Model& model, const Inspection& inspection) {
  ordered_json json = {{"schema", "kvlift/inspect/1"}};
  json["model"] = {{"path", model.path},
                   {"nodes", inspection.nodes},
                   {"opset", inspection.opset},
                   {"external_bytes", model.external_bytes}};
  json["caches"] = ordered_json::array();
  for (const CacheReport& c : inspection.caches) json["caches"].push_back(CacheJson(c));
  json["attention"] = ordered_json::array();
  for (const AttentionReport& a : inspection.attention) {
    json["attention"].push_back(AttentionJson(a));
  }
  json["near_misses"] = ordered_json::array();
  for (const Finding& f : inspection.near_misses) {
    json["near_misses"].push_back(
        {{"node", f.nodes.empty() ? "" : f.nodes[0]}, {"code", f.code}, {"text", f.text}});
  }
  return json;
}

ordered_json ConvertDocument(const Conversion& conversion, const std::vector<std::string>& outputs,
                             const ordered_json& verify) {
  ordered_json json = {{"schema", "kvlift/convert/1"}, {"status", StatusName(conversion.status)}};
  json["caches"] = ordered_json::array();
  for (const CacheReport& c : conversion.inspection.caches) {
    json["caches"].push_back(CacheJson(c));
    json["caches"].back()["converted"] = c.converted;
  }
  json["attention"] = ordered_json::array();
  for (const AttentionReport& a : conversion.inspection.attention) {
    json["attention"].push_back(AttentionJson(a));
    json["attention"].back()["converted"] = a.converted;
  }
  json["outputs"] = outputs;
  json["preconditions"] = ordered_json::array();
  for (const Precondition& p : conversion.manifest.preconditions) {
    json["preconditions"].push_back({{"code", p.code}, {"text", p.text}, {"status", p.status}});
  }
  json["verify"] = verify;
  return json;
}

std::string_view VerdictName(VerdictKind verdict) {
  switch (verdict) {
    case VerdictKind::kEqual:
      return "equal";
    case VerdictKind::kDifferent:
      return "different";
    default:
      return "inconclusive";
  }
}

ordered_json VerifyDocument(const VerifyReport& r) {
  ordered_json json = {{"schema", "kvlift/verify/1"}, {"verdict", VerdictName(r.verdict)}};
  json["reason"] = r.reason;
  json["plans"] = ordered_json::array();
  for (const PlanResult& p : r.plans) {
    json["plans"].push_back(
        {{"name", p.name}, {"status", p.status}, {"steps", p.steps}, {"note", p.note}});
  }
  json["outputs"] = ordered_json::array();
  for (const OutputResult& o : r.outputs) {
    json["outputs"].push_back(
        {{"name", o.name},
         {"max_abs", Number(o.max_abs)},
         {"max_rel", Number(o.max_rel)},
         {"max_ulp", Number(o.max_ulp)},
         {"bound", Number(o.bound)},
         {"where", o.where},
         {"ratio", Number(o.ratio)},
         {"judged", {{"bitwise", o.bitwise}, {"bound", o.by_bound}, {"fixed", o.by_fixed_bound}}}});
  }
  json["oracle"] = OracleJson(r.oracle);
  json["rounding"] = RoundingJson(r.rounding);
  json["proof"] = ProofDocument(r.proof);
  json["controls"] = ordered_json::array();
  for (const ControlResult& c : r.controls) {
    ordered_json control = {{"mutant", c.mutant},
                            {"detected_by", TextOrNull(c.detected_by)},
                            {"group", c.group},
                            {"plan", TextOrNull(c.plan)},
                            {"step", nullptr},
                            {"output", TextOrNull(c.output)},
                            {"equivalent", TextOrNull(c.equivalent)}};
    if (c.step) control["step"] = *c.step;
    json["controls"].push_back(std::move(control));
  }
  json["aliases"] = ordered_json::array();
  for (const AliasCertificate& a : r.aliases) {
    json["aliases"].push_back({{"cache", a.cache},
                               {"claim", a.claim},
                               {"safe", a.safe},
                               {"writer", TextOrNull(a.writer)},
                               {"readers", a.readers},
                               {"order", a.order},
                               {"reason", a.reason}});
  }
  json["coverage"] = ordered_json::object();
  for (const auto& [key, value] : r.coverage) json["coverage"][key] = value;
  json["counterexample"] = nullptr;
  if (r.counterexample) {
    const Counterexample& c = *r.counterexample;
    json["counterexample"] = {{"plan", c.plan},
                              {"step", c.step},
                              {"output", c.output},
                              {"element", c.element},
                              {"before", Number(c.before)},
                              {"after", Number(c.after)},
                              {"text", c.text}};
    if (!c.smallest.empty()) {
      json["counterexample"]["smallest"] = {{"past", c.past},
                                            {"new_tokens", c.new_tokens},
                                            {"capacity", c.capacity},
                                            {"output", c.smallest_output},
                                            {"text", c.smallest}};
    }
    json["counterexample"]["nodes"] = {{"before", TextOrNull(c.before_node)},
                                       {"after", TextOrNull(c.after_node)}};
  }
  return json;
}

std::string InspectText(const std::string& path, const Inspection& inspection, bool details,
                        bool near_misses) {
  std::vector<std::vector<std::string>> rows;
  for (const CacheReport& c : inspection.caches) {
    rows.push_back(
        {c.id, c.kind, c.layout, c.dtype, c.input, c.output, c.reason ? c.reason->code : "yes"});
    if (details && !c.update.empty()) rows.back().back() += "  " + c.update;
  }
  std::string text;
  if (!rows.empty()) {
    text +=
        FormatTable({"cache", "kind", "layout", "type", "past", "present", "convertible"}, rows);
  }
  rows.clear();
  for (const AttentionReport& a : inspection.attention) {
    rows.push_back({a.id, a.form, fmt::format("{}/{}", a.q_heads, a.kv_heads),
                    fmt::format("{}", a.head_dim), fmt::format("{:.6g}", a.scale), a.mask,
                    a.reason ? a.reason->code : "yes"});
    if (details && !a.nodes.empty()) rows.back().back() += "  " + a.nodes[0];
  }
  if (!rows.empty()) {
    text += "\n";
    text +=
        FormatTable({"attention", "form", "heads", "size", "scale", "mask", "convertible"}, rows);
  }
  if (const std::string reasons = Reasons(inspection); !reasons.empty()) text += "\n" + reasons;
  if (near_misses || inspection.caches.empty()) {
    for (const Finding& f : inspection.near_misses) text += Line(f);
  }
  const auto convertible = std::count_if(inspection.caches.begin(), inspection.caches.end(),
                                         [](const CacheReport& c) { return !c.reason; });
  text += fmt::format("{}: {} nodes, opset {}, {} caches, {} convertible\n", EscapeTerminal(path),
                      inspection.nodes, inspection.opset, inspection.caches.size(), convertible);
  return text;
}

std::string ConvertText(const Conversion& conversion, const std::vector<std::string>& outputs) {
  const Inspection& inspection = conversion.inspection;
  std::string text;
  if (conversion.status != ConvertStatus::kConverted) text += Reasons(inspection);
  if (!conversion.model) {
    for (const Finding& f : inspection.near_misses) text += Line(f);
    text += conversion.status == ConvertStatus::kNothing
                ? "nothing: no cache found, nothing written\n"
                : fmt::format("refused: {} caches, nothing written\n", inspection.caches.size());
    return text;
  }
  for (const Precondition& p : conversion.manifest.preconditions) {
    text += fmt::format("{}  {} ({})\n", p.code, EscapeTerminal(p.text), p.status);
  }
  if (conversion.manifest.uniform) {
    text += fmt::format("one length for the whole batch: {}\n",
                        EscapeTerminal(conversion.manifest.uniform_reason));
  }
  for (const std::string& file : outputs) text += fmt::format("wrote {}\n", EscapeTerminal(file));
  const auto converted = [](const auto& report) { return report.converted; };
  text += fmt::format(
      "{}: {} of {} caches, {} of {} attentions, {} -> {} nodes\n", StatusName(conversion.status),
      std::count_if(inspection.caches.begin(), inspection.caches.end(), converted),
      inspection.caches.size(),
      std::count_if(inspection.attention.begin(), inspection.attention.end(), converted),
      inspection.attention.size(), inspection.nodes, conversion.model->graph().node_size());
  return text;
}

nlohmann::ordered_json MemoryDocument(const exec::MemoryUse& memory) {
  return {{"peak_bytes", memory.total()},   {"arena_bytes", memory.arena},
          {"index_bytes", memory.indices},  {"late_bytes", memory.slots},
          {"output_bytes", memory.outputs}, {"cache_bytes", memory.caches}};
}

namespace {

// What detected each mutant; without `verbose` those only that nothing did.
std::string ControlText(const std::vector<ControlResult>& controls, bool verbose) {
  std::vector<std::vector<std::string>> rows;
  for (const ControlResult& c : controls) {
    const bool missed = c.detected_by.empty() && c.equivalent.empty();
    if (!verbose && !missed) continue;
    rows.push_back({c.group, c.mutant,
                    missed                   ? "NOT DETECTED"
                    : !c.detected_by.empty() ? c.detected_by
                                             : "the same: " + c.equivalent,
                    c.output});
  }
  return rows.empty() ? "" : "\n" + FormatTable({"group", "mutant", "detected by", "output"}, rows);
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

// Whether each cache may be updated in place, and why.
std::string AliasText(const std::vector<AliasCertificate>& aliases) {
  std::vector<std::vector<std::string>> rows;
  for (const AliasCertificate& a : aliases) {
    rows.push_back({a.cache, a.claim, a.safe ? "in place" : "copy",
                    !a.safe           ? a.reason
                    : a.order.empty() ? std::string("nobody else reads the past")
                                      : fmt::format("{}", fmt::join(a.order, ", "))});
  }
  return rows.empty() ? "" : "\n" + FormatTable({"cache", "claim", "update", "why"}, rows);
}

}  // namespace

namespace {

// How outputs were judged, and where differences begin.
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
      "oracle: {} of {} steps; comparisons: {} bitwise, {} within computed bounds (largest "
      "difference / bound {:.2g}), {} by the fixed bound\n",
      r.oracle.steps, r.oracle.steps_seen, bitwise, bounded, ratio, fixed);
  for (const std::string& what : r.oracle.without_meaning) {
    text += fmt::format("oracle: no meaning for {}\n", EscapeTerminal(what));
  }
  if (!r.rounding.first.empty()) {
    text += fmt::format("differences begin at node {} ({})\n", EscapeTerminal(r.rounding.first),
                        EscapeTerminal(r.rounding.first_operator));
  }
  return text;
}

}  // namespace

std::string VerifyText(const VerifyReport& r, bool verbose) {
  std::vector<std::vector<std::string>> rows;
  for (const PlanResult& p : r.plans) {
    rows.push_back({p.name, p.status, fmt::format("{}", p.steps), p.note});
  }
  std::string text;
  if (!rows.empty()) text += FormatTable({"plan", "result", "steps", "note"}, rows);
  rows.clear();
  for (const OutputResult& o : r.outputs) {
    rows.push_back(
        {o.name, fmt::format("{:.2e}", o.max_abs), fmt::format("{:.2e}", o.bound), o.where});
  }
  if (!rows.empty()) {
    text += "\n" + FormatTable({"output", "largest difference", "bound", "where"}, rows);
  }
  text += OracleText(r);
  if (const std::string proved = ProofText(r.proof, verbose); !proved.empty()) {
    text += "\n" + proved;
  }
  if (verbose) text += AliasText(r.aliases);
  for (const auto& [what, reached] : r.coverage) {
    if (verbose) text += fmt::format("coverage: {}: {}\n", what, EscapeTerminal(reached));
  }
  text += ControlText(r.controls, verbose);
  if (r.counterexample) text += CounterexampleText(*r.counterexample);
  if (!r.reason.empty()) text += EscapeTerminal(r.reason) + "\n";
  const auto count = [&](const auto& which) {
    return std::count_if(r.controls.begin(), r.controls.end(), which);
  };
  const auto detected = count([](const ControlResult& c) { return !c.detected_by.empty(); });
  const auto same =
      count([](const ControlResult& c) { return c.detected_by.empty() && !c.equivalent.empty(); });
  text += fmt::format("verdict: {} ({} plans, {} of {} mutants detected{})\n",
                      VerdictName(r.verdict), r.plans.size(), detected, r.controls.size(),
                      same > 0 ? fmt::format(", {} equivalent", same) : std::string());
  return text;
}

}  // namespace kvlift::cli
