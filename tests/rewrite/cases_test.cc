// LIBS: rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/graph_compare.cc support/models.cc
// Runs every case of testdata/rewrites (support/case_file.h says what a case is). A new file needs
// no build; --gtest_filter='*NAME*' runs one. KVLIFT_UPDATE_CASES=1 writes the `after` sections.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/graph_compare.h"
#include "support/models.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;

bool Updating() { return std::getenv("KVLIFT_UPDATE_CASES") != nullptr; }

void ExpectSound(const onnx::ModelProto& model, std::string_view what) {
  EXPECT_TRUE(CheckModel(model).ok()) << what << ": " << CheckModel(model);
  const auto inferred = InferShapes(model);
  EXPECT_TRUE(inferred.ok()) << what << ": " << inferred.status();
}

void ExpectRoundTrip(const onnx::ModelProto& model) {
  const std::string text = PrintModelText(model);
  const auto parsed = ParseModelText(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
  EXPECT_EQ(FirstDifference(model, *parsed), "");
  EXPECT_EQ(PrintModelText(*parsed), text);
  onnx::ModelProto read;
  ASSERT_TRUE(read.ParseFromString(*SerializeModel(model)));
  EXPECT_EQ(*SerializeModel(read), *SerializeModel(model));
}

void ExpectRules(const TextCase& c) {
  std::set<std::string> known;
  for (const Rule* rule : AllRules()) known.insert(std::string(rule->name));
  for (const std::string& rule : c.rules) {
    EXPECT_TRUE(known.contains(rule)) << "no rule " << rule;
  }
  EXPECT_TRUE(std::any_of(c.rules.begin(), c.rules.end(), [&](const std::string& rule) {
    return c.name.starts_with(rule);
  })) << "the file's name starts with a rule's";
}

void ExpectRefusal(const Refusal& expected, const Conversion& c) {
  EXPECT_EQ(c.status,
            expected.status == "nothing" ? ConvertStatus::kNothing : ConvertStatus::kRefused);
  EXPECT_FALSE(c.model.has_value());
  const std::vector<Finding> reasons = AllReasons(c);
  const bool found = std::any_of(reasons.begin(), reasons.end(), [&](const Finding& f) {
    return f.code == expected.code && f.text.find(expected.text) != std::string::npos &&
           (expected.node.empty() || (!f.nodes.empty() && f.nodes[0] == expected.node)) &&
           (expected.value.empty() ||
            std::find(f.values.begin(), f.values.end(), expected.value) != f.values.end());
  });
  EXPECT_TRUE(found) << "expected " << expected.code << " at " << expected.node << " "
                     << expected.value << ": " << expected.text << "\nfound\n"
                     << Describe(reasons);
  std::set<std::string> codes;
  for (const Finding& f : reasons) codes.insert(f.code);
  for (const std::string& code : expected.also) EXPECT_TRUE(codes.contains(code)) << code;
  for (const CacheReport& cache : c.inspection.caches) {
    EXPECT_FALSE(cache.converted);
    EXPECT_TRUE(cache.reason.has_value()) << cache.input << " is refused without a reason";
  }
}

void ExpectKept(const Refusal& expected, const Conversion& c) {
  bool found = false;
  for (const AttentionReport& attention : c.inspection.attention) {
    EXPECT_EQ(attention.converted, !attention.reason.has_value());
    if (!attention.reason) continue;
    const Finding& f = *attention.reason;
    found = found || (f.code == expected.code && f.text.find(expected.text) != std::string::npos &&
                      !f.nodes.empty() && f.nodes[0] == expected.node);
  }
  EXPECT_TRUE(found) << "expected an attention that stays: " << expected.code << " at "
                     << expected.node << ": " << expected.text << "\nfound\n"
                     << Describe(AllReasons(c));
}

void ExpectReport(const TextCase& c, const Conversion& result) {
  for (const CacheReport& cache : result.inspection.caches) {
    EXPECT_TRUE(cache.converted) << cache.input;
  }
  ASSERT_FALSE(result.inspection.attention.empty());
  for (const AttentionReport& attention : result.inspection.attention) {
    if (!c.keep) {
      EXPECT_TRUE(attention.converted);
    }
    if (c.mask) {
      EXPECT_EQ(attention.mask, *c.mask);
    }
    if (c.form) {
      EXPECT_EQ(attention.form, *c.form);
    }
  }
  if (c.keep) ExpectKept(*c.keep, result);
  std::vector<std::string> codes;
  std::string texts;
  for (const Precondition& p : result.manifest.preconditions) {
    codes.push_back(p.code);
    texts += fmt::format("{} {}\n", p.code, p.text);
  }
  EXPECT_EQ(codes, c.preconditions) << texts;
  if (c.uniform) {
    EXPECT_TRUE(result.manifest.uniform);
    EXPECT_THAT(result.manifest.uniform_reason, HasSubstr(*c.uniform));
  } else {
    EXPECT_FALSE(result.manifest.uniform) << result.manifest.uniform_reason;
  }
}

void ExpectAfter(const TextCase& c, const onnx::ModelProto& result) {
  if (Updating()) {
    const std::string text = WithAfter(ReadFile(c.path), PrintModelText(result));
    std::ofstream(c.path, std::ios::binary) << text;
    return;
  }
  const auto after = ParseModelText(*c.after);
  ASSERT_TRUE(after.ok()) << "after: " << after.status();
  EXPECT_EQ(FirstDifference(*after, result), "") << "converted is\n" << PrintModelText(result);
}

// Nothing is left to do in a converted model, and it is said so. An attention that stayed may be
// converted over the caches that TensorScatter writes now.
void ExpectDone(const Conversion& first) {
  const auto again = Convert(AsModel(*first.model), {}, AllRules());
  ASSERT_TRUE(again.ok()) << again.status();
  const auto converted = [](const Conversion& c) {
    return std::count_if(c.inspection.attention.begin(), c.inspection.attention.end(),
                         [](const AttentionReport& attention) { return attention.converted; });
  };
  const bool some_stayed = converted(first) < std::ssize(first.inspection.attention);
  if (some_stayed && again->status == ConvertStatus::kConverted) {
    EXPECT_GT(converted(*again), 0);
    return;
  }
  EXPECT_EQ(again->status, ConvertStatus::kNothing) << Describe(AllReasons(*again));
  EXPECT_FALSE(again->model.has_value());
  for (const CacheReport& cache : again->inspection.caches) {
    EXPECT_EQ(cache.kind, UpdateKind::kTensorScatter) << cache.input;
  }
}

class Case : public ::testing::Test {
 public:
  explicit Case(std::string path) : path_(std::move(path)) {}

  void TestBody() override {
    const auto loaded = LoadCase(path_);
    ASSERT_TRUE(loaded.ok()) << path_ << ": " << loaded.status();
    const TextCase& c = *loaded;
    ExpectRules(c);
    const auto before = ParseModelText(c.before);
    ASSERT_TRUE(before.ok()) << "before: " << before.status();
    ExpectSound(*before, "before");
    const auto result = Convert(AsModel(*before), c.options, AllRules());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->model.has_value(), result->status == ConvertStatus::kConverted);
    if (c.refuse) return ExpectRefusal(*c.refuse, *result);
    ASSERT_EQ(result->status, ConvertStatus::kConverted) << Describe(AllReasons(*result));
    EXPECT_NE(FirstDifference(*before, *result->model), "") << "converted, but nothing changed";
    ExpectSound(*result->model, "converted");
    ExpectReport(c, *result);
    ExpectAfter(c, *result->model);
    ExpectDone(*result);
    ExpectRoundTrip(*result->model);
  }

 private:
  std::string path_;
};

std::string TestName(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (const size_t dot = name.find(".onnxtxt"); dot != std::string::npos) name.resize(dot);
  return name;
}

const bool kRegistered = [] {
  for (const std::string& path : CaseFiles()) {
    ::testing::RegisterTest("Cases", TestName(path).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [path]() -> ::testing::Test* { return new Case(path); });
  }
  return true;
}();

}  // namespace
}  // namespace kvlift
