#include "lint/lint.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/graph.h"
#include "ir/spans.h"
#include "lint/lint_nodes.h"
#include "lint/target.h"
#include "onnxio/bytes/contents.h"
#include "onnxio/bytes/tensors.h"
#include "onnxio/files/data_file.h"

namespace kvlift {
namespace {

constexpr int64_t kScatterOpset = 24, kAttentionOpset = 23, kNonpadOpset = 24;
constexpr int64_t kIrOfOpset24 = 12;

void LintOpset(const Graph& graph, NodeId node, std::vector<Lint>* lints) {
  const bool nonpad = graph.Is(node, "Attention") && graph.inputs(node).size() > 6 &&
                      graph.inputs(node)[6] != kNoValue;
  const int64_t needed = graph.Is(node, "TensorScatter") ? kScatterOpset
                         : nonpad                        ? kNonpadOpset
                                                         : kAttentionOpset;
  if (graph.opset() < needed) {
    AddLint(graph, node, "KV102",
            fmt::format("{} needs opset {}, the model imports {}", graph.node(node).op_type(),
                        needed, graph.opset()),
            lints);
  } else if (needed == kScatterOpset && graph.model().ir_version() < kIrOfOpset24) {
    AddLint(graph, node, "KV103",
            fmt::format("opset 24 came with IR version {}, the model says {}", kIrOfOpset24,
                        graph.model().ir_version()),
            lints, Severity::kWarning);
  }
}

const onnx::ValueInfoProto* FindInfo(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& infos,
    const std::string& name) {
  for (const auto& info : infos) {
    if (info.name() == name) return &info;
  }
  return nullptr;
}

void AddForManifest(std::string text, std::string value, std::vector<Lint>* lints) {
  lints->push_back({Severity::kError, {"KV130", std::move(text), {}, {std::move(value)}}});
}

// Warns if two TensorScatter nodes write into one past: in place, the second would find the rows of
// the first.
void LintSharedPasts(const Graph& graph, std::vector<Lint>* lints) {
  std::map<ValueId, NodeId> writers;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!graph.Is(n, "TensorScatter") || graph.inputs(n).empty()) continue;
    const ValueId past = SeeThroughViews(graph, graph.inputs(n)[0]);
    if (past == kNoValue || !graph.is_graph_input(past)) continue;
    const auto [it, first] = writers.emplace(past, n);
    if (first) continue;
    AddLint(
        graph, n, "KV126",
        fmt::format("{} is updated here and at {}", graph.name(past), graph.NodeName(it->second)),
        lints, Severity::kWarning);
  }
}

// Returns the value that a chain of TensorScatter nodes writes into, from its last node `writer`
// on. A cache with alias "copy" may have its sequences reordered by a Gather in between.
ValueId BufferOf(const Graph& graph, const ManifestCache& c, NodeId writer) {
  ValueId v = kNoValue;
  NodeId n = writer;
  while (n != kNoNode && graph.Is(n, "TensorScatter")) {
    if (graph.inputs(n).empty()) return kNoValue;
    v = SeeThroughViews(graph, graph.inputs(n)[0]);
    n = v == kNoValue ? kNoNode : graph.producer(v);
  }
  const bool reordered =
      c.alias == CacheAlias::kCopy && n != kNoNode && graph.Is(n, "Gather") &&
      !graph.inputs(n).empty() &&
      IntAttribute(graph.node(n), "axis", 0) == static_cast<int64_t>(c.layout.find('B'));
  return reordered ? SeeThroughViews(graph, graph.inputs(n)[0]) : v;
}

