#include "verify/stimulus.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

constexpr int64_t kUnknownLength = 5;

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Hash(std::string_view text) {
  uint64_t h = 1469598103934665603u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

std::vector<std::string> Summands(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  for (char c : text + "+") {
    if (c == '+') {
      parts.push_back(part);
      part.clear();
    } else if (c != ' ') {
      part += c;
    }
  }
  return parts;
}

// Rows of the float table that the input indexes through casts and reshapes; 0 if it does not.
int64_t RowsOfTable(const Graph& graph, ValueId input) {
  std::deque<ValueId> queue = {input};
  absl::flat_hash_set<ValueId> seen = {input};
  while (!queue.empty()) {
    const ValueId v = queue.front();
    queue.pop_front();
    for (const Use& use : graph.uses(v)) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      const NodeId n = use.node;
      if (graph.Is(n, "Gather") && use.index == 1) {
        const onnx::TensorProto* table = graph.constant(graph.inputs(n)[0]);
        if (table != nullptr && table->dims_size() >= 2 && IsFloatType(table->data_type())) {
          return table->dims(0);
        }
        continue;
      }
      for (const char* op : {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"}) {
        if (!graph.Is(n, op) || use.index != 0) continue;
        const ValueId out = graph.outputs(n)[0];
        if (seen.insert(out).second) queue.push_back(out);
      }
    }
  }
  return 0;
}

}  // namespace

double Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint64_t h = Mix(Mix(Mix(Mix(a) ^ b) ^ c) ^ d);
  return static_cast<double>(h >> 11) / 4503599627370496.0 - 1.0;
}

void StoreDouble(const exec::View& view, int64_t i, double v) {
  switch (view.type) {
    case TensorProto::FLOAT:
      view.as<float>()[i] = static_cast<float>(v);
      break;
    case TensorProto::DOUBLE:
      view.as<double>()[i] = v;
      break;
    case TensorProto::FLOAT16:
      view.as<uint16_t>()[i] = exec::FloatToHalf(static_cast<float>(v));
      break;
    case TensorProto::BFLOAT16:
      view.as<uint16_t>()[i] = exec::FloatToBfloat(static_cast<float>(v));
      break;
    case TensorProto::INT64:
      view.as<int64_t>()[i] = static_cast<int64_t>(v);
      break;
    case TensorProto::INT32:
      view.as<int32_t>()[i] = static_cast<int32_t>(v);
      break;
    default:
      view.as<uint8_t>()[i] = static_cast<uint8_t>(v);
      break;
  }
}

StepSpec StepSpec::Alone(int b) const {
  StepSpec one = *this;
  one.past = {past[b]};
  one.sequences = {sequences[b]};
  if (!pads.empty()) one.pads = {pads[b]};
  return one;
}

// Finds roles and extents once.
class StimulusBuilder {
 public:
  StimulusBuilder(const Graph& graph, const Manifest& relation)
      : graph_(graph), relation_(relation) {}

  absl::StatusOr<Stimulus> Run(uint64_t seed) {
    out_.seed_ = seed;
    ReadCaches();
    FindTokenSymbol();
    for (ValueId v : graph_.graph_inputs()) {
      if (out_.caches_.count(graph_.name(v)) > 0) continue;
      KV_RETURN_IF_ERROR(AddInput(v));
    }
    return std::move(out_);
  }

 private:
  using Axis = Stimulus::Axis;
  using Extent = Stimulus::Extent;
  using Role = Stimulus::Role;

