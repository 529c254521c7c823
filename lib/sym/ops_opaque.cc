// Real arithmetic: the shape of the result, nothing about its elements.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "sym/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

Shape Head(const Shape& shape, size_t drop) { return {shape.begin(), shape.end() - drop}; }

bool IsReduced(absl::Span<const int> axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Shape Reduced(Pool& pool, const Shape& shape, absl::Span<const int> axes, bool keep) {
  Shape out;
  for (int k = 0; k < static_cast<int>(shape.size()); ++k) {
    if (!IsReduced(axes, k)) {
      out.push_back(shape[k]);
    } else if (keep) {
      out.push_back(pool.Integer(1));
    }
  }
  return out;
}

}  // namespace

// Every output has the shape of input 0.
void OpSameShape(OpContext& c) {
  if (c.Known(1)) c.SetOpaque(0, c.in(0).form.shape);
}

void OpSameShapeAll(OpContext& c) {
  if (!c.Known(1)) return;
  for (int k = 0; k < c.num_outputs(); ++k) c.SetOpaque(k, c.in(0).form.shape);
}

void OpBinary(OpContext& c) {
  if (!c.Known(2)) return;
  const Shape* const shapes[] = {&c.in(0).form.shape, &c.in(1).form.shape};
  if (auto out = c.Broadcast(shapes)) c.SetOpaque(0, *std::move(out));
}

void OpVariadic(OpContext& c) {
  if (c.num_inputs() == 0 || !c.Known(c.num_inputs())) return;
  if (c.num_inputs() == 1) return c.Copy(0, 0);
  std::vector<const Shape*> shapes;
  for (int k = 0; k < c.num_inputs(); ++k) shapes.push_back(&c.in(k).form.shape);
  if (auto out = c.Broadcast(shapes)) c.SetOpaque(0, *std::move(out));
}

// Also FusedMatMul of com.microsoft: transA and transB swap the last two axes.
void OpMatMul(OpContext& c) {
  if (!c.Known(2)) return;
  Shape a = c.in(0).form.shape, b = c.in(1).form.shape;
  if (a.empty() || b.empty()) return;
  if (c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0) return;
  if (c.Int("transA", 0) != 0 && a.size() > 1) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (c.Int("transB", 0) != 0 && b.size() > 1) std::swap(b[b.size() - 1], b[b.size() - 2]);
  c.Unify(a.back(), b.size() == 1 ? b[0] : b[b.size() - 2], "inner axis of a MatMul");
  const Shape batch_a = a.size() > 2 ? Head(a, 2) : Shape{};
  const Shape batch_b = b.size() > 2 ? Head(b, 2) : Shape{};
  const Shape* const batches[] = {&batch_a, &batch_b};
  auto out = c.Broadcast(batches);
  if (!out) return;
  if (a.size() > 1) out->push_back(a[a.size() - 2]);
  if (b.size() > 1) out->push_back(b.back());
  c.SetOpaque(0, *std::move(out));
}

void OpMatMulNBits(OpContext& c) {
  const int64_t columns = c.Int("N", 0);
  if (!c.Known(1) || c.in(0).rank() == 0 || columns <= 0) return;
  Shape out = c.in(0).form.shape;
  out.back() = c.pool().Integer(columns);
  c.SetOpaque(0, std::move(out));
}

void OpGemm(OpContext& c) {
  if (!c.Known(2) || c.in(0).rank() != 2 || c.in(1).rank() != 2) return;
  c.SetOpaque(0, {c.in(0).dim(c.Int("transA", 0) != 0 ? 1 : 0),
                  c.in(1).dim(c.Int("transB", 0) != 0 ? 0 : 1)});
}

void OpLayerNorm(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& shape = c.in(0).form.shape;
  c.SetOpaque(0, shape);
  const auto axis = NormalAxis(c.Int("axis", -1), static_cast<int>(shape.size()));
  if (!axis || c.proto().domain() == "com.microsoft") return;
  Shape statistics = shape;
  for (size_t k = *axis; k < shape.size(); ++k) statistics[k] = c.pool().Integer(1);
  for (int k = 1; k < c.num_outputs(); ++k) c.SetOpaque(k, statistics);
}

