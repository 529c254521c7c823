// Checks claims of a relation about its caches that running the models does not test: whether a
// cache holds keys or values, to which layer it belongs, by which operators the source writes it,
// and how many slots a buffer of symbolic size has.
#pragma once

#include <string>

#include "contract/assumptions.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// Returns a sentence about the first cache whose role the converted model contradicts, or empty:
// the relation says that it holds keys, and an Attention reads it as values and none as keys, or
// the other way round.
std::string RoleContradiction(const Manifest& relation, const Graph& after);

// Returns an entry for each claim about a cache that the graphs do not confirm: the role and layer
// of one that no Attention of the converted model reads, the layer of one that an Attention reads
// beside a cache of another layer, operators that do not stand between past and present in the
// source, and the number of slots of a buffer that does not declare it.
Assumptions UnconfirmedClaims(const Manifest& relation, const Graph& source, const Graph& after);

}  // namespace kvlift
