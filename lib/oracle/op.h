// How an operator is written for the oracle: one function per operator that computes all outputs
// from all inputs, in plain loops, from the operator's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "oracle/value.h"

namespace kvlift::oracle {

struct OpContext {
  const onnx::NodeProto& node;
  int64_t opset;                 // of the node's domain
  const std::vector<Value>& in;  // omitted inputs are absent()
  std::vector<Value>* out;       // as many as the node has outputs
  int64_t budget = 0;            // scalar operations that may be done
  int64_t work = 0;              // and have been, where they are more than elements
  // Nothing but the host reads the results: some elements are enough where all are too many.
  bool is_last = false;

  // ResourceExhausted if that is too much.
  absl::Status Spend(int64_t operations);
  bool has(size_t i) const { return i < in.size() && !in[i].absent(); }
  bool wants(int i) const { return i < node.output_size() && !node.output(i).empty(); }
  int64_t Int(std::string_view name, int64_t fallback) const;
  float Float(std::string_view name, float fallback) const;
  std::string Text(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> Ints(std::string_view name) const;
  bool HasAttribute(std::string_view name) const;
};

using OpFn = absl::Status (*)(OpContext& context);

struct OpEntry {
  std::string_view domain, name;
  OpFn run;
};

// nullptr if the oracle has no meaning for the operator.
OpFn FindMeaning(std::string_view domain, std::string_view name);
absl::Span<const OpEntry> MovementOps();
absl::Span<const OpEntry> IndexOps();
absl::Span<const OpEntry> ShapeOps();
absl::Span<const OpEntry> ElementwiseOps();
absl::Span<const OpEntry> FunctionOps();
absl::Span<const OpEntry> LogicOps();
absl::Span<const OpEntry> ReductionOps();
absl::Span<const OpEntry> ProductOps();
absl::Span<const OpEntry> NormOps();
absl::Span<const OpEntry> QuantizedOps();
absl::Span<const OpEntry> ContribOps();
absl::Span<const OpEntry> MultiHeadOps();
absl::Span<const OpEntry> ConvOps();
absl::Span<const OpEntry> RoundedOps();

absl::Status Wrong(const OpContext& c, std::string_view what);      // InvalidArgument
absl::Status NoMeaning(const OpContext& c, std::string_view what);  // Unimplemented

// -rank <= axis < rank, made non-negative; -1 if out of range.
int64_t AxisOf(int64_t axis, int64_t rank);
Dims StridesOf(const Dims& dims);
// Numpy's common shape; false if there is none.
bool Broadcast(const Dims& a, const Dims& b, Dims* out);
// For each element of `dims` the element of a tensor of shape `from` that is broadcast to it.
std::vector<int64_t> BroadcastIndex(const Dims& from, const Dims& dims);
// Calls f(flat index, coordinates) for each element in order.
template <typename F>
void ForEach(const Dims& dims, F f) {
  const int64_t size = Product(dims);
  Dims at(dims.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    f(i, at);
    for (size_t k = dims.size(); k-- > 0;) {
      if (++at[k] < dims[k]) break;
      at[k] = 0;
    }
  }
}
int64_t Flat(const Dims& at, const Dims& strides);
// The elements of an input of integers, or an attribute of that name where the input is absent.
std::vector<int64_t> IntsOf(const OpContext& c, size_t input, std::string_view attribute);
// Whether each of these inputs is absent or has one element.
bool AreScalars(const OpContext& c, size_t first, size_t last);
// The value of a scalar of any type.
double ScalarOf(const Value& v);

}  // namespace kvlift::oracle
