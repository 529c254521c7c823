#include "kvlift/reports/report_tables.h"

#include <algorithm>
#include <set>

#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kvlift/inputs/model_diff.h"
#include "report/text/collapse.h"

namespace kvlift::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Sets the rows with equal layers collapsed, and all rows if that makes a difference.
void SetRows(Rows rows, const std::vector<NameColumn>& names, ReportTable* table) {
  table->rows = CollapseRows(rows, names);
  if (table->rows.size() < rows.size()) table->all_rows = std::move(rows);
}

std::string TypeOf(const Graph* graph, const std::string& name, bool input) {
  if (graph == nullptr) return {};
  for (const ValueId v : input ? graph->graph_inputs() : graph->graph_outputs()) {
    if (graph->name(v) == name) return TypeText(graph->type(v));
  }
  return {};
}

std::string MeaningOf(const ManifestInput& input) {
  if (const ControlInput* control = AsControl(input)) {
    if (control->dtype == "bool") return "new: the new tokens that each new token sees";
    return control->value == ControlValue::kTotalLength ? "new: all tokens, per sequence"
                                                        : "new: past tokens, per sequence";
  }
  if (const CacheInput* cache = AsCache(input)) return "cache " + cache->id;
  if (const PaddedInput* padded = AsPadded(input)) {
    return fmt::format("padded with {} to the capacity", padded->fill);
  }
  if (const auto* renamed = std::get_if<RenamedInput>(&input.as)) return "was " + renamed->source;
  return "the same";
}

template <typename Entries>
std::string Meaning(const Entries& entries, const std::string& name) {
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return entry.name == name; });
  if (it == entries.end()) return {};
  if constexpr (std::is_same_v<std::decay_t<decltype(*it)>, ManifestInput>) {
    return MeaningOf(*it);
  } else {
    const CacheOutput* cache = AsCache(*it);
    return cache != nullptr ? "cache " + cache->id : "the same";
  }
}

void AddValues(const Graph& before, const Graph* after, const Manifest* manifest, bool input,
               Rows* rows) {
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (!seen.insert(name).second) return;
    std::string meaning;
    if (manifest != nullptr) {
      meaning = input ? Meaning(manifest->inputs, name) : Meaning(manifest->outputs, name);
      for (const DroppedInput& d : manifest->dropped) {
        if (input && d.name == name) meaning = "gone; it had to be: " + GivenText(d);
      }
    }
    rows->push_back({input ? "input" : "output", name, TypeOf(&before, name, input),
                     TypeOf(after, name, input), meaning});
  };
  for (const Graph* graph : {&before, after}) {
    if (graph == nullptr) continue;
    for (const ValueId v : input ? graph->graph_inputs() : graph->graph_outputs()) {
      add(graph->name(v));
    }
  }
}

std::string AliasOf(const Manifest* manifest, const std::string& id) {
  if (manifest == nullptr) return {};
  for (const ManifestCache& c : manifest->caches) {
    if (c.id == id) return c.alias == CacheAlias::kSafe ? "in place" : "copy";
  }
  return {};
}

}  // namespace

ReportTable InterfaceTable(const Graph& before, const Graph* after, const Manifest* manifest) {
  ReportTable table{"interface-table", "", {"", "name", "before", "after", "meaning"}, {}};
  Rows rows;
  AddValues(before, after, manifest, true, &rows);
  AddValues(before, after, manifest, false, &rows);
  SetRows(std::move(rows), {{1, Numbers::kRanges}, {4, Numbers::kRanges}}, &table);
  return table;
}

ReportTable LayersTable(const Inspection& inspection, const Manifest* manifest) {
  ReportTable table{
      "layers-table",
      "",
      {"cache", "kind", "axes", "type", "heads", "size", "scale", "mask", "update", "converts"},
      {}};
  Rows rows;
  for (const CacheReport& c : inspection.caches) {
    rows.push_back({c.id, std::string(WordOf(c.kind)), c.layout, c.dtype, "", "", "", "",
                    AliasOf(manifest, c.id), c.reason ? c.reason->code : "yes"});
    for (const AttentionReport& a : inspection.attention) {
      if (a.id != fmt::format("{}", c.layer)) continue;
      rows.back()[4] = fmt::format("{}/{}", a.q_heads, a.kv_heads);
      rows.back()[5] = fmt::format("{}", a.head_dim);
      rows.back()[6] = fmt::format("{:.6g}", a.scale);
      rows.back()[7] = a.mask;
      if (a.reason && !c.reason) rows.back()[9] = a.reason->code;
    }
  }
  SetRows(std::move(rows), {{0, Numbers::kBareRanges}}, &table);
  return table;
}

ReportTable RefusedTable(const Inspection& inspection) {
  ReportTable table{"refused-table", "", {"code", "what", "where", "what to do"}, {}};
  Rows rows;
  const auto add = [&](const Finding& f) {
    const FindingInfo* info = FindFinding(f.code);
    std::vector<std::string> row = {f.code, f.text, f.nodes.empty() ? "" : f.nodes[0],
                                    info == nullptr ? "" : std::string(info->remedy)};
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(std::move(row));
  };
  for (const CacheReport& c : inspection.caches) {
    if (c.reason) add(*c.reason);
  }
  for (const AttentionReport& a : inspection.attention) {
    if (a.reason) add(*a.reason);
  }
  for (const Finding& f : inspection.near_misses) add(f);
  SetRows(std::move(rows), {{1, Numbers::kRanges}, {2, Numbers::kRanges}}, &table);
  return table;
}

