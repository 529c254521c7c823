#include "sym/emit/emit.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"

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

// Builds one tensor. All pieces broadcast against rank `rank()`.
class Emitter::Builder {
 public:
  Builder(Emitter& emitter, const Request& request) : e_(emitter), r_(request) {}

  absl::StatusOr<std::string> Run() {
    KV_ASSIGN_OR_RETURN(Piece piece, Typed(r_.element, r_.elem_type));
    KV_ASSIGN_OR_RETURN(std::string value, Fill(piece));
    return value;
  }

 private:
  int rank() const { return static_cast<int>(r_.shape.size()); }
  NodeBuilder& nodes() { return e_.builder_; }

  absl::Status Cannot(Expr e) const {
    return absl::UnimplementedError(
        fmt::format("no operators for {}", ToString(e, &e_.forms_.graph())));
  }

  // Expands a piece to the requested shape where it lacks an axis.
  absl::StatusOr<std::string> Fill(const Piece& piece) {
    uint32_t wanted = 0;
    for (int k = 0; k < rank(); ++k) {
      if (!r_.shape[k]->is_integer(1)) wanted |= 1u << k;
    }
    if (piece.full_rank && (piece.axes & wanted) == wanted) return piece.value;
    KV_ASSIGN_OR_RETURN(std::string shape, e_.DimVector(r_.shape));
    if (rank() == 0) return nodes().Add("Squeeze", {piece.value}, r_.role);
    return nodes().Add("Expand", {piece.value, shape}, r_.role);
  }

  Piece Cast(Piece piece, int32_t elem_type) {
    if (piece.elem_type == elem_type) return piece;
    piece.value =
        nodes().Add("Cast", {piece.value}, r_.role, {MakeAttribute("to", int64_t{elem_type})});
    piece.elem_type = elem_type;
    return piece;
  }

  Piece Join(std::string_view op, const Piece& a, const Piece& b, int32_t elem_type) {
    return {nodes().Add(op, {a.value, b.value}, r_.role), elem_type, a.axes | b.axes,
            a.full_rank || b.full_rank};
  }

