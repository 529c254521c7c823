#include "contract/fed_rules.h"

#include <algorithm>
#include <map>
#include <set>

namespace kvlift {
namespace {

using FedKind = FedNumber::Kind;

int64_t FloorDiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

template <typename Fn>
void ForEach(const FedNumber& number, Fn fn) {
  fn(number);
  for (const FedNumber& arg : number.args) ForEach(arg, fn);
}

// Evaluates a predicate in one step.
class Evaluator {
 public:
  Evaluator(const FedNumber& holds, const FedInputs& inputs) : inputs_(inputs) {
    ForEach(holds, [&](const FedNumber& number) { TakeExtents(number); });
  }

  // Returns true if the predicate is false at some indices.
  bool Fails(const FedNumber& holds) {
    constexpr int64_t kMostPlaces = 1 << 16;
    int64_t places = 1;
    for (const auto& [index, extent] : extents_) {
      if (extent > kMostPlaces) return false;
      places *= extent;
      if (places > kMostPlaces) return false;
    }
    for (int64_t place = 0; place < places; ++place) {
      int64_t rest = place;
      for (const auto& [index, extent] : extents_) {
        at_[index] = rest % extent;
        rest /= extent;
      }
      const auto value = Value(holds);
      if (value && *value == 0) return true;
    }
    return false;
  }

 private:
  // An index has the extent of the axis that it is an index of, or else as many values as the input
  // has elements; places outside of the input are left out.
  void TakeExtents(const FedNumber& number) {
    if (number.kind != FedKind::kElement) return;
    const auto* shape = inputs_.ShapeOf(number.input);
    if (shape == nullptr) return;
    int64_t size = 1;
    for (int64_t extent : *shape) size *= extent;
    for (size_t k = 0; k < number.args.size() && k < shape->size(); ++k) {
      const FedNumber& arg = number.args[k];
      if (arg.kind == FedKind::kIndex) Narrow(arg.value, (*shape)[k]);
    }
    for (const FedNumber& arg : number.args) {
      ForEach(arg, [&](const FedNumber& inner) {
        if (inner.kind == FedKind::kIndex) extents_.try_emplace(inner.value, size);
      });
    }
  }

  void Narrow(int64_t index, int64_t extent) {
    const bool first = direct_.insert(index).second;
    int64_t& known = extents_.try_emplace(index, extent).first->second;
    known = first ? extent : std::min(known, extent);
  }

  std::optional<int64_t> Value(const FedNumber& number) {
    switch (number.kind) {
      case FedKind::kInteger:
        return number.value;
      case FedKind::kIndex: {
        const auto it = at_.find(number.value);
        return it == at_.end() ? std::nullopt : std::optional(it->second);
      }
      case FedKind::kSize: {
        const auto* shape = inputs_.ShapeOf(number.input);
        if (shape == nullptr || number.value >= std::ssize(*shape)) return std::nullopt;
        return (*shape)[number.value];
      }
      case FedKind::kElement:
        return Element(number);
      case FedKind::kSelect: {
        const auto chosen = Value(number.args[0]);
        if (!chosen) return std::nullopt;
        return Value(number.args[*chosen != 0 ? 1 : 2]);
      }
      default:
        return OfArgs(number);
    }
  }

  std::optional<int64_t> OfArgs(const FedNumber& number) {
    std::vector<int64_t> args;
    for (const FedNumber& arg : number.args) {
      const auto value = Value(arg);
      if (!value) return std::nullopt;
      args.push_back(*value);
    }
    int64_t result = number.kind == FedKind::kSum ? 0 : 1;
    switch (number.kind) {
      case FedKind::kSum:
        for (int64_t arg : args) {
          if (__builtin_add_overflow(result, arg, &result)) return std::nullopt;
        }
        return result;
      case FedKind::kProduct:
        for (int64_t arg : args) {
          if (__builtin_mul_overflow(result, arg, &result)) return std::nullopt;
        }
        return result;
      case FedKind::kFloorDiv:
        if (args[1] == 0 || args[1] == -1) return std::nullopt;
        return FloorDiv(args[0], args[1]);
      case FedKind::kIsAtMost:
        return args[0] <= 0 ? 1 : 0;
      case FedKind::kIsZero:
        return args[0] == 0 ? 1 : 0;
      case FedKind::kNot:
        return args[0] == 0 ? 1 : 0;
      case FedKind::kAnd:
        return std::all_of(args.begin(), args.end(), [](int64_t arg) { return arg != 0; }) ? 1 : 0;
      default:
        return std::nullopt;
    }
  }

