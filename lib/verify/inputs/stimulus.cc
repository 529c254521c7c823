#include "verify/inputs/stimulus.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/types/span.h"
#include "base/status.h"
#include "exec/memory/budget.h"
#include "exec/memory/small_types.h"
#include "fmt/format.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "verify/inputs/ring_slots.h"

namespace kvlift {
namespace {

// Rows are hidden where noise from [-1, 1) is at most this: three of ten.
constexpr double kHiddenShare = -0.4;
// A token is one of the marked ones where noise from [-1, 1) is at most this: one of eight.
constexpr double kMarkedShare = -0.75;

using onnx::TensorProto;

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns a number in [-1, 1).
double Unit(uint64_t bits) { return static_cast<double>(bits >> 11) / 4503599627370496.0 - 1.0; }

double Lowest(int32_t type) {
  switch (type) {
    case TensorProto::FLOAT16:
      return -65504.0;
    case TensorProto::BFLOAT16:
      return -3.3895313892515355e38;
    default:
      return -3.4028234663852886e38;
  }
}

uint64_t Hash(const std::string& text) {
  uint64_t h = 1469598103934665603u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

}  // namespace

double Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return Unit(Mix(Mix(Mix(Mix(a) ^ b) ^ c) ^ d));
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
    case TensorProto::UINT64:
      view.as<uint64_t>()[i] = static_cast<uint64_t>(v);
      break;
    case TensorProto::BOOL:
      view.as<uint8_t>()[i] = static_cast<uint8_t>(v);
      break;
    default:
      if (exec::IsSmallFloat(view.type)) {
        exec::SetSmallFloat(view, i, static_cast<float>(v), /*saturate=*/true);
      } else if (exec::IsSmallInteger(view.type)) {
        exec::SetSmallInteger(view, i, static_cast<int64_t>(v));
      }
      break;
  }
}

namespace {

// Adds the small numbers that the graph compares with, as with the number of a padding token.
void AddCompared(const Graph& graph, std::set<int64_t>* numbers) {
  constexpr int64_t kMostElements = 4;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const std::string& op_type = graph.node(n).op_type();
    const bool compares = IsComparison(op_type) && graph.Is(n, op_type);
    for (ValueId input : compares ? graph.inputs(n) : absl::Span<const ValueId>()) {
      const TensorProto* constant = input == kNoValue ? nullptr : graph.constant(input);
      if (constant == nullptr || IsFloatType(constant->data_type())) continue;
      const auto elements = NumElements(*constant);
      if (!elements.ok() || *elements > kMostElements) continue;
      const auto ints = ReadInts(*constant);
      if (ints.ok()) numbers->insert(ints->begin(), ints->end());
    }
  }
}

}  // namespace

absl::StatusOr<Stimulus> Stimulus::Create(const Graph& source, const Graph& after,
                                          const Manifest& relation, uint64_t seed) {
  Stimulus stimulus;
  stimulus.seed_ = seed;
  KV_ASSIGN_OR_RETURN(stimulus.interface_, ReadInterface(source, after, relation));
  std::set<int64_t> marked = {0, 1, 2};
  AddCompared(source, &marked);
  AddCompared(after, &marked);
  stimulus.marked_.assign(marked.lower_bound(0), marked.end());
  for (const ManifestCache& cache : relation.caches) {
    stimulus.shifts_ = stimulus.shifts_ || Shifts(cache.source);
  }
  return stimulus;
}

bool Stimulus::IsMask(const std::string& input) const {
  const auto it = interface_.inputs.find(input);
  return it != interface_.inputs.end() && it->second.reading().meaning == Meaning::kMask;
}

exec::Shape Stimulus::CacheShape(const ManifestCache& cache, int64_t batch, int64_t length) const {
  exec::Shape shape;
  for (const Axis& axis : interface_.caches.at(cache.source.input)) {
    const bool rows = axis.extent == Extent::kPast || axis.extent == Extent::kSlots;
    shape.push_back(axis.extent == Extent::kBatch ? batch * axis.value
                    : rows                        ? length
                                                  : axis.value);
  }
  return shape;
}

