// kvlift: finds the key/value caches of a decoder in ONNX, rewrites them to TensorScatter and
// Attention, and proves that nothing else changed. Each command is in cmd_NAME.cc.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "base/escape.h"
#include "cli.h"
#include "onnxio/cleanup.h"

namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVLIFT_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVLIFT_SANITIZED
#endif

// A runaway allocation ends this process, not another. Sanitizers reserve far more than they use.
void LimitMemory() {
#ifndef KVLIFT_SANITIZED
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  rlimit limit{};
  if (pages <= 0 || size <= 0 || getrlimit(RLIMIT_DATA, &limit) != 0) return;
  const rlim_t memory = static_cast<rlim_t>(pages) * static_cast<rlim_t>(size);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= memory) return;
  limit.rlim_cur = memory;
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  LimitMemory();
  // What they are sent for is said by errno, too.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  kvlift::CleanUpOnSignals();
  try {
    const int code =
        kvlift::cli::Run(std::vector<std::string>(argv, argv + argc), {std::cout, std::cerr});
    std::cout.flush();
    if (std::cout) return code;
    std::cerr << "kvlift: stdout: cannot be written\n";
    return code == kvlift::cli::kDone ? int{kvlift::cli::kUnwritable} : code;
  } catch (const std::bad_alloc&) {
    std::cerr << "kvlift: out of memory\n";
    return kvlift::cli::kInternal;
  } catch (const std::exception& error) {
    std::cerr << "kvlift: internal error: " << kvlift::EscapeTerminal(error.what()) << "\n";
    return kvlift::cli::kInternal;
  }
}
