#include "verify/inputs/input_meanings.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "exec/memory/small_types.h"
#include "fmt/format.h"
#include "ir/declared_sizes.h"
#include "verify/inputs/input_reader.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

uint64_t Hash(std::string_view text) {
  uint64_t h = 1469598103934665603u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

bool IsWhole(int32_t type) { return IsIntegerType(type) || type == TensorProto::BOOL; }

}  // namespace

namespace internal {

absl::StatusOr<SourceInterface> InputReader::Run() {
  for (const ManifestCache& cache : relation_.caches) {
    growing_ = growing_ || cache.source.growing;
  }
  ReadRelation();
  FindTokens();
  for (const ManifestCache& cache : relation_.caches) ReadCache(cache);
  FindFreeNames();
  if (out_.fixed_batch.value_or(1) < 1 || out_.fixed_tokens.value_or(1) < 1) {
    return absl::FailedPreconditionError("the source is declared for no sequences or no tokens");
  }
  for (ValueId v : graph_.graph_inputs()) {
    if (out_.caches.count(graph_.name(v)) > 0) continue;
    KV_RETURN_IF_ERROR(AddInput(v));
  }
  KV_RETURN_IF_ERROR(CheckSymbols());
  return std::move(out_);
}

const InputReader::Dims* InputReader::ShapeOf(const std::string& name) const {
  const ValueId v = graph_.Find(name);
  if (v == kNoValue || !graph_.type(v).shape) return nullptr;
  return &*graph_.type(v).shape;
}

// Refuses a source in which one dimension name stands for the batch and for a length: it runs
// only where the two happen to be equal.
absl::Status InputReader::CheckSymbols() const {
  auto batch = batch_, lengths = tokens_;
  for (const auto& [name, input] : out_.inputs) {
    const Dims& dims = *ShapeOf(name);
    const std::vector<Reading>& readings = input.readings;
    if (dims.size() > 1 && uses_.IsMask(name)) lengths.insert(dims.back().param);
    for (size_t k = 0; k < dims.size(); ++k) {
      if (dims[k].param.empty()) continue;
      const auto every = [&](auto holds) {
        return std::all_of(readings.begin(), readings.end(),
                           [&](const Reading& reading) { return holds(reading.axes[k].extent); });
      };
      if (every([](Extent e) { return e == Extent::kBatch; })) batch.insert(dims[k].param);
      if (every([](Extent e) { return e != Extent::kBatch && e != Extent::kStatic; })) {
        lengths.insert(dims[k].param);
      }
    }
  }
  for (const std::string& symbol : lengths) {
    if (symbol.empty() || batch.count(symbol) == 0) continue;
    return absl::FailedPreconditionError(
        fmt::format("{} is declared as the number of sequences and as that of tokens", symbol));
  }
  return absl::OkStatus();
}

// Returns the letter of each axis of a source cache; '-' for an axis on which an index is
// selected.
std::string InputReader::LettersOf(const SourceCache& cache, size_t rank) {
  std::string letters;
  size_t next = 0;
  for (size_t k = 0; k < rank; ++k) {
    const bool fixed = std::any_of(cache.select.begin(), cache.select.end(), [&](const Select& s) {
      return s.axis == static_cast<int64_t>(k);
    });
    letters += fixed || next >= cache.layout.size() ? '-' : cache.layout[next++];
  }
  return letters;
}

// Collects the dimension names of the caches' sequence axes, and what the relation requires of
// inputs.
void InputReader::ReadRelation() {
  for (const ManifestCache& cache : relation_.caches) {
    const Dims* dims = ShapeOf(cache.source.input);
    if (dims == nullptr) continue;
    cache_inputs_.insert(cache.source.input);
    const std::string letters = LettersOf(cache.source, dims->size());
    const size_t axis = letters.find('S');
    if (axis == std::string::npos) continue;
    const Dim& dim = (*dims)[axis];
    if (cache.source.sliding) continue;  // its slots are neither P nor those of other buffers
    if (dim.value) slots_values_.insert(*dim.value);
    if (!dim.param.empty()) (cache.source.growing ? past_ : slots_).insert(dim.param);
  }
  for (const ManifestInput& input : relation_.inputs) {
    const std::string& theirs = NameInSource(input);
    if (const PaddedInput* padded = AsPadded(input)) {
      wide_[theirs] = static_cast<int>(padded->axis);
    }
    if (IsFedToBoth(input)) kept_[theirs] = input.name;
    ReadAll(theirs, input.all);
  }
  for (const DroppedInput& dropped : relation_.dropped) {
    if (IsGiven(dropped, DroppedValue::kPositions)) positions_.insert(dropped.name);
    ReadAll(dropped.name, AllOf(dropped));
  }
}

void InputReader::ReadAll(const std::string& name, std::optional<AllElements> all) {
  if (all) all_[name] = *all == AllElements::kOnes ? Meaning::kOnes : Meaning::kZeros;
}

InputUses::Table InputReader::TableOf(const std::string& name) const {
  InputUses::Table table = uses_.TableOf(name);
  const auto kept = kept_.find(name);
  if (table.rows == 0 && kept != kept_.end()) table = after_uses_.TableOf(kept->second);
  return table;
}

bool InputReader::NamedPosition(const std::string& name) {
  return name.find("pos") != std::string::npos;
}

// Whether an input cannot hold tokens: it is a cache, a mask as wide as the capacity, or the same
// number everywhere.
bool InputReader::SaysNoTokens(const std::string& name) const {
  return cache_inputs_.count(name) > 0 || wide_.count(name) > 0 || all_.count(name) > 0;
}

// Finds the input that holds the tokens: the one that indexes the widest table and is not a
// position; else embeddings; else any that indexes a table; else integers with one per token;
// else the new rows of caches.
void InputReader::FindTokens() {
  FindTokenIds(/*any=*/false);
  if (tokens_input_.empty()) FindHiddenTokens(/*floats=*/true);
  if (tokens_input_.empty()) FindTokenIds(/*any=*/true);
  if (tokens_input_.empty()) FindHiddenTokens(/*floats=*/false);
  if (tokens_input_.empty()) FindNewRows();
  const Dims* dims = ShapeOf(tokens_input_);
  if (dims != nullptr) ReadTokenShape(*dims);
}

// any: inputs that may be positions are considered as well.
void InputReader::FindTokenIds(bool any) {
  int64_t widest = 0;
  for (ValueId v : graph_.graph_inputs()) {
    const std::string& name = graph_.name(v);
    const TensorType& type = graph_.type(v);
    if (SaysNoTokens(name) || positions_.count(name) > 0) continue;
    if (!type.shape || !IsIntegerType(type.elem_type)) continue;
    const InputUses::Table table = TableOf(name);
    if (table.rows == 0) continue;
    if (!any && (NamedPosition(name) || uses_.IsPosition(name) || uses_.IsOrder(name))) continue;
    if (table.width > widest) {
      widest = table.width;
      tokens_input_ = name;
      table_rows_ = table.rows;
    }
  }
}

// Finds embeddings or hidden states or, without `floats`, token ids that index no table.
void InputReader::FindHiddenTokens(bool floats) {
  for (ValueId v : graph_.graph_inputs()) {
    const std::string& name = graph_.name(v);
    const TensorType& type = graph_.type(v);
    if (SaysNoTokens(name)) continue;
    if (!type.shape || type.shape->size() < 2 || type.shape->size() > 3) continue;
    if (floats ? !IsFloatType(type.elem_type) : !IsIntegerType(type.elem_type)) continue;
    if (type.shape->size() == 3 && !floats) continue;
    const Dim& second = (*type.shape)[1];
    if (past_.count(second.param) > 0 || SummandsOf(second.param).size() > 1) continue;
    if (uses_.IsMask(name) || positions_.count(name) > 0) continue;
    if (!floats && (NamedPosition(name) || uses_.IsPosition(name))) continue;
    tokens_input_ = name;
    return;
  }
}

// Finds inputs that are the new rows of a cache: keys or values.
void InputReader::FindNewRows() {
  for (ValueId v : graph_.graph_inputs()) {
    const TensorType& type = graph_.type(v);
    if (SaysNoTokens(graph_.name(v)) || !type.shape || !IsFloatType(type.elem_type)) continue;
    for (size_t k = 0; k < type.shape->size(); ++k) {
      const Dim& dim = (*type.shape)[k];
      if (!dim.known() || past_.count(dim.param) > 0 || !IsNewRows(*type.shape, k)) continue;
      if (dim.value) out_.fixed_tokens = *dim.value;
      if (!dim.param.empty()) tokens_.insert(dim.param);
      return;
    }
  }
}

void InputReader::ReadTokenShape(const Dims& dims) {
  const size_t axis = dims.size() == 1 ? 0 : 1;
  if (dims.empty()) return;
  // The axis may be the batch, with one token per sequence and no axis of tokens.
  const bool batch_only =
      dims.size() == 1 && std::any_of(relation_.caches.begin(), relation_.caches.end(),
                                      [&](const ManifestCache& c) { return BatchIs(c, dims[0]); });
  if (batch_only) {
    out_.fixed_tokens = 1;
  } else if (dims[axis].value) {
    out_.fixed_tokens = *dims[axis].value;
  } else if (!dims[axis].param.empty() && past_.count(dims[axis].param) == 0) {
    tokens_.insert(dims[axis].param);
  }
  if (dims.size() >= 2 || batch_only) {
    if (dims[0].value) out_.fixed_batch = *dims[0].value;
    if (!dims[0].param.empty()) batch_.insert(dims[0].param);
  } else {
    out_.fixed_batch = 1;
  }
}

// Returns true if the dimension name is that of B, S, P, M or a sum with one of them.
bool InputReader::IsNameOfStep(const std::string& name) const {
  const auto of_step = [&](const std::string& part) {
    return batch_.count(part) > 0 || tokens_.count(part) > 0 || past_.count(part) > 0 ||
           slots_.count(part) > 0;
  };
  const auto parts = SummandsOf(name);
  return of_step(name) || std::any_of(parts.begin(), parts.end(), of_step);
}

// Finds the names of lengths that no step determines: those of an inner axis of an input of numbers
// that is neither a cache nor a mask, such as the keys of an encoder.
void InputReader::FindFreeNames() {
  for (ValueId v : graph_.graph_inputs()) {
    const std::string& name = graph_.name(v);
    const TensorType& type = graph_.type(v);
    if (SaysNoTokens(name) || name == tokens_input_ || !type.shape || uses_.IsMask(name) ||
        !IsFloatType(type.elem_type)) {
      continue;
    }
    for (size_t k = 1; k + 1 < type.shape->size(); ++k) {
      const std::string& param = (*type.shape)[k].param;
      int64_t size = 0;  // transformers declares constant sizes as names of digits
      if (!param.empty() && !absl::SimpleAtoi(param, &size) && !IsNameOfStep(param)) {
        free_.insert(param);
      }
    }
  }
}

bool InputReader::BatchIs(const ManifestCache& cache, const Dim& dim) const {
  const Dims* dims = ShapeOf(cache.source.input);
  if (dims == nullptr) return false;
  const size_t axis = LettersOf(cache.source, dims->size()).find('B');
  if (axis == std::string::npos) return false;
  return (*dims)[axis] == dim && dim.known() && dim.value.value_or(0) != 1;
}

std::optional<int64_t> InputReader::SizeOfPresent(const ManifestCache& cache, size_t axis,
                                                  size_t rank) const {
  const Dims* dims = ShapeOf(cache.source.output);
  return dims != nullptr && dims->size() == rank ? (*dims)[axis].value : std::nullopt;
}

void InputReader::ReadCache(const ManifestCache& cache) {
  const Dims* dims = ShapeOf(cache.source.input);
  if (dims == nullptr || out_.caches.count(cache.source.input) > 0) return;
  const std::string letters = LettersOf(cache.source, dims->size());
  std::vector<Axis> axes;
  for (size_t k = 0; k < dims->size(); ++k) {
    const Dim& dim = (*dims)[k];
    Axis axis;
    if (letters[k] == 'B') {
      axis.extent = Extent::kBatch;
      if (dim.value) {
        // Heads may be joined with the batch: then there are more rows than sequences.
        if (!out_.fixed_batch) out_.fixed_batch = *dim.value;
        if (*out_.fixed_batch < 1) return;  // Run reports it
        axis.value = std::max<int64_t>(1, *dim.value / *out_.fixed_batch);
      } else {
        axis.settled = batch_.count(dim.param) > 0 || letters.size() >= 4;
        if (axis.settled && !dim.param.empty()) batch_.insert(dim.param);
      }
    } else if (letters[k] == 'S') {
      axis.extent = cache.source.growing ? Extent::kPast : Extent::kSlots;
    } else {
      // An exporter may leave a size of the past symbolic that the present declares.
      const auto size = dim.value ? dim.value : SizeOfPresent(cache, k, dims->size());
      axis.value = size.value_or(1);
      axis.settled = size.has_value();
    }
    axes.push_back(axis);
  }
  out_.caches[cache.source.input] = std::move(axes);
  const ValueId past = graph_.Find(cache.source.input);
  const int32_t read = TypeOfAllCasts(graph_, past);
  if (IsFloatType(read) && ElementBits(read) < ElementBits(graph_.type(past).elem_type)) {
    out_.numbers_of_caches[cache.source.input] = {read, std::nullopt};
  } else if (auto quantizer = QuantizerOfRows(graph_, past, graph_.Find(cache.source.output))) {
    out_.numbers_of_caches[cache.source.input] = {graph_.type(past).elem_type, quantizer};
  }
  const auto type_of = [&](const ManifestCache& one) {
    const ValueId input = graph_.Find(one.source.input);
    return input == kNoValue ? 0 : graph_.type(input).elem_type;
  };
  const bool beside =
      std::any_of(relation_.caches.begin(), relation_.caches.end(),
                  [&](const ManifestCache& other) { return exec::IsSmallInteger(type_of(other)); });
  if (beside && IsFloatType(type_of(cache))) out_.small_caches.insert(cache.source.input);
}

absl::Status InputReader::AddInput(ValueId v) {
  const std::string& name = graph_.name(v);
  const TensorType& type = graph_.type(v);
  if (!type.shape || type.elem_type == 0) {
    return absl::FailedPreconditionError(fmt::format("input {} has no declared shape", name));
  }
  const bool whole = IsWhole(type.elem_type);
  const bool real = IsFloatType(type.elem_type) && ElementBits(type.elem_type) != 6;
  if (!whole && !real) {
    return absl::FailedPreconditionError(
        fmt::format("input {} of type {} cannot be fed", name, ElementTypeName(type.elem_type)));
  }
  SourceInput input;
  input.type = type.elem_type;
  input.salt = Hash(name);
  input.compared = whole && uses_.IsCompared(name);
  input.position = name != tokens_input_ && (input.compared || (whole && uses_.IsPosition(name)));
  const auto length = uses_.LengthAtOperator(name);
  input.of_longest = length && length->first == Length::kLongest;
  if (name == tokens_input_ && whole) {
    input.rows = table_rows_;
    AddTokens(*type.shape, &input);
  } else {
    if (whole) input.rows = TableOf(name).rows;
    AddReadings(name, *type.shape, whole, &input);
  }
  out_.inputs[name] = std::move(input);
  return absl::OkStatus();
}
}  // namespace internal

bool Reading::Has(Extent extent) const {
  return std::any_of(axes.begin(), axes.end(),
                     [extent](const Axis& a) { return a.extent == extent; });
}

absl::StatusOr<SourceInterface> ReadInterface(const Graph& source, const Graph& after,
                                              const Manifest& relation) {
  return internal::InputReader(source, after, relation).Run();
}

}  // namespace kvlift
