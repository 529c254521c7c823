#include "kvlift/fleet/task_list.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/utf8.h"
#include "fmt/format.h"
#include "onnxio/files/errno_status.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

// A longer file is not taken for a list.
constexpr uintmax_t kMostListBytes = uintmax_t{64} << 20;

bool IsModelName(const fs::path& path) {
  return path.extension() == ".onnx" || path.extension() == ".onnxtxt";
}

// Returns the path of a file for a command line, on which it is neither an option nor stdin.
std::string Opened(const fs::path& folder, const std::string& name) {
  const std::string path = (folder / name).string();
  return path.rfind('-', 0) == 0 ? "./" + path : path;
}

// Returns the name of a file as results hold it, which are UTF-8: a byte that is no part of a
// character becomes "\xNN".
std::string Named(std::string_view file) {
  std::string name;
  while (!file.empty()) {
    const Utf8Char c = FirstUtf8Char(file);
    name += c.well_formed ? std::string(c.bytes)
                          : fmt::format("\\x{:02x}", static_cast<uint8_t>(c.bytes[0]));
    file.remove_prefix(c.bytes.size());
  }
  return name;
}

// Returns a name below the folder of results: neither absolute nor with "..", without an extension.
std::string StemOf(const std::string& model) {
  fs::path stem;
  for (const fs::path& part : fs::path(model).lexically_normal().relative_path()) {
    if (part != ".." && part != ".") stem /= part;
  }
  stem.replace_extension();
  return stem.empty() ? "model" : stem.string();
}

// Returns the endings behind the stem in the names of files about one model.
const std::vector<std::string>& Endings() {
  static const std::vector<std::string> endings = [] {
    std::vector<std::string> all = {".onnx", ".kv.json", ".genai.json", ".inference_metadata.yaml"};
    for (const char* command : {"convert", "verify", "check"}) {
      for (const char* ending : {"json", "json.part", "html", "log"}) {
        all.push_back(fmt::format(".{}.{}", command, ending));
      }
    }
    return all;
  }();
  return endings;
}

// Gives each model a stem, so that no name in the folder of results is that of two files, or of a
// file and of a folder.
class Stems {
 public:
  Stems() {
    for (const std::string& file : FilesOfFleet()) files_.insert(file);
  }

  // Returns `wanted`, or a stem that is like it but for a number behind a part.
  std::string Take(const std::string& wanted) {
    const fs::path path(wanted);
    fs::path stem;
    for (const fs::path& part : path.parent_path()) {
      stem = Numbered(stem / part, [&](const std::string& name) { return !files_.contains(name); });
      folders_.insert(stem.string());
    }
    stem = Numbered(stem / path.filename(), [&](const std::string& name) {
      return !stems_.contains(name) &&
             std::none_of(Endings().begin(), Endings().end(), [&](const std::string& ending) {
               return folders_.contains(name + ending);
             });
    });
    stems_.insert(stem.string());
    for (const std::string& ending : Endings()) files_.insert(stem.string() + ending);
    return stem.string();
  }

 private:
  template <typename IsFree>
  static std::string Numbered(const fs::path& path, const IsFree& is_free) {
    std::string name = path.string();
    for (int k = 2; !is_free(name); ++k) name = fmt::format("{}-{}", path.string(), k);
    return name;
  }

  std::set<std::string> stems_, files_, folders_;
};

// Collects tasks; names that are given twice are taken once.
class Collector {
 public:
  explicit Collector(const TaskQuery& query) : query_(query) {}

  void Add(const fs::path& folder, const std::string& model, const std::string& after,
           const std::string& where) {
    FleetTask task;
    task.model = Named(model);
    task.path = Opened(folder, model);
    task.after = Named(after);
    if (!after.empty()) task.after_path = Opened(folder, after);
    if (IsNew(task)) {
      Push(std::move(task));
    } else {
      list_.notes.push_back(fmt::format("{}{} is named twice; it is taken once", where, model));
    }
  }

  // Adds a model with what it was converted to; without a conversion it is left out.
  void AddConverted(const fs::path& folder, const std::string& model) {
    FleetTask task;
    task.model = Named(model);
    task.path = Opened(folder, model);
    const auto found = query_.converted.find(task.model);
    if (found == query_.converted.end()) {
      ++unconverted_;
      return;
    }
    task.after = found->second;
    task.after_path = Opened(query_.output, found->second);
    if (IsNew(task)) Push(std::move(task));
  }

  absl::StatusOr<TaskList> Finish() {
    KV_RETURN_IF_ERROR(alike_);
    if (unconverted_ > 0) {
      list_.notes.push_back(
          fmt::format("{} models were not converted; they are left out", unconverted_));
    }
    if (list_.tasks.empty()) {
      return absl::InvalidArgumentError(
          unconverted_ > 0 ? fmt::format("{} has no conversion of these models; run fleet convert "
                                         "with this folder first, or list pairs",
                                         query_.output)
                           : "no models");
    }
    return std::move(list_);
  }

