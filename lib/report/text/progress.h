// Shows a progress line on a terminal.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace kvlift {

// Writes a line to a file descriptor after half a second, updates it a few times per second, and
// erases it at the end. Does nothing if not enabled.
class Progress {
 public:
  Progress(int fd, bool enabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Sets the text of the line. It may be arbitrary bytes.
  void Say(std::string what);
  // Ends the display: erases the line and writes nothing more. The destructor calls it.
  void Stop();

 private:
  void Run();
  void Write(const std::string& text) const;

  const int fd_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string what_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace kvlift
