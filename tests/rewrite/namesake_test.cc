// LIBS: rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Which output is the present of a past if several show it: names decide between them.
#include <algorithm>
#include <string>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/models.h"

namespace kvlift {
namespace {

// A decoder with an output in front of present_k that holds the past with the new rows behind it;
// present_k is half of that.
std::string Decaying(const std::string& first, const std::string& second) {
  const auto loaded =
      LoadCase(std::string(KVLIFT_TESTDATA_DIR) + "/rewrites/decomposed_attention_gqa.onnxtxt");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return absl::StrReplaceAll(
      loaded->before,
      {{"float[B,2,\"P + S\",4] present_k,",
        "float[B,2,\"P + S\",4] " + first + ",\n float[B,2,\"P + S\",4] " + second + ","},
       {"float none0 = {0}", "float none0 = {0}, float decay = {0.5}"},
       {"present_k = Concat<axis = 2>(past_k, k_new)",
        "keys = Concat<axis = 2>(past_k, k_new)\n present_k = Mul(keys, decay)"}});
}

bool IsConverted(const std::string& text) {
  const auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status();
  const auto converted = Convert(AsModel(*model), ConvertOptions(), AllRules());
  EXPECT_TRUE(converted.ok()) << converted.status();
  return converted.ok() && converted->model.has_value();
}

TEST(Namesake, TheOutputWithThePresentsNameIsThePresent) {
  EXPECT_FALSE(IsConverted(Decaying("keys", "present_k")));
  EXPECT_FALSE(IsConverted(Decaying("present_k", "keys")));
}

}  // namespace
}  // namespace kvlift