void Stimulus::FillWithNoise(const ManifestCache& cache, const std::vector<int>& sequences,
                             int64_t first, double amplitude, const exec::View& view) const {
  const std::vector<Axis>& axes = interface_.caches.at(cache.source.input);
  const uint64_t salt = seed_ ^ Hash(cache.source.input);
  const bool whole = exec::IsSmallInteger(view.type);
  const exec::IntegerRange range = whole ? exec::RangeOf(view.type) : exec::IntegerRange{};
  const int64_t middle = (range.low + range.high + 1) / 2;
  const auto level = static_cast<double>(middle);
  const double reach = 100.0 / 128 * (static_cast<double>(range.high + 1) - level);
  const auto numbers = interface_.numbers_of_caches.find(cache.source.input);
  const bool rounds = numbers != interface_.numbers_of_caches.end();
  const exec::Tensor one(rounds ? numbers->second.type : view.type, {1});
  const auto stored = [&](double number) {
    if (!rounds) return number;
    if (numbers->second.quantizer) return numbers->second.quantizer->Round(number);
    StoreDouble(one.view(), 0, number);
    return exec::ElementAsDouble(one.view(), 0);
  };
  if (interface_.small_caches.contains(cache.source.input)) amplitude /= 64;
  const int64_t size = view.size();
  for (int64_t i = 0; i < size; ++i) {
    int64_t left = i, rest = 0, stride = 1, row = 0;
    int sequence = 0;
    for (int k = static_cast<int>(axes.size()) - 1; k >= 0; --k) {
      const int64_t at = left % view.shape[k];
      left /= view.shape[k];
      if (axes[k].extent == Extent::kPast || axes[k].extent == Extent::kSlots) {
        row = first + at;
        continue;
      }
      int64_t mine = at;
      if (axes[k].extent == Extent::kBatch) {
        sequence = sequences[at / axes[k].value];
        mine = at % axes[k].value;
      }
      rest += mine * stride;
      stride *= axes[k].extent == Extent::kBatch ? axes[k].value : view.shape[k];
    }
    // A single round of mixing, as there are millions of elements.
    const double noise = Unit(Mix(salt + static_cast<uint64_t>(sequence) * 0x9e3779b97f4a7c15u +
                                  static_cast<uint64_t>(row) * 0xd1b54a32d192ed03u +
                                  static_cast<uint64_t>(rest) * 0x8cb92ba72f3d8dd7u));
    StoreDouble(view, i, whole ? std::floor(level + reach * noise) : stored(amplitude * noise));
  }
}

// A slot that holds no token gives the number of a token still to come, or a negative number.
int64_t Stimulus::TokenInSlot(const StepSpec& step, int64_t b, int64_t slot,
                              int64_t capacity) const {
  const int64_t total = step.past[b] + step.new_tokens;
  if (shifts_) return slot - capacity + total;
  return total <= capacity ? slot : total - 1 - (total - 1 - slot) % capacity;
}

// Keys of the past are hidden at random. In a mask with a row per token so are the other new
// tokens, earlier and later ones, but a token always sees itself; in a mask without rows all new
// tokens are visible. An added mask holds numbers in [-3, 3) for visible keys. All this differs
// from head to head in a mask with heads, as a bias of each head does.
double Stimulus::FreeMask(const SourceInput& input, const StepSpec& step, int64_t b, int64_t token,
                          int64_t key, int64_t rest) const {
  constexpr double kLargest = 3;
  const Reading& reading = input.reading();
  const bool rows = reading.Has(Extent::kTokens);
  const auto sequence = static_cast<uint64_t>(reading.Has(Extent::kBatch) ? step.sequences[b] : 0);
  const auto row = static_cast<uint64_t>(rows ? token + 1 : 0);
  const auto column = static_cast<uint64_t>(key);
  const uint64_t salt = seed_ ^ input.salt ^ static_cast<uint64_t>(step.number + 77);
  const auto draw = static_cast<uint64_t>(2 * rest + 1);
  const bool open = Noise(salt, sequence * 4096 + row, column, draw) > kHiddenShare;
  const int64_t past = step.past[b];
  const bool own = rows ? key == past + token : key >= past;
  const bool visible = key >= 0 && key < past + step.new_tokens && (own || open);
  if (reading.spelling != Spelling::kAdded) {
    return visible == (reading.spelling == Spelling::kOne) ? 1 : 0;
  }
  if (!visible) return Lowest(input.type);
  return kLargest * Noise(salt, sequence * 4096 + row, column, draw + 1);
}