// com.microsoft: query [B, S, N*D], or query, key and value packed into one if there is no key.
void OpGroupQueryAttention(OpContext& c) {
  if (!c.Known(1)) return;
  Shape out = c.in(0).form.shape;
  const int64_t heads = c.Int("num_heads", 0), kv_heads = c.Int("kv_num_heads", 0);
  if (!c.has(1) && heads > 0 && kv_heads > 0 && out.size() == 3) {
    Pool& pool = c.pool();
    const Expr size = pool.FloorDiv(out[2], pool.Integer(heads + 2 * kv_heads), Facts{});
    out[2] = pool.Mul(pool.Integer(heads), size);
  }
  c.SetOpaque(0, std::move(out));
}

// In inference the data passes through.
void OpDropout(OpContext& c) {
  if (!c.Known(1)) return;
  bool training = false;
  if (c.has(2)) {
    const auto mode = c.Elements(2);
    training = !mode || mode->size() != 1 || !mode->front()->is_integer(0);
  }
  if (training) return OpSameShapeAll(c);
  c.Copy(0, 0);
  c.SetOpaque(1, c.in(0).form.shape);
}

namespace {

// A product, sum or extremum of the elements of a small integer vector: arithmetic on shapes.
bool ReduceVector(OpContext& c) {
  const Value& x = c.in(0);
  const bool integers = x.type == onnx::TensorProto::INT64 || x.type == onnx::TensorProto::INT32;
  const std::string& op = c.op();
  if (!integers || x.rank() != 1 || !x.elements || x.elements->empty()) return false;
  Pool& pool = c.pool();
  Expr result = x.elements->front();
  for (size_t k = 1; k < x.elements->size(); ++k) {
    const std::vector<Expr> pair{result, (*x.elements)[k]};
    result = c.engine().Lift(pair, [&](absl::Span<const Expr> y) -> Expr {
      if (op == "ReduceProd") return pool.Mul(y[0], y[1]);
      if (op == "ReduceSum") return pool.Add(y[0], y[1]);
      if (op == "ReduceMax") return pool.Max(y[0], y[1], Facts{});
      if (op == "ReduceMin") return pool.Min(y[0], y[1], Facts{});
      return nullptr;
    });
    if (result == nullptr) return false;
  }
  c.SetElements(0, c.Int("keepdims", 1) == 0, {result});
  return true;
}

}  // namespace

// Axes as input 1 or attribute; none: all axes, or none with noop_with_empty_axes.
void OpReduce(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& shape = c.in(0).form.shape;
  const int rank = static_cast<int>(shape.size());
  std::vector<int64_t> axes = IntsAttribute(c.proto(), "axes");
  if (c.has(1)) {
    const auto given = c.ConstantInts(1);
    if (!given) return;
    axes = *given;
  }
  if (axes.empty()) {
    if (c.Int("noop_with_empty_axes", 0) != 0) return c.SetOpaque(0, shape);
    for (int k = 0; k < rank; ++k) axes.push_back(k);
  }
  const auto normal = NormalAxes(axes, rank);
  if (!normal) return;
  if (ReduceVector(c)) return;
  Shape out = Reduced(c.pool(), shape, *normal, c.Int("keepdims", 1) != 0);
  const bool one = std::all_of(normal->begin(), normal->end(),
                               [&](int axis) { return shape[axis]->is_integer(1); });
  const std::string& op = c.op();
  const bool plain = op == "ReduceSum" || op == "ReduceMean" || op == "ReduceMax" ||
                     op == "ReduceMin" || op == "ReduceProd";
  if (!one || !plain) return c.SetOpaque(0, std::move(out));
  // Over axes of length 1 nothing is reduced.
  const bool keep = c.Int("keepdims", 1) != 0;
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own;
    size_t next = 0;
    for (int k = 0; k < rank; ++k) {
      const bool reduced = IsReduced(*normal, k);
      own.push_back(reduced ? c.pool().Integer(0) : ix[next]);
      if (!reduced || keep) ++next;
    }
    return c.engine().At(c.in(0), own, facts);
  });
}

