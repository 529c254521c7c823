#include "fuzz/execute.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "exec/session/program.h"
#include "exec/session/session.h"
#include "fuzz/targets.h"
#include "ir/graph.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"

namespace kvlift::fuzz {
namespace {

constexpr int64_t kMaxElements = 1 << 14;

class Feeder {
 public:
  explicit Feeder(uint64_t seed, std::map<std::string, int64_t> sizes = {})
      : rng_(static_cast<uint32_t>(seed)), sizes_(std::move(sizes)) {}

  // Draws a tensor. Dimensions of one name have one size.
  exec::Tensor Draw(const TensorType& type) {
    exec::Shape shape;
    int64_t size = 1;
    for (const Dim& dim : type.shape.value_or(std::vector<Dim>())) {
      int64_t n = 1;
      if (dim.value) {
        n = *dim.value;
      } else {
        n = sizes_.try_emplace(dim.param, rng_() % 4).first->second;
      }
      if (n < 0 || n > kMaxElements) n = 1;
      if (size * n > kMaxElements) n = 1;
      size *= n;
      shape.push_back(n);
    }
    exec::Tensor tensor(type.elem_type, shape);
    const auto bytes = static_cast<size_t>(std::max<int64_t>(0, tensor.view().bytes()));
    if (tensor.data() != nullptr) Fill(type.elem_type, tensor.data(), bytes);
    return tensor;
  }

 private:
  void Fill(int32_t type, std::byte* data, size_t bytes) {
    std::memset(data, 0, bytes);
    if (type == onnx::TensorProto::INT64) {
      for (size_t k = 0; k < bytes / 8; ++k) {
        const int64_t value = rng_() % 3;
        std::memcpy(data + 8 * k, &value, 8);
      }
    } else if (type == onnx::TensorProto::FLOAT) {
      for (size_t k = 0; k < bytes / 4; ++k) {
        const float value = static_cast<float>(rng_() % 17) / 8 - 1;
        std::memcpy(data + 4 * k, &value, 4);
      }
    } else {
      for (size_t k = 0; k < bytes; ++k) data[k] = static_cast<std::byte>(rng_() % 2);
    }
  }

