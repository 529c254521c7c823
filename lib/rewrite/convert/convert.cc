#include "rewrite/convert/convert.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/bytes/contents.h"
#include "rewrite/convert/describe_steps.h"
#include "rewrite/convert/layer_caches.h"
#include "rewrite/emit/emit_plan.h"
#include "rewrite/emit/io_names.h"
#include "rewrite/emit/manifest_of.h"
#include "rewrite/emit/pack_caches.h"
#include "rewrite/emit/quantize_caches.h"
#include "rewrite/emit/rotary.h"
#include "rewrite/judge/make_plan.h"
#include "rewrite/lower/key_value_cache.h"
#include "rewrite/recognise/analysis.h"
#include "rewrite/recognise/reused_names.h"

namespace kvlift {
namespace {

// Returns the first reason against the conversion of all caches; nullptr if nothing speaks against
// it.
const Finding* FirstReason(const Analysis& a) {
  for (const AnalysedCache& cache : a.caches) {
    if (cache.reason && cache.reason->cause == StayCause::kRefused) return &cache.reason->finding;
  }
  return nullptr;
}

// Reports what the plan says about each attention and, if it refuses, about everything without a
// reason.
void ReportPlan(const ConversionPlan& plan, Inspection* inspection) {
  for (size_t k = 0; k < plan.attention.size() && k < inspection->attention.size(); ++k) {
    const auto* reason = std::get_if<Finding>(&plan.attention[k]);
    inspection->attention[k].reason = reason == nullptr ? std::nullopt : std::optional(*reason);
  }
  if (!plan.refusal) return;
  for (CacheReport& cache : inspection->caches) {
    if (!cache.reason) cache.reason = plan.refusal->finding;
  }
  for (AttentionReport& attention : inspection->attention) {
    if (!attention.reason) attention.reason = plan.refusal->finding;
  }
}

// Reports at everything that could be converted why the model is refused as a whole.
void ReportAllOrNothing(const Finding& reason, Inspection* inspection) {
  Finding held = {"KV223",
                  fmt::format("held back: all or nothing, and {}: {}", reason.code, reason.text),
                  reason.nodes, reason.values};
  for (CacheReport& cache : inspection->caches) {
    if (!cache.reason) cache.reason = held;
  }
  for (AttentionReport& attention : inspection->attention) {
    if (!attention.reason) attention.reason = held;
  }
}

int64_t DeclaredOpset(const onnx::ModelProto& model) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") return import.version();
  }
  return 0;
}

// Reports nodes that normalisation made under the names of the source's nodes.
void NameSource(const Normalised& normalised, Inspection* inspection) {
  for (CacheReport& cache : inspection->caches) {
    if (cache.reason) normalised.NameSource(&cache.reason->nodes);
  }
  for (AttentionReport& attention : inspection->attention) {
    normalised.NameSource(&attention.nodes);
    if (attention.reason) normalised.NameSource(&attention.reason->nodes);
  }
  for (Finding& miss : inspection->near_misses) normalised.NameSource(&miss.nodes);
}

// Returns how many attentions the plan converts.
size_t ReplacedBy(const ConversionPlan& plan) {
  size_t count = 0;
  for (size_t k = 0; k < plan.attention.size() && !plan.refusal; ++k) {
    count += plan.replaced(k) != nullptr;
  }
  return count;
}

// Returns true if --only or --skip leaves a cache as it is.
bool LeavesAny(const Analysis& a) {
  return absl::c_any_of(a.caches, [](const AnalysedCache& cache) {
    return cache.reason && cache.reason->cause == StayCause::kLeftByOption;
  });
}

