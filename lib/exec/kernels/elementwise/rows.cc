#include "exec/kernels/elementwise/rows.h"

#include <fmt/format.h>

#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/elementwise_binary.h"
#include "exec/kernels/elementwise/rows_isa.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

constexpr int64_t kTile = 1024;  // elements of a long row that are computed together

template <typename T>
using Few = absl::InlinedVector<T, 24>;

const RowTable& Table() {
  static const RowTable& table = &Isa() == Avx512Isa() && Avx512Rows() != nullptr ? *Avx512Rows()
                                 : &Isa() == Avx2Isa() && Avx2Rows() != nullptr   ? *Avx2Rows()
                                                                                  : GenericRows();
  return table;
}

bool IsSmall(int32_t type) { return type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16; }

void WidenRow(const std::byte* x, int32_t type, int64_t n, float* y) {
  const auto* bits = reinterpret_cast<const uint16_t*>(x);
  (type == TensorProto::FLOAT16 ? Isa().convert.half_to_float : Isa().convert.bfloat_to_float)(
      bits, n, y);
}
void NarrowRow(const float* x, int32_t type, int64_t n, std::byte* y) {
  auto* bits = reinterpret_cast<uint16_t*>(y);
  (type == TensorProto::FLOAT16 ? Isa().convert.float_to_half : Isa().convert.float_to_bfloat)(
      x, n, bits);
}

// Rounds x to a 16-bit type in place.
void Round(float* x, int32_t type, int64_t n) {
  constexpr int64_t kPiece = 256;
  std::byte bits[2 * kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i);
    NarrowRow(x + i, type, count, bits);
    WidenRow(bits, type, count, x + i);
  }
}

template <typename F>
void MapRowWith(const float* x, int64_t n, float* y, F f) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

struct Bounds {
  int64_t begin, end;
};
// Clamps as Slice does with a step of 1.
Bounds Clamp(int64_t begin, int64_t end, int64_t length) {
  if (begin < 0) begin += length;
  if (end < 0) end += length;
  begin = std::clamp<int64_t>(begin, 0, length);
  return {begin, std::max(begin, std::clamp<int64_t>(end, 0, length))};
}

int64_t LastDim(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }

// The sizes of one call.
struct RowPlan {
  Shape out;
  Few<int32_t> type;    // by value
  Few<int64_t> length;  // by value: length of its rows
  bool flat = false;    // every input is one row or one element
  int64_t rows = 1;
  // The outer dimensions, merged where all inputs allow it, and the row strides of each input along
  // them.
  absl::InlinedVector<int64_t, 6> dims;
  Few<absl::InlinedVector<int64_t, 6>> strides;
};

absl::Status Derive(const KernelContext& context, const RowProgram& program, RowPlan* plan) {
  for (const View& input : context.inputs) {
    if (input.type != TensorProto::FLOAT && !IsSmall(input.type)) {
      return Unsupported(context, "an input is of no float type that rows are computed in");
    }
    plan->type.push_back(input.type);
    plan->length.push_back(LastDim(input.shape));
  }
  for (const RowInstruction& i : program.code) {
    int32_t type = plan->type[i.a];
    int64_t n = plan->length[i.a];
    if (IsBinary(i.op)) {
      const int64_t m = plan->length[i.b];
      if (type != plan->type[i.b]) return Invalid(context, "inputs differ in type");
      if (i.op == RowOp::kConcat) {
        n += m;
      } else if (n != m && n != 1 && m != 1) {
        return Invalid(context, fmt::format("rows of {} and {} do not broadcast", n, m));
      } else {
        n = n == 1 ? m : n;
      }
    } else if (i.op == RowOp::kMean) {
      n = 1;
    } else if (i.op == RowOp::kSlice) {
      const Bounds bounds = Clamp(i.p, i.q, n);
      n = bounds.end - bounds.begin;
    } else if (i.op == RowOp::kCast) {
      type = static_cast<int32_t>(i.p);
    }
    plan->type.push_back(type);
    plan->length.push_back(n);
  }
  // Broadcasts the outer dimensions of all values together.
  Shape outer;
  size_t rank = 0;
  for (const View& input : context.inputs) {
    Shape dims = input.shape;
    rank = std::max(rank, dims.size());
    if (!dims.empty()) dims.pop_back();
    Shape joint;
    if (!BroadcastShapes(outer, dims, &joint)) {
      return Invalid(context, fmt::format("{} does not broadcast to the other inputs",
                                          ShapeString(input.shape)));
    }
    outer = std::move(joint);
  }
  plan->out = outer;
  if (rank > 0) plan->out.push_back(plan->length.back());
  return absl::OkStatus();
}