  std::optional<int64_t> Element(const FedNumber& number) {
    const auto* shape = inputs_.ShapeOf(number.input);
    if (shape == nullptr || shape->size() != number.args.size()) return std::nullopt;
    int64_t place = 0;
    for (size_t k = 0; k < number.args.size(); ++k) {
      const auto index = Value(number.args[k]);
      if (!index || *index < 0 || *index >= (*shape)[k]) return std::nullopt;
      place = place * (*shape)[k] + *index;
    }
    return inputs_.ElementOf(number.input, place);
  }

  const FedInputs& inputs_;
  std::map<int64_t, int64_t> extents_;  // by index
  std::set<int64_t> direct_;            // indices of an axis
  std::map<int64_t, int64_t> at_;
};

// Reads a predicate as a bound of elements of `input`: coefficient * element + rest <= 0.
struct ElementBound {
  int64_t coefficient = 0, rest = 0;
};
std::optional<ElementBound> BoundOf(const FedNumber& holds, const std::string& input) {
  if (holds.kind != FedKind::kIsAtMost) return std::nullopt;
  ElementBound bound;
  const FedNumber& sum = holds.args[0];
  const auto is_element = [&](const FedNumber& number) {
    return number.kind == FedKind::kElement && number.input == input &&
           std::all_of(number.args.begin(), number.args.end(), [](const FedNumber& arg) {
             return arg.kind == FedKind::kIndex || arg.kind == FedKind::kInteger;
           });
  };
  if (is_element(sum)) return ElementBound{1, 0};
  if (sum.kind != FedKind::kSum) return std::nullopt;
  for (const FedNumber& product : sum.args) {
    const int64_t coefficient = product.args.back().value;
    if (product.args.size() == 1) {
      bound.rest += coefficient;
    } else if (product.args.size() == 2 && is_element(product.args[0])) {
      bound.coefficient += coefficient;
    } else {
      return std::nullopt;
    }
  }
  return bound.coefficient == 0 ? std::nullopt : std::optional(bound);
}

}  // namespace

void FedRules::Add(const FedRules& others) {
  for (const FedCondition& condition : others.conditions) {
    const bool known =
        std::any_of(conditions.begin(), conditions.end(), [&](const FedCondition& mine) {
          return mine.text == condition.text && mine.with_past == condition.with_past;
        });
    if (!known) conditions.push_back(condition);
  }
  for (const InputAxis& axis : others.common) {
    if (!IsCommon(axis.input, axis.axis)) common.push_back(axis);
  }
}

std::string FedRules::Broken(const FedInputs& inputs) const {
  for (const FedCondition& condition : conditions) {
    if (condition.with_past && *condition.with_past != inputs.HasPast()) continue;
    if (Evaluator(condition.holds, inputs).Fails(condition.holds)) return condition.text;
  }
  return {};
}

bool FedRules::IsCommon(const std::string& input, int axis) const {
  return std::find(common.begin(), common.end(), InputAxis{input, axis}) != common.end();
}

FedRules::Bounds FedRules::BoundsOf(const std::string& input) const {
  Bounds bounds;
  const auto take = [&](const FedNumber& holds) {
    const auto bound = BoundOf(holds, input);
    if (!bound) return;
    if (bound->coefficient > 0) {
      const int64_t most = FloorDiv(-bound->rest, bound->coefficient);
      bounds.most = std::min(bounds.most.value_or(most), most);
    } else {
      const int64_t least = -FloorDiv(-bound->rest, -bound->coefficient);
      bounds.least = std::max(bounds.least.value_or(least), least);
    }
  };
  for (const FedCondition& condition : conditions) {
    take(condition.holds);
    if (condition.holds.kind != FedKind::kAnd) continue;
    for (const FedNumber& part : condition.holds.args) take(part);
  }
  return bounds;
}

}  // namespace kvlift
