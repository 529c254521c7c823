// The models that `fleet` works on: those of a list, or all below a folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvlift::cli {

// One model, or one pair of models for `verify`.
struct FleetTask {
  size_t index = 0;  // place in the whole list, from 1
  // The names are as the list has them, or relative to the folder, in UTF-8: a byte that is no part
  // of a character stands as "\xNN". `after` is empty except for `verify`.
  std::string model, after;
  // Paths of `model` and `after` from the current folder.
  std::string path, after_path;
  // The name, without an extension, of the files about this model in the folder of results:
  // "llama/model". No two tasks have the same, and no file of a task, nor one about all models, has
  // the name of a folder of another.
  std::string stem;
};

// The files about all models in the folder of results.
inline constexpr char kResultsName[] = "results.jsonl";
inline constexpr char kPageName[] = "index.html";
std::vector<std::string> FilesOfFleet();

struct TaskQuery {
  std::string command;  // "convert", "verify" or "check"
  std::string source;   // a text file, or a folder
  std::string output;   // the folder of results, in which no models are searched
  // The conversion of each model: its path in `output`, by the name of the model. `verify` pairs a
  // model that is named alone with its conversion.
  std::map<std::string, std::string> converted;
};

struct TaskList {
  std::vector<FleetTask> tasks;
  std::vector<std::string> notes;  // what was left out, and why
};

// Reads the list, or searches the folder. Returns NotFound or PermissionDenied if the source cannot
// be read, and InvalidArgument with the number of the line if a line of the list cannot be
// understood, if results could not tell two models apart, or if there are no models.
absl::StatusOr<TaskList> ReadTasks(const TaskQuery& query);

}  // namespace kvlift::cli
