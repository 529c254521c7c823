// The relation of two models that kvlift did not make from one another: which cache is which, in
// which layout, and what each input holds. Read from names, shapes and from where values flow to.
// What the graphs say of rows of caches chooses among them; whether the models agree does not.
// Where several relations remain, each is judged.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/verify.h"

namespace kvlift::cli {

// At least one; all that the graphs do not tell apart, the likeliest first.
std::vector<Manifest> InferRelations(const Model& before, const Model& after);
Manifest InferRelation(const Model& before, const Model& after);  // the likeliest

// The verdict that says least for the models, and by which of the relations it was found.
absl::StatusOr<VerifyReport> VerifyEach(const Model& before, const Model& after,
                                        const std::vector<Manifest>& relations,
                                        const VerifyOptions& options, size_t* worst);

// One line per cache, input and output.
std::vector<std::string> RelationLines(const Manifest& relation);

}  // namespace kvlift::cli
