// Which element of the update of a scatter each element of the data gets, if any.
#pragma once

#include <optional>
#include <vector>

#include "sym/forms_engine.h"

namespace kvlift::sym::internal {

// Update indices are i16, i17, ... while the map is inverted; indices of the data are i0, i1, ...
inline constexpr int kUpdateBase = 16;
inline constexpr int kMaxScatterRank = 12;

// Place of the update element at i16.. along one axis of the data.
struct Coordinate {
  int axis;
  Expr place;
  bool digit = false;  // of a flattened axis: a place outside it would hit another row
};

// The update index each data index comes from, and when there is one.
struct Inverse {
  std::vector<Expr> update_index;
  Expr condition;
};

// Solves the places for the update indices: each is w + u, (w + u) mod M, or read from a vector
// that the host gives, which is then assumed to hold consecutive places. nullopt if the map
// cannot be inverted, as where one place may be written twice.
std::optional<Inverse> InvertPlaces(OpContext& c, const Shape& data, const Shape& update,
                                    std::vector<Coordinate> places);

}  // namespace kvlift::sym::internal
