// What the commands share: common flags, exit codes, output streams, loading with one clear line.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "onnxio/model.h"
#include "report/progress.h"
#include "report/style.h"

namespace kvlift::cli {

inline constexpr char kVersion[] = "0.1.0";

// Never reused for another meaning.
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
  LoadOptions load;
};

// Results go to out, everything else to err.
struct Io {
  std::ostream& out;
  std::ostream& err;
  ColorChoice color = ColorChoice::kAuto;
  std::shared_ptr<Progress> progress = nullptr;
  std::vector<std::string> args = {};  // the command line

  // What the command does now, for the line of progress.
  void Say(std::string what) const;
  // `out`, without a line of progress in between.
  std::ostream& Results() const;
  // How text looks there; streams that are not the process's own are no terminals.
  Style OutStyle() const;
  Style ErrStyle() const;
};

// Adds --json, --quiet, --verbose, --color and --threads.
void AddCommonFlags(CLI::App* app, CommonFlags* flags);

// "kvlift: WHAT: MESSAGE" on err, control characters escaped. If the message ends with the code of
// a finding, "[KV018]", lines with its reason and its remedy follow.
void Complain(Io& io, std::string_view what, std::string_view message);
// The same with the code of the error, if it has one.
void Complain(Io& io, std::string_view what, const absl::Status& status);

// The model, or nullopt with a line on err; then exit with kUnreadable.
std::optional<Model> Load(Io& io, const std::string& path, const CommonFlags& flags);

// One JSON document on out.
void PrintJson(Io& io, const nlohmann::ordered_json& json);

// The whole program. args[0] is the program's name.
int Run(const std::vector<std::string>& args, Io io);

}  // namespace kvlift::cli