// Merges the outer dimensions, innermost first.
void Arrange(const KernelContext& context, const RowProgram& program, RowPlan* plan) {
  const int64_t total = NumElements(plan->out);
  plan->flat = program.pointwise;
  for (const View& input : context.inputs) {
    plan->flat = plan->flat && (input.size() == total || input.size() == 1);
  }
  const size_t inputs = context.inputs.size();
  plan->strides.resize(inputs);
  if (plan->flat) {
    for (size_t k = 0; k < inputs; ++k) plan->length[k] = context.inputs[k].size();
    for (size_t v = inputs; v < plan->length.size(); ++v) {
      const RowInstruction& i = program.code[v - inputs];
      plan->length[v] = plan->length[i.a];
      if (IsBinary(i.op)) plan->length[v] = std::max(plan->length[v], plan->length[i.b]);
    }
    return;
  }
  Shape outer = plan->out;
  if (!outer.empty()) outer.pop_back();
  Few<absl::InlinedVector<int64_t, 6>> all;
  for (const View& input : context.inputs) {
    Shape dims = input.shape;
    if (!dims.empty()) dims.pop_back();
    all.push_back(BroadcastStrides(dims, outer));
  }
  for (size_t d = outer.size(); d-- > 0;) {
    if (outer[d] == 1) continue;
    plan->rows *= outer[d];
    bool merges = !plan->dims.empty();
    for (size_t k = 0; merges && k < inputs; ++k) {
      merges = all[k][d] == plan->strides[k].back() * plan->dims.back();
    }
    if (merges) {
      plan->dims.back() *= outer[d];
      continue;
    }
    plan->dims.push_back(outer[d]);
    for (size_t k = 0; k < inputs; ++k) plan->strides[k].push_back(all[k][d]);
  }
}

// Yields the row of each input that belongs to a row of the result, row by row.
class Odometer {
 public:
  Odometer(const RowPlan& plan, int64_t row) : plan_(plan), rows_(plan.strides.size(), 0) {
    for (size_t d = 0; d < plan.dims.size(); ++d) {
      at_.push_back(row % plan.dims[d]);
      row /= plan.dims[d];
      for (size_t k = 0; k < rows_.size(); ++k) rows_[k] += at_[d] * plan.strides[k][d];
    }
  }
  int64_t operator[](size_t input) const { return rows_[input]; }
  void Next() {
    for (size_t d = 0; d < at_.size(); ++d) {
      const bool wraps = ++at_[d] == plan_.dims[d];
      const int64_t by = wraps ? 1 - plan_.dims[d] : 1;
      for (size_t k = 0; k < rows_.size(); ++k) rows_[k] += by * plan_.strides[k][d];
      if (!wraps) return;
      at_[d] = 0;
    }
  }

 private:
  const RowPlan& plan_;
  Few<int64_t> at_, rows_;
};

// Computes rows, or pieces of rows, on one thread.
class RowRunner {
 public:
  RowRunner(const KernelContext& context, const RowProgram& program, const RowPlan& plan)
      : context_(context), program_(program), plan_(plan) {
    const size_t inputs = context.inputs.size();
    for (size_t v = 0; v < plan.length.size(); ++v) {
      const int64_t most = program.pointwise ? std::min(kTile, plan.length[v]) : plan.length[v];
      const bool in_place = v < inputs && !IsSmall(plan.type[v]);
      room_.push_back(in_place ? nullptr : scratch_.Get<float>(most));
    }
    value_.resize(room_.size());
  }