// Gives each layer of a tensor caches of its own where the tensor as a whole is refused, where more
// attentions can be converted then, or where --skip names single layers.
absl::Status PreferLayersApart(RuleTable rules, const ConvertOptions& options, Analysis* a) {
  const ResolvedOptions resolved(options);
  if (resolved.cache_tensors == CacheTensors::kPacked) return absl::OkStatus();
  const auto tensors = internal::LayeredTensors(*a);
  if (tensors.empty()) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(Analysis apart, internal::TakeLayersApart(*a, tensors));
  KV_RETURN_IF_ERROR(Recognise(rules, options, &apart));
  if (apart.updates.empty() || FirstReason(apart) != nullptr) return absl::OkStatus();
  const bool names_layers = LeavesAny(apart) && !LeavesAny(*a);
  const ConversionPlan whole = MakePlan(*a, resolved), parts = MakePlan(apart, resolved);
  const bool converts = whole.refusal && !parts.refusal;
  if (names_layers || converts || ReplacedBy(parts) > ReplacedBy(whole)) *a = std::move(apart);
  return absl::OkStatus();
}

// Analyses a model whose axes have names of their own where the declared ones are reused.
absl::StatusOr<Analysis> AnalyseNamed(Model model, RuleTable rules) {
  KV_ASSIGN_OR_RETURN(Analysis a, Analyse(model, rules));
  KV_RETURN_IF_ERROR(TakeReusedNamesApart(rules, {}, UnreadMasks::kDrop, &model, &a));
  return a;
}

Inspection ReportFor(const Model& model, Analysis& a) {
  Inspection inspection = Report(a);
  inspection.nodes = model.proto->graph().node_size();
  inspection.opset = DeclaredOpset(*model.proto);
  return inspection;
}

}  // namespace

absl::StatusOr<Inspection> Inspect(const Model& model, RuleTable rules) {
  KV_ASSIGN_OR_RETURN(Analysis a, AnalyseNamed(model, rules));
  if (!a.not_raised) KV_RETURN_IF_ERROR(PreferLayersApart(rules, ConvertOptions(), &a));
  Inspection inspection = ReportFor(model, a);
  // A plan finds what the rules do not: other readers, and positions that cannot be derived.
  if (!a.updates.empty() && FirstReason(a) == nullptr) {
    const ConversionPlan plan = MakePlan(a, ResolvedOptions());
    KV_RETURN_IF_ERROR(WithinSteps(*a.forms));
    ReportPlan(plan, &inspection);
  }
  NameSource(a.normalised, &inspection);
  return inspection;
}

