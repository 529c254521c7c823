#include "kvlift/commands/cmd_verify_tensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "fmt/format.h"

namespace kvlift::cli {

const onnx::ValueInfoProto* Find(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
    const std::string& name) {
  for (const auto& v : values) {
    if (v.name() == name) return &v;
  }
  return nullptr;
}

std::vector<Dim> DimsOf(const onnx::ValueInfoProto& value) {
  return TensorType::From(value.type()).shape.value_or(std::vector<Dim>());
}

int32_t TypeOf(const onnx::ValueInfoProto& value) { return value.type().tensor_type().elem_type(); }

bool Differs(const onnx::ValueInfoProto& past, const onnx::ValueInfoProto& present, size_t axis) {
  const std::vector<Dim> a = DimsOf(past), b = DimsOf(present);
  return axis < a.size() && a.size() == b.size() && !a[axis].param.empty() &&
         !b[axis].param.empty() && a[axis].param != b[axis].param;
}

namespace {

std::string TextOf(const Dim& dim) { return dim.value ? fmt::format("{}", *dim.value) : dim.param; }

// Returns the first axis of the first input of integers.
Dim SequencesOfInputs(const onnx::GraphProto& graph) {
  for (const auto& v : graph.input()) {
    const std::vector<Dim> dims = DimsOf(v);
    if (IsIntegerType(TypeOf(v)) && dims.size() == 2) return dims[0];
  }
  return {};
}

// Returns the tensor of which a cache is a part; nullopt if its axes are not known by their
// names.
std::optional<CacheReport> TensorOf(const CacheReport& part, const onnx::GraphProto& before) {
  const auto* past = Find(before.input(), part.input);
  const auto* present = Find(before.output(), part.output);
  if (past == nullptr || present == nullptr) return std::nullopt;
  const std::vector<Dim> dims = DimsOf(*past);
  const Dim batch = SequencesOfInputs(before);
  std::string layout(dims.size(), '?');
  for (size_t k = 0; k < dims.size(); ++k) {
    const bool is_rows = part.growing ? Differs(*past, *present, k)
                                      : !part.capacity.empty() && TextOf(dims[k]) == part.capacity;
    if (is_rows) layout[k] = 'S';
    if (batch.known() && dims[k] == batch) layout[k] = 'B';
  }
  const auto count = [&](char letter) { return absl::c_count(layout, letter); };
  constexpr std::string_view kOthers = "LKND";
  if (count('S') != 1 || count('B') != 1 || count('?') > std::ssize(kOthers)) return std::nullopt;
  size_t next = kOthers.size() - static_cast<size_t>(count('?'));
  for (char& letter : layout) {
    if (letter == '?') letter = kOthers[next++];
  }
  CacheReport tensor = part;
  tensor.id = part.input;
  tensor.layer = 0;
  tensor.role = CacheRole::kKeyValue;
  tensor.axis = static_cast<int64_t>(layout.find('S'));
  tensor.layout = std::move(layout);
  return tensor;
}

}  // namespace

std::vector<CacheReport> WithTensorsWhole(const std::vector<CacheReport>& parts,
                                          const onnx::GraphProto& before,
                                          const onnx::GraphProto& after) {
  std::vector<CacheReport> caches;
  std::set<std::string> whole;
  for (const CacheReport& part : parts) {
    const auto others = std::count_if(parts.begin(), parts.end(), [&](const CacheReport& c) {
      return c.input == part.input && c.output == part.output;
    });
    const auto* own = Find(before.input(), part.input);
    const auto* past = Find(after.input(), part.input);
    const bool named = own != nullptr && past != nullptr && DimsOf(*own) == DimsOf(*past) &&
                       Find(after.output(), part.output) != nullptr;
    std::optional<CacheReport> tensor;
    if (others > 1 && named) tensor = TensorOf(part, before);
    if (!tensor) {
      caches.push_back(part);
    } else if (whole.insert(part.input).second) {
      caches.push_back(*std::move(tensor));
    }
  }
  return caches;
}

}  // namespace kvlift::cli
