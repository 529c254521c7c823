#include "base/coded.h"

#include <utility>

#include "absl/strings/cord.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

constexpr char kKey[] = "kvlift/code";

}  // namespace

absl::Status Coded(std::string_view code, absl::Status status) {
  if (!status.ok()) status.SetPayload(kKey, absl::Cord(std::string(code)));
  return status;
}

absl::Status CodedIfNone(std::string_view code, absl::Status status) {
  return CodeOf(status).empty() ? Coded(code, std::move(status)) : status;
}

std::string CodeOf(const absl::Status& status) {
  const auto code = status.GetPayload(kKey);
  return code ? std::string(*code) : std::string();
}

absl::Status Prefixed(std::string_view prefix, const absl::Status& status) {
  absl::Status result(status.code(), fmt::format("{}: {}", prefix, std::string(status.message())));
  const std::string code = CodeOf(status);
  return code.empty() ? result : Coded(code, std::move(result));
}

}  // namespace kvlift
