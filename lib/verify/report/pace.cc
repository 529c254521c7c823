#include "verify/report/pace.h"

#include <chrono>
#include <utility>

#include "fmt/format.h"

namespace kvlift {
namespace {

double SecondsNow() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// No estimate is made from fewer parts than this, and none of less time than this (in seconds).
constexpr size_t kFewParts = 2;
constexpr double kShortTime = 2;

}  // namespace

Pace::Pace(Say say, Clock clock)
    : say_(std::move(say)), clock_(clock != nullptr ? std::move(clock) : Clock(SecondsNow)) {}

void Pace::Begin(std::string_view kind, size_t count) {
  kind_ = kind;
  count_ = count;
  at_ = 0;
  begun_ = clock_();
}

void Pace::Next(std::string_view name) {
  ++at_;
  if (say_ == nullptr) return;
  std::string text = fmt::format("{} {} of {}", kind_, at_, count_);
  if (!name.empty()) text += fmt::format(" ({})", name);
  if (const double left = Left(); left >= kShortTime) {
    text += fmt::format(", about {:.0f} s left of these", left);
  }
  say_(std::move(text));
}

double Pace::Left() const {
  const size_t done = at_ - 1;
  if (done < kFewParts || at_ > count_) return 0;
  const double each = (clock_() - begun_) / static_cast<double>(done);
  return each * static_cast<double>(count_ - done);
}

}  // namespace kvlift
