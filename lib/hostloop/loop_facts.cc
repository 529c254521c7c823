#include "hostloop/loop_facts.h"

#include <algorithm>

#include "base/status.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "verify/inputs/input_meanings.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// Returns the relation of a converted model to itself, so that ReadInterface reads it like a
// source.
Manifest RelationToItself(const Manifest& manifest) {
  Manifest self = manifest;
  for (ManifestCache& cache : self.caches) {
    cache.source.input = cache.input;
    cache.source.output = cache.output;
    cache.source.layout = PlainLayout(cache.layout);
    cache.source.axis = cache.axis;
    cache.source.select.clear();
  }
  for (ManifestInput& input : self.inputs) {
    if (auto* padded = std::get_if<PaddedInput>(&input.as)) {
      padded->source.clear();
    } else if (!IsCache(input)) {
      input.as = SameInput{};
    }
  }
  return self;
}

std::string MeaningOf(const Reading& reading) {
  switch (reading.meaning) {
    case Meaning::kTokens:
      return "tokens";
    case Meaning::kPositions:
      return "positions";
    case Meaning::kLast:
      return "last";
    case Meaning::kTotal:
      return "total";
    case Meaning::kNew:
      return "new";
    case Meaning::kLastNew:
      return "last_new";
    case Meaning::kBeamIndices:
      return "order";
    case Meaning::kFlag:
      return "has_past";
    case Meaning::kNoFlag:
      return "no_past";
    case Meaning::kOnes:
      return "ones";
    case Meaning::kZeros:
      return "zeros";
    case Meaning::kMask:
      if (reading.Has(Extent::kNewKeys)) return "given";
      return reading.spelling == Spelling::kZero ? "hidden" : "mask";
    default:
      return "given";
  }
}

LoopAxis AxisOf(const Axis& axis, bool padded) {
  switch (axis.extent) {
    case Extent::kBatch:
      return {'B', axis.value};
    case Extent::kTokens:
    case Extent::kNewKeys:
      return {'S', 1};
    case Extent::kKeys:
      return {padded ? 'M' : 'T', 1};
    case Extent::kSlots:
      return {'M', 1};
    case Extent::kPast:
      return {'P', 1};
    default:
      return {'\0', axis.value};
  }
}

class FactsReader {
 public:
  FactsReader(const Graph& model, const Manifest& manifest) : graph_(model), manifest_(manifest) {}

  absl::StatusOr<LoopFacts> Run() {
    KV_ASSIGN_OR_RETURN(interface_, ReadInterface(graph_, graph_, RelationToItself(manifest_)));
    facts_.batch = interface_.fixed_batch;
    facts_.tokens = interface_.fixed_tokens;
    facts_.capacity = manifest_.capacity_value;
    facts_.new_with_past = manifest_.limits.new_tokens_with_past;
    facts_.uniform = manifest_.uniform;
    facts_.circular =
        std::all_of(manifest_.caches.begin(), manifest_.caches.end(),
                    [&](const ManifestCache& cache) { return IsCircular(manifest_, cache); });
    for (const ManifestCache& cache : manifest_.caches) KV_RETURN_IF_ERROR(AddCache(cache));
    for (const ManifestInput& input : manifest_.inputs) {
      if (!IsCache(input)) KV_RETURN_IF_ERROR(AddInput(input));
    }
    FindLogits();
    return std::move(facts_);
  }

 private:
  absl::Status AddCache(const ManifestCache& cache) {
    const ValueId v = graph_.Find(cache.input);
    if (v == kNoValue || !graph_.type(v).shape) {
      return absl::FailedPreconditionError(
          fmt::format("the cache {} has no declared shape", cache.input));
    }
    LoopCache result{cache.input, cache.output, graph_.type(v).elem_type, {}, false};
    result.in_place = cache.alias == CacheAlias::kSafe;
    const std::vector<Axis>& axes = interface_.caches.at(cache.input);
    for (size_t k = 0; k < axes.size(); ++k) {
      if (static_cast<int64_t>(k) == cache.axis) {
        result.axes.push_back(cache.ring ? RingAxis(*cache.ring, (*graph_.type(v).shape)[k].value)
                                         : LoopAxis{'M', 1});
        continue;
      }
      const bool open = axes[k].extent == Extent::kStatic && !(*graph_.type(v).shape)[k].value;
      if (open) {
        return absl::FailedPreconditionError(
            fmt::format("nothing tells axis {} of the cache {}", k, cache.input));
      }
      result.axes.push_back(AxisOf(axes[k], false));
    }
    facts_.caches.push_back(std::move(result));
    return absl::OkStatus();
  }

