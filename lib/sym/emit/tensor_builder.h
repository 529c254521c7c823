// Builds the nodes of one tensor: the class behind Emitter::Tensor. Internal to lib/sym/emit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sym/emit/emit.h"

namespace kvlift::sym {

// Builds one tensor. All pieces broadcast against rank `rank()`.
class Emitter::Builder {
 public:
  Builder(Emitter& emitter, const Request& request) : e_(emitter), r_(request) {}

  // Returns the name of the tensor. Errors are those of Emitter::Tensor.
  absl::StatusOr<std::string> Run();

 private:
  int rank() const { return static_cast<int>(r_.shape.size()); }
  NodeBuilder& nodes() { return e_.builder_; }

  absl::Status Cannot(Expr e) const;
  absl::StatusOr<std::string> Fill(const Piece& piece);
  Piece Cast(Piece piece, int32_t elem_type);
  Piece Join(std::string_view op, const Piece& a, const Piece& b, int32_t elem_type);
  absl::StatusOr<Piece> Typed(Expr e, int32_t elem_type);
  absl::StatusOr<Piece> Integer(Expr e, int32_t elem_type);
  Piece Constant(double value, int32_t elem_type);
  absl::StatusOr<Piece> Whole(Expr e);

  // Returns number, modulus and rest of an expression (number mod modulus) + rest, where `rest`
  // does not contain the division; nullopt if e has no such form.
  struct Remainder {
    Expr number, modulus, rest;
  };
  std::optional<Remainder> RemainderOf(Expr e);
  Piece Divisor(Expr e, Piece piece, const Facts& facts);
  absl::StatusOr<Piece> Modulo(Expr number, Expr modulus, Expr rest);
  absl::StatusOr<Piece> Sum(absl::Span<const Term> terms);
  absl::StatusOr<Piece> IndexPiece(int k);
  absl::StatusOr<Piece> DimPiece(Expr e);
  std::string OnAxes(const std::string& value, const std::vector<int>& axes);
  absl::StatusOr<Piece> Predicate(Expr e);
  absl::StatusOr<Piece> Compare(std::string_view op, Expr p);
  // Returns the type in which a comparison of p with 0 is computed if p reads real numbers; else 0.
  int32_t RealTypeOf(Expr p) const;
  // Returns one side of a comparison of real numbers: a number that is read, or a constant.
  absl::StatusOr<Piece> RealSide(absl::Span<const Term> terms, int32_t type);
  absl::Span<const int> WideAxes(ValueId source) const;
  absl::StatusOr<std::string> Source(Expr load);
  bool SameExtent(ValueId source, int axis, Expr index) const;
  bool MayEndEarlier(ValueId source, int axis, Expr index) const;
  bool AsksForEnd(Expr extent) const;
  bool IsWide(ValueId source, int axis) const;
  absl::StatusOr<Piece> Place(Expr load, int axis, const std::string& value);
  bool MayBeEmpty(Expr extent) const;

  // Elements [start, start + length) of an axis, read for the numbers 0, 1, ... of output index
  // `index`.
  struct FixedPart {
    int index = 0;
    int64_t start = 0, length = 0;
  };
  std::optional<FixedPart> FixedPartOf(Expr load, int axis) const;
  absl::StatusOr<Piece> Load(Expr e);
  Piece Ordered(Expr e, std::string value, int32_t type);
  Piece Permuted(std::string value, const std::vector<int>& axes, int32_t type);
  absl::StatusOr<std::optional<Piece>> GatherOne(Expr e, const std::string& value, int32_t type,
                                                 int axis, uint32_t plain);
  absl::StatusOr<Piece> GatherAll(Expr e, const std::string& value, int32_t type);

  Emitter& e_;
  const Request& r_;
  // The number of selects, and of conjunctions with parts_guard, around the part that is being
  // built.
  int branches_ = 0;
};

}  // namespace kvlift::sym
