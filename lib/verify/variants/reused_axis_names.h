// Exporters give one name (dim_param) to axes of different sizes, such as the new tokens and the
// past. Runtimes do not compare names, so models run where the sizes differ.
#pragma once

#include "contract/manifest.h"
#include "onnxio/model/model.h"

namespace kvlift {

enum class PairSide { kSource, kResult };

// Returns the model itself, or a copy with other names for those axes of inputs that are called
// like the rows of a past that grows in this model or like the columns of a mask with a column for
// each row, or that an input calls like another axis of its own and a past like one of its axes.
Model WithPastsApart(const Model& model, const Manifest& relation, PairSide side);
// Returns the model itself, or a copy with other names for all axes behind the first that an input
// calls like another input does, or like the rows of a growing past.
Model WithAllNamesApart(const Model& model, const Manifest& relation, PairSide side);

}  // namespace kvlift
