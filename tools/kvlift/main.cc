// kvlift: finds the key/value caches of a decoder in ONNX, rewrites them to TensorScatter and
// Attention, and proves that nothing else changed. Each command is in cmd_NAME.cc.
#include <string>
#include <vector>

#include "kvlift/out_of_memory.h"
#include "kvlift/program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  kvlift::cli::ExitWhenMemoryRunsOut(words);
  return kvlift::cli::Program(words);
}
