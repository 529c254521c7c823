#include "kvlift/out_of_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <new>
#include <sstream>

#include "base/memory_cap.h"
#include "base/sanitized.h"
#include "kvlift/cli.h"
#include "onnxio/files/cleanup.h"

namespace kvlift::cli {
namespace {

constexpr size_t kLarge = size_t{1} << 20;
constexpr char kText[] = "out of memory";

// The text that goes to stdout; empty without --json. Null before ExitWhenMemoryRunsOut.
const std::string* document = nullptr;

void Print(int stream, const char* text, size_t size) {
  while (size > 0) {
    const ssize_t n = write(stream, text, size);
    if (n <= 0) return;
    text += n;
    size -= static_cast<size_t>(n);
  }
}

[[noreturn]] void End() {
  RemoveTemporaries();
  constexpr char kLine[] = "kvlift: out of memory\n";
  Print(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  Print(STDOUT_FILENO, document->data(), document->size());
  _exit(kInternal);
}

}  // namespace

void ExitWhenMemoryRunsOut(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  if (AsksForJson(args)) {
    Io io{out, err};
    io.args = args;
    Complain(io, "", kText);
    PrintErrorDocument(io, kInternal);
  }
  document = new std::string(out.str());  // for the life of the process
}

}  // namespace kvlift::cli

#ifndef KVLIFT_SANITIZED

void* operator new(size_t size) {
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory != nullptr) return memory;
  const bool ends = kvlift::cli::document != nullptr && size < kvlift::cli::kLarge &&
                    !kvlift::MemoryCap::Exists();
  if (ends) kvlift::cli::End();
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }

#endif
