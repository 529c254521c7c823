#include "oracle/core/op.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "ir/graph.h"

namespace kvlift::oracle {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

absl::flat_hash_map<Key, OpFn> MakeTable() {
  absl::flat_hash_map<Key, OpFn> table;
  for (const auto& entries :
       {MovementOps(), IndexOps(), ShapeOps(), ElementwiseOps(), LogicOps(), ReductionOps(),
        ProductOps(), NormOps(), QLinearOps(), QuantizedOps(), ContribOps(), MultiHeadOps(),
        ConvOps(), RoundedOps(), FunctionOps()}) {
    for (const OpEntry& entry : entries) table[{entry.domain, entry.name}] = entry.run;
  }
  return table;
}

}  // namespace

OpFn FindMeaning(std::string_view domain, std::string_view name) {
  static const auto* const table = new absl::flat_hash_map<Key, OpFn>(MakeTable());
  const auto it = table->find(Key{domain == "ai.onnx" ? "" : domain, name});
  return it == table->end() ? nullptr : it->second;
}

absl::Status OpContext::Spend(int64_t operations) {
  work += operations;
  if (work <= budget) return absl::OkStatus();
  return absl::ResourceExhaustedError("more work than the oracle may do");
}

int64_t OpContext::Int(std::string_view name, int64_t fallback) const {
  return IntAttribute(node, name, fallback);
}
float OpContext::Float(std::string_view name, float fallback) const {
  return FloatAttribute(node, name, fallback);
}
std::string OpContext::Text(std::string_view name, std::string_view fallback) const {
  return StringAttribute(node, name, fallback);
}
std::vector<int64_t> OpContext::Ints(std::string_view name) const {
  return IntsAttribute(node, name);
}
bool OpContext::HasAttribute(std::string_view name) const {
  return FindAttribute(node, name) != nullptr;
}

absl::Status Wrong(const OpContext& c, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", c.node.op_type(), what));
}

absl::Status NoMeaning(const OpContext& c, std::string_view what) {
  return absl::UnimplementedError(fmt::format("{} with {}", c.node.op_type(), what));
}

int64_t AxisOf(int64_t axis, int64_t rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  return a < 0 || a >= rank ? -1 : a;
}

Dims StridesOf(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t k = dims.size(); k-- > 1;) strides[k - 1] = strides[k] * dims[k];
  return strides;
}

bool Broadcast(const Dims& a, const Dims& b, Dims* out) {
  const size_t rank = std::max(a.size(), b.size());
  Dims result(rank, 1);
  for (size_t k = 0; k < rank; ++k) {
    const int64_t x = k + a.size() < rank ? 1 : a[k + a.size() - rank];
    const int64_t y = k + b.size() < rank ? 1 : b[k + b.size() - rank];
    if (x != y && x != 1 && y != 1) return false;
    result[k] = x == 1 ? y : x;
  }
  *out = std::move(result);
  return true;
}

std::vector<int64_t> BroadcastIndex(const Dims& from, const Dims& dims) {
  Dims strides(dims.size(), 0);
  const Dims own = StridesOf(from);
  const size_t lead = dims.size() - from.size();
  for (size_t k = 0; k < from.size(); ++k) strides[lead + k] = from[k] == 1 ? 0 : own[k];
  std::vector<int64_t> index(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) { index[i] = Flat(at, strides); });
  return index;
}

int64_t Flat(const Dims& at, const Dims& strides) {
  int64_t flat = 0;
  for (size_t k = 0; k < at.size(); ++k) flat += at[k] * strides[k];
  return flat;
}

std::vector<int64_t> IntsOf(const OpContext& c, size_t input, std::string_view attribute) {
  return c.has(input) ? c.in[input].integers() : c.Ints(attribute);
}

bool AreScalars(const OpContext& c, size_t first, size_t last) {
  for (size_t k = first; k <= last; ++k) {
    if (c.has(k) && c.in[k].size() != 1) return false;
  }
  return true;
}

double ScalarOf(const Value& v) {
  return v.real() ? v.reals().value[0] : static_cast<double>(v.integers()[0]);
}

}  // namespace kvlift::oracle
