#include "kvlift/inputs/bench_feeds.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/model/functional_form.h"
#include "rewrite/lower/key_value_cache.h"

namespace kvlift::cli {
namespace {

using Symbols = absl::btree_map<std::string, int64_t>;

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool Says(const std::string& name, std::string_view word) {
  return Lower(name).find(word) != std::string::npos;
}

absl::Status Unknown(const Graph& graph, ValueId v, size_t axis) {
  return absl::FailedPreconditionError(
      fmt::format("nothing tells axis {} of the input {}", axis, graph.name(v)));
}

// A dimension that no cache has counts all tokens if it is a sum with the past, or is named as one.
int64_t TokensOf(const std::string& param, const StepSize& size) {
  if (param.find('+') != std::string::npos) return size.total();
  if (Says(param, "total") || Says(param, "past")) return size.total();
  return Says(param, "batch") ? size.batch : size.new_tokens;
}

bool SaysTokens(const std::string& param) {
  return param.find('+') != std::string::npos || Says(param, "total") || Says(param, "past") ||
         Says(param, "seq") || Says(param, "len");
}

// Returns the size of axis k, named `param`, of an input of this rank. The first of several axes
// counts sequences unless its name says otherwise; on the other axes of a mask all tokens count.
int64_t DimOf(const std::string& param, const std::string& input, size_t k, size_t rank,
              const StepSize& size) {
  if (k == 0 && rank > 1 && !SaysTokens(param)) return size.batch;
  if (k > 0 && Says(input, "mask") && !Says(param, "batch")) return size.total();
  return TokensOf(param, size);
}

int64_t SlotsOf(const BenchCache& cache, const StepSize& size) {
  if (cache.window > 0) return cache.window + size.new_tokens;
  return cache.growing ? size.context : size.capacity;
}

// Reads dimension names from the caches, then from the other inputs, whose axes behind the first
// count the new tokens (in masks all tokens).
Symbols SymbolsOf(const Graph& graph, const std::vector<BenchCache>& caches, const StepSize& size) {
  Symbols symbols;
  for (const BenchCache& cache : caches) {
    const ValueId v = graph.Find(cache.pair.input);
    if (v == kNoValue || !graph.type(v).shape) continue;
    const std::vector<Dim>& dims = *graph.type(v).shape;
    const auto set = [&](int64_t axis, int64_t value) {
      if (axis >= 0 && axis < static_cast<int64_t>(dims.size()) && !dims[axis].param.empty()) {
        symbols[dims[axis].param] = value;
      }
    };
    set(cache.batch_axis, size.batch);
    set(cache.axis, SlotsOf(cache, size));
  }
  for (const ValueId v : graph.graph_inputs()) {
    if (!graph.type(v).shape || Says(graph.name(v), "mask")) continue;
    for (size_t k = 1; k < graph.type(v).shape->size(); ++k) {
      const std::string& param = (*graph.type(v).shape)[k].param;
      if (param.empty() || symbols.count(param) > 0) continue;
      symbols[param] = TokensOf(param, size);
    }
  }
  return symbols;
}

absl::StatusOr<exec::Shape> ShapeOf(const Graph& graph, ValueId v, const Symbols& symbols,
                                    const StepSize& size, const ManifestInput* input) {
  const TensorType& type = graph.type(v);
  if (!type.shape) return Unknown(graph, v, 0);
  const PaddedInput* padded = input == nullptr ? nullptr : AsPadded(*input);
  exec::Shape shape;
  for (size_t k = 0; k < type.shape->size(); ++k) {
    const Dim& dim = (*type.shape)[k];
    const auto known = symbols.find(dim.param);
    if (dim.value) {
      shape.push_back(*dim.value);
    } else if (padded != nullptr && padded->axis == static_cast<int64_t>(k)) {
      shape.push_back(size.capacity);
    } else if (dim.param.empty()) {
      if (k > 0) return Unknown(graph, v, k);
      shape.push_back(size.batch);
    } else if (known != symbols.end()) {
      shape.push_back(known->second);
    } else {
      shape.push_back(DimOf(dim.param, graph.name(v), k, type.shape->size(), size));
    }
  }
  return shape;
}

// Numbers like activations: uniform in [-0.5, 0.5), the same in every run.
class Noise {
 public:
  float Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state_ >> 40) / static_cast<float>(1 << 24) - 0.5f;
  }

 private:
  uint64_t state_ = 1;
};

void SetFloat(const exec::View& view, int64_t i, float value) {
  switch (view.type) {
    case onnx::TensorProto::FLOAT:
      view.as<float>()[i] = value;
      break;
    case onnx::TensorProto::DOUBLE:
      view.as<double>()[i] = value;
      break;
    case onnx::TensorProto::FLOAT16:
      view.as<uint16_t>()[i] = exec::FloatToHalf(value);
      break;
    case onnx::TensorProto::BFLOAT16:
      view.as<uint16_t>()[i] = exec::FloatToBfloat(value);
      break;
    default:
      break;
  }
}

