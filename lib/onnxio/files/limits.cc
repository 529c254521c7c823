#include "onnxio/files/limits.h"

#include <array>
#include <limits>

#include "base/coded.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

constexpr auto kLimits = std::to_array<LimitInfo>({
    {"max-file-bytes", "KV010", "bytes in the file", &Limits::file_bytes, kMaxModelBytes},
    {"max-nodes", "KV011", "nodes in the model", &Limits::nodes, kAny},
    {"max-attributes", "KV012", "attributes of a node", &Limits::attributes, kAny},
    {"max-functions", "KV013", "functions in the model", &Limits::functions, kAny},
    {"max-call-depth", "KV014", "functions that call one another in a row", &Limits::call_depth,
     1000},
    {"max-subgraph-depth", "KV015", "bodies of If, Loop or Scan inside one another",
     &Limits::subgraph_depth, kMaxSubgraphDepth},
    {"max-rank", "KV016", "dimensions of a tensor", &Limits::rank, kAny},
    {"max-name-bytes", "KV017", "bytes in a name", &Limits::name_bytes, kAny},
    {"max-parsed-bytes", "KV018", "bytes of memory for the model without its weights",
     &Limits::parsed_bytes, kAny},
    {"max-data-files", "KV019", "files of external data", &Limits::data_files, 60'000},
    {"max-analysis-steps", "KV027", "steps of reading what the graph does with indices and shapes",
     &Limits::analysis_steps, kAny},
    {"max-elements", "KV020", "elements in a computed value", &Limits::elements, kAny},
    {"max-run-bytes", "KV021", "bytes of memory for computed values", &Limits::run_bytes, kAny},
    {"max-step-seconds", "KV022", "seconds for one step", &Limits::step_seconds, 1'000'000'000},
});

}  // namespace

absl::Span<const LimitInfo> AllLimits() { return kLimits; }

absl::Status OverLimit(int64_t Limits::*which, const Limits& limits) {
  for (const LimitInfo& info : kLimits) {
    if (info.value != which) continue;
    const std::string help = limits.*which < info.most
                                 ? fmt::format("--{} raises the limit", info.flag)
                             : which == &Limits::file_bytes
                                 ? "the limit of protobuf; large models keep their weights in "
                                   "external data"
                                 : "nothing raises this limit";
    return Coded(info.code, absl::OutOfRangeError(fmt::format("more than {} {}; {}", limits.*which,
                                                              info.what, help)));
  }
  return absl::InternalError("a limit that is not in the table");
}

}  // namespace kvlift
