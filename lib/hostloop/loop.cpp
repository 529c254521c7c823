// Runs a model that kvlift converted, in ONNX Runtime: prompts first, then token by token.
//
// Each cache is one buffer of M slots that is bound as past and as present, so a step writes its
// new rows in place and copies none. Written by kvlift for the model named below; yours to change.
//
//   g++ -std=c++17 -O2 loop.cpp -I ONNXRUNTIME/include -L ONNXRUNTIME/lib -lonnxruntime -o loop
//   ./loop --prompt 1,2,3 --prompt 4,5 --new 20 --capacity 256 [MODEL]
//
// Letters: B sequences, S tokens of a step, P tokens of a sequence that the caches hold before it,
// T = P + S, M slots.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// ---- model: what follows needs no ONNX Runtime
namespace kvloop {

// Element types, numbered as in ONNX.
enum Type : int { kFloat32 = 1, kInt32 = 6, kInt64 = 7, kBool = 9, kFloat16 = 10, kFloat64 = 11,
                  kBfloat16 = 16 };

struct Axis {
  char letter;   // B, S, T, P or M; 0 for an axis of fixed size
  int64_t size;  // with letter 0 the size, with B the rows for each sequence
};

struct Cache {
  std::string past, present;  // names of its input and output
  int type;
  std::vector<Axis> axes;
  bool in_place;  // no node reads the past after it is written
};

struct Input {
  std::string name;
  std::string meaning;  // what MakeInput computes; "given": the caller gives it
  int type;
  std::vector<Axis> axes;
  bool added = false;  // a mask that is added: 0 for a visible key, else the lowest number
};

// ---- facts: replaced by those of the model; 0 where the model fixes nothing
const std::string kModel = "model.onnx";
constexpr int64_t kBatch = 0;
constexpr int64_t kTokens = 0;
constexpr int64_t kCapacity = 0;
constexpr bool kUniform = false;
constexpr bool kCircular = false;
constexpr int64_t kNewWithPast = 0;
constexpr int64_t kChunk = 0;
const std::string kLogits = "logits";
const std::vector<Cache> kCaches = {};
const std::vector<Input> kInputs = {};
// ---- end of facts

using Shape = std::vector<int64_t>;

inline int64_t SizeOf(const Shape& shape) {
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  return size;
}

inline int64_t BytesOf(int type) {
  switch (type) {
    case kFloat32: case kInt32: case 12: return 4;
    case kInt64: case kFloat64: case 13: return 8;
    case kFloat16: case kBfloat16: case 4: case 5: return 2;
    default: return 1;
  }
}

struct Tensor {
  int type = kInt64;
  Shape shape;
  std::vector<char> bytes;
};

// The operands of a step. ids: [B, S], row by row. real: [B], how many tokens of each sequence are
// not padding. lengths: [B], P of each sequence.
struct Step {
  int64_t batch = 1, tokens = 1, capacity = 0;
  std::vector<int64_t> ids, real, lengths;

