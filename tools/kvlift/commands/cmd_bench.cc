#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "exec/kernels/common/probe.h"
#include "exec/session/program.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/bench_feeds.h"
#include "kvlift/inputs/relation.h"
#include "kvlift/reports/documents.h"

namespace kvlift::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct CaseResult {
  StepSize size;
  std::vector<double> step_us;
  int64_t bytes_touched = 0, cache_bytes_copied = 0;
  exec::MemoryUse memory;

  double Min() const { return *std::min_element(step_us.begin(), step_us.end()); }
  double Median() const {
    std::vector<double> sorted = step_us;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Returns the peak memory of the process.
int64_t PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

// Returns the bytes of constants that a step reads whole. Tables that are only indexed do not
// count.
int64_t WeightBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    const onnx::TensorProto* constant = graph.constant(v);
    const auto uses = graph.uses(v);
    if (constant == nullptr || uses.empty()) continue;
    const bool table = std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.kind == Use::Kind::kNodeInput && use.index == 0 && graph.Is(use.node, "Gather");
    });
    if (table) continue;
    const exec::Shape shape(constant->dims().begin(), constant->dims().end());
    bytes += std::max<int64_t>(0, exec::NumBytes(constant->data_type(), shape));
  }
  return bytes;
}

// Adds the feeds to the message of a step that refuses its inputs, since they were guessed.
absl::Status WithFeeds(const absl::Status& status, const exec::Feeds& feeds,
                       const exec::Feeds& caches) {
  if (!absl::IsInvalidArgument(status)) return status;
  std::string text;
  for (const exec::Feeds* part : {&feeds, &caches}) {
    for (const auto& [name, tensor] : *part) {
      text += fmt::format(" {} {}", name, exec::ShapeString(tensor.shape()));
    }
  }
  return absl::FailedPreconditionError(fmt::format(
      "{}; the inputs guessed from names and caches:{}", std::string(status.message()), text));
}

class Bench {
 public:
  // The time to load counts from construction on.
  Bench(const BenchFlags& flags, Io io) : flags_(flags), io_(io) {}

