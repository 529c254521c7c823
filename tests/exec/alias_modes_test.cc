// SRCS: support/models.cc support/case_edits.cc support/case_file.cc support/count_news.cc
// The bundled models, as they are and converted: every way to hold the caches gives the same bits,
// and a step of a converted model that was run before allocates nothing.
#include "exec/compile/alias_modes.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "exec/memory/memory.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvlift/inputs/bench_feeds.h"
#include "support/count_news.h"
#include "support/models.h"

namespace kvlift {
namespace {

using cli::BenchCache;
using exec::AliasMode;
using ::testing::HasSubstr;

// One model with feeds for steps at rising contexts.
struct Subject {
  std::shared_ptr<const Graph> graph;
  std::vector<BenchCache> caches;
  std::optional<Manifest> manifest;
  std::string base_dir;
  int64_t capacity = 0;

  std::shared_ptr<const exec::Program> Compile(AliasMode mode, bool fetch = true) const {
    exec::CompileOptions options;
    options.alias = mode;
    options.fetch_caches = fetch;
    options.threads = 1;
    options.base_dir = base_dir;
    for (const BenchCache& cache : caches) options.caches.push_back(cache.pair);
    auto program = exec::Program::Compile(graph, options);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *program : nullptr;
  }
};

std::shared_ptr<const Graph> GraphOf(const Model& model) {
  auto graph = Graph::Build(model.proto);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? std::make_shared<const Graph>(*std::move(graph)) : nullptr;
}

// The capacity that the caches of a model have, or one that suits.
int64_t CapacityOf(const Graph& graph, const std::vector<BenchCache>& caches) {
  for (const BenchCache& cache : caches) {
    const ValueId v = graph.Find(cache.pair.input);
    if (cache.growing || v == kNoValue || !graph.type(v).shape) continue;
    const auto& dims = *graph.type(v).shape;
    if (cache.axis < static_cast<int64_t>(dims.size()) && dims[cache.axis].value) {
      return *dims[cache.axis].value;
    }
  }
  return 32;
}

// The model as it is, and converted if it can be.
std::vector<Subject> SubjectsOf(const std::string& name) {
  std::vector<Subject> subjects;
  const Model model = LoadTestModel(name);
  Subject original{GraphOf(model), {}, {}, model.base_dir, 0};
  const auto inspection = Inspect(model, AllRules());
  if (inspection.ok()) original.caches = cli::CachesOf(*original.graph, *inspection);
  subjects.push_back(original);
  const auto conversion = Convert(model, {}, AllRules());
  if (conversion.ok() && conversion->model.has_value()) {
    Subject converted{GraphOf(AsModel(*conversion->model)), cli::CachesOf(conversion->manifest),
                      conversion->manifest, model.base_dir, 0};
    subjects.push_back(converted);
  }
  for (Subject& s : subjects) s.capacity = CapacityOf(*s.graph, s.caches);
  return subjects;
}

struct Steps {
  exec::Feeds caches;
  std::vector<exec::Feeds> feeds;
  std::vector<cli::StepSize> sizes;
};

// Nothing if the feeds of the model cannot be guessed.
std::optional<Steps> MakeSteps(const Subject& subject) {
  Steps steps;
  for (int64_t context = 3; context < 6; ++context) {
    const cli::StepSize size{1, context, 1, subject.capacity};
    if (size.total() > size.capacity) return std::nullopt;
    auto feeds = cli::OtherFeeds(*subject.graph, subject.caches,
                                 subject.manifest ? &*subject.manifest : nullptr, size);
    auto caches = cli::CacheFeeds(*subject.graph, subject.caches, size);
    if (!feeds.ok() || !caches.ok()) return std::nullopt;
    if (context == 3) steps.caches = *std::move(caches);
    steps.feeds.push_back(*std::move(feeds));
    steps.sizes.push_back(size);
  }
  return steps;
}

// Outputs of all steps, cloned. Empty if the first step fails.
std::vector<exec::Fetches> Outcome(const std::shared_ptr<const exec::Program>& program,
                                   const Steps& steps, std::string* problem) {
  exec::Session session(program);
  for (const auto& [name, value] : steps.caches) {
    if (!session.SetCache(name, value).ok()) return {};
  }
  std::vector<exec::Fetches> all;
  for (const exec::Feeds& feeds : steps.feeds) {
    exec::Fetches fetches;
    const absl::Status status = session.Step(feeds, &fetches);
    if (!status.ok()) {
      *problem = std::string(status.message());
      return {};
    }
    for (auto& [name, tensor] : fetches) tensor = tensor.Clone();
    for (const exec::AliasDecision& d : program->aliasing()) {
      const auto cache = session.Cache(d.pair.input);
      if (cache.ok()) fetches[d.pair.output] = cache->Clone();
    }
    all.push_back(std::move(fetches));
  }
  return all;
}

// Without rows [total, M) of a cache, if `valid_only`.
std::string Bytes(const Subject& subject, const std::string& name, const exec::Tensor& tensor,
                  int64_t total, bool valid_only) {
  const std::string all(reinterpret_cast<const char*>(tensor.data()),
                        static_cast<size_t>(tensor.view().bytes()));
  for (const BenchCache& cache : subject.caches) {
    if (!valid_only || cache.pair.output != name) continue;
    size_t row = 1, blocks = 1;
    const auto& shape = tensor.shape();
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
      (d < cache.axis ? blocks : row) *= d == cache.axis ? 1 : static_cast<size_t>(shape[d]);
    }
    const auto rows = static_cast<size_t>(shape[cache.axis]);
    const size_t bytes = all.size() / (blocks * rows);
    std::string valid;
    for (size_t b = 0; b < blocks; ++b) {
      valid += all.substr(b * rows * bytes, static_cast<size_t>(total) * bytes);
    }
    return valid;
  }
  return all;
}

class BundledModel : public ::testing::TestWithParam<std::string> {};

TEST_P(BundledModel, EveryModeGivesTheSameBits) {
  int compared = 0;
  for (const Subject& subject : SubjectsOf(GetParam())) {
    if (subject.caches.empty()) continue;
    const auto steps = MakeSteps(subject);
    ASSERT_TRUE(steps.has_value()) << (subject.manifest ? "converted" : "as it is");
    std::string problem;
    const auto off = subject.Compile(AliasMode::kOff);
    ASSERT_NE(off, nullptr);
    const auto expected = Outcome(off, *steps, &problem);
    ASSERT_FALSE(expected.empty()) << problem;
    ++compared;
    for (const auto& [mode, fetch] : {std::pair(AliasMode::kAuto, true),
                                      {AliasMode::kGuard, true},
                                      {AliasMode::kPoison, true},
                                      {AliasMode::kAuto, false},
                                      {AliasMode::kPoison, false}}) {
      const auto program = subject.Compile(mode, fetch);
      const auto got = Outcome(program, *steps, &problem);
      ASSERT_EQ(got.size(), expected.size()) << problem << static_cast<int>(mode);
      for (size_t k = 0; k < expected.size(); ++k) {
        for (const auto& [name, tensor] : expected[k]) {
          const int64_t total = steps->sizes[k].total();
          const bool valid = mode == AliasMode::kPoison && subject.manifest.has_value();
          EXPECT_TRUE(Bytes(subject, name, got[k].at(name), total, valid) ==
                      Bytes(subject, name, tensor, total, valid))
              << name << " in step " << k << ", mode " << static_cast<int>(mode)
              << (subject.manifest ? ", converted" : "");
        }
      }
    }
    if (!subject.manifest) continue;
    const auto required = subject.Compile(AliasMode::kRequired);
    ASSERT_NE(required, nullptr);
    EXPECT_EQ(Outcome(required, *steps, &problem).size(), expected.size());
  }
  if (compared == 0) GTEST_SKIP() << "no feeds";
}

TEST_P(BundledModel, ARepeatedStepOfTheConvertedAllocatesNothing) {
  for (const Subject& subject : SubjectsOf(GetParam())) {
    if (!subject.manifest) continue;
    const auto steps = MakeSteps(subject);
    ASSERT_TRUE(steps.has_value());
    exec::Session session(subject.Compile(AliasMode::kRequired));
    for (const auto& [name, value] : steps->caches) {
      ASSERT_TRUE(session.SetCache(name, value).ok());
    }
    exec::Fetches fetches;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const int64_t blocks = exec::AllocationCount(), news = CountedNews();
      const absl::Status status = session.Step(steps->feeds[0], &fetches);
      const int64_t more_blocks = exec::AllocationCount() - blocks;
      const int64_t more_news = CountedNews() - news;
      ASSERT_TRUE(status.ok()) << status;
      if (repeat < 2) continue;
      EXPECT_EQ(more_blocks, 0) << "repeat " << repeat;
      EXPECT_EQ(more_news, 0) << "repeat " << repeat;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BundledModel, ::testing::ValuesIn(ModelNames()),
                         [](const auto& instance) { return instance.param; });

TEST(AliasModes, PoisonReachesTheUnusedRows) {
  const std::vector<Subject> subjects = SubjectsOf("llama_optimum");
  ASSERT_EQ(subjects.size(), 2u);
  const auto steps = MakeSteps(subjects[1]);
  ASSERT_TRUE(steps.has_value());
  std::string problem;
  const auto outcome = Outcome(subjects[1].Compile(AliasMode::kPoison), *steps, &problem);
  ASSERT_FALSE(outcome.empty()) << problem;
  const exec::Tensor& cache = outcome.back().at(subjects[1].caches[0].pair.output);
  EXPECT_TRUE(std::isnan(cache.span<float>()[cache.size() - 1]));
  EXPECT_FALSE(std::isnan(cache.span<float>()[0]));
}

TEST(AliasModes, RetiredMemoryMayNotBeRead) {
  const exec::Tensor past = exec::Tensor::Zeros(onnx::TensorProto::FLOAT, {4, 2});
  const exec::Tensor other = exec::Tensor::Zeros(onnx::TensorProto::FLOAT, {4, 2});
  exec::RetiredMemory retired;
  exec::View part = past.view();
  part.data += 8;
  part.shape = {1, 2};
  EXPECT_TRUE(retired.Check({&part, 1}).ok());
  retired.Retire(past.view(), "the past");
  EXPECT_THAT(std::string(retired.Check({&part, 1}).message()), HasSubstr("reads the past"));
  EXPECT_TRUE(retired.Check({&other.view(), 1}).ok());
  retired.Clear();
  EXPECT_TRUE(retired.Check({&part, 1}).ok());
}

}  // namespace
}  // namespace kvlift
