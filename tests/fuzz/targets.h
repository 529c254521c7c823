// The functions that are fuzzed: they take arbitrary bytes, and must neither crash nor break a
// promise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift::fuzz {

// What the bytes are meant to be; a structural mutation keeps that.
enum class Form { kText, kModel, kJson };

struct Target {
  std::string_view name;
  Form form;
  void (*run)(std::string_view bytes);  // aborts with a line on stderr if a promise is broken
};

const std::vector<Target>& Targets();
const Target* FindTarget(std::string_view name);

// Aborts with a line on stderr unless the condition holds.
void Require(bool condition, std::string_view what);

}  // namespace kvlift::fuzz
