// Real arithmetic: results have known shapes and opaque elements. Products that pick rows by a
// one-hot operand have known elements.
#include "ir/operators/quantizer.h"
#include "sym/forms/forms_engine.h"
#include "sym/ops/one_hot.h"

namespace kvlift::sym::internal {
namespace {

Shape Head(const Shape& shape, size_t drop) { return {shape.begin(), shape.end() - drop}; }

}  // namespace

// Output 0 has the shape of input 0.
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
  shapes.reserve(static_cast<size_t>(c.num_inputs()));
  for (int k = 0; k < c.num_inputs(); ++k) shapes.push_back(&c.in(k).form.shape);
  if (auto out = c.Broadcast(shapes)) c.SetOpaque(0, *std::move(out));
}

// Returns the shape of the product of input 0 and input `right`; nullopt if it is not known. Also
// handles FusedMatMul of com.microsoft, where transA and transB swap the last two axes.
std::optional<Shape> ShapeOfProduct(OpContext& c, int right) {
  if (!c.Known(right + 1)) return std::nullopt;
  Shape a = c.in(0).form.shape, b = c.in(right).form.shape;
  if (a.empty() || b.empty()) return std::nullopt;
  if (c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0) return std::nullopt;
  if (c.Int("transA", 0) != 0 && a.size() > 1) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (c.Int("transB", 0) != 0 && b.size() > 1) std::swap(b[b.size() - 1], b[b.size() - 2]);
  c.Unify(a.back(), b.size() == 1 ? b[0] : b[b.size() - 2], "inner axis of a MatMul");
  const Shape batch_a = a.size() > 2 ? Head(a, 2) : Shape{};
  const Shape batch_b = b.size() > 2 ? Head(b, 2) : Shape{};
  const Shape* const batches[] = {&batch_a, &batch_b};
  auto out = c.Broadcast(batches);
  if (!out) return std::nullopt;
  if (a.size() > 1) out->push_back(a[a.size() - 2]);
  if (b.size() > 1) out->push_back(b.back());
  return out;
}

// Also gives the shape of products of quantised operands.
void OpMatMul(OpContext& c) {
  auto shape = ShapeOfProduct(c, 1);
  if (!shape || (c.op() == "MatMul" && SetRowsOfOneHotMatMul(c, *shape))) return;
  c.SetOpaque(0, *std::move(shape));
}

// Inputs 1, 2, 4 and 5 are the scales and zero points of the operands.
void OpQLinearMatMul(OpContext& c) {
  if (auto shape = ShapeOfProduct(c, 3)) c.SetOpaque(0, *std::move(shape));
}

// The outputs are the quantised tensor, its scale and its zero point.
void OpDynamicQuantizeLinear(OpContext& c) {
  if (!c.Known(1)) return;
  c.SetOpaque(0, c.in(0).form.shape);
  c.SetOpaque(1, {});
  c.SetOpaque(2, {});
}

// A quantiser gives its own numbers back unchanged: those that were assumed to be, and those that a
// DequantizeLinear with its constants makes.
void OpDequantizeLinear(OpContext& c) {
  Engine& engine = c.engine();
  if (const auto rounding = RoundingOf(engine.graph(), c.output(0))) {
    const Value& x = engine.Of(rounding->rounded);
    const auto kept = [&](absl::Span<const Expr> leaves) {
      const Expr e = leaves[0];
      const bool own = e->kind() == Kind::kLoad &&
                       (engine.NumbersOf(e->source()).quantizer == rounding->quantizer ||
                        QuantizerMaking(engine.graph(), e->source()) == rounding->quantizer);
      return own ? e : nullptr;
    };
    if (x.form.known_rank && engine.Lift({x.form.element}, kept) != nullptr) {
      return c.Set(0, x.form.shape,
                   [&](Indices ix, const Facts& facts) { return engine.At(x, ix, facts); });
    }
  }
  OpSameShape(c);
}

void OpMatMulNBits(OpContext& c) {
  const int64_t columns = c.Int("N", 0);
  if (!c.Known(1) || c.in(0).rank() == 0 || columns <= 0) return;
  Shape out = c.in(0).form.shape;
  out.back() = c.pool().Integer(columns);
  c.SetOpaque(0, std::move(out));
}

// GatherBlockQuantized of com.microsoft: a Gather of a table whose rows are dequantised. Bytes hold
// several numbers of the last axis, 2 or 4 unless they are 8 bits wide.
void OpGatherBlockQuantized(OpContext& c) {
  if (!c.Known(2)) return;
  Shape table = c.in(0).form.shape;
  const auto axis = NormalAxis(c.Int("gather_axis", 0), static_cast<int>(table.size()));
  const int64_t bits = c.Int("bits", 4);
  if (!axis || (bits != 2 && bits != 4 && bits != 8)) return;
  if (c.in(0).type == onnx::TensorProto::UINT8) {
    table.back() = c.pool().Mul(table.back(), c.pool().Integer(8 / bits));
  }
  const Shape& index = c.in(1).form.shape;
  Shape out(table.begin(), table.begin() + *axis);
  out.insert(out.end(), index.begin(), index.end());
  out.insert(out.end(), table.begin() + *axis + 1, table.end());
  c.SetOpaque(0, std::move(out));
}

void OpGemm(OpContext& c) {
  if (!c.Known(2) || c.in(0).rank() != 2 || c.in(1).rank() != 2) return;
  Shape shape = {c.in(0).dim(c.Int("transA", 0) != 0 ? 1 : 0),
                 c.in(1).dim(c.Int("transB", 0) != 0 ? 0 : 1)};
  if (!SetRowsOfOneHotGemm(c, shape)) c.SetOpaque(0, std::move(shape));
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

// SkipLayerNormalization of com.microsoft and its variants: outputs 0 and 3 have the shape of input
// 0.
void OpSkipNorm(OpContext& c) {
  if (!c.Known(1)) return;
  c.SetOpaque(0, c.in(0).form.shape);
  c.SetOpaque(3, c.in(0).form.shape);
}

// EmbedLayerNormalization of com.microsoft: ids [B, S] and a table of words [V, H] give [B, S, H],
// the number of tokens that the mask keeps, [B], and the sum in front of the normalisation.
void OpEmbedNorm(OpContext& c) {
  constexpr int kWordTable = 2;
  if (!c.Known(1) || !c.has(kWordTable) || !c.in(kWordTable).form.known_rank) return;
  if (c.in(0).rank() != 2 || c.in(kWordTable).rank() != 2) return;
  const Shape out = {c.in(0).dim(0), c.in(0).dim(1), c.in(kWordTable).dim(1)};
  c.SetOpaque(0, out);
  c.SetOpaque(1, {out[0]});
  c.SetOpaque(2, out);
}

// GroupQueryAttention of com.microsoft: the query is [B, S, N*D], or packs query, key and value
// into [B, S, (N + 2*Nk)*D] if there is no key.
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

// In inference mode the data passes through.
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

// RandomNormal and RandomUniform have their shape as an attribute.
void OpRandom(OpContext& c) {
  Shape out;
  for (int64_t d : IntsAttribute(c.proto(), "shape")) {
    if (d < 0) return;
    out.push_back(c.pool().Integer(d));
  }
  c.SetOpaque(0, std::move(out));
}

}  // namespace kvlift::sym::internal