  absl::Status Run(const Model& model, const Manifest* manifest) {
    manifest_ = manifest;
    KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(model.proto));
    graph_ = std::make_shared<const Graph>(std::move(graph));
    if (manifest != nullptr) {
      caches_ = CachesOf(*manifest);
    } else {
      KV_ASSIGN_OR_RETURN(const Inspection inspection, Inspect(model, AllRules()));
      caches_ = CachesOf(*graph_, inspection);
    }
    if (caches_.empty()) return absl::NotFoundError("no cache found");
    exec::CompileOptions options;
    options.order = exec::Order::kFast;
    options.threads = flags_.common.threads;
    options.base_dir = model.base_dir;
    options.release_packed_weights = true;
    options.fuse = true;
    options.fetch_caches = false;
    options.pack_weights = !flags_.no_pack;
    for (const BenchCache& cache : caches_) options.caches.push_back(cache.pair);
    KV_ASSIGN_OR_RETURN(program_, exec::Program::Compile(graph_, options));
    load_us_ = std::chrono::duration<double, std::micro>(Clock::now() - start_).count();
    load_peak_bytes_ = PeakBytes();
    weights_ = WeightBytes(*graph_);
    for (int64_t context : flags_.context) results_.push_back({SizeFor(context), {}, 0, 0, {}});
    return Measure();
  }

  void Print(const Model& model) const {
    if (flags_.common.json) {
      PrintJson(io_, Document(model));
    } else {
      io_.Results() << (flags_.format == "csv" ? Csv() : Markdown());
    }
  }

 private:
  // The capacity is the one that the model declares, else the one asked for, else twice the longest
  // context.
  StepSize SizeFor(int64_t context) const {
    StepSize size{flags_.batch, context, flags_.new_tokens, flags_.capacity};
    if (size.capacity == 0) {
      size.capacity =
          2 * *std::max_element(flags_.context.begin(), flags_.context.end()) + flags_.new_tokens;
    }
    for (const BenchCache& cache : caches_) {
      const ValueId v = graph_->Find(cache.pair.input);
      if (cache.growing || cache.window > 0 || v == kNoValue || !graph_->type(v).shape) continue;
      const auto& dims = *graph_->type(v).shape;
      if (cache.axis < static_cast<int64_t>(dims.size()) && dims[cache.axis].value) {
        size.capacity = *dims[cache.axis].value;
      }
    }
    return size;
  }

  // Measures all cases round by round, so that a change of the machine's speed affects all of them.
  absl::Status Measure() {
    std::vector<exec::Session> sessions;
    std::vector<exec::Feeds> feeds, caches;
    for (const CaseResult& result : results_) {
      if (result.size.total() > result.size.capacity) {
        return absl::OutOfRangeError(
            fmt::format("context {} and {} new tokens do not fit into a capacity of {}",
                        result.size.context, result.size.new_tokens, result.size.capacity));
      }
      KV_ASSIGN_OR_RETURN(exec::Feeds cache, CacheFeeds(*graph_, caches_, result.size));
      KV_ASSIGN_OR_RETURN(exec::Feeds feed, OtherFeeds(*graph_, caches_, manifest_, result.size));
      caches.push_back(std::move(cache));
      feeds.push_back(std::move(feed));
      sessions.emplace_back(program_);
    }
    io_.StopProgress();  // keep the progress line away while time is measured
    constexpr int kWarmUp = 2;
    for (int round = -kWarmUp; round < flags_.repetitions; ++round) {
      for (size_t k = 0; k < results_.size(); ++k) {
        KV_ASSIGN_OR_RETURN(const double us, TimeStep(k, sessions[k], feeds[k], caches[k]));
        if (round >= 0) results_[k].step_us.push_back(us);
      }
      if (round < 0) continue;
      read_gbs_ = std::max(read_gbs_, exec::ProbeReadGbs(flags_.common.threads));
      fma_gflops_ = std::max(fma_gflops_, exec::ProbeFmaGflops(flags_.common.threads));
    }
    return absl::OkStatus();
  }

  // Returns the time of the fastest of as many steps as fit into a few milliseconds, or of one. A
  // single step may be slow because the probes between the rounds have emptied the processor's
  // caches.
  absl::StatusOr<double> TimeStep(size_t k, exec::Session& session, const exec::Feeds& feeds,
                                  const exec::Feeds& caches) {
    constexpr double kRoundUs = 3000;
    exec::Fetches fetches;
    double best = 0, total = 0;
    while (total < kRoundUs) {
      for (const auto& [name, value] : caches) KV_RETURN_IF_ERROR(session.SetCache(name, value));
      const auto start = Clock::now();
      const absl::Status status = session.Step(feeds, &fetches);
      const std::chrono::duration<double, std::micro> us = Clock::now() - start;
      if (!status.ok()) return WithFeeds(status, feeds, caches);
      best = total == 0 ? us.count() : std::min(best, us.count());
      total += us.count();
    }
    CountBytes(session, caches, &results_[k]);
    results_[k].memory = session.memory();
    return best;
  }

  // Counts the bytes that a step reads: weights, the tokens of the caches, and the past of caches
  // that it copies.
  void CountBytes(const exec::Session& session, const exec::Feeds& caches,
                  CaseResult* result) const {
    result->cache_bytes_copied = session.cache_bytes_copied();
    result->bytes_touched = weights_ + result->cache_bytes_copied;
    const bool prefix = manifest_ == nullptr || manifest_->read != CacheRead::kFull;
    for (const BenchCache& cache : caches_) {
      const exec::View& past = caches.at(cache.pair.input).view();
      const int64_t slots = past.shape[cache.axis];
      if (slots == 0) continue;
      result->bytes_touched +=
          cache.growing || prefix
              ? past.bytes() / slots *
                    std::min(slots + (cache.growing ? result->size.new_tokens : 0),
                             result->size.total())
              : past.bytes();
    }
  }

  double ReadFraction(const CaseResult& r) const {
    return static_cast<double>(r.bytes_touched) / (r.Min() * 1e-6) / (read_gbs_ * 1e9);
  }

  int Threads() const {
    return flags_.common.threads > 0 ? flags_.common.threads
                                     : static_cast<int>(std::thread::hardware_concurrency());
  }

  nlohmann::ordered_json Document(const Model& model) const {
    nlohmann::ordered_json json = {{"schema", "kvlift/bench/1"}};
    json["machine"] = {{"cpu", CpuName()},
                       {"isa", exec::IsaName()},
                       {"threads", Threads()},
                       {"read_gbs", read_gbs_},
                       {"fma_gflops", fma_gflops_}};
    json["model"] = {{"path", model.path},
                     {"nodes", graph_->num_nodes()},
                     {"caches", caches_.size()},
                     {"growing", caches_.front().growing},
                     {"weight_bytes", weights_},
                     {"load_us", load_us_},
                     {"load_peak_bytes", load_peak_bytes_}};
    json["cases"] = nlohmann::ordered_json::array();
    for (const CaseResult& r : results_) {
      json["cases"].push_back({{"batch", r.size.batch},
                               {"context", r.size.context},
                               {"capacity", r.size.capacity},
                               {"new_tokens", r.size.new_tokens},
                               {"step_us", {{"min", r.Min()}, {"median", r.Median()}}},
                               {"rounds", r.step_us.size()},
                               {"bytes_touched", r.bytes_touched},
                               {"read_fraction", ReadFraction(r)},
                               {"cache_bytes_copied", r.cache_bytes_copied},
                               {"memory", MemoryDocument(r.memory)}});
    }
    return json;
  }

  std::string Csv() const {
    std::string text =
        "batch,context,capacity,new_tokens,min_us,median_us,bytes_touched,read_fraction,"
        "cache_bytes_copied\n";
    for (const CaseResult& r : results_) {
      text += fmt::format("{},{},{},{},{:.1f},{:.1f},{},{:.4f},{}\n", r.size.batch, r.size.context,
                          r.size.capacity, r.size.new_tokens, r.Min(), r.Median(), r.bytes_touched,
                          ReadFraction(r), r.cache_bytes_copied);
    }
    return text;
  }

  std::string Markdown() const {
    std::string text =
        fmt::format("{}, {}, {} threads, reads {:.1f} GB/s, {:.0f} GFLOP/s\n\n",
                    EscapeTerminal(CpuName()), exec::IsaName(), Threads(), read_gbs_, fma_gflops_);
    text +=
        "| batch | context | capacity | new | min us | median us | bytes | of read speed | cache "
        "bytes copied |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for (const CaseResult& r : results_) {
      text += fmt::format("| {} | {} | {} | {} | {:.1f} | {:.1f} | {} | {:.2f} | {} |\n",
                          r.size.batch, r.size.context, r.size.capacity, r.size.new_tokens, r.Min(),
                          r.Median(), r.bytes_touched, ReadFraction(r), r.cache_bytes_copied);
    }
    return text;
  }

  const BenchFlags& flags_;
  mutable Io io_;
  const Manifest* manifest_ = nullptr;
  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<const exec::Program> program_;
  std::vector<BenchCache> caches_;
  std::vector<CaseResult> results_;
  int64_t weights_ = 0;
  Clock::time_point start_ = Clock::now();
  double load_us_ = 0;
  int64_t load_peak_bytes_ = 0;
  double read_gbs_ = 0, fma_gflops_ = 0;
};