  int64_t longest() const { return *std::max_element(lengths.begin(), lengths.end()); }
};

inline Shape ShapeOf(const std::vector<Axis>& axes, const Step& step) {
  Shape shape;
  for (const Axis& axis : axes) {
    switch (axis.letter) {
      case 'B': shape.push_back(step.batch * axis.size); break;
      case 'S': shape.push_back(step.tokens); break;
      case 'P': shape.push_back(step.longest()); break;
      case 'T': shape.push_back(step.longest() + step.tokens); break;
      case 'M': shape.push_back(step.capacity); break;
      default: shape.push_back(axis.size);
    }
  }
  return shape;
}

// Writes one number of an input. The lowest number of the type hides a key.
inline void Store(int type, bool lowest, int64_t number, char* to) {
  const auto put = [to](auto value) { std::memcpy(to, &value, sizeof(value)); };
  switch (type) {
    case kFloat32:
      put(lowest ? std::numeric_limits<float>::lowest() : static_cast<float>(number));
      break;
    case kFloat64:
      put(lowest ? std::numeric_limits<double>::lowest() : static_cast<double>(number));
      break;
    // Masks of these types hold only 0 and 1.
    case kFloat16: put(static_cast<uint16_t>(lowest ? 0xfbff : number == 0 ? 0 : 0x3c00)); break;
    case kBfloat16: put(static_cast<uint16_t>(lowest ? 0xff7f : number == 0 ? 0 : 0x3f80)); break;
    case kInt64: put(number); break;
    case kInt32: put(static_cast<int32_t>(number)); break;
    default: put(static_cast<int8_t>(number)); break;
  }
}

// Returns the tensor that the host gives for an input.
inline Tensor MakeInput(const Input& input, const Step& step) {
  Tensor result{input.type, ShapeOf(input.axes, step), {}};
  const int64_t size = SizeOf(result.shape), width = BytesOf(input.type);
  result.bytes.resize(static_cast<size_t>(size * width));
  for (int64_t i = 0; i < size; ++i) {
    int64_t sequence = 0, token = 0, later = 0, key = 0;
    bool per_token = false;
    int64_t rest = i;
    for (size_t k = input.axes.size(); k-- > 0; rest /= result.shape[k]) {
      const int64_t at = rest % result.shape[k];
      switch (input.axes[k].letter) {
        case 'B': sequence = at / input.axes[k].size; break;
        case 'S': later = token, token = at, per_token = true; break;
        case 'T': case 'M': case 'P': key = at; break;
        default: break;
      }
    }
    const int64_t past = step.lengths[sequence], count = step.real[sequence];
    const bool visible = key < past + (per_token ? token + 1 : count);
    const std::string& m = input.meaning;
    const bool mask = m == "mask" || m == "hidden";
    int64_t number = 0;
    if (mask) number = input.added ? 0 : visible == (m == "mask");
    else if (m == "tokens") number = step.ids[sequence * step.tokens + token];
    else if (m == "positions") number = past + token;
    else if (m == "last") number = past + count - 1;
    else if (m == "total") number = past + count;
    else if (m == "new") number = count;
    else if (m == "last_new") number = count - 1;
    else if (m == "order") number = sequence;
    else if (m == "has_past") number = past > 0;
    else if (m == "no_past") number = past == 0;
    else if (m == "tree") number = later <= token;  // axes [.., token, later]
    else if (m == "ones") number = 1;
    else if (m != "zeros") throw std::logic_error(input.name + " is to hold " + m);
    Store(input.type, mask && input.added && !visible, number, &result.bytes[i * width]);
  }
  return result;
}

// Thrown before a step runs if it has more tokens than there are free slots.
struct CacheFull : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Checks everything that the model or ONNX Runtime would otherwise detect in the middle of a step.
inline void Check(const Step& step) {
  const auto need = [](bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
  };
  const auto [least, most] = std::minmax_element(step.lengths.begin(), step.lengths.end());
  need(step.tokens > 0 && step.ids.size() == static_cast<size_t>(step.batch * step.tokens),
       "tokens need the shape [B, S], S > 0");
  need(kTokens == 0 || kTokens == step.tokens,
       "the model takes " + std::to_string(kTokens) + " tokens a step");
  need(kChunk == 0 || step.tokens <= kChunk,
       "the model takes " + std::to_string(kChunk) + " tokens a step at most");
  need(kNewWithPast == 0 || *most == 0 || step.tokens <= kNewWithPast,
       "behind a past the model takes " + std::to_string(kNewWithPast) + " tokens a step");
  for (int64_t real : step.real) {
    need(real >= 0 && real <= step.tokens, "each sequence has S tokens at most");
    need(!kUniform || (real == step.tokens && *least == *most),
         "the model takes sequences of one length, without pads");
  }
  if (!kCircular && *most + step.tokens > step.capacity) {  // padding tokens take slots as well
    throw CacheFull(std::to_string(*most + step.tokens) + " tokens do not fit into " +
                    std::to_string(step.capacity) + " slots");
  }
}

}  // namespace kvloop
// ---- runtime: what follows needs ONNX Runtime
namespace kvloop {

// Values by input name, which replace or complement those that MakeInput computes.
using Feeds = std::map<std::string, const Ort::Value*>;

// A batch of sequences and their caches.
class Decoder {
 public:
  // The number of tokens in the caches, by sequence. Lowering a length removes the last tokens: the
  // next step overwrites their rows.
  std::vector<int64_t> lengths;

  Decoder(const std::string& path, int64_t batch, int64_t capacity, int threads)
      : lengths(static_cast<size_t>(batch), 0), capacity_(capacity) {
    if ((kBatch != 0 && kBatch != batch) || (kCapacity != 0 && kCapacity != capacity)) {
      throw std::invalid_argument("the model takes another batch or another number of slots");
    }
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(threads);
    session_ = Ort::Session(env_, path.c_str(), options);
    Ort::AllocatorWithDefaultOptions allocator;
    for (size_t k = 0; k < session_.GetOutputCount(); ++k) {
      const std::string name = session_.GetOutputNameAllocated(k, allocator).get();
      const bool cache = std::any_of(kCaches.begin(), kCaches.end(),
                                     [&](const Cache& c) { return c.present == name; });
      if (!cache) outputs_.push_back(name);
    }
    for (const Cache& cache : kCaches) {
      buffers_.push_back(Buffer(cache));
      spares_.push_back(cache.in_place ? Tensor{} : Buffer(cache));
    }
  }

