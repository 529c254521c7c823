// Shared by the commands: common flags, exit codes, output streams, loading of models.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "onnxio/model/model.h"
#include "report/text/progress.h"
#include "report/text/style.h"

namespace kvlift::cli {

inline constexpr char kVersion[] = "0.1.0";

// Exit codes of the program. A code never gets another meaning.
enum ExitCode {
  kDone = 0,
  kFindings = 1,
  kUsage = 2,
  kUnreadable = 3,
  kInconclusive = 4,
  kUnwritable = 5,
  kInternal = 70,
};

struct CommonFlags {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  std::string color = "auto";
  int threads = 0;
  LoadOptions load;  // limits and external data
};

// The output of a command so far. It decides which document --json ends with.
struct Reported {
  bool results = false;  // something went to stdout
  // The list "errors" of error.schema.json.
  nlohmann::ordered_json errors = nlohmann::ordered_json::array();
};

// The streams of a command: results go to `out`, everything else to `err`.
struct Io {
  std::ostream& out;
  std::ostream& err;
  ColorChoice color = ColorChoice::kAuto;
  std::shared_ptr<Progress> progress = nullptr;
  std::vector<std::string> args = {};  // the command line
  std::shared_ptr<Reported> reported = std::make_shared<Reported>();

  // Shows what the command is doing on the progress line.
  void Say(std::string what) const;
  // Removes the progress line, until the next Say.
  void StopProgress() const;
  // Returns `out`, after removing the progress line. The caller writes to it.
  std::ostream& Results() const;
  // Return the style of text on each stream; only the streams of the process itself can be
  // terminals.
  Style OutStyle() const;
  Style ErrStyle() const;
};

// Returns the check of an option whose value is a number above 0.
CLI::Validator AboveZero();
// Returns the check of an option whose value is 0 or a number above it.
CLI::Validator NotBelowZero();
// Adds --json, --quiet, --verbose, --color and --threads.
void AddOutputFlags(CLI::App* app, CommonFlags* flags);
// Adds --format, whose value "json" is --json by another name.
void AddFormat(CLI::App* app, std::string help, std::vector<std::string> formats,
               std::string* format, CommonFlags* flags);
// Adds the flags about external data and limits.
void AddReadingFlags(CLI::App* app, CommonFlags* flags);

// Writes "kvlift: WHAT: MESSAGE" to err, with control characters escaped. If the message ends with
// the code of a finding, such as "[KV018]", lines with its reason and its remedy follow.
void Complain(Io& io, std::string_view what, std::string_view message);
// Does the same for an error, with its finding code if it has one.
void Complain(Io& io, std::string_view what, const absl::Status& status);
// Complains about an error, and returns the exit code.
int RefuseWith(Io& io, std::string_view what, const absl::Status& status, ExitCode code);

// Returns the model. An error has the code of a finding, and its message starts with the path.
absl::StatusOr<Model> ReadModel(const Io& io, const std::string& path, const CommonFlags& flags);
// Returns the model, or nullopt after a line on err; the caller then exits with kUnreadable.
std::optional<Model> Load(Io& io, const std::string& path, const CommonFlags& flags);

// Returns a JSON document as text in ASCII that ends with a new line.
std::string JsonText(const nlohmann::ordered_json& json);
// Writes one JSON document to out.
void PrintJson(Io& io, const nlohmann::ordered_json& json);

// Returns true if a command line asks for JSON, even if it is wrong otherwise. args[0] is the
// program's name; options behind "--" are those of another command.
bool AsksForJson(const std::vector<std::string>& args);
// Writes the document of a command that ended without results (docs/schema/error.schema.json), with
// what it complained about.
void PrintErrorDocument(Io& io, int exit_code);

// Returns why the program would refuse a command line as wrong usage; empty if it would run. It
// runs nothing. args[0] is the program's name.
std::string WhyNotUsable(const std::vector<std::string>& args);

// Runs the whole program and returns the exit code. args[0] is the program's name.
int Run(const std::vector<std::string>& args, Io io);

}  // namespace kvlift::cli
