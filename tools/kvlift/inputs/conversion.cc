#include "kvlift/inputs/conversion.h"

#include <charconv>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "verify/variants/drawn_weights.h"

namespace kvlift::cli {
namespace {

template <typename T>
absl::Status Read(std::string_view option, const std::string& word,
                  std::initializer_list<std::pair<std::string_view, T>> known, T* value) {
  for (const auto& [name, meant] : known) {
    if (name != word) continue;
    *value = meant;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format("{}: unknown word '{}'", option, word));
}

std::optional<int64_t> Positive(std::string_view text) {
  int64_t n = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, n);
  if (error != std::errc() || stop != end || n <= 0) return std::nullopt;
  return n;
}

absl::Status ReadCapacity(const std::string& word, std::optional<int64_t>* capacity) {
  if (word == "dynamic") return absl::OkStatus();
  *capacity = Positive(word);
  if (*capacity) return absl::OkStatus();
  return absl::InvalidArgumentError("--max-seq-len: needs a positive number or 'dynamic'");
}

absl::Status ReadWindow(const std::string& word, ConvertOptions* o) {
  constexpr std::string_view kCircular = "circular";
  if (word == "full") return absl::OkStatus();
  if (o->target != Target::kSpec && o->target != Target::kOrt) {
    return absl::InvalidArgumentError("--window circular: hosts of this target know no rings");
  }
  o->window = WindowForm::kCircular;
  if (word == kCircular) return absl::OkStatus();
  if (word.substr(0, kCircular.size() + 1) == "circular:") {
    o->window_capacity = Positive(std::string_view(word).substr(kCircular.size() + 1));
  }
  if (o->window_capacity) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--window: needs full, circular or circular:SLOTS, found '{}'", word));
}

// Reads --freeze, and refuses options that make shapes depend on the past.
absl::Status ReadFreezing(const ConvertFlags& f, ConvertOptions* o) {
  if (f.freeze.empty()) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(const FreezeRequest request, ReadFreeze(f.freeze));
  const auto refuse = [](std::string why) {
    return absl::InvalidArgumentError("--freeze: " + std::move(why));
  };
  if (o->target == Target::kGenai || o->target == Target::kGenaiStatic) {
    return refuse(fmt::format(
        "hosts of target {} run steps of any length with one graph, so its shapes stay dynamic",
        f.target));
  }
  if (o->read == ReadForm::kPrefix) {
    return refuse("--read prefix cuts buffers to the valid rows, which are no static shape");
  }
  if (o->control == Control::kDerived) {
    return refuse(
        "--control derived reads the past's length from the width of a mask, which is "
        "fixed then");
  }
  for (const int64_t tokens : request.tokens) {
    if (!o->max_seq_len || tokens <= *o->max_seq_len) continue;
    return refuse(
        fmt::format("{} tokens do not fit into --max-seq-len {}", tokens, *o->max_seq_len));
  }
  if (!f.stop_after.empty() || f.dump_dir) {
    return refuse("not with --stop-after or --dump-dir, which are about one graph");
  }
  if (!f.report.empty() && request.tokens.size() > 1) {
    return refuse("a report is about one graph; give one number of tokens");
  }
  o->static_shapes = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConvertOptions> OptionsOf(const ConvertFlags& f) {
  ConvertOptions o;
  KV_RETURN_IF_ERROR(ReadCapacity(f.max_seq_len, &o.max_seq_len));
  KV_RETURN_IF_ERROR(Read("--target", f.target,
                          {{"spec", Target::kSpec},
                           {"ort", Target::kOrt},
                           {"genai", Target::kGenai},
                           {"genai-static", Target::kGenaiStatic},
                           {"tensorrt", Target::kTensorRt},
                           {"portable", Target::kPortable}},
                          &o.target));
  KV_RETURN_IF_ERROR(
      Read("--layout", f.layout, {{"keep", Layout::kKeep}, {"bnsd", Layout::kBnsd}}, &o.layout));
  KV_RETURN_IF_ERROR(Read("--io-names", f.io_names,
                          {{"keep", IoNames::kKeep}, {"static", IoNames::kStatic}}, &o.io_names));
  KV_RETURN_IF_ERROR(
      Read("--cache-tensors", f.cache_tensors,
           {{"per-layer", CacheTensors::kPerLayer}, {"packed", CacheTensors::kPacked}},
           &o.cache_tensors));
  KV_RETURN_IF_ERROR(
      Read("--control", f.control,
           {{"auto", Control::kAuto}, {"derived", Control::kDerived}, {"input", Control::kInput}},
           &o.control));
  KV_RETURN_IF_ERROR(Read("--mask", f.mask,
                          {{"auto", MaskForm::kAuto},
                           {"causal", MaskForm::kCausal},
                           {"explicit", MaskForm::kExplicit},
                           {"additive", MaskForm::kAdditive}},
                          &o.mask));
  KV_RETURN_IF_ERROR(
      Read("--read", f.read,
           {{"auto", ReadForm::kAuto}, {"prefix", ReadForm::kPrefix}, {"full", ReadForm::kFull}},
           &o.read));
  KV_RETURN_IF_ERROR(Read(
      "--padding", f.padding,
      {{"auto", Padding::kAuto}, {"keep", Padding::kKeep}, {"none", Padding::kNone}}, &o.padding));
  KV_RETURN_IF_ERROR(Read(
      "--rotary", f.rotary,
      {{"auto", Rotary::kAuto}, {"keep", Rotary::kKeep}, {"fused", Rotary::kFused}}, &o.rotary));
  KV_RETURN_IF_ERROR(Read("--rounding", f.rounding,
                          {{"keep", Rounding::kKeep}, {"free", Rounding::kFree}}, &o.rounding));
  KV_RETURN_IF_ERROR(Read("--step-length", f.step_length,
                          {{"any", StepLength::kAny}, {"fixed", StepLength::kFixed}},
                          &o.step_length));
  KV_RETURN_IF_ERROR(Read("--mode", f.mode,
                          {{"linear", WriteMode::kLinear}, {"circular", WriteMode::kCircular}},
                          &o.mode));
  KV_RETURN_IF_ERROR(ReadWindow(f.window, &o));
  if (!f.quantize_cache.empty()) {
    o.quantize_cache = ReadCacheQuantization(f.quantize_cache);
    if (!o.quantize_cache) {
      return absl::InvalidArgumentError(fmt::format(
          "--quantize-cache: needs int8:G, int8:channel or fp8, found '{}'", f.quantize_cache));
    }
  }
  if (!ReadConvertAccept(f.accept)) {
    return absl::InvalidArgumentError(fmt::format("--accept: unknown word '{}'", f.accept));
  }
  if (!f.stop_after.empty() && !ReadStep(f.stop_after)) {
    return absl::InvalidArgumentError(fmt::format("--stop-after: unknown word '{}'", f.stop_after));
  }
  KV_RETURN_IF_ERROR(ReadFreezing(f, &o));
  o.only = f.only;
  o.skip = f.skip;
  o.allow_partial = f.allow_partial;
  o.tree_mask = f.tree_mask;
  o.anew = f.anew;
  return o;
}

std::optional<FreezeRequest> FreezeOf(const ConvertFlags& f) {
  if (f.freeze.empty()) return std::nullopt;
  const auto request = ReadFreeze(f.freeze);
  return request.ok() ? std::optional(*request) : std::nullopt;
}

ProvingOptions ProvingOf(const ConvertFlags& f) {
  ProvingOptions proving;
  proving.accept = ReadConvertAccept(f.accept).value_or(ConvertAccept::kTested);
  if (f.verify == "full") {
    proving.plans = ProvingOptions::Plans::kFull;
  } else if (!f.verify.empty()) {
    proving.plans = ProvingOptions::Plans::kQuick;
  }
  proving.threads = f.common.threads;
  proving.random_weights = ReadWeights(f.weights).value_or(std::nullopt);
  return proving;
}

StepRequest StepsOf(const ConvertFlags& f) { return {ReadStep(f.stop_after), f.dump_dir}; }

}  // namespace kvlift::cli
