// What the end of a process says about the model that it worked on.
#pragma once

#include <string>
#include <vector>

#include "kvlift/fleet/processes.h"
#include "kvlift/fleet/result.h"

namespace kvlift::cli {

// What a process has printed.
struct ProcessOutput {
  std::string document;  // stdout
  std::string errors;    // stderr
};

// Sets outcome, exit code, codes, reason, time and memory of `result`, whose command and limits are
// set already. Returns true if the process has printed the document of its command about a model
// that can be read.
bool Judge(const ProcessEnd& end, const ProcessOutput& printed, FleetResult* result);

}  // namespace kvlift::cli
