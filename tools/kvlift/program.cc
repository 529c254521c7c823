#include "kvlift/program.h"

#include <openssl/crypto.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "base/memory_cap.h"
#include "fmt/format.h"
#include "kvlift/cli.h"
#include "onnxio/files/cleanup.h"

namespace kvlift::cli {
namespace {

// Returns true if the reader of stdout has closed it, as `head` does when it has enough.
bool ReaderHasGone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

// By now all work is done and files are written. After success the process ends as one that the
// closed pipe has killed; otherwise it keeps its exit code.
int AfterClosedPipe(int code) {
  if (code != kDone) return code;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  return 128 + SIGPIPE;
}

}  // namespace

int Program(const std::vector<std::string>& words) {
  CapMemoryAtPhysical();
  // Errors of write report the same conditions, so these signals are not needed.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CleanUpOnSignals();
  // A run reads no file but those of its arguments.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  Io io{std::cout, std::cerr};
  io.args = words;
  const auto fail = [&](const std::string& message) {
    Complain(io, "", message);
    if (AsksForJson(words) && !io.reported->results) PrintErrorDocument(io, kInternal);
    return int{kInternal};
  };
  try {
    const int code = Run(words, io);
    std::cout.flush();
    if (std::cout) return code;
    if (ReaderHasGone()) return AfterClosedPipe(code);
    std::cerr << "kvlift: stdout: cannot be written\n";
    return code == kDone ? int{kUnwritable} : code;
  } catch (const std::bad_alloc&) {
    return fail("out of memory");
  } catch (const std::exception& error) {
    return fail(fmt::format("internal error: {}", error.what()));
  }
}

}  // namespace kvlift::cli
