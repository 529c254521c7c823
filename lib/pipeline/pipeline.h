// `convert` as the command line and the Python package run it: convert, check the result, refuse
// tree masks where slots matter (RefuseTree), prove, and test what the proof leaves open. Nothing
// here prints, and no files are written but those of StepRequest::dump_dir.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "freeze/request.h"
#include "onnxio/model/model.h"
#include "proof/graphs/proof.h"
#include "rewrite/convert/convert.h"
#include "verify/judge/verify.h"

namespace kvlift {

// The evidence that a conversion needs before its model is handed out.
enum class ConvertAccept {
  kProved,    // every fact holds for all shapes
  kTested,    // where a fact is open, the plans of `verify` pass
  kUnproved,  // nothing is refuted; plans do not run
};
// Reads "proved", "tested" or "unproved". Returns nullopt for other words.
std::optional<ConvertAccept> ReadConvertAccept(std::string_view word);

// The result of proving and testing a conversion.
enum class ConversionVerdict {
  kNothing,       // no model was made
  kProved,        // every fact holds for all shapes
  kTested,        // facts are open, and the plans passed
  kUnproved,      // facts are open, and no plan ran
  kDifferent,     // a fact is refuted, or a plan found a difference
  kInconclusive,  // facts are open, and the plans say neither equal nor different
};
// Returns the word of the JSON and the manifest: "proved", "tested", ...; empty for kNothing.
std::string_view WordOf(ConversionVerdict equality);

struct ProvingOptions {
  ConvertAccept accept = ConvertAccept::kTested;
  // The plans of `verify` that run whatever the proof says; absent: quick ones, if a fact is open
  // and `accept` is kTested.
  enum class Plans { kQuick, kFull };
  std::optional<Plans> plans;
  int threads = 0;  // 0: as many as the machine has
  // The seed of random weights that plans use in place of the model's; absent: they read the
  // model's.
  std::optional<uint64_t> random_weights;
  // Called with a text about each step before it runs; may be empty.
  std::function<void(std::string)> say;
};

// How far a conversion runs, and where its steps are written down.
struct StepRequest {
  // Ends after this step without a model, with the status kStopped; absent: all steps run.
  std::optional<Step> stop_after;
  // The folder for the result of each step (pipeline/step_files.h); absent: nothing is written.
  std::optional<std::string> dump_dir;
};

struct ProvedConversion {
  Conversion conversion;  // keeps its model for reports if `accepted` is false
  Proof proof;
  std::optional<VerifyReport> tests;  // the results of the plans; absent if none ran
  ConversionVerdict equality = ConversionVerdict::kNothing;
  bool accepted = false;  // the model may be handed out; false if there is no model
  std::string reason;     // why the model is not accepted, "CODE text"; empty if there is no model
  // The step of StepRequest::stop_after, if the conversion ended there; `accepted` then says
  // whether the model might have been handed out, if that is the last step.
  std::optional<Step> stopped_after;
  std::vector<std::string> dumps;  // the files in StepRequest::dump_dir, in the order of the steps
};

// Runs all steps. The manifest records the evidence for the model (Manifest::equality). If the
// model is not accepted, the status of the conversion is kRefused and every report has a reason.
// Errors: those of Convert; InvalidArgument with a code if the source breaks a rule; Internal if
// only the result breaks one; an error with a code of writing (IsWriteError) if a file in the dump
// folder cannot be written.
absl::StatusOr<ProvedConversion> ConvertAndProve(const Model& source, const ConvertOptions& options,
                                                 RuleTable rules, const ProvingOptions& proving,
                                                 const StepRequest& steps = {});

// Converts as ConvertAndProve does, and returns a conversion for each graph of `freeze`, whose
// model has static shapes (freeze/freeze.h) and is checked and proved for itself. `options` must
// ask for static shapes. If there is nothing to freeze, or a graph cannot be frozen, returns that
// conversion alone, without a model. Errors: those of ConvertAndProve.
absl::StatusOr<std::vector<ProvedConversion>> ConvertFrozen(const Model& source,
                                                            const ConvertOptions& options,
                                                            RuleTable rules,
                                                            const FreezeRequest& freeze,
                                                            const ProvingOptions& proving);

// Judges two models that `relation` relates as ConvertAndProve judges a conversion: proves, and
// tests what is open. Of the result's `conversion` only the manifest is set, to the relation with
// all assumptions. The caller has checked both models. Errors: those of Verify.
absl::StatusOr<ProvedConversion> ProvePair(const Model& before, const Model& after,
                                           const Manifest& relation, const ProvingOptions& proving);

}  // namespace kvlift