  // Returns e as a piece of type elem_type.
  absl::StatusOr<Piece> Typed(Expr e, int32_t elem_type) {
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

  absl::StatusOr<Piece> Integer(Expr e, int32_t elem_type) {
    constexpr int64_t kExact = int64_t{1} << 53;  // beyond it a double has gaps
    const int64_t value = e->value();
    if (elem_type == TensorProto::INT64 && (value < -kExact || value > kExact)) {
      return Piece{nodes().Int64(value), elem_type, 0, false};
    }
    const bool fits = value >= std::numeric_limits<int32_t>::min() &&
                      value <= std::numeric_limits<int32_t>::max();
    if (!fits && elem_type != TensorProto::INT64 && !IsFloatType(elem_type)) return Cannot(e);
    return Constant(static_cast<double>(value), elem_type);
  }

  Piece Constant(double value, int32_t elem_type) {
    return {nodes().Scalar(value, elem_type), elem_type, 0, false};
  }

  // Returns an integer expression as an int64 piece.
  absl::StatusOr<Piece> Whole(Expr e) {
    switch (e->kind()) {
      case Kind::kInteger:
        return Piece{nodes().Int64s({e->value()}), TensorProto::INT64, 0, false};
      case Kind::kIndex:
        return IndexPiece(e->index());
      case Kind::kDim:
        return DimPiece(e);
      case Kind::kLoad: {
        KV_ASSIGN_OR_RETURN(Piece piece, Load(e));
        return Cast(std::move(piece), TensorProto::INT64);
      }
      case Kind::kSum:
        if (const auto r = RemainderOf(e)) return Modulo(r->number, r->modulus, r->rest);
        return Sum(e->terms());
      case Kind::kFloorDiv: {
        Facts facts{{r_.shape.begin(), r_.shape.end()}};
        Pool& pool = e_.forms_.pool();
        KV_ASSIGN_OR_RETURN(Piece a, Whole(e->args()[0]));
        KV_ASSIGN_OR_RETURN(Piece b, Whole(e->args()[1]));
        b = Divisor(e->args()[1], std::move(b), facts);
        // Div rounds towards zero. That is the floor if both operands are non-negative, or if there
        // is no remainder.
        if (!pool.ProveNonNegative(e->args()[0], facts) ||
            !pool.ProveNonNegative(e->args()[1], facts)) {
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

  // Returns number, modulus and rest of an expression (number mod modulus) + rest, where `rest`
  // does not contain the division; nullopt if e has no such form.
  struct Remainder {
    Expr number, modulus, rest;
  };
  std::optional<Remainder> RemainderOf(Expr e) {
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
  Piece Divisor(Expr e, Piece piece, const Facts& facts) {
    Pool& pool = e_.forms_.pool();
    // Capacity of a buffer.
    const bool own = e->kind() == Kind::kDim && e_.dims_.contains(e->dim());
    if (branches_ == 0 || own || pool.ProveNonNegative(pool.Sub(e, pool.Integer(1)), facts)) {
      return piece;
    }
    const Piece zero{nodes().Int64s({0}), TensorProto::INT64, 0, false};
    const Piece is_zero = Join("Equal", piece, zero, TensorProto::BOOL);
    piece.value =
        nodes().Add("Where", {is_zero.value, nodes().Int64s({1}), piece.value}, "divisor");
    return piece;
  }

  // Builds (number mod modulus) + rest.
  absl::StatusOr<Piece> Modulo(Expr number, Expr modulus, Expr rest) {
    KV_ASSIGN_OR_RETURN(Piece a, Whole(number));
    KV_ASSIGN_OR_RETURN(Piece b, Whole(modulus));
    b = Divisor(modulus, std::move(b), Facts{{r_.shape.begin(), r_.shape.end()}});
    const Piece mod = Join("Mod", a, b, TensorProto::INT64);
    if (rest->is_integer(0)) return mod;
    KV_ASSIGN_OR_RETURN(Piece c, Whole(rest));
    return Join("Add", mod, c, TensorProto::INT64);
  }

  absl::StatusOr<Piece> Sum(absl::Span<const Term> terms) {
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

  absl::StatusOr<Piece> IndexPiece(int k) {
    if (k >= rank()) return Cannot(r_.element);
    KV_ASSIGN_OR_RETURN(std::string extent, e_.Dim(r_.shape[k]));
    const std::string limit = nodes().Add("Squeeze", {extent}, "extent");
    const std::string range =
        nodes().Add("Range", {nodes().Int64(0), limit, nodes().Int64(1)}, "range");
    return Piece{OnAxes(range, {k}), TensorProto::INT64, 1u << k, true};
  }

  absl::StatusOr<Piece> DimPiece(Expr e) {
    const auto it = e_.dims_.find(e->dim());
    if (it != e_.dims_.end() && it->second.per_sequence) {
      if (r_.batch_axis < 0) return Cannot(e);
      return Piece{OnAxes(it->second.value, {r_.batch_axis}), TensorProto::INT64,
                   1u << r_.batch_axis, true};
    }
    KV_ASSIGN_OR_RETURN(std::string value, e_.Dim(e));
    return Piece{value, TensorProto::INT64, 0, false};
  }

  // Brings a tensor, whose axes are the given output axes in ascending order, to full rank.
  std::string OnAxes(const std::string& value, const std::vector<int>& axes) {
    std::vector<int64_t> missing;
    for (int k = 0; k < rank(); ++k) {
      if (std::find(axes.begin(), axes.end(), k) == axes.end()) missing.push_back(k);
    }
    if (missing.empty()) return value;
    return nodes().Add("Unsqueeze", {value, nodes().Int64s(missing)}, r_.role);
  }

  absl::StatusOr<Piece> Predicate(Expr e) {
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
  absl::StatusOr<Piece> Compare(std::string_view op, Expr p) {
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
    const std::vector<Term> zero = {{0, {}}};
    KV_ASSIGN_OR_RETURN(Piece a, Sum(left.empty() ? zero : left));
    KV_ASSIGN_OR_RETURN(Piece b, Sum(right.empty() ? zero : right));
    return Join(op, a, b, TensorProto::BOOL);
  }

  // Returns the axes of a source that may be longer than what is read of them.
  absl::Span<const int> WideAxes(ValueId source) const {
    if (const auto own = r_.wide_axes.find(source); own != r_.wide_axes.end()) return own->second;
    const auto bound = e_.sources_.find(source);
    if (bound == e_.sources_.end()) return {};
    return bound->second.wide_axes;
  }

  // Returns the name of a load's source, sliced to what is read along its wide axes.
  absl::StatusOr<std::string> Source(Expr load) {
    const ValueId source = load->source();
    const auto it = e_.sources_.find(source);
    std::string value = it == e_.sources_.end() ? e_.forms_.graph().name(source) : it->second.value;
    for (int axis : WideAxes(source)) {
      const Expr arg = load->args()[axis];
      if (arg->kind() != Kind::kIndex || arg->index() >= rank()) continue;
      KV_ASSIGN_OR_RETURN(std::string end, e_.Dim(r_.shape[arg->index()]));
      value = nodes().Add("Slice", {value, nodes().Int64s({0}), end, nodes().Int64s({axis})},
                          "visible");
    }
    return value;
  }

  // Returns true if the axis of a source may be read as a whole for an index of the output. It may
  // not if the two extents are different numbers, or if they differ by their symbols, as S and P +
  // S do, inside a branch of a select: the branch reads only a part of the axis.
  bool SameExtent(ValueId source, int axis, Expr index) const {
    const Form& form = e_.forms_.Of(source);
    if (!form.known_rank || axis >= static_cast<int>(form.shape.size())) return true;
    const Expr own = form.shape[axis], wanted = r_.shape[index->index()];
    if (own == wanted) return true;
    if (wanted->kind() == Kind::kInteger) {
      return own->kind() != Kind::kInteger && branches_ == 0;
    }
    if (branches_ == 0 || IsWide(source, axis)) return true;
    const std::vector<DimSymbol> theirs = DimsOf(wanted), mine = DimsOf(own);
    return std::none_of(theirs.begin(), theirs.end(), [&](const DimSymbol& dim) {
      return e_.dims_.contains(dim) || std::find(mine.begin(), mine.end(), dim) != mine.end();
    });
  }

  bool IsWide(ValueId source, int axis) const {
    const absl::Span<const int> wide = WideAxes(source);
    return std::find(wide.begin(), wide.end(), axis) != wide.end();
  }

  // Returns the index to read along an axis. An index that the source reads only in a branch of a
  // select, or beside a predicate, may lie outside the axis elsewhere: it is clamped.
  absl::StatusOr<Piece> Place(Expr load, int axis, const std::string& value) {
    const Expr arg = load->args()[axis];
    KV_ASSIGN_OR_RETURN(Piece piece, Whole(arg));
    const Form& form = e_.forms_.Of(load->source());
    if (branches_ == 0 || !form.known_rank) return piece;
    Pool& pool = e_.forms_.pool();
    const Facts facts{{r_.shape.begin(), r_.shape.end()}};
    const Expr last = pool.Sub(form.shape[axis], pool.Integer(1));
    const bool low = pool.ProveNonNegative(arg, facts);
    const bool high = pool.ProveNonNegative(pool.Sub(last, arg), facts);
    if (low && high) return piece;
    if (!low) piece.value = nodes().Add("Max", {piece.value, nodes().Int64s({0})}, "index");
    if (high) return piece;
    std::string edge;
    if (last->kind() == Kind::kInteger) {
      edge = nodes().Int64s({last->value()});
    } else {
      if (MayBeEmpty(form.shape[axis])) return Cannot(load);
      edge =
          nodes().Add("Sub", {nodes().Extent(value, axis, "extent"), nodes().Int64s({1})}, "index");
    }
    piece.value = nodes().Add("Min", {piece.value, edge}, "index");
    return piece;
  }

  // The past may be empty, so that there is no element to clamp an index to.
  bool MayBeEmpty(Expr extent) const {
    return extent->kind() == Kind::kDim && e_.dims_.contains(extent->dim());
  }

  absl::StatusOr<Piece> Load(Expr e) {
    // Axes of the source that are not indexed by an output index of their own.
    std::vector<int> moving;
    uint32_t plain = 0;
    for (int j = 0; j < static_cast<int>(e->args().size()); ++j) {
      const Expr arg = e->args()[j];
      const bool fresh = arg->kind() == Kind::kIndex && arg->index() < rank() &&
                         (plain >> arg->index() & 1u) == 0 && SameExtent(e->source(), j, arg);
      if (fresh) {
        plain |= 1u << arg->index();
      } else {
        moving.push_back(j);
      }
    }
    KV_ASSIGN_OR_RETURN(std::string value, Source(e));
    const int32_t type = e_.forms_.ElementType(e->source());
    if (moving.empty()) return Ordered(e, value, type);
    if (moving.size() == 1) {
      KV_ASSIGN_OR_RETURN(std::optional<Piece> piece, GatherOne(e, value, type, moving[0], plain));
      if (piece) return *piece;
    }
    return GatherAll(e, value, type);
  }

  Piece Ordered(Expr e, std::string value, int32_t type) {
    std::vector<int> axes;
    for (Expr arg : e->args()) axes.push_back(arg->index());
    return Permuted(std::move(value), axes, type);
  }

  // Brings `value` into the order of output axes; axes[j] is the output axis of its axis j.
  Piece Permuted(std::string value, const std::vector<int>& axes, int32_t type) {
    std::vector<int64_t> perm(axes.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::sort(perm.begin(), perm.end(), [&](int64_t a, int64_t b) { return axes[a] < axes[b]; });
    if (!std::is_sorted(perm.begin(), perm.end())) {
      value = nodes().Add("Transpose", {value}, r_.role, {MakeAttribute("perm", perm)});
    }
    uint32_t mask = 0;
    for (int axis : axes) mask |= 1u << axis;
    return {OnAxes(value, axes), type, mask, !axes.empty() || rank() == 0};
  }

  // Reads a source with a Gather: one axis is indexed by an expression, the others by output
  // indices. Returns nullopt if the expression depends on one of these.
  absl::StatusOr<std::optional<Piece>> GatherOne(Expr e, const std::string& value, int32_t type,
                                                 int axis, uint32_t plain) {
    KV_ASSIGN_OR_RETURN(Piece index, Place(e, axis, value));
    if ((index.axes & plain) != 0) return std::optional<Piece>();
    std::vector<int> index_axes;
    std::vector<int64_t> absent;
    for (int k = 0; k < rank(); ++k) {
      if (index.axes >> k & 1u) {
        index_axes.push_back(k);
      } else {
        absent.push_back(k);
      }
    }
    std::string at = index.value;
    if (!index.full_rank) {
      at = nodes().Add("Squeeze", {at}, "index");
    } else if (!absent.empty()) {
      at = nodes().Add("Squeeze", {at, nodes().Int64s(absent)}, "index");
    }
    const std::string gathered =
        nodes().Add("Gather", {value, at}, r_.role, {MakeAttribute("axis", int64_t{axis})});
    std::vector<int> axes;
    for (int j = 0; j < static_cast<int>(e->args().size()); ++j) {
      if (j == axis) {
        axes.insert(axes.end(), index_axes.begin(), index_axes.end());
      } else {
        axes.push_back(e->args()[j]->index());
      }
    }
    return std::optional<Piece>(Permuted(gathered, axes, type));
  }

  absl::StatusOr<Piece> GatherAll(Expr e, const std::string& value, int32_t type) {
    std::vector<Piece> coordinates;
    uint32_t axes = 0;
    for (int k = 0; k < static_cast<int>(e->args().size()); ++k) {
      KV_ASSIGN_OR_RETURN(Piece piece, Place(e, k, value));
      axes |= piece.axes;
      coordinates.push_back(std::move(piece));
    }
    std::vector<Expr> shape;
    for (int k = 0; k < rank(); ++k) {
      shape.push_back(axes >> k & 1u ? r_.shape[k] : e_.forms_.pool().Integer(1));
    }
    KV_ASSIGN_OR_RETURN(std::string full, e_.DimVector(shape));
    NodeBuilder::Inputs parts;
    for (const Piece& piece : coordinates) {
      const std::string wide = nodes().Add("Expand", {piece.value, full}, "coordinate");
      parts.push_back(nodes().Add("Unsqueeze", {wide, nodes().Int64s({-1})}, "coordinate"));
    }
    const std::string index =
        nodes().Add("Concat", parts, "coordinates", {MakeAttribute("axis", int64_t{-1})});
    return Piece{nodes().Add("GatherND", {value, index}, r_.role), type, axes, true};
  }

  Emitter& e_;
  const Request& r_;
  int branches_ = 0;  // number of selects around the part that is being built
};

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
