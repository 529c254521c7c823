#include "rewrite/convert/describe_steps.h"

#include <algorithm>
#include <variant>

#include "base/escape.h"
#include "base/overloaded.h"
#include "contract/manifest_text.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "onnxio/model/outline.h"

namespace kvlift {
namespace {

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

  std::string Nodes(const std::vector<NodeId>& nodes) const {
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
  std::string How(const CacheUpdate::How& how) const {
    return std::visit(
        Overloaded{
            [&](const AppendAll& all) {
              return HowLines(all.past_length, "none", all.reordered_past, "linear");
            },
            [&](const KeepLast& last) {
              const std::string window = fmt::format("the last {} rows", last.window);
              return HowLines(last.past_length, window, nullptr, "linear");
            },
            [&](const WriteAt& at) { return HowLines(at.start, "none", nullptr, "linear"); },
            [&](const WriteAround& around) {
              return HowLines(around.start, "none", nullptr, "wrap around");
            },
            [&](const Fifo&) { return HowLines(nullptr, "none", nullptr, "first in, first out"); },
        },
        how);
  }

  std::string HowLines(Expr start, std::string_view window, Expr reorder,
                       std::string_view slots) const {
    std::string text;
    AddLine("write start", start == nullptr ? "the end of the buffer" : Text(start), &text);
    AddLine("window", window, &text);
    AddLine("reorder", reorder == nullptr ? "none" : Text(reorder), &text);
    AddLine("slots", slots, &text);
    return text;
  }

  std::string Update(const CacheUpdate& u) const {
    std::string text = How(u.how);
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
    if (view.offset > 0) text += fmt::format(", from element {} on", view.offset);
    if (view.batch_times_heads) text += ", batch and heads on one axis";
    if (!view.decode.empty()) text += ", decoded by " + Nodes(view.decode);
    if (view.cast_to != 0) text += ", cast to " + ElementTypeName(view.cast_to);
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
      AddLine("bias",
              Name(bias.value) + (bias.batch_times_heads ? ", batch and heads on one axis" : ""),
              &text);
    }
    if (site.mask.bias_keep != nullptr && !site.mask.bias_keep->is_integer(1))
      AddLine("bias hides", "not " + Text(site.mask.bias_keep), &text);
    AddLine("masked row", HasNanGuard(site) ? "0, by a guard against NaN" : "", &text);
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

// Returns the new node that makes a value of the result, looking through nodes that only change its
// shape; null if it is no Attention.
const onnx::NodeProto* AttentionBehind(const Patch& patch, std::string value) {
  for (int steps = 0; steps < 4; ++steps) {
    const auto makes = [&](const onnx::NodeProto& node) {
      return std::find(node.output().begin(), node.output().end(), value) != node.output().end();
    };
    const auto node = std::find_if(patch.new_nodes.begin(), patch.new_nodes.end(), makes);
    if (node == patch.new_nodes.end() || node->input().empty()) return nullptr;
    if (node->op_type() == "Attention") return &*node;
    value = node->input(0);
  }
  return nullptr;
}

// Returns "Attention-24, is_causal=1, no mask".
std::string AttentionText(const onnx::NodeProto* node) {
  if (node == nullptr) return "Attention-24";
  std::string text = "Attention-24";
  for (const onnx::AttributeProto& attribute : node->attribute()) {
    if (attribute.type() == onnx::AttributeProto::INT) {
      text += fmt::format(", {} {}", attribute.name(), attribute.i());
    } else if (attribute.type() == onnx::AttributeProto::FLOAT) {
      text += fmt::format(", {} {}", attribute.name(), attribute.f());
    }
  }
  const bool mask = node->input_size() > 3 && !node->input(3).empty();
  return text + (mask ? ", mask " + node->input(3) : ", no mask operand");
}

// Returns ", a ring of more than W rows" if the cache with this input becomes one; else nothing.
std::string RingText(const Manifest& manifest, const std::string& input) {
  for (const ManifestCache& cache : manifest.caches) {
    if (cache.input != input || !cache.ring) continue;
    return fmt::format(", a ring of more than {} rows", cache.ring->window);
  }
  return {};
}

std::string PlannedCaches(const Analysis& a, const ConversionPlan& plan) {
  const Describer of(a);
  std::string text;
  for (const AnalysedCache& cache : a.caches) {
    const std::string id = "cache " + Describer::IdOf(cache);
    if (cache.update_index < 0) {
      AddLine(id, "stays as it is", &text);
      continue;
    }
    const std::string name = of.Name(a.updates[cache.update_index].pair.past);
    const auto type = plan.patch.retype.find(name);
    AddLine(id,
            fmt::format("TensorScatter into {}{}{}", name, RingText(plan.manifest, name),
                        type == plan.patch.retype.end() ? "" : ", " + TypeText(type->second)),
            &text);
  }
  return text;
}

std::string PlannedAttention(const Analysis& a, const ConversionPlan& plan) {
  std::string text;
  for (size_t k = 0; k < a.attention.size() && k < plan.kept.size(); ++k) {
    const std::string id = fmt::format("attention {}", k);
    if (plan.kept[k]) {
      AddLine(id, "stays: " + FindingLine(*plan.kept[k]), &text);
      continue;
    }
    const NodeId node = a.attention[k].site ? a.attention[k].site->node : a.attention[k].node;
    const std::string& output = a.graph->name(a.graph->outputs(node)[0]);
    AddLine(id, AttentionText(AttentionBehind(plan.patch, output)), &text);
  }
  return text;
}

std::string PlannedInputs(const Analysis& a, const ConversionPlan& plan) {
  std::string text;
  for (const onnx::ValueInfoProto& input : plan.patch.new_inputs) {
    AddLine("added", fmt::format("{} {}", input.name(), TypeText(input.type())), &text);
  }
  for (const auto& input : a.graph->proto().input()) {
    const std::string& name = input.name();
    const auto type = plan.patch.retype.find(name);
    if (plan.patch.remove_inputs.contains(name)) {
      AddLine("removed", name, &text);
    } else if (type != plan.patch.retype.end()) {
      const std::string before = TypeText(input.type()), after = TypeText(type->second);
      if (before != after) {
        AddLine("changed", fmt::format("{} {} -> {}", name, before, after), &text);
      }
    }
  }
  for (const DroppedInput& dropped : a.normalised.dropped) {
    AddLine("dropped", fmt::format("{}, needs {}", dropped.name, GivenText(dropped)), &text);
  }
  return text;
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
  for (const sym::Assumption& assumption : a.forms->assumptions()) {
    text += "  " + EscapeTerminal(assumption.text) + "\n";
  }
  return {{"2-recognise.txt", std::move(text)}};
}

std::vector<StepText> DescribePlan(const Analysis& a, const ConvertOptions& options,
                                   const ConversionPlan& plan) {
  std::string text;
  if (plan.refusal) {
    text = "plan: refused\n  " + FindingLine(plan.refusal->finding) + "\n";
    for (size_t k = 0; k < plan.kept.size(); ++k) {
      if (!plan.kept[k]) continue;
      AddLine(fmt::format("attention {}", k), "stays: " + FindingLine(*plan.kept[k]), &text);
    }
    return {{"3-plan.txt", std::move(text)}};
  }
  const Manifest& manifest = plan.manifest;
  std::vector<std::string> inputs;
  for (const auto& input : plan.patch.new_inputs) inputs.push_back(input.name());
  text = "plan: converted\n";
  AddLine("control",
          inputs.empty() ? std::string("derived from inputs of the source")
                         : fmt::format("inputs {}", fmt::join(inputs, ", ")),
          &text);
  AddLine("uniform", YesNo(manifest.uniform), &text);
  AddLine("uniform because", manifest.uniform ? manifest.uniform_reason : "", &text);
  AddLine("read", WordOf(manifest.read), &text);
  AddLine("mode", WordOf(manifest.mode), &text);
  AddLine("capacity",
          manifest.capacity_value ? fmt::format("{} tokens", *manifest.capacity_value)
                                  : manifest.capacity_dim,
          &text);
  AddLine("padding", options.padding == Padding::kNone ? "none" : "keep", &text);
  AddLine("new nodes", fmt::format("{}", plan.patch.new_nodes.size()), &text);
  text += "\ncaches\n" + PlannedCaches(a, plan);
  text += "\nattentions\n" + PlannedAttention(a, plan);
  text += "\ninputs\n" + PlannedInputs(a, plan);
  text += "\npreconditions\n";
  for (const Precondition& p : manifest.preconditions) {
    AddLine(p.code, fmt::format("{} ({})", p.text, WordOf(p.status)), &text);
  }
  return {{"3-plan.txt", std::move(text)}};
}

std::vector<StepText> DescribeEmitted(const onnx::ModelProto& model, const Manifest& manifest) {
  return {{"4-emit.onnxtxt", "# The model behind the step emit.\n" + PrintModelOutline(model)},
          {"4-emit.kv.json", ManifestText(manifest)}};
}

std::vector<StepText> DescribeRefusedEmit(const Finding& refusal) {
  return {{"4-emit.txt", "emit: refused\n  " + FindingLine(refusal) + "\n"}};
}

}  // namespace kvlift
