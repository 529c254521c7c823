// Inverts the index map of a scatter: which element of the update, if any, each element of the data
// receives.
#pragma once

#include <optional>
#include <vector>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {

// While the map is inverted, the indices of the update are i16, i17, ... and those of the data are
// i0, i1, ...
inline constexpr int kUpdateBase = 16;
inline constexpr int kMaxScatterRank = 12;

// The index along one axis of the data at which the update element at i16.. is written.
struct Coordinate {
  int axis;
  Expr place;
  // One digit of a flattened axis: an index outside its extent would hit another row.
  bool digit = false;
};

// The update index that each data index receives, and the condition under which it receives one.
struct Inverse {
  std::vector<Expr> update_index;
  Expr condition;
};

// Solves the places for the update indices. Each place is w + u, (w + u) mod M, or read from an
// integer vector that the host gives, which is then assumed to hold consecutive indices
// (AssumptionReason::kCountsUp). Indices that may lie outside are assumed to lie inside. Returns
// nullopt if the map cannot be inverted, for example because one place may be written twice.
std::optional<Inverse> InvertPlaces(OpContext& c, const Shape& data, const Shape& update,
                                    std::vector<Coordinate> places);

}  // namespace kvlift::sym::internal
