// Drives two models step by step with caches threaded and says equal, different or inconclusive.
// Knows nothing of rewrite rules: only the two models and the relation of the manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"

namespace kvlift {

enum class VerdictKind { kEqual, kDifferent, kInconclusive };

struct VerifyOptions {
  bool full = false;
  uint64_t seed = 1;
  int threads = 0;       // 0: as the machine has
  bool controls = true;  // run the mutants
};

struct PlanResult {
  std::string name;
  std::string status;  // "bitwise", "within bound", "different", "skipped", "failed"
  int steps = 0;
  std::string note;
};

struct OutputResult {
  std::string name;
  double max_abs = 0, max_rel = 0, max_ulp = 0, bound = 0;
  std::string where;
};

struct ControlResult {
  std::string mutant;
  std::string detected_by;  // plan and step; empty: not detected
};

struct Counterexample {
  std::string plan;
  int step = 0;
  std::string output;
  std::vector<int64_t> element;
  double before = 0, after = 0;
  std::string text;
};

struct VerifyReport {
  VerdictKind verdict = VerdictKind::kInconclusive;
  std::string reason;  // why not equal
  std::vector<PlanResult> plans;
  std::vector<OutputResult> outputs;
  std::vector<ControlResult> controls;
  std::vector<std::pair<std::string, std::string>> coverage;
  std::optional<Counterexample> counterexample;
};

// Errors only for models that cannot be indexed at all; an operator without a kernel, a plan that
// cannot run, or an undetected mutant make the verdict inconclusive.
absl::StatusOr<VerifyReport> Verify(const Model& before, const Model& after,
                                    const Manifest& relation, const VerifyOptions& options);

}  // namespace kvlift
