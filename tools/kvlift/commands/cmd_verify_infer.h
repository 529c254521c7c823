// Infers how two models correspond that kvlift did not make from one another: which cache is which,
// in which layout, and what each input holds. It uses names, shapes, and the values that inputs
// flow to. If several relations fit, what the graphs say about rows of caches can decide between
// them; whether the models agree cannot. Each relation that remains is judged.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

// Returns at least one relation: all that the graphs cannot tell apart, the likeliest first.
std::vector<Manifest> InferRelations(const Model& before, const Model& after);

// Verifies the models under each inferred relation and returns the worst verdict; `*worst` is set
// to the index of its relation. Two exports of one model may give the rows of padding tokens that
// see no key other numbers. Where models differ in such rows only, the precondition KV303 is added
// to the relation, and with it to the ledger.
absl::StatusOr<VerifyReport> VerifyEach(const Model& before, const Model& after,
                                        std::vector<Manifest>* relations,
                                        const VerifyOptions& options, size_t* worst);

// Returns one line per cache, input and output, for users.
std::vector<std::string> RelationLines(const Manifest& relation);

}  // namespace kvlift::cli