ReportTable PreconditionsTable(const Manifest& manifest) {
  ReportTable table{
      "preconditions-table", "What the host must keep to.", {"code", "precondition", "status"}, {}};
  for (const Precondition& p : manifest.preconditions) {
    table.rows.push_back({p.code, p.text, std::string(WordOf(p.status))});
  }
  return table;
}

void AddVerification(const VerifyReport& verify, Report* report) {
  report->plans = {"plans-table",
                   "Both models were run side by side, caches carried from step to step.",
                   {"plan", "result", "steps", "note"},
                   {}};
  for (const PlanResult& p : verify.plans) {
    report->plans.rows.push_back({p.name, p.status, fmt::format("{}", p.steps), p.note});
  }
  report->outputs = {"outputs-table",
                     "The worst element of each output.",
                     {"output", "largest difference", "bound", "difference / bound", "where"},
                     {}};
  for (const OutputResult& o : verify.outputs) {
    report->outputs.rows.push_back({o.name, fmt::format("{:.2e}", o.max_abs),
                                    fmt::format("{:.2e}", o.bound), fmt::format("{:.2g}", o.ratio),
                                    o.where});
  }
  report->proof = {"proof-table",
                   "What holds for all shapes, read from the two graphs alone.",
                   {"about", "fact", "status", "why not proved"},
                   {}};
  Rows rows;
  for (const ProofFact& f : verify.proof.facts) {
    const char* status = f.holds()                          ? "proved"
                         : f.status == FactStatus::kRefuted ? "refuted"
                                                            : "only tested";
    rows.push_back({f.about, f.text, status, f.why_not});
  }
  SetRows(std::move(rows), {{0, Numbers::kRanges}, {3, Numbers::kRanges}}, &report->proof);
  report->aliases = {"aliases-table",
                     "Whether a cache may be updated in place.",
                     {"cache", "update", "written by", "why"},
                     {}};
  rows.clear();
  for (const AliasCertificate& a : verify.aliases) {
    rows.push_back({a.cache, a.safe ? "in place" : "copy", a.writer,
                    !a.safe           ? a.reason
                    : a.order.empty() ? "nobody else reads the past"
                                      : fmt::format("{}", fmt::join(a.order, ", "))});
  }
  SetRows(std::move(rows),
          {{0, Numbers::kBareRanges}, {2, Numbers::kRanges}, {3, Numbers::kRanges}},
          &report->aliases);
  report->mutants = {"mutants-table",
                     "Wrong models, made from the converted one: the same plans must tell each of "
                     "them from the source.",
                     {"group", "mutant", "detected by", "first at"},
                     {}};
  for (const ControlResult& c : verify.controls) {
    report->mutants.rows.push_back({c.group, c.mutant,
                                    !c.detected_by.empty()  ? c.detected_by
                                    : !c.not_run.empty()    ? "does not run: " + c.not_run
                                    : !c.equivalent.empty() ? "excused: " + c.equivalent
                                                            : "NOT DETECTED",
                                    c.output});
  }
  if (!verify.counterexample) return;
  const Counterexample& c = *verify.counterexample;
  report->counterexample.push_back(c.text);
  if (!c.smallest.empty()) {
    report->counterexample.push_back(
        fmt::format("Smallest step: past {}, {} new tokens, capacity {}: {}",
                    fmt::join(c.past, ", "), c.new_tokens, c.capacity, c.smallest));
  }
  if (!c.after_node.empty()) {
    report->counterexample.push_back(
        fmt::format("First nodes that differ: {} before, {} after", c.before_node, c.after_node));
  }
}

std::vector<std::string> HowTo(const Manifest& manifest, const std::string& model_path) {
  const std::string capacity = manifest.capacity_value
                                   ? fmt::format("{}", *manifest.capacity_value)
                                   : manifest.capacity_dim + " (any number that you choose)";
  std::vector<std::string> steps;
  steps.push_back(
      fmt::format("Allocate one buffer of zeros for each of the {} caches, with {} "
                  "tokens on its axis of tokens.",
                  manifest.caches.size(), capacity));
  steps.push_back(
      "Bind each buffer to the past input and to the present output of its cache, where the table "
      "of layers says \"in place\"; else let the present become the next past.");
  for (const ManifestInput& input : manifest.inputs) {
    if (const ControlInput* control = AsControl(input)) {
      steps.push_back(fmt::format(
          "Feed {} ({} [{}]): {}.", input.name, control->dtype, fmt::join(control->shape, ", "),
          control->dtype == "bool"
              ? "the new tokens that each new token sees; those up to itself where they are no tree"
          : control->value == ControlValue::kTotalLength
              ? "the number of tokens that are valid after the step, per sequence"
              : "the number of tokens that are in the cache before the step, per "
                "sequence; 0 for a prompt"));
    } else if (const PaddedInput* padded = AsPadded(input)) {
      steps.push_back(fmt::format("Pad {} on axis {} with {} up to the capacity.", input.name,
                                  padded->axis, padded->fill));
    }
  }
  for (const DroppedInput& d : manifest.dropped) {
    steps.push_back(fmt::format("Feed {} no longer; it had to be: {}.", d.name, GivenText(d)));
  }
  steps.push_back("Before each step, refuse it if past and new tokens exceed the capacity.");
  if (manifest.limits.new_tokens_with_past) {
    steps.push_back(fmt::format("A step that has a past takes at most {} new tokens.",
                                *manifest.limits.new_tokens_with_past));
  }
  steps.push_back(
      fmt::format("kvlift emit-loop {} --lang python-ort writes such a loop.", model_path));
  return steps;
}

}  // namespace kvlift::cli