  // Runs tokens [B, S], row by row. Returns the outputs other than caches, by name. real: how many
  // tokens of each sequence come before its padding; empty if there is no padding.
  std::map<std::string, Ort::Value> Run(const std::vector<int64_t>& tokens,
                                        std::vector<int64_t> real = {}, const Feeds& feeds = {}) {
    const auto batch = static_cast<int64_t>(lengths.size());
    const int64_t count = static_cast<int64_t>(tokens.size()) / batch;
    if (real.empty()) real.assign(lengths.size(), count);
    const Step step{batch, count, capacity_, tokens, real, lengths};
    Check(step);
    Ort::IoBinding binding(session_);
    std::vector<Tensor> made;  // bound tensors must outlive the run
    std::vector<Ort::Value> held;
    made.reserve(kInputs.size());
    for (const Input& input : kInputs) {
      if (const auto own = feeds.find(input.name); own != feeds.end()) {
        binding.BindInput(input.name.c_str(), *own->second);
        continue;
      }
      if (input.meaning == "given") throw std::invalid_argument("give a value for " + input.name);
      made.push_back(MakeInput(input, step));
      held.push_back(View(made.back()));
      binding.BindInput(input.name.c_str(), held.back());
    }
    for (const std::string& name : outputs_) binding.BindOutput(name.c_str(), memory_);
    for (size_t k = 0; k < kCaches.size(); ++k) {
      held.push_back(View(buffers_[k]));
      binding.BindInput(kCaches[k].past.c_str(), held.back());
      held.push_back(View(kCaches[k].in_place ? buffers_[k] : spares_[k]));
      binding.BindOutput(kCaches[k].present.c_str(), held.back());
    }
    session_.Run(Ort::RunOptions(), binding);
    return Take(binding.GetOutputValues(), real);
  }

  // Runs prompts. Returns the logits after the last token of each, [B][V].
  std::vector<std::vector<float>> Prefill(const std::vector<std::vector<int64_t>>& prompts,
                                          const Feeds& feeds = {}) {
    size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    const size_t size = kTokens != 0  ? static_cast<size_t>(kTokens)
                        : kChunk != 0 ? static_cast<size_t>(kChunk)
                                      : longest;
    std::vector<std::vector<float>> rows;
    for (size_t first = 0; first < longest; first += size) {
      std::vector<int64_t> tokens, real;
      for (const auto& prompt : prompts) {
        if (kTokens != 0 && prompt.size() % size != 0) {
          throw std::invalid_argument("prompts need a multiple of " + std::to_string(size) +
                                      " tokens");
        }
        const size_t last = std::min(longest, first + size);
        const size_t end = std::min(prompt.size(), last);
        real.push_back(static_cast<int64_t>(end > first ? end - first : 0));
        for (size_t k = first; k < last; ++k) tokens.push_back(k < end ? prompt[k] : 0);
      }
      auto ends = LastRows(Run(tokens, real, feeds).at(kLogits), real);
      rows.resize(ends.size());
      for (size_t b = 0; b < ends.size(); ++b) {
        if (real[b] > 0) rows[b] = std::move(ends[b]);
      }
    }
    return rows;
  }

  // Runs prompts, then generates greedily. Returns `count` new tokens for each sequence.
  std::vector<std::vector<int64_t>> Generate(const std::vector<std::vector<int64_t>>& prompts,
                                             int64_t count, const Feeds& feeds = {}) {
    auto rows = Prefill(prompts, feeds);
    std::vector<std::vector<int64_t>> texts(prompts.size());
    while (true) {
      std::vector<int64_t> tokens;
      for (size_t b = 0; b < rows.size(); ++b) {
        tokens.push_back(std::max_element(rows[b].begin(), rows[b].end()) - rows[b].begin());
        texts[b].push_back(tokens.back());
      }
      if (static_cast<int64_t>(texts[0].size()) >= count) return texts;
      const std::vector<int64_t> one(tokens.size(), 1);
      rows = LastRows(Run(tokens, one, feeds).at(kLogits), one);
    }
  }

 private:
  // The buffer holds zeros, because a NaN in an unused slot would spread through 0 * NaN.
  Tensor Buffer(const Cache& cache) const {
    Step step;
    step.batch = static_cast<int64_t>(lengths.size());
    step.capacity = capacity_;
    step.lengths = lengths;
    Tensor buffer{cache.type, ShapeOf(cache.axes, step), {}};
    buffer.bytes.assign(static_cast<size_t>(SizeOf(buffer.shape) * BytesOf(cache.type)), 0);
    return buffer;
  }

