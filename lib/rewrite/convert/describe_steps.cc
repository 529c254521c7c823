#include "rewrite/convert/describe_steps.h"

#include <variant>

#include "base/escape.h"
#include "base/overloaded.h"
#include "contract/manifest_text.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/types.h"
#include "onnxio/model/outline.h"
#include "rewrite/plan/declared_types.h"

namespace kvlift {
namespace {

std::string_view PlaceOfHeads(HeadsOfScores heads) {
  switch (heads) {
    case HeadsOfScores::kOneAxis:
      return "";
    case HeadsOfScores::kInBatch:
      return ", batch and heads on one axis";
    case HeadsOfScores::kTwoAxes:
      return ", heads on two axes";
  }
  return "";
}

using sym::Expr;

constexpr int64_t kMostExprNodes = 20000;  // larger expressions are not printed

std::string YesNo(bool yes) { return yes ? "yes" : "no"; }

// Prints parts of one analysis.
class Describer {
 public:
  explicit Describer(const Analysis& a) : a_(a), graph_(*a.graph) {}

  std::string Name(ValueId v) const { return v == kNoValue ? "none" : graph_.name(v); }

  std::string Text(Expr e) const {
    if (e == nullptr) return "unknown";
    if (e->size() > kMostExprNodes) return fmt::format("(an expression of {} nodes)", e->size());
    return sym::ToString(e, &graph_);
  }

  std::string Shape(const std::vector<Expr>& shape) const {
    std::vector<std::string> dims;
    dims.reserve(shape.size());
    for (Expr dim : shape) dims.push_back(Text(dim));
    return fmt::format("[{}]", fmt::join(dims, ", "));
  }

  // Returns the shape and the element of a value as the analysis knows them.
  std::string FormOf(ValueId v) const {
    const sym::Form* form = a_.forms->Known(v);
    if (form == nullptr) return "not computed";
    if (!form->known_rank) return "of unknown rank";
    if (form->opaque) return Shape(form->shape) + ", opaque";
    return fmt::format("{} of {}", Shape(form->shape), Text(form->element));
  }

  std::string ShapeOf(ValueId v) const {
    const sym::Form* form = a_.forms->Known(v);
    return form != nullptr && form->known_rank ? " " + Shape(form->shape) : "";
  }