  std::mt19937 rng_;
  std::map<std::string, int64_t> sizes_;
};

using Bytes = std::map<std::string, std::string>;

Bytes BytesOf(const exec::Fetches& fetches) {
  Bytes bytes;
  for (const auto& [name, tensor] : fetches) {
    const int64_t n = tensor.view().type < 0 ? -1 : tensor.view().bytes();
    const bool none = n <= 0 || tensor.data() == nullptr;
    bytes[name] =
        exec::ShapeString(tensor.shape()) +
        (none ? std::string()
              : std::string(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(n)));
  }
  return bytes;
}

struct Results {
  std::vector<Bytes> steps;
  std::string error;
};

Results RunTwoSteps(const std::shared_ptr<const Graph>& graph, exec::CompileOptions options,
                    uint64_t seed) {
  Results results;
  auto program = exec::Program::Compile(graph, options);
  if (!program.ok()) {
    results.error = program.status().ToString();
    return results;
  }
  exec::Session session(*program);
  Feeder feeder(seed);
  for (int step = 0; step < 2; ++step) {
    exec::Feeds feeds;
    for (const ValueId v : graph->graph_inputs()) {
      const auto is_cache = [&](const auto& pair) { return pair.input == graph->name(v); };
      if (step > 0 && std::any_of(options.caches.begin(), options.caches.end(), is_cache)) continue;
      const TensorType type = graph->type(v);
      if (ElementBits(type.elem_type) > 0) feeds[graph->name(v)] = feeder.Draw(type);
    }
    exec::Fetches fetches;
    if (const auto status = session.Step(feeds, &fetches); !status.ok()) {
      results.error = status.ToString();
      return results;
    }
    results.steps.push_back(BytesOf(fetches));
  }
  return results;
}

// Returns the size of "P + S", "P" or a number; nullopt if a name in it has no size.
std::optional<int64_t> SizeOf(const Dim& dim, const std::map<std::string, int64_t>& sizes) {
  if (dim.value) return *dim.value;
  int64_t sum = 0;
  for (absl::string_view part : absl::StrSplit(dim.param, " + ")) {
    int64_t number = 0;
    const auto known = sizes.find(std::string(part));
    if (known == sizes.end() && !absl::SimpleAtoi(part, &number)) return std::nullopt;
    sum += known != sizes.end() ? known->second : number;
  }
  return sum;
}

bool IsAsDeclared(const TensorType& type, const exec::Shape& shape,
                  const std::map<std::string, int64_t>& sizes) {
  if (!type.shape) return true;
  if (type.shape->size() != shape.size()) return false;
  for (size_t k = 0; k < shape.size(); ++k) {
    const auto size = SizeOf((*type.shape)[k], sizes);
    if (size && *size != shape[k]) return false;
  }
  return true;
}

}  // namespace

bool RunsAsDeclared(const Model& model) {
  auto built = Graph::Build(model.proto);
  if (!built.ok()) return false;
  const auto graph = std::make_shared<const Graph>(*std::move(built));
  exec::CompileOptions options;
  options.threads = 1;
  options.base_dir = model.base_dir;
  options.alias = exec::AliasMode::kOff;
  auto program = exec::Program::Compile(graph, options);
  if (!program.ok()) return false;
  exec::Session session(*program);
  // The dimension names of the text cases, with sizes that all differ.
  std::map<std::string, int64_t> sizes = {{"B", 7}, {"S", 5}, {"P", 6}, {"T", 11}, {"M", 13}};
  sizes["max_sequence_length"] = sizes["M"];
  for (const ValueId v : graph->graph_inputs()) {
    for (const Dim& dim : graph->type(v).shape.value_or(std::vector<Dim>())) {
      if (const auto size = SizeOf(dim, sizes); size && !dim.value) sizes.emplace(dim.param, *size);
    }
  }
  Feeder feeder(1, sizes);
  exec::Feeds feeds;
  for (const ValueId v : graph->graph_inputs()) {
    const TensorType type = graph->type(v);
    if (ElementBits(type.elem_type) > 0) feeds[graph->name(v)] = feeder.Draw(type);
  }
  exec::Fetches fetches;
  if (!session.Step(feeds, &fetches).ok()) return false;
  for (const ValueId v : graph->graph_outputs()) {
    const auto given = fetches.find(graph->name(v));
    if (given == fetches.end() || given->second.view().type != graph->type(v).elem_type ||
        !IsAsDeclared(graph->type(v), given->second.shape(), sizes)) {
      return false;
    }
  }
  return true;
}

void ExecuteSomehow(const Model& model, uint64_t seed) {
  auto built = Graph::Build(model.proto);
  if (!built.ok()) return;
  const auto graph = std::make_shared<const Graph>(*std::move(built));
  exec::CompileOptions options;
  options.threads = 1;
  options.base_dir = model.base_dir;
  options.pack_weights = seed % 2 == 0;
  if (const auto inspection = Inspect(model, AllRules()); inspection.ok()) {
    for (const CacheReport& c : inspection->caches) {
      if (!c.input.empty() && !c.output.empty()) options.caches.push_back({c.input, c.output});
    }
  }
  const Results in_place = RunTwoSteps(graph, options, seed);
  options.alias = exec::AliasMode::kOff;
  const Results copied = RunTwoSteps(graph, options, seed);
  // With another order of nodes another error may come first.
  Require(in_place.error.empty() == copied.error.empty(),
          "in place: " + in_place.error + "; with copies: " + copied.error);
  Require(in_place.steps == copied.steps, "a step in place gives something else than a copied one");
}

const std::vector<std::pair<Model, Model>>& SmallPairs() {
  static const auto* pairs = [] {
    auto* made = new std::vector<std::pair<Model, Model>>();
    for (const char* name : {"growing_concat_bsnd", "fixed_buffer_scatter_free_slots"}) {
      const auto c = LoadCase(std::string(KVLIFT_TESTDATA_DIR) + "/rewrites/" + name + ".onnxtxt");
      Require(c.ok(), c.status().ToString());
      Model before, after;
      before.proto = std::make_shared<const onnx::ModelProto>(*ParseModelText(c->before));
      after.proto = std::make_shared<const onnx::ModelProto>(*ParseModelText(*c->after));
      made->emplace_back(std::move(before), std::move(after));
    }
    return made;
  }();
  return *pairs;
}

}  // namespace kvlift::fuzz
