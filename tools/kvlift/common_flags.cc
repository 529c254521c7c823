// The flags that many commands share.
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"
#include "kvlift/cli.h"
#include "kvlift/help.h"

namespace kvlift::cli {

CLI::Validator AboveZero() {
  return {[](const std::string& text) {
            double number = 0;
            const bool good =
                absl::SimpleAtod(text, &number) && std::isfinite(number) && number > 0;
            return good ? std::string() : fmt::format("needs a number above 0, found {}", text);
          },
          ""};
}

CLI::Validator NotBelowZero() {
  return {[](const std::string& text) -> std::string {
            double number = 0;
            if (!absl::SimpleAtod(text, &number)) return "needs a number, found " + text;
            const bool good = std::isfinite(number) && number >= 0;
            return good ? "" : "needs a number from 0 on, found " + text;
          },
          ""};
}

void AddOutputFlags(CLI::App* app, CommonFlags* flags) {
  constexpr char kCommon[] = "Common";
  app->add_flag("--json", flags->json, "Print one JSON document")->group(kCommon);
  app->add_flag("--quiet", flags->quiet, "Print nothing but errors")->group(kCommon);
  app->add_flag("--verbose", flags->verbose, "Print more")->group(kCommon);
  app->add_option("--color", flags->color, "Colours")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group(kCommon);
  app->add_option("--threads", flags->threads, "Threads; 0: as many as processors")
      ->check(CLI::Range(0, 1024))
      ->group(kCommon);
}

void AddFormat(CLI::App* app, std::string help, std::vector<std::string> formats,
               std::string* format, CommonFlags* flags) {
  app->add_option("--format", *format, std::move(help))
      ->check(CLI::IsMember(std::move(formats)))
      ->each([flags](const std::string& word) { flags->json = flags->json || word == "json"; });
}

void AddReadingFlags(CLI::App* app, CommonFlags* flags) {
  app->add_option("--data-dir", flags->load.data_folders,
                  "Where external data may lie, in place of the model's folder")
      ->group(kReadingGroup);
  app->add_flag("--trust-links", flags->load.data.hard_links,
                "Read external data that has other names (hard links)")
      ->group(kReadingGroup);
  app->add_flag("!--strict-links", flags->load.data.links,
                "Read no external data through symbolic links")
      ->group(kReadingGroup);
  for (const LimitInfo& limit : AllLimits()) {
    app->add_option(fmt::format("--{}", limit.flag), flags->load.limits.*limit.value,
                    fmt::format("Limit: {}", limit.what))
        ->check(CLI::Range(int64_t{0}, limit.most))
        ->group(kLimitsGroup);
  }
}

}  // namespace kvlift::cli
