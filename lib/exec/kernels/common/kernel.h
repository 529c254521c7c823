// The definitions of operators: one OpDef per (domain, operator, since_version), listed in the
// table of its file. The executor calls `shape` for the output types and shapes, provides the
// memory, then calls `compute`.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/kernels/common/attributes.h"
#include "exec/memory/tensor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

// An output's type and shape, computed from the inputs of this step.
struct OutputSpec {
  int32_t type = 0;
  Shape shape;
};

// A constant operand rearranged for its kernel, made once when a program is compiled.
struct Prepacked {
  virtual ~Prepacked() = default;
};

struct KernelContext {
  const onnx::NodeProto& node;
  int64_t opset;                   // of the node's domain
  absl::Span<const View> inputs;   // omitted optional inputs are absent(), also at the end
  absl::Span<View> outputs;        // compute only: with memory; absent() if not wanted
  std::vector<OutputSpec>* specs;  // shape only: to be filled, one per output
  int threads = 1;                 // at most this many; results must not depend on it
  bool canonical = true;           // fixed summation order for any batch and row count
  // False while shapes are found: inputs that `shape` does not read may have no data.
  bool inputs_have_data = true;
  const Prepacked* packed = nullptr;  // the result of OpDef::pack for this node, or null
  // The node's attributes; null: kernels search the node itself.
  const Attributes* attributes = nullptr;
};

using KernelFn = absl::Status (*)(KernelContext& context);

// The operands of a pack function. Inputs that are not constant are absent.
struct PackRequest {
  const onnx::NodeProto& node;
  int64_t opset;
  absl::Span<const View> inputs;
  // The operator's input is the transpose of the constant. The Transpose node is left out of the
  // program: `inputs[packs_input]` has the transposed shape, and its data is the constant's,
  // untransposed.
  bool transposed = false;
  bool canonical = true;
  int threads = 1;
};

// Returns null if nothing is gained or there is no memory. Compute must work without the packed
// form too. With it, compute reads no element of the packed input, which may have no data.
using PackFn = std::shared_ptr<const Prepacked> (*)(const PackRequest& request);

// Says where output `output` lies in input 0, for operators whose output may be part of their
// input's memory (Slice, Split, Transpose). Called after `shape`, with the shapes of the outputs;
// inputs have data only where `shape` reads their elements.
struct Part {
  // Index of the output's first element in input 0; -1: the output is not a part of it.
  int64_t offset = -1;
  int64_t pitch = 0;  // in elements, as View::pitch
};
using PartFn = Part (*)(const KernelContext& context, size_t output);

enum class ViewKind {
  kNone,
  kWhole,  // output 0 has the bytes of input 0 (Reshape, Identity, Squeeze): nothing to compute
};

struct OpDef {
  std::string_view domain;  // "" for ai.onnx
  std::string_view op_type;
  int since_version;
  KernelFn shape;
  KernelFn compute;  // null if view is kWhole
  ViewKind view = ViewKind::kNone;
  // The input whose memory output 0 may take over if no other node needs it (elementwise operators,
  // TensorScatter); -1: no input.
  int inplace_input = -1;
  // Called if input `packs_input` is constant, once for all nodes of this operator that share the
  // constant and have equal attributes. Null: the operator packs nothing.
  PackFn pack = nullptr;
  int packs_input = 1;
  bool packs_transposed = false;  // the pack function handles PackRequest::transposed
  // Null: outputs are never parts of input 0.
  PartFn part = nullptr;
  uint32_t pitched_inputs = 0;  // bit i: the kernel accepts View::pitch in input i
};

// Returns the newest definition with since_version <= version, or nullptr. "ai.onnx" is the same
// domain as "".
const OpDef* FindOp(std::string_view domain, std::string_view op_type, int64_t version);
// For tests: replaces the definition of one operator, in all versions, while it lives. At most one
// may live at a time.
class OpReplacementForTest {
 public:
  explicit OpReplacementForTest(const OpDef& def);
  ~OpReplacementForTest();
  OpReplacementForTest(const OpReplacementForTest&) = delete;
  OpReplacementForTest& operator=(const OpReplacementForTest&) = delete;

 private:
  OpDef def_;
};

// Returns all definitions, sorted by domain, operator and since_version.
absl::Span<const OpDef> AllOps();

}  // namespace kvlift::exec