  // Computes elements [begin, begin + n) of a row. Unless all instructions are pointwise, that is
  // the whole row.
  void Run(const Odometer& rows, int64_t row, int64_t begin, int64_t n) {
    const size_t inputs = context_.inputs.size(), last = value_.size() - 1;
    for (size_t k = 0; k < inputs; ++k) Load(k, rows[k], begin, n);
    const int32_t type = plan_.type[last];
    std::byte* out =
        context_.outputs[0].data + (row * plan_.length[last] + begin) * (IsSmall(type) ? 2 : 4);
    for (size_t v = inputs; v <= last; ++v) {
      const RowInstruction& i = program_.code[v - inputs];
      if (i.op == RowOp::kSlice) {
        value_[v] = value_[i.a] + Clamp(i.p, i.q, plan_.length[i.a]).begin;
        continue;
      }
      float* y = v == last && !IsSmall(type) ? reinterpret_cast<float*>(out) : room_[v];
      Compute(i, Count(v, n), y);
      value_[v] = y;
      if (v < last && IsSmall(plan_.type[v]) && i.op != RowOp::kConcat) {
        Round(y, plan_.type[v], Count(v, n));
      }
    }
    if (IsSmall(type)) {
      NarrowRow(value_[last], type, Count(last, n), out);
    } else if (value_[last] != reinterpret_cast<float*>(out)) {
      std::copy_n(value_[last], Count(last, n), reinterpret_cast<float*>(out));
    }
  }

 private:
  // Returns the elements of value v that n elements of the result need.
  int64_t Count(size_t v, int64_t n) const {
    return !program_.pointwise ? plan_.length[v] : plan_.length[v] == 1 ? 1 : n;
  }

  void Load(size_t k, int64_t row, int64_t begin, int64_t n) {
    const View& input = context_.inputs[k];
    const int64_t length = plan_.length[k], at = row * length + (length == 1 ? 0 : begin);
    if (!IsSmall(input.type)) {
      value_[k] = input.as<float>() + at;
      return;
    }
    WidenRow(input.data + 2 * at, input.type, Count(k, n), room_[k]);
    value_[k] = room_[k];
  }

  void Compute(const RowInstruction& i, int64_t n, float* y) const {
    const float* a = value_[i.a];
    const float* b = value_[i.b];
    const int step_a = plan_.length[i.a] == 1 ? 0 : 1, step_b = plan_.length[i.b] == 1 ? 0 : 1;
    const RowTable& table = Table();
    switch (i.op) {
      case RowOp::kAdd:
        return table.add(a, step_a, b, step_b, n, y);
      case RowOp::kSub:
        return table.sub(a, step_a, b, step_b, n, y);
      case RowOp::kMul:
        return table.mul(a, step_a, b, step_b, n, y);
      case RowOp::kDiv:
        return table.div(a, step_a, b, step_b, n, y);
      case RowOp::kPow:
        if (step_b == 0 && *b == 2) return table.mul(a, step_a, a, step_a, n, y);
        for (int64_t j = 0; j < n; ++j) y[j] = PowerOf(a[j * step_a], b[j * step_b]);
        return;
      case RowOp::kNeg:
        return table.neg(a, n, y);
      case RowOp::kAbs:
        return MapRowWith(a, n, y, [](float x) { return std::fabs(x); });
      case RowOp::kSqrt:
        return MapRowWith(a, n, y, [](float x) { return std::sqrt(x); });
      case RowOp::kReciprocal:
        return MapRowWith(a, n, y, [](float x) { return 1.0f / x; });
      case RowOp::kExp:
        return Vectors<float>().exp(a, n, y);
      case RowOp::kSigmoid:
        return Vectors<float>().sigmoid(a, n, y);
      case RowOp::kTanh:
        return MapRowWith(a, n, y, [](float x) { return std::tanh(x); });
      case RowOp::kErf:
        return MapRowWith(a, n, y, [](float x) { return std::erf(x); });
      case RowOp::kSin:
        return MapRowWith(a, n, y, [](float x) { return std::sin(x); });
      case RowOp::kCos:
        return MapRowWith(a, n, y, [](float x) { return std::cos(x); });
      case RowOp::kCast:
        std::copy_n(a, n, y);
        return;
      case RowOp::kMean:
        *y = Vectors<float>().sum(a, plan_.length[i.a]) / static_cast<float>(plan_.length[i.a]);
        return;
      case RowOp::kConcat:
        std::copy_n(b, plan_.length[i.b], std::copy_n(a, plan_.length[i.a], y));
        return;
      case RowOp::kSlice:
        return;  // an empty row
    }
  }

