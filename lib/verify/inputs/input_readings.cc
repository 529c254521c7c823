// The part of InputReader that lists what one input may mean, by its type, its shape and the nodes
// that read it.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "fmt/format.h"
#include "ir/declared_sizes.h"
#include "verify/inputs/input_reader.h"

namespace kvlift::internal {

using onnx::TensorProto;

namespace {

constexpr size_t kMaxReadings = 16;

bool EndsWithTwoOf(const std::vector<Axis>& axes, Extent extent) {
  return axes.size() > 1 && axes.back().extent == extent && axes[axes.size() - 2].extent == extent;
}

}  // namespace

std::vector<Axis> InputReader::AxisOptions(const std::string& name, const Dims& dims, size_t k,
                                           bool whole, bool mask) const {
  const Dim& dim = dims[k];
  const auto wide = wide_.find(name);
  const bool last = k + 1 == dims.size(), first = k == 0;
  if (wide != wide_.end() && wide->second == static_cast<int>(k)) return {{Extent::kKeys, 0}};
  if (dim.value) return StaticOptions(*dim.value, dims, k, whole, mask);
  const auto parts = SummandsOf(dim.param);
  if (parts.size() > 1 && std::any_of(parts.begin(), parts.end(),
                                      [&](const std::string& p) { return past_.count(p) > 0; })) {
    return {{Extent::kKeys, 0}};
  }
  if (slots_.count(dim.param) > 0) return {{Extent::kSlots, 0}};
  if (batch_.count(dim.param) > 0) return {{Extent::kBatch, 1}};
  if (tokens_.count(dim.param) > 0) return {{Extent::kTokens, 0}};
  if (past_.count(dim.param) > 0) return {{Extent::kPast, 0}};
  const Axis free = {Extent::kStatic, kFreeLength, true,
                     dim.param.empty() ? fmt::format("{}[{}]", name, k) : dim.param};
  if (free_.count(dim.param) > 0 && !first) return {free};
  if (first && dims.size() > 1) {
    Axis sequences = {Extent::kBatch, 1};
    sequences.own_name = dim.param;
    return {std::move(sequences)};
  }
  if (k == 1 && dims.size() == 3 && dims[0].value == 3) return {{Extent::kBatch, 1}};
  if (whole || mask) {
    if (dims.size() == 1) return {{Extent::kTokens, 0}, {Extent::kBatch, 1}};
    if (last && !growing_) {
      return {{Extent::kSlots, 0}, {Extent::kKeys, 0}, {Extent::kTokens, 0}};
    }
    if (last) return {{Extent::kKeys, 0}, {Extent::kTokens, 0}};
    return {{Extent::kTokens, 0}, {Extent::kStatic, 1}};
  }
  // An exporter of transformers declares constant sizes as names of digits.
  if (int64_t size = 0; absl::SimpleAtoi(dim.param, &size) && size > 0) {
    return {{Extent::kStatic, size}};
  }
  if (!last || first) return {free};
  return {free, {growing_ ? Extent::kKeys : Extent::kSlots, 0}};
}

std::vector<Axis> InputReader::StaticOptions(int64_t value, const Dims& dims, size_t k, bool whole,
                                             bool mask) const {
  const bool last = k + 1 == dims.size();
  std::vector<Axis> options;
  if (last && !growing_ && slots_values_.contains(value)) {
    if (mask) return {{Extent::kSlots, value}};
    if (whole && dims.size() > 1) options.push_back({Extent::kSlots, value});
  }
  if (value != 1 && k == 0 && out_.fixed_batch == value && (dims.size() > 1 || whole)) {
    options.push_back({Extent::kBatch, 1});
  }
  if (value != 1 && k == 1 && dims.size() == 3 && out_.fixed_batch == value && whole) {
    options.push_back({Extent::kBatch, 1});
  }
  const bool place = mask ? k + 2 == dims.size() : k == (dims.size() == 1 ? 0 : 1) || last;
  if (out_.fixed_tokens == value && (place || (k == 1 && !whole)) &&
      (whole || mask || dims.size() <= 3)) {
    options.push_back({Extent::kTokens, value});
  } else if (out_.fixed_tokens == value && !whole && !mask && IsNewRows(dims, k)) {
    options.push_back({Extent::kTokens, value});
  }
  // Positions may be compared with the keys' as a mask is.
  if (options.empty() && whole && mask && last && out_.fixed_tokens == value) {
    options.push_back({Extent::kTokens, value});
    options.push_back({Extent::kStatic, value});
  }
  if (options.empty()) options.push_back({Extent::kStatic, value});
  return options;
}

// Whether the axes without axis k are those of a cache without its sequence axis, in any order.
bool InputReader::IsNewRows(const Dims& dims, size_t k) const {
  const auto texts = [](const Dims& all, const std::string& letters) {
    std::multiset<std::string> rest;
    for (size_t i = 0; i < all.size(); ++i) {
      const Dim& dim = all[i];
      if (letters[i] == 'S' || letters[i] == '-') continue;
      rest.insert(dim.value ? fmt::format("{}", *dim.value) : dim.param);
    }
    return rest;
  };
  std::string letters(dims.size(), 'D');
  letters[k] = 'S';
  const auto mine = texts(dims, letters);
  return std::any_of(
      relation_.caches.begin(), relation_.caches.end(), [&](const ManifestCache& cache) {
        const Dims* past = ShapeOf(cache.source.input);
        return past != nullptr && mine == texts(*past, LettersOf(cache.source, past->size()));
      });
}

void InputReader::AddTokens(const Dims& dims, SourceInput* input) const {
  Reading reading;
  reading.meaning = table_rows_ > 0 ? Meaning::kTokens : Meaning::kPositions;
  for (size_t k = 0; k < dims.size(); ++k) {
    const bool batch = k == 0 && (dims.size() > 1 || out_.fixed_batch != 1);
    reading.axes.push_back(batch                            ? Axis{Extent::kBatch, 1}
                           : k == (dims.size() > 1 ? 1 : 0) ? Axis{Extent::kTokens, 0}
                                                            : Axis{});
    // A declared batch of one is a constant axis.
    if (batch && dims[0].value == 1) reading.axes.back() = Axis{Extent::kStatic, 1};
    if (batch && batch_.count(dims[0].param) == 0) reading.axes.back().own_name = dims[0].param;
  }
  input->readings.push_back(std::move(reading));
}

void InputReader::AddReadings(const std::string& name, const Dims& dims, bool whole,
                              SourceInput* input) {
  const bool mask =
      !dims.empty() && uses_.IsMask(name) && (whole ? dims.size() > 1 : LooksWide(name, dims));
  std::vector<std::vector<Axis>> shapes = {{}};
  for (size_t k = 0; k < dims.size(); ++k) {
    std::vector<std::vector<Axis>> longer;
    for (const auto& axes : shapes) {
      for (const Axis& option : AxisOptions(name, dims, k, whole, mask)) {
        longer.push_back(axes);
        longer.back().push_back(option);
      }
    }
    shapes = std::move(longer);
  }
  for (auto& axes : shapes) {
    Reading reading;
    reading.axes = std::move(axes);
    if (uses_.IsMask(name) && EndsWithTwoOf(reading.axes, Extent::kTokens)) {
      Reading among_new = reading;  // such as which tokens of a draft tree a token sees
      among_new.axes.back().extent = Extent::kNewKeys;
      AddMeanings(name, whole, std::move(among_new), input);
    }
    AddMeanings(name, whole, std::move(reading), input);
  }
  if (input->readings.size() > kMaxReadings) input->readings.resize(kMaxReadings);
}

// Whether the last axis of a float input may be as long as all keys or slots.
bool InputReader::LooksWide(const std::string& name, const Dims& dims) const {
  if (wide_.count(name) > 0) return true;
  const Dim& last = dims.back();
  if (last.value) return !growing_ && slots_values_.contains(*last.value);
  return past_.count(last.param) == 0 && tokens_.count(last.param) == 0;
}

void InputReader::AddMeanings(const std::string& name, bool whole, Reading reading,
                              SourceInput* input) const {
  const auto add = [&](Meaning meaning, Spelling spelling = Spelling::kOne) {
    reading.meaning = meaning;
    reading.spelling = spelling;
    input->readings.push_back(reading);
  };
  const bool truth = input->type == TensorProto::BOOL;
  if (const auto all = all_.find(name); all != all_.end()) return add(all->second);
  if (reading.Has(Extent::kKeys) || reading.Has(Extent::kNewKeys) ||
      reading.Has(Extent::kSlots)) {
    if (!whole && !uses_.IsTruth(name)) add(Meaning::kMask, Spelling::kAdded);
    add(Meaning::kMask, Spelling::kOne);
    if (truth || !growing_) add(Meaning::kMask, Spelling::kZero);
    if (!whole) add(Meaning::kConstant);
    return;
  }
  // A mask of what no step appends, such as the rows of an encoder: their number is free or fixed.
  const bool of_others =
      !reading.axes.empty() &&
      (!reading.axes.back().free_length.empty() ||
       (reading.axes.size() > 1 && !reading.Has(Extent::kTokens) &&
        reading.axes.back().extent == Extent::kStatic && reading.axes.back().value > 1));
  if (of_others && uses_.IsMask(name) && (whole || uses_.IsTruth(name))) {
    return add(Meaning::kFixedMask);
  }
  if (!whole) return add(reading.Has(Extent::kTokens) ? Meaning::kReal : Meaning::kConstant);
  if (truth) {
    add(Meaning::kFlag);
    return add(Meaning::kNoFlag);
  }
  if (positions_.count(name) > 0) return add(Meaning::kPositions);
  if (reading.Has(Extent::kTokens) && out_.fixed_tokens != 1) {
    add(Meaning::kPositions);
    // Types of tokens index a table of few rows.
    if (input->rows > 0) add(Meaning::kTokens);
    return;
  }
  AddLengths(name, add);
}

template <typename Add>
void InputReader::AddLengths(const std::string& name, const Add& add) const {
  if (uses_.IsOrder(name)) {
    add(Meaning::kBeamIndices);
    add(Meaning::kPositions);
    return;
  }
  const auto at = uses_.LengthAtOperator(name);
  if (at) {
    // The input is the operand's length minus the constant. P + S and P + S - 1 are one apart for
    // any S.
    const bool counts_all = at->first == Length::kTotal || at->first == Length::kLongest;
    const bool total =
        (counts_all && at->second == 0) || (at->first == Length::kLast && at->second == -1);
    const bool last =
        (at->first == Length::kLast && at->second == 0) || (counts_all && at->second == 1);
    if (total || last) {
      add(total ? Meaning::kTotal : Meaning::kLast);
      add(Meaning::kPositions);
      return;
    }
  }
  // The name breaks the tie between lengths that the graph does not distinguish.
  const bool total = name.find("total") != std::string::npos;
  if (total) add(Meaning::kTotal);
  add(Meaning::kPositions);
  add(Meaning::kLast);
  if (!total) add(Meaning::kTotal);
  add(Meaning::kNew);
  add(Meaning::kLastNew);
}

}  // namespace kvlift::internal
