// kvlift: finds the key/value caches of a decoder in ONNX, rewrites them to TensorScatter and
// Attention, and proves that nothing else changed. Each command is in cmd_NAME.cc.
#include <string>
#include <vector>

#include "kvlift/program.h"

int main(int argc, char** argv) {
  return kvlift::cli::Program(std::vector<std::string>(argv, argv + argc));
}
