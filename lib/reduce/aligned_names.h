// Gives values of a pair one name where both models compute them alike.
#pragma once

#include <optional>

#include "reduce/shared_values.h"

namespace kvlift {

// Returns the pair with values of the conversion renamed: going back from outputs that correspond,
// values get the names that they have in the source as long as the nodes are the same operators
// with the same attributes. Nothing else changes. Returns nullopt if there is nothing to rename, or
// if the subject is not a pair.
std::optional<Subject> WithAlignedNames(const SubjectGraphs& graphs);

}  // namespace kvlift