double Stimulus::Value(const SourceInput& input, const StepSpec& step, int64_t b, int64_t token,
                       int64_t key, int64_t rest) const {
  const auto sequence = static_cast<uint64_t>(step.sequences[b]);
  const int64_t number = step.chosen.empty() ? token : step.chosen[token];
  const auto place =
      static_cast<uint64_t>(step.number) * 4096 + static_cast<uint64_t>(step.first_token + number);
  const Reading& reading = input.reading();
  const auto past = static_cast<double>(step.past[b]);
  switch (reading.meaning) {
    case Meaning::kTokens: {
      const double u = (Noise(seed_ ^ input.salt, sequence, place, 0) + 1) / 2;
      if (Noise(seed_ ^ input.salt, sequence, place, 7) <= kMarkedShare) {
        const int64_t marked =
            marked_[static_cast<size_t>(u * static_cast<double>(marked_.size()))];
        if (marked < input.rows) return static_cast<double>(marked);
      }
      return std::floor(u * static_cast<double>(input.rows));
    }
    case Meaning::kPositions:
      if (step.reach > 0 && input.free) {
        const double u = (Noise(seed_ ^ input.salt, sequence, place, 5) + 1) / 2;
        return std::floor(u * static_cast<double>(step.reach));
      }
      return past + static_cast<double>(step.places.empty() ? token : step.places[token]);
    case Meaning::kLast:
      return past + static_cast<double>(step.real_of(b)) - 1;
    case Meaning::kTotal:
      return past + static_cast<double>(step.real_of(b));
    case Meaning::kNew:
      return static_cast<double>(step.real_of(b));
    case Meaning::kLastNew:
      return static_cast<double>(step.real_of(b)) - 1;
    case Meaning::kBeamIndices:
      return static_cast<double>(step.order.empty() ? b : step.order[b]);
    case Meaning::kFlag:
      return past > 0 ? 1 : 0;
    case Meaning::kNoFlag:
      return past > 0 ? 0 : 1;
    case Meaning::kOnes:
      return 1;
    case Meaning::kZeros:
      return 0;
    case Meaning::kMask: {
      if (step.free_masks) return FreeMask(input, step, b, token, key, rest);
      const int64_t end =
          step.past[b] + (reading.Has(Extent::kTokens) ? token + 1 : step.real_of(b));
      const bool pad = !step.pads.empty() && key < step.pads[b];
      const bool hidden =
          !step.hidden.empty() && key >= step.hidden[b].first && key < step.hidden[b].second;
      const bool visible = key >= 0 && !pad && !hidden && key < end;
      if (reading.spelling == Spelling::kAdded) return visible ? 0.0 : Lowest(input.type);
      return visible == (reading.spelling == Spelling::kOne) ? 1 : 0;
    }
    case Meaning::kFixedMask: {
      const double u = Noise(seed_ ^ input.salt, reading.Has(Extent::kBatch) ? sequence : 0, 0,
                             static_cast<uint64_t>(rest));
      return rest == 0 || u > kHiddenShare ? 1 : 0;
    }
    case Meaning::kBounded: {
      const double u = (Noise(seed_ ^ input.salt, reading.Has(Extent::kBatch) ? sequence : 0,
                              reading.Has(Extent::kTokens) ? place : static_cast<uint64_t>(key),
                              static_cast<uint64_t>(rest) + 1) +
                        1) /
                       2;
      const auto numbers = static_cast<double>(input.most - input.least + 1);
      return static_cast<double>(input.least) + std::floor(u * numbers);
    }
    case Meaning::kReal:
      return 1.5 * Noise(seed_ ^ input.salt, sequence, place, static_cast<uint64_t>(rest) + 1);
    default: {
      // An input without a batch axis is the same for all sequences.
      const uint64_t draw = IsFloatType(input.type) ? static_cast<uint64_t>(step.draw) << 32 : 0;
      return 1.5 * Noise(seed_ ^ input.salt ^ draw, reading.Has(Extent::kBatch) ? sequence : 0,
                         static_cast<uint64_t>(key), static_cast<uint64_t>(rest) + 1);
    }
  }
}

