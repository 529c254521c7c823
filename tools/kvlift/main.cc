// kvlift: finds the key/value caches of a decoder in ONNX, rewrites them to TensorScatter and
// Attention, and proves that nothing else changed. Each command is in cmd_NAME.cc.
#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const int code =
        kvlift::cli::Run(std::vector<std::string>(argv, argv + argc), {std::cout, std::cerr});
    std::cout.flush();
    if (std::cout) return code;
    std::cerr << "kvlift: stdout: cannot be written\n";
    return code == kvlift::cli::kDone ? int{kvlift::cli::kUnwritable} : code;
  } catch (const std::exception& error) {
    std::cerr << "kvlift: internal error: " << error.what() << "\n";
    return kvlift::cli::kInternal;
  }
}