 private:
  // Returns false for a task that there is already, by the names in its result.
  bool IsNew(const FleetTask& task) {
    const auto [there, fresh] =
        seen_.emplace(std::pair(task.model, task.after), std::pair(task.path, task.after_path));
    if (!fresh && there->second != std::pair(task.path, task.after_path)) {
      alike_ = absl::InvalidArgumentError(
          fmt::format("two models have the name {} in the results; rename one", task.model));
    }
    return fresh;
  }

  void Push(FleetTask task) {
    task.index = list_.tasks.size() + 1;
    const std::string stem = StemOf(task.model);
    task.stem = stems_.Take(stem);
    if (fs::path(task.stem).parent_path() != fs::path(stem).parent_path()) {
      list_.notes.push_back(
          fmt::format("{}: its files are called {}.*, as a file of results has "
                      "the name of its folder",
                      task.model, task.stem));
    }
    list_.tasks.push_back(std::move(task));
  }

  const TaskQuery& query_;
  TaskList list_;
  std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> seen_;
  absl::Status alike_;  // the error about two tasks with the same names in results
  Stems stems_;
  size_t unconverted_ = 0;
};

// Returns the line without its comment, which starts with "#" at the begin or behind a space.
absl::string_view WithoutComment(absl::string_view line) {
  for (size_t k = 0; k < line.size(); ++k) {
    if (line[k] == '#' &&
        (k == 0 || absl::ascii_isspace(static_cast<unsigned char>(line[k - 1])))) {
      return line.substr(0, k);
    }
  }
  return line;
}

// Returns the one or two paths of a line of pairs: at a tab if there is one, else at spaces.
std::vector<std::string> PathsOfPair(absl::string_view line) {
  std::vector<std::string> paths;
  const bool tab = line.find('\t') != absl::string_view::npos;
  for (absl::string_view part : absl::StrSplit(line, absl::ByAnyChar(tab ? "\t" : " "))) {
    part = absl::StripAsciiWhitespace(part);
    if (!part.empty()) paths.emplace_back(part);
  }
  return paths;
}

absl::StatusOr<std::string> ReadListText(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return ErrnoStatus(error.value(), "cannot be read");
  if (size > kMostListBytes) return absl::InvalidArgumentError("is too long for a list of models");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || (size > 0 && !(text << file.rdbuf()))) {
    return ErrnoStatus(errno == 0 ? EIO : errno, "cannot be read");
  }
  return text.str();
}

absl::Status ReadList(const TaskQuery& query, Collector* collector) {
  if (IsModelName(query.source)) {
    return absl::InvalidArgumentError(
        "is a model; fleet takes a folder, or a text file with a path in each line");
  }
  KV_ASSIGN_OR_RETURN(const std::string text, ReadListText(query.source));
  const fs::path folder = fs::path(query.source).parent_path();
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::StripPrefix(text, "\xef\xbb\xbf"), '\n')) {
    const std::string where = fmt::format("line {}: ", ++number);
    if (line.find('\0') != absl::string_view::npos) {
      return absl::InvalidArgumentError(where + "is not text");
    }
    line = absl::StripAsciiWhitespace(WithoutComment(line));
    if (line.empty()) continue;
    if (query.command != "verify") {
      collector->Add(folder, std::string(line), "", where);
      continue;
    }
    const std::vector<std::string> paths = PathsOfPair(line);
    if (paths.size() > 2) {
      return absl::InvalidArgumentError(
          where + "needs BEFORE AFTER, with a tab between paths that have spaces");
    }
    if (paths.size() == 2) {
      collector->Add(folder, paths[0], paths[1], where);
    } else {
      collector->AddConverted(folder, paths[0]);
    }
  }
  return absl::OkStatus();
}

// Returns the paths of all models below a folder, relative to it and sorted. Folders behind links
// are not entered.
absl::StatusOr<std::vector<std::string>> FindModels(const fs::path& folder,
                                                    const fs::path& output) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code unknown;
    if (it->is_directory(unknown)) {
      // The results of an earlier run are no sources.
      if (fs::equivalent(it->path(), output, unknown) && !unknown) it.disable_recursion_pending();
    } else if (it->path().extension() == ".onnx" &&
               (it->is_regular_file(unknown) || it->is_symlink(unknown))) {
      // A link that leads nowhere is a model that cannot be opened.
      found.push_back(it->path().lexically_relative(folder).string());
    }
  }
  if (error) return ErrnoStatus(error.value(), "cannot be searched");
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status ReadFolder(const TaskQuery& query, Collector* collector) {
  KV_ASSIGN_OR_RETURN(const auto models, FindModels(query.source, query.output));
  if (models.empty()) return absl::InvalidArgumentError("there is no *.onnx in this folder");
  for (const std::string& model : models) {
    if (query.command == "verify") {
      collector->AddConverted(query.source, model);
    } else {
      collector->Add(query.source, model, "", "");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> FilesOfFleet() { return {kResultsName, kPageName}; }

absl::StatusOr<TaskList> ReadTasks(const TaskQuery& query) {
  Collector collector(query);
  std::error_code error;
  KV_RETURN_IF_ERROR(fs::is_directory(query.source, error) ? ReadFolder(query, &collector)
                                                           : ReadList(query, &collector));
  return collector.Finish();
}

}  // namespace kvlift::cli
