// Temporary files that must not stay when the process is ended by a signal.
#pragma once

#include <string>

namespace kvlift {

// From now on SIGINT, SIGTERM and SIGHUP remove the files noted below before they end the process
// as they always do. SIGBUS, which a mapped file raises that became shorter, ends it with exit code
// 3 and a line on stderr (KV008). Call it once, early in main.
void CleanUpOnSignals();

// Notes a file until the returned slot is forgotten; -1 if there are too many. Async-signal-safe
// readers see a whole path or none.
int NoteTemporary(const std::string& path);
void ForgetTemporary(int slot);

// While one of these lives, signals that would end the process wait.
class HoldSignals {
 public:
  HoldSignals();
  ~HoldSignals();
  HoldSignals(const HoldSignals&) = delete;
  HoldSignals& operator=(const HoldSignals&) = delete;
};

}  // namespace kvlift
