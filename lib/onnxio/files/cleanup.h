// Removes temporary files and folders when a signal ends the process.
#pragma once

#include <string>

namespace kvlift {

// Installs handlers: SIGINT, SIGTERM and SIGHUP remove what is noted below, then end the process
// in their default way. SIGBUS, which a mapped file raises that became shorter, ends it with exit
// code 3 and a line on stderr (KV008). Call it once, early in main.
void CleanUpOnSignals();

// Notes a file, or a folder, until ForgetTemporary gets the returned slot; returns -1 if there are
// too many. Folders are removed after all files, and stay if they hold others. A signal handler
// finds the whole path or nothing.
int NoteTemporary(const std::string& path);
void ForgetTemporary(int slot);

// Delays signals that would end the process, while one of these lives.
class HoldSignals {
 public:
  HoldSignals();
  ~HoldSignals();
  HoldSignals(const HoldSignals&) = delete;
  HoldSignals& operator=(const HoldSignals&) = delete;
};

}  // namespace kvlift
