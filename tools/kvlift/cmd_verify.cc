#include <filesystem>
#include <fstream>
#include <sstream>

#include "commands.h"
#include "contract/manifest.h"
#include "documents.h"
#include "relation.h"

namespace kvlift::cli {

int ExitCodeOf(VerdictKind verdict) {
  switch (verdict) {
    case VerdictKind::kEqual:
      return kDone;
    case VerdictKind::kDifferent:
      return kFindings;
    default:
      return kInconclusive;
  }
}

int RunVerify(const VerifyFlags& flags, Io io) {
  if (!flags.save_failure.empty()) {
    Complain(io, "--save-failure", "is not available in this version");
    return kUsage;
  }
  const auto before = Load(io, flags.before, flags.common);
  if (!before) return kUnreadable;
  const auto after = Load(io, flags.after, flags.common);
  if (!after) return kUnreadable;
  const auto relation = FindRelation(io, flags.manifest, *before, *after);
  if (!relation) return kUnreadable;
  VerifyOptions options;
  options.full = flags.plan == "full";
  options.seed = flags.seed;
  options.threads = flags.common.threads;
  const auto report = Verify(*before, *after, *relation, options);
  if (!report.ok()) {
    Complain(io, flags.after, std::string(report.status().message()));
    return kUnreadable;
  }
  if (flags.common.json || flags.format == "json") {
    PrintJson(io, VerifyDocument(*report));
  } else if (!flags.common.quiet) {
    io.out << VerifyText(*report, flags.common.verbose);
  }
  return ExitCodeOf(report->verdict);
}

}  // namespace kvlift::cli
