// Feeds of the source that keep to what the ledger of assumptions says of its inputs.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "ir/types.h"
#include "verify/inputs/ledger.h"

namespace kvlift {
namespace {

// The feeds of a step, as the rules read them.
class FedStep : public FedInputs {
 public:
  FedStep(const exec::Feeds& feeds, bool has_past) : feeds_(feeds), has_past_(has_past) {
    for (const auto& [name, value] : feeds) {
      shapes_[name].assign(value.shape().begin(), value.shape().end());
    }
  }
  const std::vector<int64_t>* ShapeOf(const std::string& input) const override {
    const auto it = shapes_.find(input);
    return it == shapes_.end() ? nullptr : &it->second;
  }
  int64_t ElementOf(const std::string& input, int64_t place) const override {
    return static_cast<int64_t>(exec::ElementAsDouble(feeds_.at(input).view(), place));
  }

  bool HasPast() const override { return has_past_; }

 private:
  const exec::Feeds& feeds_;
  const bool has_past_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

// Returns true if the relation says what the input holds.
bool IsGivenPositions(const Manifest& relation, const std::string& input) {
  return std::any_of(relation.dropped.begin(), relation.dropped.end(),
                     [&](const DroppedInput& dropped) {
                       return dropped.name == input && IsGiven(dropped, DroppedValue::kPositions);
                     });
}

bool IsUnsigned(int32_t type) {
  using onnx::TensorProto;
  return type == TensorProto::UINT64 || type == TensorProto::UINT32 ||
         type == TensorProto::UINT16 || type == TensorProto::UINT8 || type == TensorProto::UINT4 ||
         type == TensorProto::UINT2;
}

bool SameReading(const Reading& a, const Reading& b) {
  const auto same_axis = [](const Axis& x, const Axis& y) {
    return x.extent == y.extent && x.value == y.value && x.free_length == y.free_length;
  };
  return a.meaning == b.meaning && a.spelling == b.spelling &&
         std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(), same_axis);
}

// Puts copies of the readings that `change` changes in front of all.
template <typename Change>
void AddChanged(SourceInput* input, Change change) {
  std::vector<Reading> all;
  for (Reading reading : input->readings) {
    if (!change(&reading)) continue;
    const bool known = std::any_of(
        all.begin(), all.end(), [&](const Reading& other) { return SameReading(reading, other); });
    if (!known) all.push_back(std::move(reading));
  }
  all.insert(all.end(), input->readings.begin(), input->readings.end());
  input->readings = std::move(all);
}

// Sets the bounds of Meaning::kBounded: those that are stated, or else a few numbers around 0.
void SetBounds(const FedRules& rules, const std::string& name, SourceInput* input) {
  constexpr int64_t kLeast = -3, kMost = 3;
  const auto [least, most] = rules.BoundsOf(name);
  const bool truth = input->type == onnx::TensorProto::BOOL;
  const bool sign = IsIntegerType(input->type) && !IsUnsigned(input->type);
  input->least = least.value_or(truth || !sign ? 0 : kLeast);
  input->most = std::max(input->least, most.value_or(truth ? 1 : input->least + kMost - kLeast));
}

// Turns an axis of sequences or tokens that has one size for all sequences into an axis of a length
// that no step determines. Returns false if there is no such axis, or if such an axis is the
// meaning of the input.
bool FreeCommonAxes(const FedRules& rules, const std::string& name, const std::vector<Dim>& dims,
                    Reading* reading) {
  if (reading->meaning == Meaning::kBeamIndices) return false;
  bool changed = false;
  for (size_t k = 0; k < reading->axes.size() && k < dims.size(); ++k) {
    Axis& axis = reading->axes[k];
    const bool of_step = axis.extent == Extent::kBatch || axis.extent == Extent::kTokens;
    if (!of_step || dims[k].value || !rules.IsCommon(name, static_cast<int>(k))) continue;
    axis = {Extent::kStatic, kFreeLength, true,
            dims[k].param.empty() ? fmt::format("{}[{}]", name, k) : dims[k].param};
    changed = true;
  }
  if (!changed) return false;
  switch (reading->meaning) {
    case Meaning::kReal:
      if (!reading->Has(Extent::kTokens)) reading->meaning = Meaning::kConstant;
      break;
    case Meaning::kPositions:
    case Meaning::kLast:
    case Meaning::kTotal:
    case Meaning::kNew:
    case Meaning::kLastNew:
    case Meaning::kFlag:
    case Meaning::kNoFlag:
      reading->meaning = Meaning::kBounded;
      break;
    default:
      break;
  }
  return true;
}

}  // namespace

std::string RuleBrokenBy(const StepSpec& step, const exec::Feeds& feeds, const FedRules& rules) {
  return rules.Broken(FedStep(feeds, step.longest() > 0));
}

void AddReadingsWithinRules(const FedRules& rules, const Graph& source, const Manifest& relation,
                            int64_t capacity, SourceInterface* interface) {
  for (auto& [name, input] : interface->inputs) {
    const ValueId v = source.Find(name);
    if (v == kNoValue || !source.type(v).shape) continue;
    const auto& dims = *source.type(v).shape;
    SetBounds(rules, name, &input);
    AddChanged(&input,
               [&](Reading* reading) { return FreeCommonAxes(rules, name, dims, reading); });
    const auto [least, most] = rules.BoundsOf(name);
    if (!least || !most || *most >= capacity - 1 || IsGivenPositions(relation, name)) continue;
    AddChanged(&input, [&](Reading* reading) {
      if (reading->meaning != Meaning::kPositions) return false;
      reading->meaning = Meaning::kBounded;
      return true;
    });
  }
}

}  // namespace kvlift
