// `convert` as the command line and the Python package run it: convert, check the result, apply the
// rules of trees, prove, and test what the proof leaves open. Nothing here prints or writes files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "onnxio/model.h"
#include "proof/proof.h"
#include "rewrite/convert.h"
#include "verify/verify.h"

namespace kvlift {

// What must be shown of a conversion before its model is handed out.
enum class ConvertAccept {
  kProved,    // every fact holds for all shapes
  kTested,    // where a fact is open, the plans of `verify` pass
  kUnproved,  // nothing is refuted; plans do not run
};
// "proved", "tested" or "unproved"; nullopt for other words.
std::optional<ConvertAccept> ReadConvertAccept(std::string_view word);

// What was shown of a conversion.
enum class Equality {
  kNothing,       // there is no converted model
  kProved,        // every fact holds for all shapes
  kTested,        // facts are open, and the plans passed
  kUnproved,      // facts are open, and no plan ran
  kDifferent,     // a fact is refuted, or a plan found a difference
  kInconclusive,  // facts are open, and the plans say neither equal nor different
};
// The words of the JSON and the manifest: "proved", "tested", ...; empty for kNothing.
std::string_view WordOf(Equality equality);

struct ProvingOptions {
  ConvertAccept accept = ConvertAccept::kTested;
  // Plans that run whatever the proof says; absent: quick ones, where a fact is open.
  enum class Plans { kQuick, kFull };
  std::optional<Plans> plans;
  int threads = 0;  // 0: as many as the machine has
  // The seed of weights that plans draw instead of reading files; absent: they read files.
  std::optional<uint64_t> random_weights;
  // Called with what is done next; may be empty.
  std::function<void(std::string)> say;
};

struct ProvedConversion {
  Conversion conversion;  // its model stays where `accepted` is false, for reports
  Proof proof;
  std::optional<VerifyReport> tests;  // of the plans, if they ran
  Equality equality = Equality::kNothing;
  // The model may be handed out. False without a model.
  bool accepted = false;
  std::string reason;  // why the model is not accepted; empty without a model
};

// The manifest of an accepted model says what was shown of it. Errors: as Convert; InvalidArgument
// with a code where the source breaks a rule that the result inherits; Internal where the result
// breaks one by itself.
absl::StatusOr<ProvedConversion> ConvertAndProve(const Model& source, const ConvertOptions& options,
                                                 RuleTable rules, const ProvingOptions& proving);

}  // namespace kvlift