  const KernelContext& context_;
  const RowProgram& program_;
  const RowPlan& plan_;
  ScratchScope scratch_;
  Few<float*> room_;
  Few<const float*> value_;
};

const RowProgram* ProgramOf(const KernelContext& context) {
  const auto* program = static_cast<const RowProgram*>(context.packed);
  const bool fits = program != nullptr && !program->code.empty() &&
                    program->num_inputs == static_cast<int>(context.inputs.size());
  return fits ? program : nullptr;
}

absl::Status RowsShape(KernelContext& context) {
  const RowProgram* program = ProgramOf(context);
  if (program == nullptr) return Unsupported(context, "it is for internal use");
  RowPlan plan;
  KV_RETURN_IF_ERROR(Derive(context, *program, &plan));
  SetSpec(context, 0, plan.type.back(), std::move(plan.out));
  return absl::OkStatus();
}

absl::Status RowsCompute(KernelContext& context) {
  const RowProgram* program = ProgramOf(context);
  if (program == nullptr) return Unsupported(context, "it is for internal use");
  if (context.outputs[0].size() == 0) return absl::OkStatus();
  RowPlan plan;
  KV_RETURN_IF_ERROR(Derive(context, *program, &plan));
  Arrange(context, *program, &plan);
  const int64_t length = plan.length.back(),
                tile = program->pointwise ? std::min(kTile, length) : length;
  const int64_t tiles = (length + tile - 1) / tile;
  const auto work = tile * static_cast<int64_t>(program->code.size());
  ParallelFor(context.threads, plan.rows * tiles, 1, std::max<int64_t>(1, 65536 / (work + 1)),
              [&](int64_t begin, int64_t end) {
                RowRunner runner(context, *program, plan);
                Odometer rows(plan, begin / tiles);
                for (int64_t unit = begin; unit < end; ++unit) {
                  const int64_t at = unit % tiles * tile;
                  if (at == 0 && unit != begin) rows.Next();
                  runner.Run(rows, unit / tiles, at, std::min(tile, length - at));
                }
              });
  return absl::OkStatus();
}

}  // namespace

bool IsBinary(RowOp op) { return op <= RowOp::kPow || op == RowOp::kConcat; }
bool IsPointwise(RowOp op) { return op < RowOp::kMean; }

std::shared_ptr<const RowProgram> ReadRowProgram(const onnx::NodeProto& node) {
  const onnx::AttributeProto* code = FindInNode(node, kRowCode);
  if (code == nullptr || code->ints_size() % kRowWords != 0) return nullptr;
  auto program = std::make_shared<RowProgram>();
  program->num_inputs = node.input_size();
  for (int at = 0; at < code->ints_size(); at += kRowWords) {
    const int64_t known = program->num_inputs + at / kRowWords;
    const int64_t op = code->ints(at), a = code->ints(at + 1), b = code->ints(at + 2);
    if (op < 0 || op > static_cast<int64_t>(RowOp::kConcat) || a < 0 || a >= known || b < 0 ||
        b >= known) {
      return nullptr;
    }
    program->pointwise = program->pointwise && IsPointwise(static_cast<RowOp>(op));
    program->code.push_back({static_cast<RowOp>(op), static_cast<int>(a), static_cast<int>(b),
                             code->ints(at + 3), code->ints(at + 4)});
  }
  return program;
}

absl::Span<const OpDef> RowsOps() {
  static const OpDef ops[] = {
      {kFusedDomain, kPointwise, 1, RowsShape, RowsCompute, ViewKind::kNone, 0},
      {kFusedDomain, kRows, 1, RowsShape, RowsCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
