#include "sym/emit/emit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "sym/emit/tensor_builder.h"

namespace kvlift::sym {
namespace {

using onnx::TensorProto;

bool HasRealPart(Forms& forms, Expr e) {
  switch (e->kind()) {
    case Kind::kFloat:
      return true;
    case Kind::kLoad:
      return IsFloatType(forms.ElementType(e->source()));
    case Kind::kSelect:
      return HasRealPart(forms, e->args()[1]) || HasRealPart(forms, e->args()[2]);
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::string> Emitter::Builder::Run() {
  KV_ASSIGN_OR_RETURN(Piece piece, Typed(r_.element, r_.elem_type));
  KV_ASSIGN_OR_RETURN(std::string value, Fill(piece));
  return value;
}

absl::Status Emitter::Builder::Cannot(Expr e) const {
  return absl::UnimplementedError(
      fmt::format("no operators for {}", ToString(e, &e_.forms_.graph())));
}

// Expands a piece to the requested shape where it lacks an axis.
absl::StatusOr<std::string> Emitter::Builder::Fill(const Piece& piece) {
  uint32_t wanted = 0;
  for (int k = 0; k < rank(); ++k) {
    if (!r_.shape[k]->is_integer(1)) wanted |= 1u << k;
  }
  if (piece.full_rank && (piece.axes & wanted) == wanted) return piece.value;
  KV_ASSIGN_OR_RETURN(std::string shape, e_.DimVector(r_.shape));
  if (rank() == 0) return nodes().Add("Squeeze", {piece.value}, r_.role);
  return nodes().Add("Expand", {piece.value, shape}, r_.role);
}

Emitter::Piece Emitter::Builder::Cast(Piece piece, int32_t elem_type) {
  if (piece.elem_type == elem_type) return piece;
  piece.value =
      nodes().Add("Cast", {piece.value}, r_.role, {MakeAttribute("to", int64_t{elem_type})});
  piece.elem_type = elem_type;
  return piece;
}

Emitter::Piece Emitter::Builder::Join(std::string_view op, const Piece& a, const Piece& b,
                                      int32_t elem_type) {
  return {nodes().Add(op, {a.value, b.value}, r_.role), elem_type, a.axes | b.axes,
          a.full_rank || b.full_rank};
}

// Returns e as a piece of type elem_type.
absl::StatusOr<Emitter::Piece> Emitter::Builder::Typed(Expr e, int32_t elem_type) {
  if (elem_type == TensorProto::BOOL) return Predicate(e);
  if (e->kind() == Kind::kSelect) {
    KV_ASSIGN_OR_RETURN(Piece c, Predicate(e->args()[0]));
    ++branches_;
    KV_ASSIGN_OR_RETURN(Piece a, Typed(e->args()[1], elem_type));
    KV_ASSIGN_OR_RETURN(Piece b, Typed(e->args()[2], elem_type));
    --branches_;
    return Piece{nodes().Add("Where", {c.value, a.value, b.value}, r_.role), elem_type,
                 c.axes | a.axes | b.axes, c.full_rank || a.full_rank || b.full_rank};
  }
  if (e->kind() == Kind::kFloat) {
    if (!IsFloatType(elem_type)) return Cannot(e);
    return Constant(e->float_value(), elem_type);
  }
  if (e->kind() == Kind::kInteger) return Integer(e, elem_type);
  if (e->kind() == Kind::kLoad) {
    KV_ASSIGN_OR_RETURN(Piece piece, Load(e));
    return Cast(std::move(piece), elem_type);
  }
  if (HasRealPart(e_.forms_, e)) return Cannot(e);
  KV_ASSIGN_OR_RETURN(Piece piece, Whole(e));
  return Cast(std::move(piece), elem_type);
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::Integer(Expr e, int32_t elem_type) {
  constexpr int64_t kExact = int64_t{1} << 53;  // beyond it a double has gaps
  const int64_t value = e->value();
  if (elem_type == TensorProto::INT64 && (value < -kExact || value > kExact)) {
    return Piece{nodes().Int64(value), elem_type, 0, false};
  }
  const bool fits =
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
  if (!fits && elem_type != TensorProto::INT64 && !IsFloatType(elem_type)) return Cannot(e);
  return Constant(static_cast<double>(value), elem_type);
}

Emitter::Piece Emitter::Builder::Constant(double value, int32_t elem_type) {
  return {nodes().Scalar(value, elem_type), elem_type, 0, false};
}

// Returns an integer expression as an int64 piece.
absl::StatusOr<Emitter::Piece> Emitter::Builder::Whole(Expr e) {
  switch (e->kind()) {
    case Kind::kInteger:
      return Piece{nodes().Int64s({e->value()}), TensorProto::INT64, 0, false};
    case Kind::kIndex:
      return IndexPiece(e->index());
    case Kind::kDim:
      return DimPiece(e);
    case Kind::kLoad: {
      if (HasRealPart(e_.forms_, e)) return Cannot(e);
      KV_ASSIGN_OR_RETURN(Piece piece, Load(e));
      return Cast(std::move(piece), TensorProto::INT64);
    }
    case Kind::kSum:
      if (const auto r = RemainderOf(e)) return Modulo(r->number, r->modulus, r->rest);
      return Sum(e->terms());
    case Kind::kApply:
      if (e->function() != "div" || e->args().size() != 2) return Cannot(e);
      [[fallthrough]];
    case Kind::kFloorDiv: {
      Facts facts{{r_.shape.begin(), r_.shape.end()}};
      Pool& pool = e_.forms_.pool();
      KV_ASSIGN_OR_RETURN(Piece a, Whole(e->args()[0]));
      KV_ASSIGN_OR_RETURN(Piece b, Whole(e->args()[1]));
      b = Divisor(e->args()[1], std::move(b), facts);
      // Div rounds towards zero, as an applied "div" does. That is the floor if both operands are
      // non-negative, or if there is no remainder.
      if (e->kind() == Kind::kFloorDiv && (!pool.ProveNonNegative(e->args()[0], facts) ||
                                           !pool.ProveNonNegative(e->args()[1], facts))) {
        a = Join("Sub", a, Join("Mod", a, b, TensorProto::INT64), TensorProto::INT64);
      }
      return Join("Div", a, b, TensorProto::INT64);
    }
    case Kind::kSelect:
      return Typed(e, TensorProto::INT64);
    case Kind::kLe:
    case Kind::kEq:
    case Kind::kNot:
    case Kind::kAnd: {
      KV_ASSIGN_OR_RETURN(Piece piece, Predicate(e));
      return Cast(std::move(piece), TensorProto::INT64);
    }
    default:
      return Cannot(e);
  }
}

std::optional<Emitter::Builder::Remainder> Emitter::Builder::RemainderOf(Expr e) {
  Pool& pool = e_.forms_.pool();
  for (Expr division : DivisionsOf(e)) {
    const Expr number = division->args()[0], modulus = division->args()[1];
    const Expr rest = pool.Sub(e, pool.Sub(number, pool.Mul(modulus, division)));
    const std::vector<Expr> left = DivisionsOf(rest);
    if (std::find(left.begin(), left.end(), division) == left.end()) {
      return Remainder{number, modulus, rest};
    }
  }
  return std::nullopt;
}

// A divisor may be 0 in a branch that is not taken, and would stop the model there: 1 replaces
// it.
Emitter::Piece Emitter::Builder::Divisor(Expr e, Piece piece, const Facts& facts) {
  Pool& pool = e_.forms_.pool();
  // Capacity of a buffer.
  const bool own = e->kind() == Kind::kDim && e_.dims_.contains(e->dim());
  if (branches_ == 0 || own || pool.ProveNonNegative(pool.Sub(e, pool.Integer(1)), facts)) {
    return piece;
  }
  const Piece zero{nodes().Int64s({0}), TensorProto::INT64, 0, false};
  const Piece is_zero = Join("Equal", piece, zero, TensorProto::BOOL);
  piece.value = nodes().Add("Where", {is_zero.value, nodes().Int64s({1}), piece.value}, "divisor");
  return piece;
}

// Builds (number mod modulus) + rest.
absl::StatusOr<Emitter::Piece> Emitter::Builder::Modulo(Expr number, Expr modulus, Expr rest) {
  KV_ASSIGN_OR_RETURN(Piece a, Whole(number));
  KV_ASSIGN_OR_RETURN(Piece b, Whole(modulus));
  b = Divisor(modulus, std::move(b), Facts{{r_.shape.begin(), r_.shape.end()}});
  const Piece mod = Join("Mod", a, b, TensorProto::INT64);
  if (rest->is_integer(0)) return mod;
  KV_ASSIGN_OR_RETURN(Piece c, Whole(rest));
  return Join("Add", mod, c, TensorProto::INT64);
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::Sum(absl::Span<const Term> terms) {
  std::optional<Piece> sum;
  for (const Term& term : terms) {
    std::optional<Piece> product;
    for (Expr atom : term.atoms) {
      KV_ASSIGN_OR_RETURN(Piece factor, Whole(atom));
      product = product ? Join("Mul", *product, factor, TensorProto::INT64) : factor;
    }
    const int64_t c = term.coefficient;
    if (!product) {
      product = Piece{nodes().Int64s({c}), TensorProto::INT64, 0, false};
    } else if (c != 1 && !(c == -1 && sum)) {
      product = Join("Mul", *product, Piece{nodes().Int64s({c}), TensorProto::INT64, 0, false},
                     TensorProto::INT64);
    }
    if (!sum) {
      sum = product;
    } else {
      const bool subtract = c == -1 && !term.atoms.empty();
      sum = Join(subtract ? "Sub" : "Add", *sum, *product, TensorProto::INT64);
    }
  }
  return *sum;
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::IndexPiece(int k) {
  if (k >= rank()) return Cannot(r_.element);
  KV_ASSIGN_OR_RETURN(std::string extent, e_.Dim(r_.shape[k]));
  const std::string limit = nodes().Add("Squeeze", {extent}, "extent");
  const std::string range =
      nodes().Add("Range", {nodes().Int64(0), limit, nodes().Int64(1)}, "range");
  return Piece{OnAxes(range, {k}), TensorProto::INT64, 1u << k, true};
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::DimPiece(Expr e) {
  const auto it = e_.dims_.find(e->dim());
  if (it != e_.dims_.end() && it->second.per_sequence) {
    if (r_.batch_axis < 0) return Cannot(e);
    return Piece{OnAxes(it->second.value, {r_.batch_axis}), TensorProto::INT64, 1u << r_.batch_axis,
                 true};
  }
  KV_ASSIGN_OR_RETURN(std::string value, e_.Dim(e));
  return Piece{value, TensorProto::INT64, 0, false};
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::Predicate(Expr e) {
  switch (e->kind()) {
    case Kind::kInteger:
      return Constant(e->value() != 0 ? 1 : 0, TensorProto::BOOL);
    case Kind::kLe:
      return Compare("LessOrEqual", e->args()[0]);
    case Kind::kEq:
      return Compare("Equal", e->args()[0]);
    case Kind::kNot: {
      const Expr inner = e->args()[0];
      // x != 0 is a Cast to bool.
      if (inner->kind() == Kind::kEq && inner->args()[0]->kind() == Kind::kLoad) {
        KV_ASSIGN_OR_RETURN(Piece piece, Load(inner->args()[0]));
        return Cast(std::move(piece), TensorProto::BOOL);
      }
      KV_ASSIGN_OR_RETURN(Piece piece, Predicate(inner));
      piece.value = nodes().Add("Not", {piece.value}, r_.role);
      return piece;
    }
    case Kind::kAnd: {
      std::optional<Piece> all;
      branches_ += r_.parts_guard ? 1 : 0;
      for (Expr arg : e->args()) {
        KV_ASSIGN_OR_RETURN(Piece piece, Predicate(arg));
        all = all ? Join("And", *all, piece, TensorProto::BOOL) : piece;
      }
      branches_ -= r_.parts_guard ? 1 : 0;
      return *all;
    }
    case Kind::kLoad: {
      KV_ASSIGN_OR_RETURN(Piece piece, Load(e));
      return Cast(std::move(piece), TensorProto::BOOL);
    }
    case Kind::kSelect: {
      KV_ASSIGN_OR_RETURN(Piece c, Predicate(e->args()[0]));
      ++branches_;
      KV_ASSIGN_OR_RETURN(Piece a, Predicate(e->args()[1]));
      KV_ASSIGN_OR_RETURN(Piece b, Predicate(e->args()[2]));
      --branches_;
      return Piece{nodes().Add("Where", {c.value, a.value, b.value}, r_.role), TensorProto::BOOL,
                   c.axes | a.axes | b.axes, c.full_rank || a.full_rank || b.full_rank};
    }
    default:
      return Cannot(e);
  }
}

// Builds p <= 0 or p == 0, with the negative terms moved to the other side.
absl::StatusOr<Emitter::Piece> Emitter::Builder::Compare(std::string_view op, Expr p) {
  if (const auto r = RemainderOf(p)) {
    const Expr zero = e_.forms_.pool().Integer(0);
    KV_ASSIGN_OR_RETURN(Piece a, Modulo(r->number, r->modulus, zero));
    KV_ASSIGN_OR_RETURN(Piece b, Whole(e_.forms_.pool().Neg(r->rest)));
    return Join(op, a, b, TensorProto::BOOL);
  }
  std::vector<Term> left, right;
  if (p->kind() == Kind::kSum) {
    for (const Term& term : p->terms()) {
      (term.coefficient > 0 ? left : right).push_back(term);
    }
    for (Term& term : right) term.coefficient = -term.coefficient;
  } else {
    left.push_back({1, {p}});
  }
  if (const int32_t real = RealTypeOf(p); real != 0) {
    KV_ASSIGN_OR_RETURN(Piece a, RealSide(left, real));
    KV_ASSIGN_OR_RETURN(Piece b, RealSide(right, real));
    return Join(op, a, b, TensorProto::BOOL);
  }
  if (!e_.forms_.FitsInt64(p, Facts{{r_.shape.begin(), r_.shape.end()}})) return Cannot(p);
  const std::vector<Term> zero = {{0, {}}};
  KV_ASSIGN_OR_RETURN(Piece a, Sum(left.empty() ? zero : left));
  KV_ASSIGN_OR_RETURN(Piece b, Sum(right.empty() ? zero : right));
  return Join(op, a, b, TensorProto::BOOL);
}

int32_t Emitter::Builder::RealTypeOf(Expr p) const {
  for (Expr load : OuterLoadsOf(p)) {
    const int32_t type = e_.forms_.ElementType(load->source());
    if (!IsFloatType(type)) continue;
    // Half-precision numbers are compared as those of float32, which has them all.
    return type == TensorProto::DOUBLE ? type : TensorProto::FLOAT;
  }
  return 0;
}

// A side of several terms would be rounded.
absl::StatusOr<Emitter::Piece> Emitter::Builder::RealSide(absl::Span<const Term> terms,
                                                          int32_t type) {
  if (terms.empty()) return Constant(0, type);
  const Term& term = terms.front();
  const bool constant = term.atoms.empty();
  const bool load =
      term.coefficient == 1 && term.atoms.size() == 1 && term.atoms[0]->kind() == Kind::kLoad;
  constexpr int64_t kExact = int64_t{1} << 24;
  if (terms.size() > 1 || (!load && (!constant || term.coefficient > kExact))) {
    return absl::UnimplementedError("no operators for sums of real numbers");
  }
  if (constant) return Constant(static_cast<double>(term.coefficient), type);
  KV_ASSIGN_OR_RETURN(Piece piece, Load(term.atoms[0]));
  if (!IsFloatType(piece.elem_type)) return Cannot(term.atoms[0]);
  return Cast(std::move(piece), type);
}

void Emitter::BindDim(const DimSymbol& dim, DimBinding binding) { dims_[dim] = std::move(binding); }

void Emitter::BindSource(ValueId source, SourceBinding binding) {
  sources_[source] = std::move(binding);
}

bool Emitter::IsPerSequence(Expr e) const {
  for (const DimSymbol& dim : DimsOf(e)) {
    const auto it = dims_.find(dim);
    if (it != dims_.end() && it->second.per_sequence) return true;
  }
  return false;
}

absl::StatusOr<std::string> Emitter::Dim(Expr e) {
  switch (e->kind()) {
    case Kind::kInteger:
      return builder_.Int64s({e->value()});
    case Kind::kDim: {
      const auto bound = dims_.find(e->dim());
      if (bound != dims_.end()) {
        if (bound->second.per_sequence) {
          return absl::FailedPreconditionError(
              fmt::format("{} differs between sequences and cannot be a shape", e->dim().name()));
        }
        return bound->second.value;
      }
      const auto origin = forms_.OriginOf(e->dim());
      if (!origin) {
        return absl::FailedPreconditionError(
            fmt::format("no graph input declares the dim {}", e->dim().name()));
      }
      return builder_.Extent(forms_.graph().name(origin->input), origin->axis, e->dim().name());
    }
    default: {
      Request request{e, {forms_.pool().Integer(1)}, TensorProto::INT64, -1, "dim"};
      return Tensor(request);
    }
  }
}

absl::StatusOr<std::string> Emitter::DimVector(absl::Span<const Expr> dims) {
  std::vector<int64_t> constants;
  NodeBuilder::Inputs parts;
  for (Expr dim : dims) {
    if (dim->kind() == Kind::kInteger) constants.push_back(dim->value());
    KV_ASSIGN_OR_RETURN(std::string part, Dim(dim));
    parts.push_back(std::move(part));
  }
  if (constants.size() == dims.size()) return builder_.Int64s(constants);
  if (parts.size() == 1) return parts[0];
  return builder_.Add("Concat", parts, "shape", {MakeAttribute("axis", int64_t{0})});
}

absl::StatusOr<std::string> Emitter::Tensor(const Request& request) {
  return Builder(*this, request).Run();
}

}  // namespace kvlift::sym
