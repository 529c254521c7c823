#include "kvlift/fleet/flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kvlift/cli.h"
#include "kvlift/fleet/result.h"
#include "kvlift/outputs.h"

namespace kvlift::cli {
namespace {

constexpr uint64_t kMostParts = 1'000'000;
constexpr int kMostJobs = 1024;

std::string IsShard(const std::string& text) {
  return ReadShard(text) ? "" : "needs I/N with 1 <= I <= N, such as 2/5";
}

}  // namespace

std::optional<Shard> ReadShard(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  uint64_t part = 0, of = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &part) || !absl::SimpleAtoi(parts[1], &of) ||
      part < 1 || part > of || of > kMostParts) {
    return std::nullopt;
  }
  return Shard{part, of};
}

void AddFleetFlags(CLI::App* app, FleetFlags* flags) {
  app->add_option("command", flags->command, "What to do with each model, or merge: join results")
      ->required()
      ->check(CLI::IsMember({"convert", "verify", "check", "merge"}));
  app->add_option("source", flags->sources, "A list or a folder; of merge, files of results")
      ->required();
  app->add_option("-o,--output", flags->output, "The folder of results")
      ->required()
      ->check(FolderNameError);
  app->add_option("--jobs", flags->jobs, "Models at once; 0: as many as processors")
      ->check(CLI::Range(0, kMostJobs));
  app->add_option("--memory", flags->memory_gib, "GiB that each may allocate")->check(AboveZero());
  app->add_option("--timeout", flags->timeout_seconds, "Seconds for each model")
      ->check(AboveZero());
  app->add_option("--shard", flags->shard, "I/N: every N-th model of the list, from the I-th on")
      ->check(IsShard);
  app->add_option("--converted", flags->converted,
                  "Of verify: results of convert, if not those in OUTPUT");
  auto* resume = app->add_flag("--resume", flags->resume, "Keep results that are there already");
  app->add_option("--retry", flags->retry, "With --resume: repeat models with these outcomes")
      ->delimiter(',')
      ->check(CLI::IsMember(FleetOutcomes()))
      ->needs(resume);
  app->add_flag("--force", flags->force, "Overwrite existing results");
}

}  // namespace kvlift::cli
