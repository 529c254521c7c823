// Describes the result of `reduce`: the README beside it, the JSON document, and lines of text.
#pragma once

#include <string>
#include <vector>

#include "kvlift/reduce/property.h"
#include "nlohmann/json.hpp"
#include "reduce/subject.h"

namespace kvlift::cli {

struct ReduceResult {
  bool pair = false;
  Property property;
  std::string observed;                // what `verify` or `convert` says of the result
  std::vector<std::string> arguments;  // options behind --
  SubjectSize before, after;
  bool complete = true;              // false: the time was over before nothing smaller was found
  std::vector<std::string> outputs;  // the files written
};

// Returns the command line that shows the property, for a shell in the folder of the result.
std::string CommandOf(const ReduceResult& result);
std::string ReadmeOf(const ReduceResult& result);
nlohmann::ordered_json DocumentOf(const ReduceResult& result);
// Returns the document about models that do not show what is to be kept: what `verify` or `convert`
// says of them instead.
nlohmann::ordered_json NotShownDocument(const std::string& outcome, const std::string& reason);
std::string TextOf(const ReduceResult& result);

}  // namespace kvlift::cli
