#include "verify/mutants/mutant_sites.h"

#include <algorithm>

#include "fmt/format.h"
#include "ir/tensor_data.h"

namespace kvlift {

MutantSites::MutantSites(const Graph& graph, const Manifest& relation, const MutantLimits& limits)
    : graph_(graph), relation_(relation), limits_(limits) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (graph.Is(n, "TensorScatter")) scatters_.push_back(n);
    if (graph.Is(n, "Attention") && Input(n, kNonpadOperand) != kNoValue) attentions_.push_back(n);
  }
}

std::vector<NodeId> MutantSites::Places(const std::vector<NodeId>& all) const {
  if (all.empty() || limits_.everywhere) return all;
  return {all.back()};
}

std::string MutantSites::Label(NodeId n) const {
  if (!limits_.everywhere) return {};
  const auto& many = graph_.Is(n, "TensorScatter") ? scatters_ : attentions_;
  if (many.size() < 2) return {};
  return fmt::format(" ({})", graph_.name(graph_.outputs(n)[0]));
}

ValueId MutantSites::Input(NodeId n, int k) const {
  return k < static_cast<int>(graph_.inputs(n).size()) ? graph_.inputs(n)[k] : kNoValue;
}

std::string MutantSites::Name(NodeId n, int k) const {
  const ValueId v = Input(n, k);
  return v == kNoValue ? std::string() : graph_.name(v);
}

std::optional<NodeId> MutantSites::ScatterBehind(ValueId v) const {
  while (v != kNoValue) {
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return std::nullopt;
    if (graph_.Is(n, "TensorScatter")) return n;
    if (!graph_.Is(n, "Slice") && !graph_.Is(n, "Transpose") && !graph_.Is(n, "Identity") &&
        !graph_.Is(n, "DequantizeLinear")) {
      return std::nullopt;
    }
    v = graph_.inputs(n)[0];
  }
  return std::nullopt;
}

TensorType MutantSites::CacheType(NodeId scatter) const {
  ValueId v = graph_.inputs(scatter)[kCacheOperand];
  while (graph_.producer(v) != kNoNode && graph_.Is(graph_.producer(v), "TensorScatter")) {
    v = graph_.inputs(graph_.producer(v))[kCacheOperand];
  }
  const NodeId view = graph_.producer(v);
  if (view == kNoNode || !graph_.Is(view, "Reshape")) return graph_.type(v);
  // The cache is a part of one tensor of all layers, viewed with leading axes joined.
  TensorType type = graph_.type(graph_.inputs(view)[0]);
  const onnx::TensorProto* shape = graph_.constant(graph_.inputs(view)[1]);
  const auto sizes = shape == nullptr
                         ? absl::StatusOr<std::vector<int64_t>>(absl::NotFoundError(""))
                         : ReadInts(*shape);
  if (!type.shape || !sizes.ok() || sizes->size() > type.shape->size()) return graph_.type(v);
  for (size_t k = 0; k < sizes->size(); ++k) {
    if ((*sizes)[k] > 0) (*type.shape)[k] = Dim{(*sizes)[k], ""};
    if ((*sizes)[k] < 0) (*type.shape)[k] = Dim{};
  }
  type.shape->resize(sizes->size());
  return type;
}

std::optional<int64_t> MutantSites::HeadSize(NodeId attention, int operand) const {
  const auto scatter = ScatterBehind(Input(attention, operand));
  if (!scatter) return std::nullopt;
  const TensorType type = CacheType(*scatter);
  if (!type.shape) return std::nullopt;
  const auto& shape = *type.shape;
  const int64_t axis = IntAttribute(graph_.node(*scatter), "axis", -2);
  // The last axis may join Nk and D.
  const int64_t heads = IntAttribute(graph_.node(attention), "kv_num_heads", 0);
  if (shape.size() == 3 && heads > 0) {
    const auto width = shape[2].value;
    return width ? std::optional(*width / heads) : std::nullopt;
  }
  // D is the last axis, or the last but one if the sequence axis is last.
  return shape[shape.size() - (axis == 3 || axis == -1 ? 2 : 1)].value;
}

std::optional<int64_t> MutantSites::KeyHeads(NodeId attention) const {
  const auto scatter = ScatterBehind(Input(attention, kKeyOperand));
  if (!scatter) return std::nullopt;
  const TensorType type = CacheType(*scatter);
  if (!type.shape) return std::nullopt;
  const auto& shape = *type.shape;
  const int64_t axis = IntAttribute(graph_.node(*scatter), "axis", -2);
  if (shape.size() != 4 || (axis != 2 && axis != -2)) return std::nullopt;
  return shape[1].value;
}

bool MutantSites::ReadByNodes(ValueId v) const {
  return std::any_of(graph_.uses(v).begin(), graph_.uses(v).end(),
                     [](const Use& use) { return use.kind == Use::Kind::kNodeInput; });
}

bool MutantSites::Captured(ValueId v) const {
  return std::any_of(graph_.uses(v).begin(), graph_.uses(v).end(),
                     [](const Use& use) { return use.kind == Use::Kind::kCapture; });
}

const SeenValue* MutantSites::Seen(const std::string& value) const {
  const auto it = limits_.seen.find(value);
  return it == limits_.seen.end() ? nullptr : &it->second;
}

int64_t MutantSites::RankOf(const std::string& value) const {
  const SeenValue* seen = Seen(value);
  return seen == nullptr ? -1 : static_cast<int64_t>(seen->shape.size());
}

int32_t MutantSites::TypeOf(const std::string& value) const {
  const SeenValue* seen = Seen(value);
  return seen == nullptr ? 0 : seen->type;
}

}  // namespace kvlift
