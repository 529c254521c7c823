// One line that says what takes so long, on a terminal only.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace kvlift {

// Writes to a file descriptor from half a second on, a few times per second, and wipes the line
// when it ends. Does nothing if not enabled.
class Progress {
 public:
  Progress(int fd, bool enabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What goes on now; any bytes.
  void Say(std::string what);
  // Ends early: nothing is written any more, and no line is left.
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