  void ReadCaches() {
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId v = graph_.Find(cache.source.input);
      if (v == kNoValue || !graph_.type(v).shape) continue;
      std::vector<Axis> axes;
      size_t letter = 0;
      for (size_t k = 0; k < graph_.type(v).shape->size(); ++k) {
        const Dim& dim = (*graph_.type(v).shape)[k];
        const bool fixed = std::any_of(cache.source.select.begin(), cache.source.select.end(),
                                       [&](const Select& s) { return s.axis == int64_t(k); });
        const char name =
            fixed || letter >= cache.source.layout.size() ? '-' : cache.source.layout[letter++];
        Axis axis;
        if (name == 'B') {
          axis.extent = Extent::kBatch;
          if (dim.value) out_.fixed_batch_ = *dim.value;
          if (!dim.param.empty()) batch_.insert(dim.param);
        } else if (name == 'S') {
          axis.extent = Extent::kPast;
          if (!dim.param.empty()) past_.insert(dim.param);
        } else {
          axis.value = dim.value.value_or(1);
        }
        axes.push_back(axis);
      }
      out_.caches_[cache.source.input] = std::move(axes);
    }
    for (const ManifestInput& input : relation_.inputs) {
      if (input.as == "pad_to_capacity") {
        wide_[input.source.empty() ? input.name : input.source] = static_cast<int>(input.axis);
      }
    }
  }

  // The symbol on the second axis of the first integer input of rank 2 that indexes a table.
  void FindTokenSymbol() {
    for (const bool tables_only : {true, false}) {
      for (ValueId v : graph_.graph_inputs()) {
        const TensorType& type = graph_.type(v);
        if (out_.caches_.count(graph_.name(v)) > 0 || wide_.count(graph_.name(v)) > 0) continue;
        if (!type.shape || type.shape->size() < 2) continue;
        if (tables_only ? RowsOfTable(graph_, v) == 0 : type.shape->size() > 3) continue;
        const Dim& dim = (*type.shape)[1];
        if (dim.value) {
          out_.fixed_tokens_ = *dim.value;
        } else if (past_.count(dim.param) == 0) {
          tokens_.insert(dim.param);
        }
        const Dim& first = (*type.shape)[0];
        if (first.value && *first.value != 1) out_.fixed_batch_ = *first.value;
        if (!first.param.empty()) batch_.insert(first.param);
        return;
      }
    }
  }

  Axis ReadAxis(const std::string& name, const std::vector<Dim>& shape, size_t k, bool integer) {
    const Dim& dim = shape[k];
    const auto wide = wide_.find(name);
    if (wide != wide_.end() && wide->second == static_cast<int>(k)) return {Extent::kKeys, 0};
    if (dim.value) {
      // Tokens come one chunk of fixed length at a time: hidden states, too.
      const bool tokens = k == 1 && shape.size() <= 3 && out_.fixed_tokens_ == dim.value;
      return {tokens ? Extent::kTokens : Extent::kStatic, *dim.value};
    }
    const auto parts = Summands(dim.param);
    if (parts.size() > 1) {
      const bool past = std::any_of(parts.begin(), parts.end(),
                                    [&](const std::string& p) { return past_.count(p) > 0; });
      if (past) return {Extent::kKeys, 0};
    }
    if (batch_.count(dim.param) > 0) return {Extent::kBatch, 0};
    if (tokens_.count(dim.param) > 0) return {Extent::kTokens, 0};
    if (past_.count(dim.param) > 0) return {Extent::kPast, 0};
    if (k == 0 && shape.size() > 1) return {Extent::kBatch, 0};
    // A width of its own on an integer input that indexes nothing is that of a mask.
    if (integer) return {shape.size() > 1 ? Extent::kKeys : Extent::kTokens, 0};
    return {Extent::kStatic, kUnknownLength};
  }

  absl::Status AddInput(ValueId v) {
    const std::string& name = graph_.name(v);
    const TensorType& type = graph_.type(v);
    if (!type.shape || type.elem_type == 0) {
      return absl::FailedPreconditionError(fmt::format("input {} has no declared shape", name));
    }
    Stimulus::Input input;
    input.type = type.elem_type;
    input.salt = Hash(name);
    const bool whole = IsIntegerType(type.elem_type) || type.elem_type == TensorProto::BOOL;
    if (!whole && !IsFloatType(type.elem_type)) {
      return absl::FailedPreconditionError(
          fmt::format("input {} of type {} cannot be fed", name, ElementTypeName(type.elem_type)));
    }
    input.rows = whole ? RowsOfTable(graph_, v) : 0;
    for (size_t k = 0; k < type.shape->size(); ++k) {
      input.axes.push_back(ReadAxis(name, *type.shape, k, whole && input.rows == 0));
    }
    input.role = RoleOf(name, input, whole);
    out_.inputs_[name] = std::move(input);
    return absl::OkStatus();
  }

  static bool Has(const Stimulus::Input& input, Extent extent) {
    return std::any_of(input.axes.begin(), input.axes.end(),
                       [extent](const Axis& a) { return a.extent == extent; });
  }

  static Role RoleOf(const std::string& name, const Stimulus::Input& input, bool whole) {
    if (Has(input, Extent::kKeys)) return Role::kMask;
    if (!whole) return Has(input, Extent::kTokens) ? Role::kReal : Role::kConstant;
    if (input.type == TensorProto::BOOL) return Role::kFlag;
    const bool named = name.find("pos") != std::string::npos;
    if (input.rows > 0 && !named) return Role::kTokens;
    if (Has(input, Extent::kTokens) || named || input.axes.size() >= 2) return Role::kPositions;
    return Role::kLength;
  }

  const Graph& graph_;
  const Manifest& relation_;
  std::set<std::string> batch_, past_, tokens_;
  std::map<std::string, int> wide_;
  Stimulus out_;
};