namespace {

// Makes the model and the manifest of a plan.
absl::Status Emit(const Model& model, const Analysis& a, const ConversionPlan& plan,
                  Conversion* result) {
  KV_ASSIGN_OR_RETURN(EmittedPlan emitted, EmitPlan(a, plan));
  KV_RETURN_IF_ERROR(WithinSteps(*a.forms));
  Emission emission;
  KV_ASSIGN_OR_RETURN(emission.model, Apply(*a.graph, emitted.patch));
  emission.manifest = std::move(emitted.manifest);
  emission.manifest.source_sha256 = model.Sha256();
  emission.caches = std::move(emitted.caches);
  KV_RETURN_IF_ERROR(ListReaders(&emission));
  if (!plan.rotations.empty()) {
    KV_ASSIGN_OR_RETURN(emission.model, FuseRotations(a, plan, std::move(emission.model)));
  }
  const bool quantized_as_source = plan.quantization && plan.quantization->as_source;
  if (quantized_as_source) {
    KV_RETURN_IF_ERROR(QuantizeCaches(*plan.quantization, &emission));
    NamePackedScales(a.normalised.unpacked, &emission.manifest);
  }
  if (plan.one_tensor) KV_RETURN_IF_ERROR(PackCaches(&emission));
  KV_RETURN_IF_ERROR(NameCaches(*a.graph, plan, &emission));
  if (plan.quantization && !quantized_as_source) {
    KV_RETURN_IF_ERROR(QuantizeCaches(*plan.quantization, &emission));
  }
  const Target target = plan.options.target;
  if (target == Target::kGenai || target == Target::kGenaiStatic) {
    result->genai = GenaiFragment(a, emission.manifest);
  }
  result->model = std::move(emission.model);
  result->manifest = std::move(emission.manifest);
  return absl::OkStatus();
}

Conversion Stopped(Conversion result) {
  StopConversion(&result);
  return result;
}

// Returns true if TensorScatter writes all caches already, no attention over them is converted, and
// no option asks for another form.
bool IsSettled(const Analysis& a, const ConversionPlan& plan) {
  const bool written = std::all_of(a.caches.begin(), a.caches.end(),
                                   [](const AnalysedCache& c) { return c.candidate.converted; });
  if (!written || AsksForForm(plan.options)) return false;
  for (size_t k = 0; k < plan.attention.size(); ++k) {
    if (plan.replaced(k) != nullptr) return false;
  }
  return true;
}

Conversion Settled(const Analysis& a, Conversion result) {
  result.status = ConvertStatus::kNothing;
  for (size_t k = 0; k < a.caches.size(); ++k) {
    result.inspection.caches[k].kind = a.caches[k].candidate.kind;
    result.inspection.caches[k].reason = a.caches[k].candidate.if_unmatched;
  }
  return result;
}

absl::StatusOr<Conversion> ConvertLowered(Model model, const ConvertOptions& options,
                                          RuleTable rules, const StepTrace& trace,
                                          UnreadMasks unread, Analysis& a) {
  Conversion result;
  result.source = model.proto;
  result.status = ConvertStatus::kRefused;
  KV_RETURN_IF_ERROR(trace.Take([&] { return DescribeLowered(a); }));
  if (a.not_raised || trace.ends(Step::kLower)) {
    result.inspection = ReportFor(model, a);
    return a.not_raised ? std::move(result) : Stopped(std::move(result));
  }
  KV_RETURN_IF_ERROR(Recognise(rules, options, &a));
  KV_RETURN_IF_ERROR(TakeReusedNamesApart(rules, options, unread, &model, &a));
  result.source = model.proto;
  KV_RETURN_IF_ERROR(PreferLayersApart(rules, options, &a));
  result.inspection = ReportFor(model, a);
  KV_RETURN_IF_ERROR(trace.Take([&] { return DescribeRecognised(a, result.inspection); }));
  if (std::all_of(a.caches.begin(), a.caches.end(), IsConvertedAlready)) {
    result.status = ConvertStatus::kNothing;
    return result;
  }
  if (a.updates.empty() && FirstReason(a) == nullptr) {
    result.status = ConvertStatus::kNothing;
    return result;
  }
  const Finding* reason = FirstReason(a);
  const bool partial = reason != nullptr;
  if (partial && (!options.allow_partial || a.updates.empty())) {
    ReportAllOrNothing(Finding(*reason), &result.inspection);
    return result;
  }
  if (trace.ends(Step::kRecognise)) return Stopped(std::move(result));
  const ConversionPlan plan = MakePlan(a, ResolvedOptions(options));
  KV_RETURN_IF_ERROR(WithinSteps(*a.forms));
  KV_RETURN_IF_ERROR(trace.Take([&] { return DescribePlan(a, plan); }));
  ReportPlan(plan, &result.inspection);
  if (plan.refusal) return result;
  if (IsSettled(a, plan)) return Settled(a, std::move(result));
  if (trace.ends(Step::kPlan)) return Stopped(std::move(result));
  KV_RETURN_IF_ERROR(Emit(model, a, plan, &result));
  KV_RETURN_IF_ERROR(trace.Take([&] { return DescribeEmitted(*result.model, result.manifest); }));
  if (trace.ends(Step::kEmit)) return Stopped(std::move(result));
  result.status = partial ? ConvertStatus::kPartial : ConvertStatus::kConverted;
  for (CacheReport& cache : result.inspection.caches) cache.converted = !cache.reason;
  for (AttentionReport& attention : result.inspection.attention) {
    attention.converted = !attention.reason;
  }
  return result;
}

// The manifest names inputs and outputs, and JSON holds UTF-8 only.
absl::Status CheckNames(const onnx::GraphProto& graph) {
  for (const auto* values : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      if (IsValidUtf8(value.name())) continue;
      return absl::InvalidArgumentError(
          fmt::format("the name of \"{}\" is not UTF-8", EscapeTerminal(value.name())));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void StopConversion(Conversion* conversion) {
  conversion->status = ConvertStatus::kStopped;
  conversion->model.reset();
  conversion->genai.clear();
  for (CacheReport& cache : conversion->inspection.caches) cache.converted = false;
  for (AttentionReport& attention : conversion->inspection.attention) attention.converted = false;
}

absl::StatusOr<Conversion> Convert(const Model& model, const ConvertOptions& options,
                                   RuleTable rules, const StepTrace& trace) {
  KV_RETURN_IF_ERROR(CheckNames(model.proto->graph()));
  KV_RETURN_IF_ERROR(CheckContents(*model.proto));
  const bool derived = ResolvedOptions(options).control == Control::kDerived;
  const UnreadMasks unread = derived ? UnreadMasks::kKeep : UnreadMasks::kDrop;
  KV_ASSIGN_OR_RETURN(Analysis a, Lower(model, unread));
  KV_ASSIGN_OR_RETURN(Conversion result, ConvertLowered(model, options, rules, trace, unread, a));
  NameSource(a.normalised, &result.inspection);
  return result;
}

namespace {

// Adds the forms of a node's outputs in the lowered graph, and the answer of each rule.
void Explain(const Analysis& a, NodeId node, RuleTable rules, std::vector<std::string>* lines) {
  for (ValueId v : a.graph->outputs(node)) {
    if (v == kNoValue) continue;
    const sym::Form& form = a.forms->Of(v);
    lines->push_back(
        fmt::format("{} = {}", a.graph->name(v),
                    form.known_rank ? sym::ToString(form.element, a.graph.get()) : "(unknown)"));
  }
  for (const AnalysedCache& cache : a.caches) {
    if (a.graph->producer(cache.candidate.pair.present) != node) continue;
    lines->push_back(
        cache.reason ? fmt::format("cache {}: {} {}", a.graph->name(cache.candidate.pair.past),
                                   cache.reason->finding.code, cache.reason->finding.text)
                     : fmt::format("cache {}: matches", a.graph->name(cache.candidate.pair.past)));
  }
  for (const Rule* rule : rules) {
    if (rule->attention == nullptr) continue;
    const auto result = rule->attention(*a.forms, node, a.updates);
    lines->push_back(fmt::format("{}: {}", rule->name,
                                 result.match ? "matches"
                                 : result.refusal
                                     ? result.refusal->code + " " + result.refusal->text
                                     : "not this rule's business"));
  }
}

// Returns true if a node of the lowered graph stands for the source's node `source`.
bool StandsFor(const Analysis& a, NodeId node, const std::string& source) {
  return absl::c_any_of(a.normalised.origins, [&](const Normalised::Origin& origin) {
    return origin.node == source && absl::StartsWith(a.graph->NodeName(node), origin.prefix);
  });
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExplainNode(const Model& model, const std::string& node,
                                                     RuleTable rules) {
  KV_ASSIGN_OR_RETURN(Analysis a, AnalyseNamed(model, rules));
  std::vector<std::string> lines;
  for (NodeId n = 0; n < a.graph->num_nodes(); ++n) {
    if (a.graph->NodeName(n) == node) Explain(a, n, rules, &lines);
  }
  if (!lines.empty()) return lines;
  for (const Finding& refusal : a.normalised.refusals) {
    if (absl::c_linear_search(refusal.nodes, node)) {
      lines.push_back(fmt::format("{} {}", refusal.code, refusal.text));
    }
  }
  for (NodeId n = 0; n < a.graph->num_nodes(); ++n) {
    if (!StandsFor(a, n, node)) continue;
    lines.push_back(fmt::format("{} is read as {}, {}:", node, a.graph->NodeName(n),
                                a.graph->node(n).op_type()));
    Explain(a, n, rules, &lines);
  }
  if (!lines.empty()) return lines;
  KV_ASSIGN_OR_RETURN(const Graph source, Graph::Build(model.proto));
  for (NodeId n = 0; n < source.num_nodes(); ++n) {
    if (source.NodeName(n) != node) continue;
    return std::vector<std::string>{
        fmt::format("{}: no output depends on it, or a constant stands for it", node)};
  }
  return absl::NotFoundError(fmt::format("the model has no node named {}", node));
}

}  // namespace kvlift
