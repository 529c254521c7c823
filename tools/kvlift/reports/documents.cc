#include "kvlift/reports/documents.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "contract/manifest_json.h"
#include "contract/words.h"
#include "kvlift/reports/cache_memory.h"
#include "kvlift/reports/proof_documents.h"
#include "report/text/collapse.h"

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

ordered_json NumberOrNull(std::optional<int64_t> number) {
  return number ? ordered_json(*number) : ordered_json(nullptr);
}

ordered_json CacheJson(const CacheReport& c) {
  return {{"id", c.id},
          {"layer", c.layer},
          {"role", WordOf(c.role)},
          {"input", c.input},
          {"output", c.output},
          {"kind", WordOf(c.kind)},
          {"axis", c.axis},
          {"layout", c.layout},
          {"dtype", c.dtype},
          {"growing", c.growing},
          {"capacity", TextOrNull(c.capacity)},
          {"bytes_per_token", NumberOrNull(c.bytes_per_token)},
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

// Returns the evidence for a converted model; null if no model was made.
ordered_json EqualityJson(const ProvedConversion& converted) {
  if (converted.equality == ConversionVerdict::kNothing) return nullptr;
  ordered_json open = ordered_json::array();
  for (const ProofFact& fact : converted.proof.facts) {
    if (fact.holds()) continue;
    open.push_back({{"about", fact.about},
                    {"text", fact.text},
                    {"status", WordOf(fact.status)},
                    {"why_not", fact.why_not}});
  }
  return {{"shown", WordOf(converted.equality)},
          {"accepted", converted.accepted},
          {"reason", TextOrNull(converted.reason)},
          {"facts", converted.proof.facts.size()},
          {"not_tried", TextOrNull(converted.proof.not_tried)},
          {"open", std::move(open)},
          {"assumptions", ToJson(converted.proof.assumptions.all())}};
}

ordered_json Number(double v) { return std::isfinite(v) ? ordered_json(v) : ordered_json(nullptr); }

// Returns the conditions that are not checked, by subject, or by the kind of the assumption if they
// have no subject. Conditions that differ only in the number of a layer are one text.
ordered_json AssumedJson(const Assumptions& assumptions) {
  std::vector<std::pair<std::string, std::vector<std::string>>> texts;  // key, conditions
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const Assumption& a : assumptions.all()) {
    if (a.checked) continue;
    const std::string key = a.subject.empty() ? std::string(WordOf(a.kind)) : a.subject;
    const auto [it, added] = places.try_emplace({key, NamePattern(a.condition)}, texts.size());
    if (added) texts.emplace_back(key, std::vector<std::string>());
    texts[it->second].second.push_back(a.condition);
  }
  ordered_json json = ordered_json::object();
  for (const auto& [key, conditions] : texts) {
    const std::string before = json.contains(key) ? json[key].get<std::string>() + "; " : "";
    json[key] = before + MergedName(conditions, Numbers::kRanges);
  }
  return json;
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

ordered_json PlansJson(const std::vector<PlanResult>& plans) {
  ordered_json json = ordered_json::array();
  for (const PlanResult& p : plans) {
    json.push_back({{"name", p.name}, {"status", p.status}, {"steps", p.steps}, {"note", p.note}});
  }
  return json;
}

ordered_json OutputsJson(const std::vector<OutputResult>& outputs) {
  ordered_json json = ordered_json::array();
  for (const OutputResult& o : outputs) {
    json.push_back(
        {{"name", o.name},
         {"max_abs", Number(o.max_abs)},
         {"max_rel", Number(o.max_rel)},
         {"max_ulp", Number(o.max_ulp)},
         {"bound", Number(o.bound)},
         {"where", o.where},
         {"ratio", Number(o.ratio)},
         {"judged", {{"bitwise", o.bitwise}, {"bound", o.by_bound}, {"fixed", o.by_fixed_bound}}}});
  }
  return json;
}

ordered_json OracleJson(const OracleReport& r) {
  ordered_json sampled = ordered_json::array();
  for (const auto& [output, columns] : r.sampled) {
    sampled.push_back({{"output", output}, {"columns", columns.first}, {"of", columns.second}});
  }
  return {{"steps", r.steps},
          {"steps_seen", r.steps_seen},
          {"sampled", std::move(sampled)},
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
  json["memory"] = ordered_json::array();
  for (const CacheMemory& m : MemoryOfCaches(inspection)) {
    json["memory"].push_back(
        {{"tokens", m.tokens}, {"source_bytes", m.source}, {"converted_bytes", m.converted}});
  }
  json["near_misses"] = ordered_json::array();
  for (const Finding& f : inspection.near_misses) {
    json["near_misses"].push_back(
        {{"node", f.nodes.empty() ? "" : f.nodes[0]}, {"code", f.code}, {"text", f.text}});
  }
  return json;
}

ordered_json ConvertDocument(const ProvedConversion& converted,
                             const std::vector<std::string>& outputs, const ordered_json& verify) {
  const Conversion& conversion = converted.conversion;
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
    json["preconditions"].push_back(
        {{"code", p.code}, {"text", p.text}, {"status", WordOf(p.status)}});
  }
  if (conversion.model && conversion.manifest.quantization) {
    json["quantization"] = ToJson(conversion.manifest)["quantization"];
  }
  json["verify"] = verify;
  json["equality"] = EqualityJson(converted);
  if (converted.stopped_after) json["stopped_after"] = WordOf(*converted.stopped_after);
  if (!converted.dumps.empty()) json["dumps"] = converted.dumps;
  return json;
}

ordered_json FrozenDocument(const ProvedConversion& converted, const std::string& model,
                            const ordered_json& verify) {
  const Manifest& manifest = converted.conversion.manifest;
  ordered_json json = ToJson(manifest)["frozen"];
  json["model"] = TextOrNull(model);
  json["nodes"] = nullptr;
  if (converted.conversion.model) {
    json["nodes"] = converted.conversion.model->graph().node_size();
  }
  json["verify"] = verify;
  json["equality"] = EqualityJson(converted);
  return json;
}

std::string_view StatusName(ConvertStatus status) {
  switch (status) {
    case ConvertStatus::kConverted:
      return "converted";
    case ConvertStatus::kPartial:
      return "partial";
    case ConvertStatus::kRefused:
      return "refused";
    case ConvertStatus::kStopped:
      return "stopped";
    default:
      return "nothing";
  }
}

std::string_view VerdictName(VerdictKind verdict) {
  switch (verdict) {
    case VerdictKind::kEqual:
      return "equal";
    case VerdictKind::kEqualWithinQuantization:
      return "equal within quantisation";
    case VerdictKind::kEqualAsTested:
      return "equal as tested";
    case VerdictKind::kDifferent:
      return "different";
    default:
      return "inconclusive";
  }
}

ordered_json VerifyDocument(const VerifyReport& r) {
  ordered_json json = {{"schema", "kvlift/verify/2"}, {"verdict", VerdictName(r.verdict)}};
  json["reason"] = r.reason;
  json["plans"] = PlansJson(r.plans);
  json["outputs"] = OutputsJson(r.outputs);
  json["layers"] = ordered_json::array();
  for (const LayerVerdict& layer : r.layers) {
    json["layers"].push_back(
        {{"name", layer.name}, {"others", layer.others}, {"run", !layer.same_nodes}});
  }
  json["weights"] = r.random_weights ? fmt::format("random:{}", *r.random_weights) : "stored";
  json["whole_because"] = TextOrNull(r.whole_because);
  json["half_types"] = nullptr;
  if (r.half_types.computed_in_float32) {
    json["half_types"] = {
        {"plans", PlansJson(r.half_types.plans)},
        {"outputs", OutputsJson(r.half_types.outputs)},
        {"not_run", TextOrNull(r.half_types.not_run)},
        {"decisions", {{"made", r.half_types.decisions}, {"unlike", r.half_types.unlike}}}};
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
                            {"not_run", TextOrNull(c.not_run)},
                            {"equivalent", TextOrNull(c.equivalent)}};
    if (c.step) control["step"] = *c.step;
    json["controls"].push_back(std::move(control));
  }
  json["aliases"] = ordered_json::array();
  for (const AliasCertificate& a : r.aliases) {
    json["aliases"].push_back({{"cache", a.cache},
                               {"claim", WordOf(a.claim)},
                               {"safe", a.safe},
                               {"writer", TextOrNull(a.writer)},
                               {"readers", a.readers},
                               {"order", a.order},
                               {"reason", a.reason}});
  }
  json["coverage"] = ordered_json::object();
  for (const auto& [key, value] : r.coverage) json["coverage"][key] = value;
  json["assumptions"] = ToJson(r.assumptions.all());
  json["assumed"] = AssumedJson(r.assumptions);
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
    json["counterexample"]["values"] = nlohmann::ordered_json::array();
    for (const ComparedValue& value : c.values) {
      json["counterexample"]["values"].push_back({{"name", value.name},
                                                  {"before", value.before_node},
                                                  {"after", value.after_node},
                                                  {"distance", Number(value.distance)},
                                                  {"differs", value.differs}});
    }
  }
  return json;
}

nlohmann::ordered_json MemoryDocument(const exec::MemoryUse& memory) {
  return {{"peak_bytes", memory.total()},   {"arena_bytes", memory.arena},
          {"index_bytes", memory.indices},  {"late_bytes", memory.slots},
          {"output_bytes", memory.outputs}, {"cache_bytes", memory.caches}};
}

}  // namespace kvlift::cli
