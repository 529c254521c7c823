#include "proof/dependence/token_axes.h"

#include <algorithm>
#include <vector>

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

bool TokenAxes::HoldsUnknownSize(Expr e) const {
  const std::vector<sym::DimSymbol> known = sym::DimsOf(past_), own = sym::DimsOf(new_);
  for (const sym::DimSymbol& dim : sym::DimsOf(e)) {
    const bool of_step = std::find(known.begin(), known.end(), dim) != known.end() ||
                         std::find(own.begin(), own.end(), dim) != own.end();
    if (dim.is_internal() && !of_step) return true;
  }
  return false;
}

bool TokenAxes::CountsTokens(Expr e) const { return sym::ContainsDim(e, new_->dim()); }

Along TokenAxes::AlongOf(Expr extent, bool in_parts) const {
  if (extent == new_) return Along::kTokens;
  if (extent == total_) return Along::kKeys;
  if (CountsTokens(extent)) {
    const Expr count = pool_.FloorDiv(extent, new_, Facts{});
    const bool whole = !CountsTokens(count) && pool_.Mul(count, new_) == extent;
    if (!whole) return Along::kUnknown;
    const bool parts = in_parts && count->kind() == Kind::kInteger;
    return parts ? Along::kTokensAndParts : Along::kSequencesAndTokens;
  }
  const std::vector<sym::DimSymbol> known = sym::DimsOf(past_);
  for (const sym::DimSymbol& dim : sym::DimsOf(extent)) {
    const bool is_past = std::find(known.begin(), known.end(), dim) != known.end();
    if (dim.is_internal() && !is_past) return Along::kUnknown;
  }
  return sym::LoadsOf(extent).empty() ? Along::kNoTokens : Along::kUnknown;
}

Expr TokenAxes::TokenAt(Along along, Expr at, Expr extent, const Facts& facts) const {
  switch (along) {
    case Along::kTokens:
      return at;
    case Along::kKeys:
      return pool_.Sub(at, past_);
    case Along::kSequencesAndTokens:
      return pool_.Mod(at, new_, facts);
    case Along::kTokensAndParts:
      return pool_.FloorDiv(at, pool_.FloorDiv(extent, new_, Facts{}), facts);
    case Along::kNoTokens:
    case Along::kUnknown:
      break;
  }
  return nullptr;
}

}  // namespace kvlift
