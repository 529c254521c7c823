// Writes the part of genai_config.json that the model decides. onnxruntime-genai 0.18 finds inputs
// by role, and caches by name patterns with one %d.
#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "rewrite/emit/manifest_of.h"

namespace kvlift {
namespace {

using nlohmann::ordered_json;

// A name with one number in it.
struct Numbered {
  std::string prefix, suffix;
  int64_t number = 0;

  std::string Pattern() const { return prefix + "%d" + suffix; }
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns one reading per run of digits; none for names with %, which a printf pattern cannot hold.
std::vector<Numbered> Readings(const std::string& name) {
  std::vector<Numbered> readings;
  if (name.find('%') != std::string::npos) return readings;
  for (size_t start = 0; start < name.size();) {
    if (!IsDigit(name[start])) {
      ++start;
      continue;
    }
    size_t end = start;
    while (end < name.size() && IsDigit(name[end])) ++end;
    Numbered reading{name.substr(0, start), name.substr(end), 0};
    const auto [stop, error] =
        std::from_chars(name.data() + start, name.data() + end, reading.number);
    if (error == std::errc() && std::to_string(reading.number) == name.substr(start, end - start)) {
      readings.push_back(std::move(reading));
    }
    start = end;
  }
  return readings;
}

// Returns the number that `name` has where the pattern of `like` has one; nullopt if it does not
// fit.
std::optional<int64_t> NumberIn(const std::string& name, const Numbered& like) {
  for (const Numbered& reading : Readings(name)) {
    if (reading.prefix == like.prefix && reading.suffix == like.suffix) return reading.number;
  }
  return std::nullopt;
}

using NameList = std::vector<std::string>;  // by layer

// Returns the patterns that give all the names, each with the numbers for them.
std::vector<std::pair<std::string, std::vector<int64_t>>> PatternsOf(const NameList& names) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> patterns;
  if (names.empty()) return patterns;
  for (const Numbered& candidate : Readings(names.front())) {
    std::vector<int64_t> numbers;
    for (const std::string& name : names) {
      if (const auto number = NumberIn(name, candidate)) numbers.push_back(*number);
    }
    const bool distinct = std::set(numbers.begin(), numbers.end()).size() == names.size();
    if (distinct) patterns.emplace_back(candidate.Pattern(), std::move(numbers));
  }
  return patterns;
}

// Returns one pattern for each list, all with the same number for a layer; empty if there are none.
std::vector<std::string> CommonPatterns(const std::vector<NameList>& lists) {
  for (const auto& [first, numbers] : PatternsOf(lists.front())) {
    std::vector<std::string> chosen;
    for (const NameList& names : lists) {
      for (const auto& [pattern, taken] : PatternsOf(names)) {
        if (taken != numbers) continue;
        chosen.push_back(pattern);
        break;
      }
    }
    if (chosen.size() == lists.size()) return chosen;
  }
  return {};
}

// Returns how many layers the names of caches and states count in a decoder that has states beside
// attention; 0 for other decoders.
int64_t LayersNamed(const Analysis& a, const Manifest& manifest) {
  if (a.states.empty()) return 0;
  int64_t layers = 0;
  const auto count = [&](const std::string& name) {
    const std::vector<Numbered> readings = Readings(name);
    if (readings.size() == 1) layers = std::max(layers, readings[0].number + 1);
  };
  for (const ManifestCache& cache : manifest.caches) count(cache.input);
  for (const CachePair& state : a.states) count(a.graph->name(state.past));
  return layers;
}

// Adds the patterns of cache names; none if the names follow no pattern, which genai has no key
// for.
void NameCaches(const Manifest& manifest, ordered_json& decoder) {
  NameList past_keys, past_values, present_keys, present_values;
  for (const ManifestCache& cache : manifest.caches) {
    const bool key = cache.role == CacheRole::kKey;
    (key ? past_keys : past_values).push_back(cache.input);
    (key ? present_keys : present_values).push_back(cache.output);
  }
  const auto patterns = CommonPatterns({past_keys, past_values, present_keys, present_values});
  if (patterns.empty()) return;
  decoder["inputs"]["past_key_names"] = patterns[0];
  decoder["inputs"]["past_value_names"] = patterns[1];
  decoder["outputs"]["present_key_names"] = patterns[2];
  decoder["outputs"]["present_value_names"] = patterns[3];
}

// Adds the inputs by their roles: by name if it is one of genai's own, else by type and shape. The
// first integer input [B, S] holds token ids, the second positions; an integer input [B, T] is a
// mask.
void NameInputs(const Analysis& a, const Manifest& manifest, ordered_json& inputs) {
  const std::vector<std::string> known = {"input_ids", "attention_mask", "position_ids"};
  std::vector<ValueId> others;
  for (const ManifestInput& input : manifest.inputs) {
    if (IsCache(input)) continue;
    if (AsControl(input) != nullptr) {
      inputs[IsControl(input, ControlValue::kPastLength) ? "write_indices" : "nonpad_kv_seqlen"] =
          input.name;
    } else if (std::find(known.begin(), known.end(), input.name) != known.end()) {
      inputs[input.name] = input.name;
    } else if (const ValueId v = a.graph->Find(input.name); v != kNoValue) {
      others.push_back(v);
    }
  }
  for (ValueId v : others) {
    const sym::Form& form = a.forms->Of(v);
    if (!form.known_rank) continue;
    const bool integers = !IsFloatType(a.forms->ElementType(v));
    const bool per_token = form.shape.size() >= 2 && form.shape[1] == a.updates.front().new_length;
    std::string role;
    if (integers && form.shape.size() == 2) {
      role = !per_token                      ? "attention_mask"
             : !inputs.contains("input_ids") ? "input_ids"
                                             : "position_ids";
    } else if (!integers && form.shape.size() == 3 && per_token) {
      role = "embeddings";
    }
    if (!role.empty() && !inputs.contains(role)) inputs[role] = a.graph->name(v);
  }
}

void NameLogits(const Analysis& a, const Manifest& manifest, ordered_json& outputs) {
  for (const ManifestOutput& output : manifest.outputs) {
    const ValueId v = a.graph->Find(output.name);
    if (IsCache(output) || v == kNoValue) continue;
    const sym::Form& form = a.forms->Of(v);
    if (output.name != "logits" && (!form.known_rank || form.shape.size() != 3)) continue;
    if (output.name == "logits" || !outputs.contains("logits")) outputs["logits"] = output.name;
  }
}

}  // namespace

std::string GenaiFragment(const Analysis& a, const Manifest& manifest) {
  ordered_json json;
  ordered_json& decoder = json["model"]["decoder"];
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site) continue;
    decoder["head_size"] = attention.site->head_dim;
    decoder["num_attention_heads"] = attention.site->q_heads;
    decoder["num_key_value_heads"] = attention.site->key.view.heads;
    break;
  }
  int64_t layers = 0;
  for (const ManifestCache& cache : manifest.caches) layers = std::max(layers, cache.layer + 1);
  decoder["num_hidden_layers"] = std::max(layers, LayersNamed(a, manifest));
  decoder["inputs"] = ordered_json::object();
  decoder["outputs"] = ordered_json::object();
  NameInputs(a, manifest, decoder["inputs"]);
  NameLogits(a, manifest, decoder["outputs"]);
  NameCaches(manifest, decoder);
  // The converted caches hold all rows, so the source's section on sliding buffers has to go.
  if (std::any_of(manifest.caches.begin(), manifest.caches.end(),
                  [](const ManifestCache& cache) { return cache.source.sliding.has_value(); })) {
    decoder["sliding_window"] = nullptr;
  }
  if (manifest.capacity_value) json["search"]["max_length"] = *manifest.capacity_value;
  json["search"]["past_present_share_buffer"] = true;
  return json.dump(2) + "\n";
}

}  // namespace kvlift
