#include "rewrite/lower/fused/decoded_rows.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "ir/tensor_data.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

constexpr size_t kMostDecoders = 16;

bool IsArithmetic(const Graph& graph, NodeId n) {
  static constexpr std::string_view kOps[] = {"Add",      "Sub",        "Mul",       "Div",
                                              "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"};
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&](std::string_view op) { return graph.Is(n, op); });
}

// Returns true for types of rows that attention reads without decoding.
bool IsNumber(int32_t type) {
  return type == TensorProto::FLOAT || type == TensorProto::FLOAT16 ||
         type == TensorProto::BFLOAT16 || type == TensorProto::DOUBLE;
}

int64_t SizeOf(const TensorProto& tensor) { return NumElements(tensor).value_or(0); }

class Reader {
 public:
  Reader(sym::Forms& forms, const CacheUpdate& cache)
      : forms_(forms),
        graph_(forms.graph()),
        read_(forms.Of(cache.read_by_attention())),
        type_(forms.ElementType(cache.read_by_attention())),
        axis_(cache.axis),
        lead_(static_cast<int64_t>(cache.layout.size()) - 1) {
    ready_ = read_.known_rank && lead_ > axis_ && cache.layout.back() == 'D' && !IsNumber(type_);
  }

  std::optional<DecodedRows> Run(ValueId value) {
    if (!ready_ || !Follows(value) || nodes_.empty()) return std::nullopt;
    if (forms_.Of(value).shape.size() != read_.shape.size()) return std::nullopt;
    return DecodedRows{0, std::move(nodes_), std::move(roots_)};
  }

 private:
  // Returns true if the value is the cache, or is made of its rows by the nodes in nodes_.
  bool Follows(ValueId v) {
    if (v == kNoValue || ConstantBehind(graph_, v) != nullptr) return false;
    const sym::Form form = forms_.Of(v);
    if (!form.known_rank) return false;
    if (forms_.ElementType(v) == type_ && form.element == read_.element &&
        form.shape == read_.shape) {
      roots_.push_back(v);
      return true;
    }
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return false;
    if (std::find(nodes_.begin(), nodes_.end(), n) != nodes_.end()) return true;
    if (nodes_.size() >= kMostDecoders || !IsOfRows(n)) return false;
    nodes_.push_back(n);
    return true;
  }