  std::string Nodes(absl::Span<const NodeId> nodes) const {
    std::vector<std::string> names;
    for (NodeId n : nodes) names.push_back(graph_.NodeName(n));
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::string CacheId(int update_index) const {
    for (const AnalysedCache& cache : a_.caches) {
      if (update_index >= 0 && cache.update_index == update_index) return IdOf(cache);
    }
    return "none";
  }

  static std::string IdOf(const AnalysedCache& cache) {
    return fmt::format("{}.{}", cache.layer, WordOf(cache.role));
  }

  std::string Cache(const AnalysedCache& cache, const CacheReport& report) const {
    const CachePair& pair = cache.candidate.pair;
    std::string text = EscapeTerminal(fmt::format("cache {}", report.id)) + "\n";
    AddLine("past", fmt::format("{} {}{}", Name(pair.past), report.dtype, ShapeOf(pair.past)),
            &text);
    AddLine("present", Name(pair.present), &text);
    AddLine("kind", WordOf(report.kind), &text);
    AddLine("grows", YesNo(report.growing), &text);
    AddLine("layout", report.layout.empty() ? "unknown" : report.layout, &text);
    AddLine("axis", fmt::format("{}", report.axis), &text);
    if (cache.update) text += Update(*cache.update);
    AddLine("present is", FormOf(pair.present), &text);
    if (report.reason) text += "  refused: " + FindingLine(*report.reason) + "\n";
    return text + "\n";
  }

  std::string Attention(const AnalysedAttention& attention, const AttentionReport& report) const {
    std::string text = EscapeTerminal(fmt::format("attention {} at {}", report.id,
                                                  graph_.NodeName(attention.node))) +
                       "\n";
    AddLine("form", report.form, &text);
    if (attention.site) text += Site(*attention.site, report);
    if (report.reason) text += "  refused: " + FindingLine(*report.reason) + "\n";
    return text + "\n";
  }

 private:
  // Returns the lines about the way in which a present is made from its past.
  std::string How(const CacheUpdate& u) const {
    const bool at_the_end = std::holds_alternative<Fifo>(u.how);
    const auto window = u.window();
    std::string text;
    AddLine("write start",
            at_the_end ? "the end of the buffer" : Text(u.write_index(a_.forms->pool())), &text);
    AddLine("window", window ? fmt::format("the last {} rows", *window) : "none", &text);
    AddLine("reorder", u.reordered_past == nullptr ? "none" : Text(u.reordered_past), &text);
    AddLine("slots", u.order_of_rows(), &text);
    return text;
  }

  std::string Update(const CacheUpdate& u) const {
    std::string text = How(u);
    AddLine("new length", Text(u.new_length), &text);
    if (u.writes_some_sequences()) AddLine("sequences", "the first of a larger batch", &text);
    AddLine("new rows", Name(u.update), &text);
    AddLine("new rows are", Text(u.update_element), &text);
    AddLine("attention reads", Name(u.read_by_attention()), &text);
    AddLine("node", Nodes({u.node}), &text);
    return text;
  }

  std::string Operand(const CacheOperand& operand) const {
    const CacheView& view = operand.view;
    std::string text = fmt::format("cache {}, {} heads", CacheId(operand.cache), view.heads);
    for (const FixedAxis& fixed : view.fixed_axes) {
      text += fmt::format(", axis {} at index {}", fixed.axis, fixed.index);
    }
    if (view.first_head > 0) text += fmt::format(", from head {} on", view.first_head);
    if (view.first_element > 0) text += fmt::format(", from element {} on", view.first_element);
    if (view.batch_times_heads) text += ", batch and heads on one axis";
    if (const auto* cast = std::get_if<CastRows>(&view.rows)) {
      text += fmt::format(", read as {}", ElementTypeName(cast->elem_type));
    }
    if (!view.decode().empty()) text += ", decoded by " + Nodes(view.decode());
    return text;
  }

  std::string Site(const AttentionSite& site, const AttentionReport& report) const {
    std::string text;
    AddLine("query", Name(site.query) + ShapeOf(site.query), &text);
    AddLine("keys", Operand(site.key), &text);
    AddLine("values", Operand(site.value), &text);
    AddLine("heads",
            fmt::format("{} of queries, {} of keys, sizes {} and {}", site.q_heads,
                        site.key.view.heads, site.head_dim, site.v_head_dim),
            &text);
    AddLine("scale", fmt::format("{}", site.scale), &text);
    AddLine("softcap", site.softcap == 0 ? "none" : fmt::format("{}", site.softcap), &text);
    AddLine("mask", report.mask, &text);
    AddLine("visible keys", fmt::format("{} of {}", Text(site.mask.keep), Text(site.mask.keys)),
            &text);
    for (const Bias& bias : site.mask.biases) {
      AddLine("bias", fmt::format("{}{}", Name(bias.value), PlaceOfHeads(bias.heads)), &text);
    }
    if (site.mask.bias_keep != nullptr && !site.mask.bias_keep->is_integer(1))
      AddLine("bias hides", "not " + Text(site.mask.bias_keep), &text);
    AddLine("sink", site.sink != nullptr ? Text(site.sink) : "", &text);
    AddLine("masked row", GivesZeroWithoutKeys(site) ? "0" : "", &text);
    AddLine("output", Name(graph_.outputs(site.node)[0]), &text);
    AddLine("nodes", Nodes(site.nodes), &text);
    return text;
  }

  const Analysis& a_;
  const Graph& graph_;
};

std::string FindingsBelow(std::string_view title, const std::vector<Finding>& findings) {
  if (findings.empty()) return {};
  std::string text = std::string(title) + "\n";
  for (const Finding& finding : findings) text += "  " + FindingLine(finding) + "\n";
  return text + "\n";
}

// Returns "float32 [batch, 2, max_sequence_length, 8]".
std::string TypeText(const onnx::TypeProto& proto) {
  const TensorType type = TensorType::From(proto);
  std::string text = ElementTypeName(type.elem_type);
  if (!type.shape) return text;
  std::vector<std::string> dims;
  for (const Dim& dim : *type.shape) {
    dims.push_back(dim.value ? fmt::format("{}", *dim.value) : dim.param.empty() ? "?" : dim.param);
  }
  return fmt::format("{} [{}]", text, fmt::join(dims, ", "));
}

// Prints the parts of a plan.
class PlanDescriber {
 public:
  PlanDescriber(const Analysis& a, const ConversionPlan& plan)
      : a_(a), plan_(plan), of_(a), types_(RetypedValues(a, plan)) {}

