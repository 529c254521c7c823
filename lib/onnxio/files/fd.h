// An owned file descriptor, closed on destruction. -1: no file.
#pragma once

#include <unistd.h>

#include <utility>

namespace kvlift {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives up ownership, for callers that check the result of close.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace kvlift