void LintManifestCache(const Graph& graph, const Manifest& m, const ManifestCache& c,
                       std::vector<Lint>* lints) {
  for (const bool input : {true, false}) {
    const std::string& name = input ? c.input : c.output;
    const auto* info = FindInfo(input ? graph.proto().input() : graph.proto().output(), name);
    if (info == nullptr) {
      AddForManifest(
          fmt::format("cache {}: the model has no {} {}", c.id, input ? "input" : "output", name),
          name, lints);
      continue;
    }
    const TensorType type = TensorType::From(info->type());
    if (ElementTypeName(type.elem_type) != c.dtype) {
      AddForManifest(fmt::format("cache {}: {} is {}, the manifest says {}", c.id, name,
                                 ElementTypeName(type.elem_type), c.dtype),
                     name, lints);
    }
    const std::string letters = PlainLayout(c.layout);
    if (!type.shape || type.shape->size() != letters.size() || c.axis < 0 ||
        c.axis >= static_cast<int64_t>(letters.size()) || letters[c.axis] != 'S') {
      AddForManifest(fmt::format("cache {}: {} does not have the layout {} with axis {}", c.id,
                                 name, c.layout, c.axis),
                     name, lints);
      continue;
    }
    const Dim& capacity = (*type.shape)[c.axis];
    // The manifest has the capacity of the smallest buffer. That of a ring is its window and the
    // tokens of a step.
    if (!c.ring && m.capacity_value && capacity.value && *capacity.value < *m.capacity_value) {
      AddForManifest(fmt::format("cache {}: {} holds {} tokens, the manifest says {}", c.id, name,
                                 *capacity.value, *m.capacity_value),
                     name, lints);
    }
  }
  const ValueId output = graph.Find(c.output);
  if (output == kNoValue) return;
  const ValueId written = SeeThroughViews(graph, output);
  const NodeId writer = written == kNoValue ? kNoNode : graph.producer(written);
  if (writer == kNoNode || !graph.Is(writer, "TensorScatter")) {
    AddForManifest(fmt::format("cache {}: {} is no result of a TensorScatter", c.id, c.output),
                   c.output, lints);
  } else if (BufferOf(graph, c, writer) != graph.Find(c.input)) {
    AddLint(graph, writer, "KV130",
            fmt::format("cache {}: {} is not written into {}", c.id, c.output, c.input), lints);
  }
}

// Returns the fewest tokens that a buffer of the manifest declares room for; nullopt if none does.
std::optional<int64_t> SmallestBuffer(const Graph& graph, const Manifest& m) {
  std::optional<int64_t> least;
  for (const ManifestCache& c : m.caches) {
    const auto* info = FindInfo(graph.proto().input(), c.input);
    const TensorType type = info == nullptr ? TensorType() : TensorType::From(info->type());
    if (c.ring || !type.shape || c.axis < 0 || c.axis >= std::ssize(*type.shape)) continue;
    const Dim& slots = (*type.shape)[c.axis];
    if (slots.value) least = std::min(least.value_or(*slots.value), *slots.value);
  }
  return least;
}

void LintManifest(const Graph& graph, const Manifest& m, std::vector<Lint>* lints) {
  const std::optional<int64_t> least = SmallestBuffer(graph, m);
  if (m.capacity_value && least && *least > *m.capacity_value) {
    AddForManifest(fmt::format("the smallest cache holds {} tokens, the manifest says {}", *least,
                               *m.capacity_value),
                   m.caches.front().input, lints);
  }
  std::map<std::string, std::string> owner;
  for (const ManifestCache& c : m.caches) {
    LintManifestCache(graph, m, c, lints);
    for (const std::string& name : {c.input, c.output}) {
      const auto [it, fresh] = owner.emplace(name, c.id);
      if (!fresh && it->second != c.id) {
        AddForManifest(fmt::format("{} serves two caches, {} and {}", name, it->second, c.id), name,
                       lints);
      }
    }
  }
  for (const ManifestInput& input : m.inputs) {
    if (FindInfo(graph.proto().input(), input.name) == nullptr) {
      AddForManifest(fmt::format("the model has no input {}", input.name), input.name, lints);
    }
  }
  for (const ManifestOutput& output : m.outputs) {
    if (FindInfo(graph.proto().output(), output.name) == nullptr) {
      AddForManifest(fmt::format("the model has no output {}", output.name), output.name, lints);
    }
  }
}