absl::StatusOr<Stimulus> Stimulus::Create(const Graph& source, const Manifest& relation,
                                          uint64_t seed) {
  return StimulusBuilder(source, relation).Run(seed);
}

std::vector<std::string> Stimulus::inputs() const {
  std::vector<std::string> names;
  for (const auto& [name, input] : inputs_) names.push_back(name);
  return names;
}

bool Stimulus::IsWide(const std::string& input) const {
  const auto it = inputs_.find(input);
  return it != inputs_.end() && it->second.role == Role::kMask;
}

exec::Shape Stimulus::CacheShape(const ManifestCache& cache, int64_t batch, int64_t length) const {
  exec::Shape shape;
  for (const Axis& axis : caches_.at(cache.source.input)) {
    shape.push_back(axis.extent == Extent::kBatch  ? batch
                    : axis.extent == Extent::kPast ? length
                                                   : axis.value);
  }
  return shape;
}

double Stimulus::Value(const Input& input, const StepSpec& step, int64_t b, int64_t token,
                       int64_t key, int64_t rest) const {
  const auto sequence = static_cast<uint64_t>(step.sequences[b]);
  const auto place = static_cast<uint64_t>(step.number) * 4096 + static_cast<uint64_t>(token);
  switch (input.role) {
    case Role::kTokens: {
      const double u = (Noise(seed_ ^ input.salt, sequence, place, 0) + 1) / 2;
      return std::floor(u * static_cast<double>(input.rows));
    }
    case Role::kPositions:
      return static_cast<double>(step.past[b] + token);
    case Role::kMask: {
      const bool pad = !step.pads.empty() && key < step.pads[b];
      const bool visible = !pad && key < step.past[b] + step.new_tokens;
      if (IsFloatType(input.type)) return visible ? 0.0 : -3.4028234663852886e38;
      return visible ? 1 : 0;
    }
    case Role::kReal:
      return 1.5 * Noise(seed_ ^ input.salt, sequence, place, static_cast<uint64_t>(rest) + 1);
    case Role::kConstant:
      return 1.5 * Noise(seed_ ^ input.salt, sequence, 0, static_cast<uint64_t>(rest) + 1);
    case Role::kFlag:
      return step.past[b] > 0 ? 1 : 0;
    default:
      return static_cast<double>(step.past[b]);
  }
}

absl::StatusOr<exec::Tensor> Stimulus::Feed(const std::string& name, const StepSpec& step,
                                            std::optional<int64_t> width, int64_t fill) const {
  const auto it = inputs_.find(name);
  if (it == inputs_.end()) {
    return absl::FailedPreconditionError(fmt::format("the source has no input {}", name));
  }
  const Input& input = it->second;
  const int64_t longest = *std::max_element(step.past.begin(), step.past.end());
  const bool ragged = *std::min_element(step.past.begin(), step.past.end()) != longest;
  exec::Shape shape;
  bool per_sequence = false;
  for (const Axis& axis : input.axes) {
    switch (axis.extent) {
      case Extent::kBatch:
        shape.push_back(step.batch());
        per_sequence = true;
        break;
      case Extent::kTokens:
        shape.push_back(step.new_tokens);
        break;
      case Extent::kKeys:
        shape.push_back(width.value_or(longest + step.new_tokens));
        break;
      case Extent::kPast:
        shape.push_back(longest);
        break;
      default:
        shape.push_back(axis.value);
        break;
    }
  }
  if (ragged && !per_sequence && input.role != Role::kConstant) {
    return absl::FailedPreconditionError(
        fmt::format("{} takes one position for the whole batch", name));
  }
  exec::Tensor tensor(input.type, shape);
  const int64_t size = tensor.size();
  for (int64_t i = 0; i < size; ++i) {
    int64_t left = i, b = 0, token = 0, key = 0, rest = 0, stride = 1;
    for (int k = static_cast<int>(shape.size()) - 1; k >= 0; --k) {
      const int64_t at = left % shape[k];
      left /= shape[k];
      const Extent extent = input.axes[k].extent;
      if (extent == Extent::kBatch) b = at;
      if (extent == Extent::kTokens) token = at;
      if (extent == Extent::kKeys) key = at;
      if (extent == Extent::kStatic || extent == Extent::kPast) {
        rest += at * stride;
        stride *= shape[k];
      }
    }
    const bool behind = width && key >= step.past[b] + step.new_tokens;
    StoreDouble(tensor.view(), i,
                behind ? static_cast<double>(fill) : Value(input, step, b, token, key, rest));
  }
  return tensor;
}

}  // namespace kvlift
