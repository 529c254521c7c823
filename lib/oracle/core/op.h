// The interface of the oracle's operators: one function per operator computes all outputs from all
// inputs, in plain loops, from the operator's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "oracle/core/value.h"

namespace kvlift::oracle {

// The call of one operator.
struct OpContext {
  const onnx::NodeProto& node;
  int64_t opset;                 // version of the node's operator set
  const std::vector<Value>& in;  // omitted inputs are absent()
  std::vector<Value>* out;       // one per output of the node
  int64_t budget = 0;            // scalar operations that may be done
  // Scalar operations that were done, beyond a few per element.
  int64_t work = 0;
  // No node reads the results; they are graph outputs only. If computing all elements takes too
  // much work, some are enough.
  bool is_last = false;

  // Adds to `work`. Returns ResourceExhausted if it exceeds `budget`.
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

// Returns nullptr if the oracle cannot compute the operator. "ai.onnx" is the same domain as "".
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
absl::Span<const OpEntry> QLinearOps();
absl::Span<const OpEntry> QuantizedOps();
absl::Span<const OpEntry> ContribOps();
absl::Span<const OpEntry> MultiHeadOps();
absl::Span<const OpEntry> ConvOps();
absl::Span<const OpEntry> RoundedOps();

// Return InvalidArgument, and Unimplemented for a form that the oracle cannot compute.
absl::Status Wrong(const OpContext& c, std::string_view what);
absl::Status NoMeaning(const OpContext& c, std::string_view what);

// Returns the axis in [0, rank), or -1 if it is out of range.
int64_t AxisOf(int64_t axis, int64_t rank);
Dims StridesOf(const Dims& dims);
// Computes the shape of numpy broadcasting; false if the shapes do not broadcast.
bool Broadcast(const Dims& a, const Dims& b, Dims* out);
// Returns, for each element of `dims`, the index of its element in a tensor of shape `from` that is
// broadcast to `dims`.
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
// Returns the elements of an integer input or, if it is absent, the attribute of that name.
std::vector<int64_t> IntsOf(const OpContext& c, size_t input, std::string_view attribute);
// Returns true if each of the inputs first .. last is absent or has one element.
bool AreScalars(const OpContext& c, size_t first, size_t last);
// Returns the value of a tensor of one element, of any type.
double ScalarOf(const Value& v);

}  // namespace kvlift::oracle
