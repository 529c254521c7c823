// Judges a model by the end of the process that worked on it.
#pragma once

#include <string>
#include <vector>

#include "kvlift/fleet/processes.h"
#include "kvlift/fleet/result.h"

namespace kvlift::cli {

// The output of a process.
struct ProcessOutput {
  std::string document;  // stdout
  std::string errors;    // stderr
};

// Sets outcome, exit code, codes, reason, time and memory of `result`, whose command and limits are
// set already. Returns true if the process has printed the document of its command about a model
// that can be read.
bool Judge(const ProcessEnd& end, const ProcessOutput& printed, FleetResult* result);

}  // namespace kvlift::cli
