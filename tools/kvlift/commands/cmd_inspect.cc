#include "kvlift/commands/commands.h"
#include "kvlift/reports/documents.h"
#include "kvlift/texts.h"

namespace kvlift::cli {

int RunInspect(const InspectFlags& flags, Io io) {
  int code = kDone;
  bool unreadable = false;
  nlohmann::ordered_json documents = nlohmann::ordered_json::array();
  for (const std::string& path : flags.models) {
    const auto model = Load(io, path, flags.common);
    if (!model) {
      unreadable = true;
      continue;
    }
    io.Say("finding caches in " + path);
    const auto inspection = Inspect(*model, AllRules());
    if (!inspection.ok()) {
      Complain(io, path, inspection.status());
      unreadable = true;
      continue;
    }
    if (flags.common.json) {
      documents.push_back(InspectDocument(*model, *inspection));
    } else if (!flags.common.quiet) {
      io.Results() << InspectText(path, *inspection, flags.details || flags.common.verbose,
                                  flags.near_misses, io.OutStyle());
    }
    for (const CacheReport& cache : inspection->caches) {
      if (cache.reason) code = kFindings;
    }
    if (inspection->caches.empty()) code = kFindings;
  }
  // There is one document on stdout; for several models it is a list of those that can be read.
  if (flags.common.json && !documents.empty()) {
    PrintJson(io, flags.models.size() == 1 ? documents[0] : documents);
  }
  return unreadable ? kUnreadable : code;
}

}  // namespace kvlift::cli