void OpArgReduce(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& shape = c.in(0).form.shape;
  const auto axis = NormalAxis(c.Int("axis", 0), static_cast<int>(shape.size()));
  if (!axis) return;
  c.SetOpaque(0, Reduced(c.pool(), shape, {&*axis, 1}, c.Int("keepdims", 1) != 0));
}

void OpTopK(OpContext& c) {
  if (!c.Known(1)) return;
  Shape out = c.in(0).form.shape;
  const auto axis = NormalAxis(c.Int("axis", -1), static_cast<int>(out.size()));
  const auto k = c.Elements(1);
  if (!axis || !k || k->size() != 1) return;
  out[*axis] = k->front();
  c.SetOpaque(0, out);
  c.SetOpaque(1, std::move(out));
}

void OpEinsum(OpContext& c) {
  const int n = c.num_inputs();
  if (n == 0 || !c.Known(n)) return;
  std::string equation = StringAttribute(c.proto(), "equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos) return;
  std::vector<std::string> terms(1);
  for (char label : equation.substr(0, arrow)) {
    if (label == ',') {
      terms.emplace_back();
    } else {
      terms.back() += label;
    }
  }
  if (static_cast<int>(terms.size()) != n) return;
  absl::flat_hash_map<char, Expr> dims;
  for (int k = 0; k < n; ++k) {
    const Shape& shape = c.in(k).form.shape;
    if (shape.size() != terms[k].size()) return;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto [it, fresh] = dims.try_emplace(terms[k][axis], shape[axis]);
      if (fresh || shape[axis]->is_integer(1)) continue;
      it->second =
          it->second->is_integer(1) ? shape[axis] : c.Unify(it->second, shape[axis], "Einsum");
    }
  }
  Shape out;
  for (char label : equation.substr(arrow + 2)) {
    const auto it = dims.find(label);
    if (it == dims.end()) return;
    out.push_back(it->second);
  }
  c.SetOpaque(0, std::move(out));
}

void OpConv(OpContext& c) {
  if (!c.Known(2) || c.in(0).rank() < 3 || c.in(0).rank() != c.in(1).rank()) return;
  const Shape& x = c.in(0).form.shape;
  const Shape& w = c.in(1).form.shape;
  const size_t spatial = x.size() - 2;
  const auto ints = [&](std::string_view name, size_t size, int64_t fallback) {
    std::vector<int64_t> values = IntsAttribute(c.proto(), name);
    if (values.size() != size) values.assign(size, fallback);
    return values;
  };
  const std::vector<int64_t> strides = ints("strides", spatial, 1);
  const std::vector<int64_t> dilations = ints("dilations", spatial, 1);
  const std::vector<int64_t> pads = ints("pads", 2 * spatial, 0);
  const std::string auto_pad = StringAttribute(c.proto(), "auto_pad", "NOTSET");
  Pool& pool = c.pool();
  Shape out{x[0], w[0]};
  for (size_t k = 0; k < spatial; ++k) {
    const bool usable = auto_pad == "NOTSET" || auto_pad == "VALID" || auto_pad.empty();
    if (!usable || strides[k] < 1 || dilations[k] < 1) {
      out.push_back(c.engine().OwnDim(c.output(0), static_cast<int>(k) + 2));
      continue;
    }
    const int64_t pad = auto_pad == "VALID" ? 0 : pads[k] + pads[spatial + k];
    const Expr reach = pool.Mul(pool.Integer(dilations[k]), pool.Sub(w[2 + k], pool.Integer(1)));
    const Expr room =
        pool.Sub(pool.Add(x[2 + k], pool.Integer(pad)), pool.Add(reach, pool.Integer(1)));
    const Expr steps = pool.FloorDiv(room, pool.Integer(strides[k]), Facts{});
    out.push_back(pool.Add(steps, pool.Integer(1)));
  }
  c.SetOpaque(0, std::move(out));
}