void SetInt(const exec::View& view, int64_t i, int64_t value) {
  switch (view.type) {
    case onnx::TensorProto::INT64:
      view.as<int64_t>()[i] = value;
      break;
    case onnx::TensorProto::INT32:
      view.as<int32_t>()[i] = static_cast<int32_t>(value);
      break;
    case onnx::TensorProto::BOOL:
      view.as<uint8_t>()[i] = value != 0;
      break;
    default:
      SetFloat(view, i, static_cast<float>(value));
  }
}

// Returns the values of an input. The last axis counts tokens, or the tensor has one number per
// sequence.
exec::Tensor ValuesOf(const std::string& name, int32_t type, const exec::Shape& shape,
                      const ManifestInput* input, const StepSize& size) {
  exec::Tensor tensor = exec::Tensor::Zeros(type, shape);
  const int64_t width = shape.empty() ? 1 : shape.back();
  const ControlInput* control = input == nullptr ? nullptr : AsControl(*input);
  const PaddedInput* padded = input == nullptr ? nullptr : AsPadded(*input);
  const bool position = Says(name, "pos"), mask = Says(name, "mask") && shape.size() == 2;
  Noise noise;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (control != nullptr && type == onnx::TensorProto::BOOL) {
      SetInt(tensor.view(), i, 1);
    } else if (control != nullptr) {
      const bool total = control->value == ControlValue::kTotalLength;
      SetInt(tensor.view(), i, total ? size.total() : size.context);
    } else if (position) {
      SetInt(tensor.view(), i, size.context + (width == size.new_tokens ? i % width : 0));
    } else if (mask || padded != nullptr) {
      SetInt(tensor.view(), i, i % width < size.total() ? 1 : padded != nullptr ? padded->fill : 0);
    } else if (type == onnx::TensorProto::BOOL) {  // visible, or "use the cache"
      SetInt(tensor.view(), i, 1);
    } else if (IsFloatType(type) && !Says(name, "mask")) {
      SetFloat(tensor.view(), i, noise.Next());
    }
  }
  return tensor;
}

// Fills the operands of KeyValueCache that say where joined sequences begin: one behind another.
void FillStarts(const Graph& graph, ValueId v, const StepSize& size, const exec::View& view) {
  for (const Use& use : graph.uses(v)) {
    if (use.kind != Use::Kind::kNodeInput || !IsKeyValueCache(graph.node(use.node))) continue;
    const KeyValueCacheSlots slots = KeyValueCacheSlots::Of(graph.node(use.node));
    if (!slots.joins_sequences()) continue;
    const int at = static_cast<int>(use.index), longest = slots.start + 1;
    for (int64_t i = 0; i < view.size(); ++i) {
      if (at == slots.seqstarts) SetInt(view, i, i * size.new_tokens);
      if (at == slots.kvstarts) SetInt(view, i, i * size.total());
      if (at == slots.cachestarts) SetInt(view, i, i * size.capacity);
      if (at == slots.start) SetInt(view, i, size.context);
      if (at == longest) SetInt(view, i, size.new_tokens);
      if (at == longest + 1) SetInt(view, i, size.total());
    }
  }
}

void SetHeads(const Inspection& inspection, const CacheReport& report, BenchCache* cache) {
  const size_t heads = report.layout.find('N'), size = report.layout.find('D');
  for (const AttentionReport& attention : inspection.attention) {
    if (attention.id != fmt::format("{}", report.layer)) continue;
    if (heads != std::string::npos) {
      cache->heads_axis = static_cast<int64_t>(heads);
      cache->heads = attention.kv_heads;
    }
    if (size != std::string::npos) {
      cache->size_axis = static_cast<int64_t>(size);
      cache->size = report.role == CacheRole::kValue ? attention.v_head_dim : attention.head_dim;
    }
  }
}

}  // namespace

std::vector<BenchCache> CachesOf(const Manifest& manifest) {
  std::vector<BenchCache> caches;
  for (const ManifestCache& c : manifest.caches) {
    const size_t batch = c.layout.find('B');
    caches.push_back({{c.input, c.output},
                      batch == std::string::npos ? -1 : static_cast<int64_t>(batch),
                      c.axis,
                      false,
                      c.ring ? c.ring->window : 0});
  }
  return caches;
}