  std::string Caches() const {
    std::string text;
    for (const AnalysedCache& cache : a_.caches) {
      const std::string id = "cache " + Describer::IdOf(cache);
      if (cache.update_index < 0) {
        AddLine(id, "stays as it is", &text);
        continue;
      }
      const PlannedCache& planned = plan_.caches[cache.update_index];
      const PlannedWrite& write = plan_.writes[cache.update_index];
      const std::string name = of_.Name(planned.pair.past);
      const auto type = types_.find(name);
      AddLine(id,
              fmt::format("TensorScatter into {}{}{}", name, planned.buffer_words(),
                          type == types_.end() ? "" : ", " + TypeText(type->second)),
              &text);
      AddLine("  at", Index(write.index), &text);
      std::string rows = Rows(write.rows);
      if (write.narrow_rows && type != types_.end()) {
        rows += ", cast to " + ElementTypeName(type->second.tensor_type().elem_type());
      }
      AddLine("  new rows", std::move(rows), &text);
      if (write.reordered_past) AddLine("  past", of_.Text(write.reordered_past->element), &text);
      for (const AttendedSlice& same : write.attended_slices) {
        AddLine("  view", of_.Name(same.value), &text);
      }
    }
    return text;
  }

  std::string Attentions() const {
    std::string text;
    for (size_t k = 0; k < plan_.attention.size(); ++k) {
      std::visit(Overloaded{[](const Unjudged&) {},
                            [&](const PlannedAttention& planned) {
                              AddLine(fmt::format("attention {}", k), Attention(planned), &text);
                              AddLine("  reads", Keys(planned.keys), &text);
                            },
                            [&](const Finding& reason) {
                              AddLine(fmt::format("attention {}", k),
                                      "stays: " + FindingLine(reason), &text);
                            }},
                 plan_.attention[k]);
    }
    return text;
  }

  std::string Inputs() const {
    std::string text;
    for (const onnx::ValueInfoProto& input : NewInputs(a_, plan_)) {
      AddLine("added", fmt::format("{} {}", input.name(), TypeText(input.type())), &text);
    }
    for (const auto& input : a_.graph->proto().input()) {
      const std::string& name = input.name();
      const auto type = types_.find(name);
      if (plan_.dropped.contains(a_.graph->Find(name))) {
        AddLine("removed", name, &text);
      } else if (type != types_.end()) {
        const std::string before = TypeText(input.type()), after = TypeText(type->second);
        if (before != after) {
          AddLine("changed", fmt::format("{} {} -> {}", name, before, after), &text);
        }
      }
    }
    for (const auto& [input, value] : plan_.assumed) {
      AddLine("assumed", fmt::format("all elements of {} are {}", of_.Name(input), value), &text);
    }
    for (const DroppedInput& dropped : a_.normalised.dropped) {
      AddLine("dropped", fmt::format("{}, needs {}", dropped.name, GivenText(dropped)), &text);
    }
    return text;
  }

  std::string Operands() const {
    std::string text;
    for (const RederivedOperand& operand : plan_.operands) {
      const auto* request = std::get_if<sym::Emitter::Request>(&operand.value);
      const auto* table = std::get_if<ValueId>(&operand.value);
      AddLine(fmt::format("input {}", operand.operand),
              fmt::format("of {} is {}", of_.Nodes({operand.node}),
                          request != nullptr ? of_.Text(request->element) : of_.Name(*table)),
              &text);
    }
    return text;
  }