void OpNonZero(OpContext& c) {
  if (!c.Known(1) || c.output(0) == kNoValue) return;
  c.SetOpaque(0,
              {c.pool().Integer(std::max(1, c.in(0).rank())), c.engine().OwnDim(c.output(0), 1)});
}

// RandomNormal, RandomUniform: the shape is an attribute.
void OpRandom(OpContext& c) {
  Shape out;
  for (int64_t d : IntsAttribute(c.proto(), "shape")) {
    if (d < 0) return;
    out.push_back(c.pool().Integer(d));
  }
  c.SetOpaque(0, std::move(out));
}

namespace {

// Query, key and value of an Attention as [B, heads, length, size], whatever their rank.
struct Operand {
  const Value* value = nullptr;
  int64_t heads = 0;  // of a rank-3 operand
  Shape shape;
};

std::optional<Operand> ReadOperand(OpContext& c, int input, std::string_view heads_attribute) {
  const Value& x = c.in(input);
  Operand operand{&x, c.Int(heads_attribute, 0), x.form.shape};
  if (x.rank() == 4) return operand;
  if (x.rank() != 3 || operand.heads < 1) return std::nullopt;
  Pool& pool = c.pool();
  const Expr heads = pool.Integer(operand.heads);
  operand.shape = {x.dim(0), heads, x.dim(1), pool.FloorDiv(x.dim(2), heads, Facts{})};
  return operand;
}

Expr OperandAt(OpContext& c, const Operand& operand, Indices ix, const Facts& facts) {
  if (operand.value->rank() == 4) return c.engine().At(*operand.value, ix, facts);
  Pool& pool = c.pool();
  const Expr place = pool.Add(pool.Mul(ix[1], operand.shape[3]), ix[3]);
  const Expr own[] = {ix[0], ix[2], place};
  return c.engine().At(*operand.value, own, facts);
}

// present = past with the operand behind it.
Expr SetPresent(OpContext& c, int output, int past, const Operand& operand) {
  Shape out = operand.shape;
  const bool grows = c.has(past) && c.in(past).form.known_rank && c.in(past).rank() == 4;
  if (c.has(past) && !grows) return nullptr;
  Pool& pool = c.pool();
  const Expr before = grows ? c.in(past).dim(2) : pool.Integer(0);
  out[2] = pool.Add(before, out[2]);
  const Expr total = out[2];
  c.Set(output, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own(ix.begin(), ix.end());
    own[2] = pool.Sub(ix[2], before);
    const Expr fresh = OperandAt(c, operand, own, facts);
    if (!grows || fresh == nullptr) return fresh;
    const Expr old = c.engine().At(c.in(past), ix, facts);
    return c.engine().Select(pool.Lt(ix[2], before, facts), old, fresh);
  });
  return total;
}

}  // namespace

void OpAttentionOp(OpContext& c) {
  if (!c.Known(3)) return;
  const auto q = ReadOperand(c, 0, "q_num_heads");
  const auto k = ReadOperand(c, 1, "kv_num_heads");
  const auto v = ReadOperand(c, 2, "kv_num_heads");
  if (!q || !k || !v) return;
  Pool& pool = c.pool();
  const Expr total = SetPresent(c, 1, 4, *k);
  SetPresent(c, 2, 5, *v);
  if (c.in(0).rank() == 3) {
    c.SetOpaque(0, {q->shape[0], q->shape[2], pool.Mul(q->shape[1], v->shape[3])});
  } else {
    c.SetOpaque(0, {q->shape[0], q->shape[1], q->shape[2], v->shape[3]});
  }
  if (total != nullptr) c.SetOpaque(3, {q->shape[0], q->shape[1], q->shape[2], total});
}

}  // namespace kvlift::sym::internal