namespace {

// Returns the tensors that pack the caches of all layers.
std::vector<BenchCache> PackedCachesOf(const Graph& graph) {
  std::vector<BenchCache> caches;
  for (const ValueId v : graph.graph_outputs()) {
    const ValueId past = PackedPast(graph, v);
    if (past == kNoValue || past == v) continue;
    const onnx::NodeProto& node = graph.node(graph.producer(v));
    const int64_t layout = IntAttribute(node, "cache_layout", 0);
    if (JoinsSequences(node.domain())) {
      caches.push_back({{graph.name(past), graph.name(v)}, -1, layout});
      continue;
    }
    const bool heads_first = layout == 1;
    caches.push_back({{graph.name(past), graph.name(v)}, heads_first ? 1 : 0, heads_first ? 4 : 3});
  }
  return caches;
}

}  // namespace

std::vector<BenchCache> CachesOf(const Graph& graph, const Inspection& inspection) {
  std::vector<BenchCache> caches = PackedCachesOf(graph);
  const size_t packed = caches.size();
  for (const CacheReport& c : inspection.caches) {
    if (c.input.empty() || c.output.empty()) continue;
    const bool part = std::any_of(caches.begin(), caches.begin() + packed,
                                  [&](const auto& cache) { return cache.pair.input == c.input; });
    if (part) continue;
    const size_t batch = c.layout.find('B');
    caches.push_back(
        {{c.input, c.output},
         batch == std::string::npos ? -1 : static_cast<int64_t>(batch),
         c.axis,
         c.growing || c.kind == UpdateKind::kConcat});  // in a branch, growth is not proved
    SetHeads(inspection, c, &caches.back());
  }
  return caches;
}

absl::StatusOr<exec::Feeds> CacheFeeds(const Graph& graph, const std::vector<BenchCache>& caches,
                                       const StepSize& size) {
  exec::Feeds feeds;
  Noise noise;
  // Floats beside int8 caches are their scales, which are positive.
  const bool quantized = std::any_of(caches.begin(), caches.end(), [&](const BenchCache& cache) {
    const ValueId v = graph.Find(cache.pair.input);
    return v != kNoValue && graph.type(v).elem_type == onnx::TensorProto::INT8;
  });
  for (const BenchCache& cache : caches) {
    const ValueId v = graph.Find(cache.pair.input);
    if (v == kNoValue || !graph.type(v).shape) {
      return absl::FailedPreconditionError(
          fmt::format("the cache {} has no known shape", cache.pair.input));
    }
    exec::Shape shape;
    int64_t inner = 1;
    for (size_t k = 0; k < graph.type(v).shape->size(); ++k) {
      const Dim& dim = (*graph.type(v).shape)[k];
      const auto axis = static_cast<int64_t>(k);
      if (dim.value) {
        shape.push_back(*dim.value);
      } else if (axis == cache.batch_axis) {
        shape.push_back(size.batch);
      } else if (axis == cache.axis) {
        shape.push_back(SlotsOf(cache, size));
      } else if (axis == cache.heads_axis && cache.heads > 0) {
        shape.push_back(cache.heads);
      } else if (axis == cache.size_axis && cache.size > 0) {
        shape.push_back(cache.size);
      } else {
        return Unknown(graph, v, k);
      }
      if (axis > cache.axis) inner *= shape.back();
    }
    exec::Tensor tensor = exec::Tensor::Zeros(graph.type(v).elem_type, shape);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (i / inner % shape[cache.axis] >= size.context) continue;
      const float x = noise.Next();
      if (tensor.type() == onnx::TensorProto::INT8) {
        tensor.span<int8_t>()[i] = static_cast<int8_t>(x * 254);
      } else {
        SetFloat(tensor.view(), i, quantized ? std::fabs(x) / 127 : x);
      }
    }
    feeds[cache.pair.input] = std::move(tensor);
  }
  return feeds;
}

absl::StatusOr<exec::Feeds> OtherFeeds(const Graph& graph, const std::vector<BenchCache>& caches,
                                       const Manifest* manifest, const StepSize& size) {
  Symbols symbols = SymbolsOf(graph, caches, size);
  if (manifest != nullptr) symbols[manifest->capacity_dim] = size.capacity;
  std::set<std::string> cached;
  for (const BenchCache& cache : caches) cached.insert(cache.pair.input);
  exec::Feeds feeds;
  for (const ValueId v : graph.graph_inputs()) {
    const std::string& name = graph.name(v);
    if (cached.count(name) > 0) continue;
    const ManifestInput* input = nullptr;
    if (manifest != nullptr) {
      for (const ManifestInput& i : manifest->inputs) {
        if (i.name == name) input = &i;
      }
    }
    KV_ASSIGN_OR_RETURN(const exec::Shape shape, ShapeOf(graph, v, symbols, size, input));
    feeds[name] = ValuesOf(name, graph.type(v).elem_type, shape, input, size);
    FillStarts(graph, v, size, feeds[name].view());
  }
  return feeds;
}

}  // namespace kvlift::cli