  // A ring has the slots that the model declares, or its window and room for 64 tokens of a prompt.
  LoopAxis RingAxis(const CacheRing& ring, std::optional<int64_t> declared) {
    constexpr int64_t kPiece = 64;
    const int64_t slots = declared.value_or(ring.window + facts_.tokens.value_or(kPiece));
    const int64_t most = std::max<int64_t>(1, slots - ring.window);
    facts_.chunk = std::min(facts_.chunk.value_or(most), most);
    return {'\0', slots};
  }

  absl::Status AddInput(const ManifestInput& input) {
    const auto found = interface_.inputs.find(input.name);
    if (found == interface_.inputs.end()) {
      return absl::FailedPreconditionError(fmt::format("the model has no input {}", input.name));
    }
    const SourceInput& read = found->second;
    LoopInput result;
    result.name = input.name;
    result.type = read.type;
    if (const ControlInput* control = AsControl(input)) {
      result.meaning = control->value == ControlValue::kTotalLength     ? "total"
                       : control->value == ControlValue::kLowerTriangle ? "tree"
                                                                        : "positions";
      for (const std::string& dim : control->shape) {
        result.axes.push_back({dim == "B" || dim == "S" ? dim[0] : '\0', 1});
      }
    } else {
      ReadMeaning(read, AsPadded(input) != nullptr, &result);
    }
    if (read.type == TensorProto::BFLOAT16 || ElementBits(read.type) < 8) {
      return absl::FailedPreconditionError(
          fmt::format("the input {} is of type {}, which hosts do not have", input.name,
                      ElementTypeName(read.type)));
    }
    facts_.inputs.push_back(std::move(result));
    return absl::OkStatus();
  }

  void ReadMeaning(const SourceInput& read, bool padded, LoopInput* result) const {
    const Reading& reading = read.readings.front();
    result->meaning = MeaningOf(reading);
    result->added = reading.meaning == Meaning::kMask && reading.spelling == Spelling::kAdded;
    for (const Axis& axis : reading.axes) result->axes.push_back(AxisOf(axis, padded));
    for (const Reading& other : read.readings) {
      const std::string meaning = MeaningOf(other);
      const auto& known = result->instead;
      if (meaning == result->meaning) continue;
      if (std::find(known.begin(), known.end(), meaning) != known.end()) continue;
      result->instead.push_back(meaning);
    }
  }

  // Chooses the first output that is not a cache and whose last axis is as long as the table of
  // token embeddings; if there is none, the first output that is not a cache.
  void FindLogits() {
    int64_t rows = 0;
    for (const auto& [name, input] : interface_.inputs) rows = std::max(rows, input.rows);
    bool sure = false;
    for (const ManifestOutput& output : manifest_.outputs) {
      if (IsCache(output) || sure) continue;
      const ValueId v = graph_.Find(output.name);
      const auto& shape = v == kNoValue ? std::nullopt : graph_.type(v).shape;
      sure = rows > 0 && shape && !shape->empty() && shape->back().value == rows;
      if (sure || facts_.logits.empty()) facts_.logits = output.name;
    }
  }

  const Graph& graph_;
  const Manifest& manifest_;
  SourceInterface interface_;
  LoopFacts facts_;
};

}  // namespace

absl::StatusOr<LoopFacts> ReadLoopFacts(const Graph& model, const Manifest& manifest) {
  return FactsReader(model, manifest).Run();
}

}  // namespace kvlift
