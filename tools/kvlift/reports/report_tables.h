// The tables of a report.
#pragma once

#include "contract/manifest.h"
#include "ir/graph.h"
#include "report/text/report.h"
#include "rewrite/convert/convert.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {

// `after` and `manifest` may be null.
ReportTable InterfaceTable(const Graph& before, const Graph* after, const Manifest* manifest);
ReportTable LayersTable(const Inspection& inspection, const Manifest* manifest);
ReportTable RefusedTable(const Inspection& inspection);
ReportTable PreconditionsTable(const Manifest& manifest);
// Adds plans, outputs, proof, aliases, mutants and the counterexample to the report.
void AddVerification(const VerifyReport& verify, Report* report);
// Returns the steps that a host takes to run the converted model.
std::vector<std::string> HowTo(const Manifest& manifest, const std::string& model_path);

}  // namespace kvlift::cli
