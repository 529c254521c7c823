// Implements OpContext, through which the functions for operators read inputs and elements, and set
// outputs.
#include <algorithm>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {

bool OpContext::Known(int n) {
  for (int k = 0; k < n; ++k) {
    if (!has(k) || !in(k).form.known_rank) return false;
  }
  return true;
}

std::optional<std::vector<Expr>> OpContext::Elements(int input) {
  if (!has(input)) return std::nullopt;
  return engine_.Elements(in(input));
}

std::optional<std::vector<int64_t>> OpContext::ConstantInts(int input) {
  const auto elements = Elements(input);
  if (!elements) return std::nullopt;
  std::vector<int64_t> result;
  for (Expr e : *elements) {
    if (e->kind() != Kind::kInteger) return std::nullopt;
    result.push_back(e->value());
  }
  return result;
}

void OpContext::Set(int output, Shape shape, const ElementFn& fn) {
  engine_.Set(this->output(output), std::move(shape), fn);
}

void OpContext::SetElements(int output, bool scalar, std::vector<Expr> elements) {
  engine_.SetElements(this->output(output), scalar, std::move(elements));
}

void OpContext::SetOpaque(int output, Shape shape) {
  engine_.SetOpaque(this->output(output), std::move(shape));
}

void OpContext::Copy(int output, int input) {
  if (!has(input) || !in(input).form.known_rank) return;
  const Value& value = in(input);
  const auto elements = value.elements;
  Set(output, value.form.shape,
      [&](Indices ix, const Facts& facts) { return engine_.At(value, ix, facts); });
  if (elements) engine_.KeepElements(this->output(output), *elements);
}

void OpContext::SetPart(int output, const Value& x, int axis, Expr start, Expr length) {
  Shape shape = x.form.shape;
  shape[axis] = length;
  Set(output, std::move(shape), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own(ix.begin(), ix.end());
    own[axis] = pool().Add(own[axis], start);
    return engine_.At(x, own, facts);
  });
}

Expr OpContext::AtBroadcast(const Value& value, Indices indices, const Facts& facts) {
  const int offset = static_cast<int>(indices.size()) - value.rank();
  std::vector<Expr> own;
  own.reserve(static_cast<size_t>(value.rank()));
  for (int k = 0; k < value.rank(); ++k) {
    own.push_back(value.dim(k)->is_integer(1) ? pool().Integer(0) : indices[offset + k]);
  }
  return engine_.At(value, own, facts);
}

}  // namespace kvlift::sym::internal