  std::string Control() const {
    return std::visit(
        Overloaded{[](const NoIndex&) { return std::string("derived from inputs of the source"); },
                   [&](const DerivedIndex& derived) {
                     return fmt::format("derived from inputs of the source: axis {} of {}",
                                        derived.axis, of_.Name(derived.input));
                   },
                   [](const IndexInputs& inputs) {
                     std::vector<std::string> names;
                     for (const std::string& name :
                          {inputs.write_indices, inputs.nonpad_kv_seqlen, inputs.tree_mask}) {
                       if (!name.empty()) names.push_back(name);
                     }
                     return fmt::format("inputs {}", fmt::join(names, ", "));
                   }},
        plan_.index);
  }

 private:
  std::string Index(const WriteIndex& index) const {
    return std::visit(
        Overloaded{[](const SharedIndex&) { return std::string("the past's length"); },
                   [&](const RepeatedIndex& repeated) {
                     return fmt::format("the past's length, {} times", of_.Text(repeated.count));
                   },
                   [&](const SourceIndex& source) { return of_.Text(source.slot.element); }},
        index);
  }

  std::string Rows(const NewRows& rows) const {
    return std::visit(Overloaded{[&](const RowsInTargetLayout& r) {
                                   return of_.Name(r.value) + ", in the result's layout";
                                 },
                                 [&](const RowsInSourceLayout& r) { return of_.Name(r.value); },
                                 [&](const StackedRows& r) {
                                   std::vector<std::string> names;
                                   for (ValueId part : r.parts) names.push_back(of_.Name(part));
                                   return fmt::format("{}, stacked", fmt::join(names, ", "));
                                 },
                                 [&](const DrawnRows& r) { return of_.Text(r.rows.element); }},
                      rows);
  }

  static std::string Keys(const KeysRead& keys) {
    return std::visit(
        Overloaded{[](const SourceRows&) { return std::string("the rows that the source reads"); },
                   [](const ValidRows&) { return std::string("the valid rows"); },
                   [](const AllSlots&) { return std::string("all slots"); },
                   [](const AllSlotsValid&) {
                     return std::string("all slots, which the mask hides where they are unused");
                   }},
        keys);
  }

  // Returns "Attention-24, is_causal 1, no mask operand".
  std::string Attention(const PlannedAttention& planned) const {
    std::string text = "Attention-24";
    if (planned.is_causal) text += ", is_causal 1";
    if (planned.scale) text += fmt::format(", scale {}", *planned.scale);
    if (planned.softcap != 0) text += fmt::format(", softcap {}", planned.softcap);
    if (planned.softmax_precision != 0) {
      text += fmt::format(", softmax_precision {}", planned.softmax_precision);
    }
    if (planned.heads_in_last_axis) text += ", heads in the last axis";
    if (planned.groups_as_tokens) text += ", groups as tokens";
    if (planned.mask) text += ", mask " + of_.Text(planned.mask->element);
    if (planned.tree) text += ", mask of a tree";
    for (const PlannedBias& bias : planned.biases) text += ", bias " + of_.Name(bias.value);
    const bool none = !planned.mask && !planned.tree && planned.biases.empty();
    return none ? text + ", no mask operand" : text;
  }