// Returns what is wrong with the numbers of the command line; empty if nothing is.
std::string WhyNotSensible(const BenchFlags& f) {
  for (const int64_t context : f.context) {
    if (context < 0) return fmt::format("--context: needs numbers from 0 on, found {}", context);
  }
  if (f.capacity < 0)
    return fmt::format("--capacity: needs a number from 0 on, found {}", f.capacity);
  for (const auto& [flag, number] :
       {std::pair("--batch", f.batch), std::pair("--new-tokens", f.new_tokens),
        std::pair("--repetitions", int64_t{f.repetitions})}) {
    if (number <= 0) return fmt::format("{}: needs a number above 0, found {}", flag, number);
  }
  return f.context.empty() ? "--context needs a value" : "";
}

}  // namespace

int RunBench(const BenchFlags& flags, Io io) {
  if (const std::string why = WhyNotSensible(flags); !why.empty()) {
    Complain(io, "", why);
    return kUsage;
  }
  Bench bench(flags, io);
  const auto model = Load(io, flags.model, flags.common);
  if (!model) return kUnreadable;
  bool broken = false;
  const auto manifest = ManifestOf(io, "", *model, &broken);
  if (broken) return kUnreadable;
  const absl::Status status = bench.Run(*model, manifest ? &*manifest : nullptr);
  if (!status.ok()) {
    const bool usage = absl::IsOutOfRange(status) && CodeOf(status).empty();
    const bool unable = absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
    const bool refused = absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
    Complain(io, flags.model, refused ? CodedIfNone("KV401", status) : status);
    if (usage) return kUsage;
    if (absl::IsNotFound(status)) return kFindings;
    return unable ? kInconclusive : absl::IsInternal(status) ? kInternal : kUnreadable;
  }
  if (flags.common.json || !flags.common.quiet) bench.Print(*model);
  return kDone;
}

}  // namespace kvlift::cli