  bool IsOfRows(NodeId n) {
    const auto inputs = graph_.inputs(n);
    if (inputs.empty()) return false;
    if (graph_.Is(n, "Cast") || graph_.Is(n, "Identity")) return Follows(inputs[0]);
    if (graph_.Is(n, "DequantizeLinear")) return HasScaleOfRows(n) && Follows(inputs[0]);
    if (graph_.Is(n, "Reshape")) return KeepsLead(n) && Follows(inputs[0]);
    if (graph_.Is(n, "Unsqueeze")) return AddsBehind(n) && Follows(inputs[0]);
    if (graph_.Is(n, "Concat")) {
      return AxisOf(n, -1) >= lead_ &&
             std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return Follows(v); });
    }
    if (!IsArithmetic(graph_, n)) return false;
    const sym::Form result = forms_.Of(graph_.outputs(n)[0]);
    return std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
      if (IsOneForAllRows(v, result)) return true;
      return Follows(v) && forms_.Of(v).shape.size() == result.shape.size();
    });
  }

  // Returns the attribute `axis`, counted from the front; -1 if the rank is not known.
  int64_t AxisOf(NodeId n, int64_t fallback) {
    const sym::Form form = forms_.Of(graph_.outputs(n)[0]);
    if (!form.known_rank) return -1;
    const int64_t axis = IntAttribute(graph_.node(n), "axis", fallback);
    return axis < 0 ? axis + static_cast<int64_t>(form.shape.size()) : axis;
  }

  // Returns true for a constant that broadcasts along the sequence axis.
  bool IsOneForAllRows(ValueId v, const sym::Form& result) const {
    const TensorProto* constant = ConstantBehind(graph_, v);
    if (constant == nullptr || !result.known_rank) return false;
    const auto rank = static_cast<int64_t>(result.shape.size());
    const int64_t at = axis_ - (rank - constant->dims_size());
    return constant->dims_size() <= rank && (at < 0 || constant->dims(static_cast<int>(at)) == 1);
  }

  bool HasScaleOfRows(NodeId n) {
    const auto inputs = graph_.inputs(n);
    const bool blocks = IntAttribute(graph_.node(n), "block_size", 0) != 0;
    const int64_t axis = AxisOf(n, 1);
    if (blocks && axis < lead_) return false;
    for (const ValueId v : inputs.subspan(1)) {
      if (v == kNoValue) continue;
      if (blocks) {
        if (!IsSpreadOverRows(v)) return false;
        continue;
      }
      const TensorProto* scale = ConstantBehind(graph_, v);
      if (scale == nullptr) return false;
      const bool one = scale->dims_size() <= 1 && SizeOf(*scale) == 1;
      if (!one && (scale->dims_size() != 1 || axis < 0 || axis == axis_)) return false;
    }
    return true;
  }

  bool IsSpreadOverRows(ValueId v) {
    const ValueId from = SpreadConstant(graph_, v);
    const sym::Form form = forms_.Of(v);
    return from != kNoValue && form.known_rank && !form.shape.empty() &&
           form.shape.back()->kind() == sym::Kind::kInteger && IsOneForAllRows(from, form);
  }

  bool KeepsLead(NodeId n) const {
    const auto inputs = graph_.inputs(n);
    const TensorProto* shape = inputs.size() > 1 ? ConstantBehind(graph_, inputs[1]) : nullptr;
    if (shape == nullptr || IntAttribute(graph_.node(n), "allowzero", 0) != 0) return false;
    const auto extents = ReadInts(*shape);
    return extents.ok() && static_cast<int64_t>(extents->size()) > lead_ &&
           std::all_of(extents->begin(), extents->begin() + lead_,
                       [](int64_t extent) { return extent == 0; });
  }

  bool AddsBehind(NodeId n) {
    const auto inputs = graph_.inputs(n);
    const TensorProto* axes = inputs.size() > 1 ? ConstantBehind(graph_, inputs[1]) : nullptr;
    const sym::Form form = forms_.Of(graph_.outputs(n)[0]);
    if (axes == nullptr || !form.known_rank) return false;
    const auto read = ReadInts(*axes);
    const auto rank = static_cast<int64_t>(form.shape.size());
    return read.ok() && std::all_of(read->begin(), read->end(), [&](int64_t axis) {
             return (axis < 0 ? axis + rank : axis) >= lead_;
           });
  }

  sym::Forms& forms_;
  const Graph& graph_;
  const sym::Form read_;
  const int32_t type_;
  const int64_t axis_, lead_;
  bool ready_ = false;
  std::vector<NodeId> nodes_;
  std::vector<ValueId> roots_;
};

}  // namespace

DecodedRows ReadDecodedRows(sym::Forms& forms, absl::Span<const CacheUpdate> caches,
                            ValueId value) {
  if (forms.graph().producer(value) == kNoNode) return {};
  for (int c = 0; c < static_cast<int>(caches.size()); ++c) {
    auto decoded = Reader(forms, caches[c]).Run(value);
    if (!decoded) continue;
    decoded->cache = c;
    return *std::move(decoded);
  }
  return {};
}

ValueId SpreadConstant(const Graph& graph, ValueId value) {
  while (value != kNoValue) {
    const NodeId n = graph.producer(value);
    const bool spreads = n != kNoNode && (graph.Is(n, "Expand") || graph.Is(n, "Identity"));
    if (!spreads || graph.inputs(n).empty()) return kNoValue;
    const ValueId from = graph.inputs(n)[0];
    if (graph.Is(n, "Expand")) return ConstantBehind(graph, from) == nullptr ? kNoValue : from;
    value = from;
  }
  return kNoValue;
}

bool IsElementwise(const Graph& graph, absl::Span<const NodeId> nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](NodeId n) {
    if (!graph.Is(n, "Cast") && !graph.Is(n, "Identity") && !graph.Is(n, "DequantizeLinear") &&
        !IsArithmetic(graph, n)) {
      return false;
    }
    if (IntAttribute(graph.node(n), "block_size", 0) != 0) return false;
    return std::all_of(graph.inputs(n).begin(), graph.inputs(n).end(), [&](ValueId v) {
      const TensorProto* constant = ConstantBehind(graph, v);
      return constant == nullptr || SizeOf(*constant) == 1;
    });
  });
}

}  // namespace kvlift