  const Analysis& a_;
  const ConversionPlan& plan_;
  const Describer of_;
  const absl::flat_hash_map<std::string, onnx::TypeProto> types_;
};

// Returns how caches are stored besides the default; may be empty.
std::string StorageText(const ConversionPlan& plan) {
  std::vector<std::string> parts;
  if (plan.quantization) {
    const CacheQuantization& how = plan.quantization->how;
    parts.push_back(plan.quantization->as_source
                        ? fmt::format("quantised as the source, groups of {}", how.group)
                        : "quantised " + how.text);
  }
  if (plan.one_tensor) parts.emplace_back("parts of one tensor");
  if (!plan.names.empty()) parts.emplace_back("named by layer");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string CapacityText(const Analysis& a, const ConversionPlan& plan) {
  if (plan.options.max_seq_len) return fmt::format("{} tokens", *plan.options.max_seq_len);
  return plan.grows() ? CapacityDimension(*a.graph) : "that of the source";
}

}  // namespace

std::string FindingLine(const Finding& finding) {
  std::string text = fmt::format("{} {}", finding.code, finding.text);
  if (!finding.nodes.empty()) text += fmt::format(" (at {})", fmt::join(finding.nodes, ", "));
  if (!finding.values.empty()) text += fmt::format(" (of {})", fmt::join(finding.values, ", "));
  return EscapeTerminal(text);
}

void AddLine(std::string_view key, std::string_view text, std::string* to) {
  if (text.empty()) return;
  *to += fmt::format("  {:<16} {}\n", EscapeTerminal(key), EscapeTerminal(text));
}

std::vector<StepText> DescribeLowered(const Analysis& a) {
  std::string text = "# The model behind the step lower.\n";
  const auto comment = [&](std::string_view what) {
    text += fmt::format("# {}\n", EscapeTerminal(what));
  };
  if (a.not_raised) comment("refused: " + FindingLine(*a.not_raised));
  for (const Finding& refusal : a.normalised.refusals) comment("stays: " + FindingLine(refusal));
  for (const DroppedInput& dropped : a.normalised.dropped) {
    comment(fmt::format("dropped: input {}, needs {}", dropped.name, GivenText(dropped)));
  }
  for (const Precondition& p : a.normalised.preconditions) {
    comment(fmt::format("given: {} {} ({})", p.code, p.text, WordOf(p.status)));
  }
  for (const Normalised::Origin& origin : a.normalised.origins) {
    comment(fmt::format("nodes {}*: from {}", origin.prefix, origin.node));
  }
  return {{"1-lower.onnxtxt", text + PrintModelOutline(a.graph->model())}};
}

std::vector<StepText> DescribeRecognised(const Analysis& a, const Inspection& inspection) {
  const Describer describer(a);
  std::string text = fmt::format("recognise: {} caches, {} of them to convert, {} attentions\n\n",
                                 a.caches.size(), a.updates.size(), a.attention.size());
  for (size_t k = 0; k < a.caches.size(); ++k) {
    text += describer.Cache(a.caches[k], inspection.caches[k]);
  }
  for (size_t k = 0; k < a.attention.size(); ++k) {
    text += describer.Attention(a.attention[k], inspection.attention[k]);
  }
  text += FindingsBelow("other findings", a.near_misses);
  if (!a.forms->assumptions().empty()) text += "taken for granted\n";
  for (const sym::FormAssumption& assumption : a.forms->assumptions()) {
    text += "  " + EscapeTerminal(assumption.text) + "\n";
  }
  return {{"2-recognise.txt", std::move(text)}};
}

std::vector<StepText> DescribePlan(const Analysis& a, const ConversionPlan& plan) {
  std::string text;
  if (plan.refusal) {
    text = "plan: refused\n  " + FindingLine(plan.refusal->finding) + "\n";
    for (size_t k = 0; k < plan.attention.size(); ++k) {
      const auto* reason = std::get_if<Finding>(&plan.attention[k]);
      if (reason == nullptr) continue;
      AddLine(fmt::format("attention {}", k), "stays: " + FindingLine(*reason), &text);
    }
    return {{"3-plan.txt", std::move(text)}};
  }
  const PlanDescriber of(a, plan);
  text = "plan: converted\n";
  AddLine("control", of.Control(), &text);
  AddLine("uniform", YesNo(plan.uniform_reason.has_value()), &text);
  AddLine("uniform because", plan.uniform_reason.value_or(""), &text);
  AddLine("read", plan.prefix_read() ? "prefix" : "full", &text);
  AddLine("capacity", CapacityText(a, plan), &text);
  AddLine("padding", plan.options.padding == Padding::kNone ? "none" : "keep", &text);
  AddLine("storage", StorageText(plan), &text);
  if (!plan.rotations.empty()) {
    AddLine("rotations", fmt::format("{} to RotaryEmbedding", plan.rotations.size()), &text);
  }
  text += "\ncaches\n" + of.Caches();
  text += "\nattentions\n" + of.Attentions();
  text += "\ninputs\n" + of.Inputs();
  if (!plan.operands.empty()) text += "\noperands\n" + of.Operands();
  return {{"3-plan.txt", std::move(text)}};
}

std::vector<StepText> DescribeEmitted(const onnx::ModelProto& model, const Manifest& manifest) {
  return {{"4-emit.onnxtxt", "# The model behind the step emit.\n" + PrintModelOutline(model)},
          {"4-emit.kv.json", ManifestText(manifest)}};
}

}  // namespace kvlift
