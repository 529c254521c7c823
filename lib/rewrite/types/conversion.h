// The result of a conversion: the converted model and its manifest, or the reasons why not, and
// what was found in the source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/findings.h"
#include "contract/kinds.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// One cache as `inspect` lists it. The JSON has the same keys.
struct CacheReport {
  std::string id;  // "0.key": layer and role
  int64_t layer = 0;
  CacheRole role = CacheRole::kKey;
  std::string input, output;  // names in the source
  UpdateKind kind = UpdateKind::kConcat;
  int64_t axis = 0;    // the sequence axis
  std::string layout;  // one letter per axis (rewrite/recognise/axis_letters.h); empty: not known
  std::string dtype;   // "float32"
  bool growing = false;
  std::string capacity;  // an expression, in tokens; empty if the cache grows
  // The bytes of one row of one sequence; absent: an extent is not constant.
  std::optional<int64_t> bytes_per_token;
  std::string update;       // the value that holds the new rows; empty: no single value does
  std::string write_start;  // an expression; empty: not known
  bool converted = false;
  std::optional<Finding> reason;  // why it cannot be converted; absent if it can
};

struct AttentionReport {
  std::string id;    // "0", "1", ... in the order of the nodes
  std::string form;  // "decomposed" or "op"
  // N, Nk, D and Dv; 0, as scale is, if no rule reads the attention.
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  double scale = 0;
  double softcap = 0;  // 0: no softcap
  std::string mask;    // "causal+padding", ...; see DescribeMask
  bool converted = false;
  std::optional<Finding> reason;  // why it stays; absent if it can be converted
  std::vector<std::string> nodes;
};

struct Inspection {
  int64_t nodes = 0;  // of the source's main graph
  int64_t opset = 0;  // the source's version of the default domain; 0: not declared
  std::vector<CacheReport> caches;
  std::vector<AttentionReport> attention;
  std::vector<Finding> near_misses;
};

// kPartial: some caches stay as they are. kRefused: no model is made; the reports say why.
// kNothing: the model has no cache to convert, or all are converted. kStopped: the conversion ended
// behind the step that StepTrace::stop_after names, which did not refuse; no model is made.
enum class ConvertStatus { kConverted, kPartial, kRefused, kNothing, kStopped };

struct Conversion {
  ConvertStatus status = ConvertStatus::kNothing;
  Inspection inspection;                  // with the `converted` flags set
  std::optional<onnx::ModelProto> model;  // set for kConverted and kPartial; not yet stamped
  std::shared_ptr<const onnx::ModelProto> source;  // owns what the spans in `model` point to
  Manifest manifest;                               // valid if `model` is set
  std::string genai;  // the text of OUT.genai.json; empty for other targets
};

}  // namespace kvlift
