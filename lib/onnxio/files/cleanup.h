// Removes temporary files and folders when a signal ends the process.
#pragma once

#include <string>

namespace kvlift {

// Installs signal handlers. SIGINT, SIGTERM and SIGHUP remove the files and folders of
// NoteTemporary, then end the process in their default way. SIGBUS, which reading a mapped file
// raises once the file has become shorter, removes them too and ends the process with exit code 3
// and a line on stderr (KV008). Call it once, early in main.
void CleanUpOnSignals();

// Removes the files and folders of NoteTemporary, for a process that is about to end. Allocates
// nothing.
void RemoveTemporaries();

// Registers a file or folder for removal. Returns a number for ForgetTemporary, or -1 if the path
// is too long or too many are registered. Folders are removed after all files, and only if they are
// empty by then. A signal handler sees the whole path or nothing.
int NoteTemporary(const std::string& path);
void ForgetTemporary(int slot);

// While an object of this class exists, SIGINT, SIGTERM and SIGHUP are delayed; the last object to
// be destroyed lets them take effect.
class DelaySignals {
 public:
  DelaySignals();
  ~DelaySignals();
  DelaySignals(const DelaySignals&) = delete;
  DelaySignals& operator=(const DelaySignals&) = delete;
};

}  // namespace kvlift