// Warns about weights that were not checked because their files of external data are missing.
void LintAbsentData(const onnx::ModelProto& model, std::vector<Lint>* lints) {
  std::set<std::string> files;
  std::vector<std::string> names;
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    if (!IsElsewhere(tensor)) return;
    names.push_back(tensor.name());
    if (const auto reference = ParseReference(tensor); reference.ok()) {
      files.insert(reference->location);
    }
  });
  if (names.empty()) return;
  std::string text = fmt::format("the numbers of {} {} were not looked at: {} {} not there",
                                 names.size(), names.size() == 1 ? "tensor" : "tensors",
                                 fmt::join(files, ", "), files.size() == 1 ? "is" : "are");
  lints->push_back({Severity::kWarning, {"KV030", std::move(text), {}, std::move(names)}});
}

}  // namespace

ValueId SeeThroughViews(const Graph& graph, ValueId v) {
  while (v != kNoValue) {
    const NodeId n = graph.producer(v);
    const bool view = n != kNoNode && (graph.Is(n, "Identity") || graph.Is(n, "Squeeze") ||
                                       graph.Is(n, "Unsqueeze") || graph.Is(n, "Reshape"));
    if (!view || graph.inputs(n).empty()) break;
    v = graph.inputs(n)[0];
  }
  return v;
}

void AddLint(const Graph& graph, NodeId node, std::string_view code, std::string text,
             std::vector<Lint>* lints, Severity severity) {
  lints->push_back({severity, {std::string(code), std::move(text), {graph.NodeName(node)}, {}}});
}

absl::StatusOr<std::vector<Lint>> LintModel(const Model& model, const Manifest* manifest,
                                            std::optional<Profile> target) {
  std::vector<Lint> lints;
  std::shared_ptr<const onnx::ModelProto> proto = model.proto;
  auto checked = CheckModel(*proto);
  if (checked.ok() && proto->functions_size() > 0) {
    KV_ASSIGN_OR_RETURN(onnx::ModelProto inlined, InlineFunctions(*proto));
    proto = std::make_shared<const onnx::ModelProto>(std::move(inlined));
  }
  if (checked.ok()) {
    auto inferred = InferShapes(*proto);
    if (inferred.ok()) {
      proto = std::make_shared<const onnx::ModelProto>(*std::move(inferred));
    } else {
      checked = inferred.status();
    }
  }
  if (!checked.ok()) {
    lints.push_back({Severity::kError, {"KV101", std::string(checked.message()), {}, {}}});
  }
  if (const absl::Status contents = CheckContents(*model.proto); !contents.ok()) {
    lints.push_back(
        {Severity::kError, {CodeOf(contents), std::string(contents.message()), {}, {}}});
  }
  if (model.unknown_fields > 0) {
    lints.push_back(
        {Severity::kWarning,
         {"KV009", fmt::format("{} fields are not in ONNX", model.unknown_fields), {}, {}}});
  }
  LintAbsentData(*model.proto, &lints);
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(proto));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const bool scatter = graph.Is(n, "TensorScatter"), attention = graph.Is(n, "Attention");
    if (!scatter && !attention) continue;
    LintOpset(graph, n, &lints);
    if (scatter) LintTensorScatter(graph, n, &lints);
    if (attention) LintAttention(graph, n, &lints);
  }
  LintSharedPasts(graph, &lints);
  if (manifest != nullptr) LintManifest(graph, *manifest, &lints);
  if (target) LintTarget(graph, *target, &lints);
  return lints;
}

const Finding* FirstError(absl::Span<const Lint> lints) {
  const auto it = std::find_if(lints.begin(), lints.end(),
                               [](const Lint& lint) { return lint.severity == Severity::kError; });
  return it == lints.end() ? nullptr : &it->finding;
}

}  // namespace kvlift