  Ort::Value View(Tensor& tensor) const {
    return Ort::Value::CreateTensor(memory_, tensor.bytes.data(), tensor.bytes.size(),
                                    tensor.shape.data(), tensor.shape.size(),
                                    static_cast<ONNXTensorElementDataType>(tensor.type));
  }

  std::map<std::string, Ort::Value> Take(std::vector<Ort::Value> results,
                                         const std::vector<int64_t>& real) {
    std::map<std::string, Ort::Value> outputs;
    for (size_t k = 0; k < outputs_.size(); ++k) outputs.emplace(outputs_[k], std::move(results[k]));
    for (size_t k = 0; k < kCaches.size(); ++k) {
      Tensor& written = kCaches[k].in_place ? buffers_[k] : spares_[k];
      const void* at = results[outputs_.size() + k].GetTensorData<char>();
      if (at != written.bytes.data()) throw std::logic_error(kCaches[k].present + " was copied");
      if (!kCaches[k].in_place) std::swap(buffers_[k], spares_[k]);
    }
    for (size_t b = 0; b < lengths.size(); ++b) lengths[b] += real[b];
    return outputs;
  }

  static float HalfToFloat(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const float size = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                       : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                       : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    return half >> 15 != 0 ? -size : size;
  }

  static float Score(const Ort::Value& scores, int type, int64_t i) {
    if (type == kFloat32) return scores.GetTensorData<float>()[i];
    if (type == kFloat64) return static_cast<float>(scores.GetTensorData<double>()[i]);
    uint16_t half;
    std::memcpy(&half, scores.GetTensorData<char>() + 2 * i, 2);
    if (type == kFloat16) return HalfToFloat(half);
    const uint32_t wide = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }

  // Returns the logits of each sequence's last token as [B][V]. They are given as [B, S, V], as
  // [S, V] for one sequence, or as [B, V] for the last token.
  static std::vector<std::vector<float>> LastRows(const Ort::Value& scores,
                                                  const std::vector<int64_t>& real) {
    const auto info = scores.GetTensorTypeAndShapeInfo();
    const Shape shape = info.GetShape();
    const int type = info.GetElementType();
    const int64_t words = shape.back();
    const int64_t rows = SizeOf(shape) / (words * static_cast<int64_t>(real.size()));
    std::vector<std::vector<float>> last(real.size());
    for (size_t b = 0; b < real.size(); ++b) {
      const int64_t row = static_cast<int64_t>(b) * rows + std::clamp<int64_t>(real[b], 1, rows) - 1;
      for (int64_t k = 0; k < words; ++k) last[b].push_back(Score(scores, type, row * words + k));
    }
    return last;
  }

  Ort::Env env_{ORT_LOGGING_LEVEL_ERROR, "loop"};
  Ort::Session session_{nullptr};
  Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  int64_t capacity_;
  std::vector<std::string> outputs_;
  std::vector<Tensor> buffers_, spares_;  // by cache
};

}  // namespace kvloop

namespace {

std::vector<int64_t> Numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < text.size();) {
    size_t used = 0;
    numbers.push_back(std::stoll(text.substr(at), &used));
    at += used + 1;
  }
  return numbers;
}

int Run(int argc, char** argv) {
  std::string model = kvloop::kModel;
  std::vector<std::vector<int64_t>> prompts;
  int64_t count = 16, capacity = kvloop::kCapacity != 0 ? kvloop::kCapacity : 256, threads = 0;
  for (int k = 1; k < argc; ++k) {
    const std::string flag = argv[k];
    if (flag.rfind("--", 0) != 0) {
      model = flag;
      continue;
    }
    if (++k == argc) throw std::invalid_argument(flag + " needs a value");
    if (flag == "--prompt") prompts.push_back(Numbers(argv[k]));
    else if (flag == "--new") count = std::stoll(argv[k]);
    else if (flag == "--capacity") capacity = std::stoll(argv[k]);
    else if (flag == "--threads") threads = std::stoll(argv[k]);
    else throw std::invalid_argument("unknown: " + flag);
  }
  if (prompts.empty()) throw std::invalid_argument("usage: loop --prompt 1,2,3 [--new N] [MODEL]");
  kvloop::Decoder decoder(model, static_cast<int64_t>(prompts.size()), capacity,
                          static_cast<int>(threads));
  for (const std::vector<int64_t>& text : decoder.Generate(prompts, count)) {
    for (size_t k = 0; k < text.size(); ++k) {
      std::printf("%s%lld", k == 0 ? "" : ",", static_cast<long long>(text[k]));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
