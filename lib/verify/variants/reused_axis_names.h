// Exporters give one name (dim_param) to axes of different sizes, such as the new tokens and the
// past. Runtimes do not compare names, so models run where the sizes differ.
#pragma once

#include "contract/manifest.h"
#include "onnxio/model/model.h"

namespace kvlift {

enum class PairSide { kSource, kResult };

// Returns the model itself, or a copy with other names for some axes of inputs: those with the name
// of the rows of a past that grows in this model, or of the columns of a mask with a column for
// each row; and those with a name that an input gives two of its axes and that a past has too.
Model WithPastsApart(const Model& model, const Manifest& relation, PairSide side);
// Returns the model itself, or a copy with other names for all axes behind the first whose name
// another input declares as well, or is that of the rows of a growing past.
Model WithAllNamesApart(const Model& model, const Manifest& relation, PairSide side);

}  // namespace kvlift
