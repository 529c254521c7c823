// A library for LD_PRELOAD that makes the program crash on some models: a process whose command is
// in the list KVLIFT_CRASH_COMMAND ends by SIGSEGV if its model holds the bytes KVLIFT_CRASH_WORD.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

__attribute__((constructor)) void CrashIfAsked() {
  const char* command = std::getenv("KVLIFT_CRASH_COMMAND");
  const char* word = std::getenv("KVLIFT_CRASH_WORD");
  if (command == nullptr || word == nullptr) return;
  const std::string line = Bytes("/proc/self/cmdline");  // words, each with a zero behind it
  const size_t second = line.find('\0') + 1;
  if (std::strstr(command, line.c_str() + second) == nullptr) return;
  const size_t model = line.find('\0', second) + 1;
  if (Bytes(line.c_str() + model).find(word) == std::string::npos) return;
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

}  // namespace