exec::Shape Stimulus::ShapeOf(const std::string& name, const StepSpec& step, int64_t capacity,
                              std::optional<int64_t> fill) const {
  const auto it = interface_.inputs.find(name);
  exec::Shape shape;
  if (it == interface_.inputs.end()) return shape;
  for (const Axis& axis : it->second.reading().axes) {
    switch (axis.extent) {
      case Extent::kBatch:
        shape.push_back(step.batch() * axis.value);
        break;
      case Extent::kTokens:
      case Extent::kNewKeys:
        shape.push_back(step.new_tokens);
        break;
      case Extent::kKeys:
        shape.push_back(fill ? capacity : step.longest() + step.new_tokens);
        break;
      case Extent::kSlots:
        shape.push_back(axis.value > 0 ? axis.value : capacity);
        break;
      case Extent::kPast:
        shape.push_back(step.longest());
        break;
      default: {
        const bool other = !axis.free_length.empty() && step.free_length > 0;
        shape.push_back(other ? step.free_length + axis.value - kFreeLength : axis.value);
        break;
      }
    }
  }
  return shape;
}

absl::StatusOr<exec::Tensor> Stimulus::Feed(const std::string& name, const StepSpec& step,
                                            int64_t capacity, std::optional<int64_t> fill) const {
  const auto it = interface_.inputs.find(name);
  if (it == interface_.inputs.end()) {
    return absl::FailedPreconditionError(fmt::format("the source has no input {}", name));
  }
  const SourceInput& input = it->second;
  const std::vector<Axis>& axes = input.reading().axes;
  const exec::Shape shape = ShapeOf(name, step, capacity, fill);
  KV_RETURN_IF_ERROR(exec::CheckElements(shape));
  const auto one_for_all = [&] {
    return absl::FailedPreconditionError(
        fmt::format("{} takes one length for the whole batch", name));
  };
  const bool shared = !input.reading().Has(Extent::kBatch);
  const bool wide = input.reading().Has(Extent::kKeys) && !fill;
  if (step.ragged() && (input.reading().Has(Extent::kPast) || (!shared && wide))) {
    return one_for_all();
  }
  const Meaning meaning = input.reading().meaning;
  const bool counts =
      meaning == Meaning::kLast || meaning == Meaning::kTotal || meaning == Meaning::kNew;
  if (counts && !step.real.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("{} counts tokens, with pads or without", name));
  }
  const bool numbers = meaning == Meaning::kTokens || meaning == Meaning::kReal ||
                       meaning == Meaning::kConstant || meaning == Meaning::kBounded;
  const bool among_new = input.reading().Has(Extent::kNewKeys);
  exec::Tensor tensor(input.type, shape);
  const int64_t size = tensor.size();
  for (int64_t i = 0; i < size; ++i) {
    int64_t left = i, b = 0, token = 0, key = 0, rest = 0, stride = 1;
    for (int k = static_cast<int>(shape.size()) - 1; k >= 0; --k) {
      const int64_t at = left % shape[k];
      left /= shape[k];
      switch (axes[k].extent) {
        case Extent::kBatch:
          b = at / axes[k].value;
          rest += at % axes[k].value * stride;
          stride *= axes[k].value;
          break;
        case Extent::kTokens:
          token = at;
          break;
        case Extent::kKeys:
        case Extent::kNewKeys:
        case Extent::kSlots:
          key = at;
          break;
        default:
          rest += at * stride;
          stride *= shape[k];
          break;
      }
    }
    if (input.reading().Has(Extent::kSlots)) key = TokenInSlot(step, b, key, capacity);
    const bool behind =
        fill && input.reading().Has(Extent::kKeys) && key >= step.past[b] + step.real_of(b);
    const auto value_of = [&](int64_t sequence) {
      return Value(input, step, sequence, token, among_new ? step.past[sequence] + key : key, rest);
    };
    double value = behind ? static_cast<double>(*fill) : value_of(b);
    for (int64_t other = 1; shared && !numbers && other < step.batch(); ++other) {
      const double of_other = value_of(other);
      if (value != of_other && !input.of_longest) return one_for_all();
      value = std::max(value, of_other);
    }
    StoreDouble(tensor.view(), i, value);
  }
  return tensor;
}

}  // namespace kvlift
