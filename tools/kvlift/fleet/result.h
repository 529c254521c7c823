// The result for one model: a line of results.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace kvlift::cli {

// Returns the words of outcomes, in the order in which they are counted. A word never gets another
// meaning.
const std::vector<std::string>& FleetOutcomes();

// A file that a task has written.
struct FleetFile {
  std::string path;
  uint64_t bytes = 0;
};

// The result of one task. Paths of files that were written are relative to the folder of results;
// an empty path means that no such file was written.
struct FleetResult {
  size_t index = 0, of = 0;  // place in the whole list, and its length
  std::string command, model, after;
  std::string sha256, after_sha256;  // of the model files; empty: not read
  std::vector<std::string> options;  // those of the command, as given to `fleet`
  std::optional<double> memory_gib, timeout_seconds;
  std::string version;  // of kvlift
  std::string key;      // equal for results that can replace each other
  std::string outcome;
  bool succeeded = false;
  int exit_code = 0;  // 128 + n for signal n
  std::vector<std::string> codes;
  std::string reason;
  std::string output, document, report, log;
  // All files that were written, those above included. It is empty in lines of earlier versions.
  std::vector<FleetFile> files;
  double seconds = 0;
  int64_t peak_memory_bytes = 0;

  // Returns what a result is about; a later result replaces one about the same.
  std::vector<std::string> Subject() const { return {command, model, after}; }
};

nlohmann::ordered_json ToJson(const FleetResult& result);
// Returns a line of ASCII with a newline at its end.
std::string ToLine(const FleetResult& result);
// Returns nullopt if the text is not such a line.
std::optional<FleetResult> ReadLine(std::string_view text);

}  // namespace kvlift::cli
