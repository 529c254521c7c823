// How an operator is implemented: one OpDef per (domain, operator, since_version), registered by
// one line in the table of its file. The executor first asks `shape` for the output types and
// shapes, provides the memory, then calls `compute`.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/attributes.h"
#include "exec/tensor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

// Output type and shape as computed from the inputs of this step.
struct OutputSpec {
  int32_t type = 0;
  Shape shape;
};

// Constant operands in the form that a kernel reads fastest, made once when a program is compiled.
struct Prepacked {
  virtual ~Prepacked() = default;
};

struct KernelContext {
  const onnx::NodeProto& node;
  int64_t opset;                   // of the node's domain
  absl::Span<const View> inputs;   // omitted optional inputs are absent(); trailing ones too
  absl::Span<View> outputs;        // preallocated (compute only); absent() if not wanted
  std::vector<OutputSpec>* specs;  // to be filled (shape only), one per output of the node
  int threads = 1;                 // at most this many; results must not depend on it
  bool canonical = true;           // fixed summation order whatever the batch or row count
  bool inputs_have_data = true;
  const Prepacked* packed = nullptr;       // what OpDef::pack returned for this node
  const Attributes* attributes = nullptr;  // of the node; null: kernels look into the node
};

using KernelFn = absl::Status (*)(KernelContext& context);

// What a pack function sees: inputs that are not constant are absent.
struct PackRequest {
  const onnx::NodeProto& node;
  int64_t opset;
  absl::Span<const View> inputs;
  // The constant has the elements of inputs[packs_input] transposed: the Transpose between them is
  // left out, and `data` of that input is the constant's.
  bool transposed = false;
  bool canonical = true;
  int threads = 1;
};

// Null if there is nothing to gain, or no memory. Compute must do without it too; where it has it,
// it reads no element of the input that was packed, which then may have no data.
using PackFn = std::shared_ptr<const Prepacked> (*)(const PackRequest& request);

// Of operators that may hand on a part of input 0 as it lies in memory (Slice, Split, Transpose):
// where output `output` lies in input 0. Called after `shape`, with the shapes of the outputs and
// the elements that `shape` reads.
struct Part {
  int64_t offset = -1;  // its first element; -1: it is no such part
  int64_t pitch = 0;    // as View::pitch
};
using PartFn = Part (*)(const KernelContext& context, size_t output);

enum class ViewKind {
  kNone,
  kWhole,  // output 0 has the bytes of input 0 (Reshape, Identity, Squeeze, ...): no compute
};

struct OpDef {
  std::string_view domain;  // "" for ai.onnx
  std::string_view op_type;
  int since_version;
  KernelFn shape;
  KernelFn compute;  // null if view is kWhole
  ViewKind view = ViewKind::kNone;
  // Output 0 may use the memory of this input if nobody else needs it (elementwise operators,
  // TensorScatter); -1: never.
  int inplace_input = -1;
  // Called if input `packs_input` is constant; once for all nodes of this operator that share it
  // and have equal attributes.
  PackFn pack = nullptr;
  int packs_input = 1;
  bool packs_transposed = false;  // PackRequest::transposed is understood
  PartFn part = nullptr;
  uint32_t pitched_inputs = 0;  // bit i: input i may have a pitch
};

// The newest definition with since_version <= version; nullptr if there is none.
const OpDef* FindOp(std::string_view domain, std::string_view op_type, int64_t version);
// For tests: while it lives, FindOp gives `def` instead of the definition of that operator,
// whatever the version. One at a time.
class OpDouble {
 public:
  explicit OpDouble(const OpDef& def);
  ~OpDouble();
  OpDouble(const OpDouble&) = delete;
  OpDouble& operator=(const OpDouble&) = delete;

 private:
  OpDef def_;
};

// All definitions, sorted by domain, name, version.
absl::Span<const OpDef> AllOps();

}  // namespace kvlift::exec
