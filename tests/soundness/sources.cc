#include "soundness/sources.h"

#include <limits>

namespace kvlift::soundness {
namespace {

using onnx::TensorProto;

constexpr int64_t kSize = 2;     // head size
constexpr int64_t kVocab = 4;    // tokens in the vocabulary
constexpr int64_t kPlaces = 32;  // rows of a table of positions
constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

class Decoder {
 public:
  Decoder(Random& random, const Choices& choices, onnx::ModelProto* model)
      : random_(random), choices_(choices), sketch_(model, "v") {}

  void Draw() {
    kv_heads_ = random_.Pick(1, 2);
    heads_ = kv_heads_ == 2 ? 2 : random_.Pick(1, 2);
    width_ = heads_ * kSize;
    tokens_first_ = choices_.tokens_first.value_or(random_.OneIn(5));
    DrawInputs();
    DrawLengths();
    DrawAttention();
    DrawEnd();
    if (random_.OneIn(2)) DrawNumber();
  }

 private:
  std::string Weights(int64_t rows, int64_t columns) {
    std::vector<double> values;
    for (int64_t i = 0; i < rows * columns; ++i) {
      values.push_back(static_cast<double>(random_.Pick(-16, 16)) / 16);
    }
    return sketch_.Numbers({rows, columns}, values);
  }

  void DrawInputs() {
    const std::vector<std::string> cache =
        tokens_first_ ? std::vector<std::string>{"B", "P", std::to_string(kv_heads_), "2"}
                      : std::vector<std::string>{"B", std::to_string(kv_heads_), "P", "2"};
    tokens_ = "ids";
    if (random_.OneIn(3)) {
      sketch_.Input("x", TensorProto::FLOAT, {"B", "S", std::to_string(width_)});
      tokens_ = x_ = "x";
    } else {
      sketch_.Input("ids", TensorProto::INT64, {"B", "S"});
      x_ = sketch_.Op("Gather", {Weights(kVocab, width_), "ids"}, {Setting::Int("axis", 0)});
    }
    mask_ = choices_.mask.value_or(static_cast<MaskInput>(random_.Pick(0, 4)));
    if (mask_ == MaskInput::kPadding || mask_ == MaskInput::kPaddingAdded)
      sketch_.Input("mask", TensorProto::INT64, {"B", "T"});
    if (mask_ == MaskInput::kAdded) sketch_.Input("mask", TensorProto::FLOAT, {"B", "1", "S", "T"});
    if (mask_ == MaskInput::kPaddingTruth) sketch_.Input("mask", TensorProto::BOOL, {"B", "T"});
    position_ = choices_.places.value_or(static_cast<Places>(random_.Pick(0, 3)));
    if (position_ == Places::kInput) sketch_.Input("position_ids", TensorProto::INT64, {"B", "S"});
    sketch_.Input("past_k", TensorProto::FLOAT, cache);
    sketch_.Input("past_v", TensorProto::FLOAT, cache);
    if (choices_.reordered) sketch_.Input("beams", TensorProto::INT64, {"B"});
  }

  void DrawLengths() {
    const int64_t axis = tokens_first_ ? 1 : 2;
    p_ = sketch_.Extent(random_.OneIn(2) ? "past_k" : "past_v", axis);
    s_ = sketch_.Extent(tokens_, 1);
    t_ = mask_ == MaskInput::kPadding && random_.OneIn(3) ? sketch_.Extent("mask", 1)
                                                          : sketch_.Op("Add", {p_, s_});
    rows_ = sketch_.Op("Range", {p_, t_, sketch_.Int(1)});
    columns_ = sketch_.Op("Range", {sketch_.Int(0), t_, sketch_.Int(1)});
    places_ = position_ == Places::kInput ? "position_ids" : sketch_.Unsqueeze(rows_, {0});
    if (position_ == Places::kByMask && mask_ == MaskInput::kPadding) {
      const std::string counted = sketch_.Op("CumSum", {"mask", sketch_.Int(1)});
      const std::string from_zero = sketch_.Op("Sub", {counted, sketch_.Int(1)});
      const std::string kept = sketch_.Op("Max", {from_zero, sketch_.Int(0)});
      places_ = sketch_.Op(
          "Slice", {kept, sketch_.Unsqueeze(p_, {0}), sketch_.List({kToEnd}), sketch_.List({1})});
    }
    if (position_ == Places::kNone) return;  // the model has no positions
    if (random_.OneIn(2)) {
      const std::string row =
          sketch_.Op("Gather", {Weights(kPlaces, width_), places_}, {Setting::Int("axis", 0)});
      x_ = sketch_.Op("Add", {x_, row});
    } else {
      turned_ = true;
    }
  }

  // Projects to heads [B, N, S, D] or [B, S, N, D].
  std::string Heads(int64_t heads, bool tokens_first, bool turn) {
    std::string rows = sketch_.Op("MatMul", {x_, Weights(width_, heads * kSize)});
    if (random_.OneIn(4)) rows = sketch_.Op("Add", {rows, Weights(1, heads * kSize)});
    if (turn && turned_) {
      const std::string real = sketch_.Cast(sketch_.Unsqueeze(places_, {2}), TensorProto::FLOAT);
      const std::string angle = sketch_.Op("Mul", {real, sketch_.Number(0.375)});
      rows = sketch_.Op("Add", {sketch_.Op("Mul", {rows, sketch_.Op("Cos", {angle})}),
                                sketch_.Op("Sin", {angle})});
    }
    const std::string apart = sketch_.Op("Reshape", {rows, sketch_.List({0, 0, heads, kSize})});
    if (tokens_first) return apart;
    return sketch_.Op("Transpose", {apart}, {Setting::List("perm", {0, 2, 1, 3})});
  }

  std::string Cached(const std::string& name) {
    const std::string rows = Heads(kv_heads_, tokens_first_, name == "k");
    const int64_t axis = tokens_first_ ? 1 : 2;
    std::string past = "past_" + name;
    if (choices_.reordered) past = sketch_.Op("Gather", {past, "beams"}, {Setting::Int("axis", 0)});
    std::string all =
        sketch_.Op("Concat", {past, rows}, {Setting::Int("axis", axis)}, "present_" + name);
    if (tokens_first_) {
      all = sketch_.Op("Transpose", {all}, {Setting::List("perm", {0, 2, 1, 3})});
    }
    if (heads_ == kv_heads_) return all;
    const std::string five = sketch_.Unsqueeze(all, {2});
    const std::string wide =
        sketch_.Op("Expand", {five, sketch_.List({1, 1, heads_ / kv_heads_, 1, 1})});
    return sketch_.Op("Reshape", {wide, sketch_.List({0, heads_, -1, kSize})});
  }

  // Returns [S, T] or [1, 1, S, T]: whether a token sees a key.
  std::string Visible() {
    const std::string rows = sketch_.Unsqueeze(rows_, {1});
    const std::string columns = sketch_.Unsqueeze(columns_, {0});
    std::string sees;
    switch (random_.Pick(0, 3)) {
      case 0:
        sees = sketch_.Op("LessOrEqual", {columns, rows});
        break;
      case 1:
        sees = sketch_.Op("Not", {sketch_.Op("Greater", {columns, rows})});
        break;
      case 2:
        sees = sketch_.Op("GreaterOrEqual", {rows, columns});
        break;
      default:
        sees = sketch_.Op("Less", {columns, sketch_.Op("Add", {rows, sketch_.Int(1)})});
    }
    if (choices_.windowed.value_or(random_.OneIn(4))) {
      const std::string far = sketch_.Op("Sub", {rows, sketch_.Int(random_.Pick(2, 6))});
      sees = sketch_.Op("And", {sees, sketch_.Op("Greater", {columns, far})});
    }
    if (mask_ == MaskInput::kPadding || mask_ == MaskInput::kPaddingTruth) {
      const std::string real =
          mask_ == MaskInput::kPadding ? sketch_.Cast("mask", TensorProto::BOOL) : "mask";
      sees = sketch_.Op("And", {sees, sketch_.Unsqueeze(real, {1, 2})});
    }
    return sees;
  }

  // The weights of a softmax that has one more score for each head, in front or behind.
  std::string WeightsBesideSink(const std::string& scores) {
    const bool in_front = random_.OneIn(2);
    const std::string lead = sketch_.Op("Shape", {scores}, {Setting::Int("end", 3)});
    const std::string shape =
        sketch_.Op("Concat", {lead, sketch_.List({1})}, {Setting::Int("axis", 0)});
    const std::string sink =
        sketch_.Op("Reshape", {Weights(1, heads_), sketch_.List({1, heads_, 1, 1})});
    const std::string column = sketch_.Op("Expand", {sink, shape});
    std::vector<std::string> parts = {scores, column};
    if (in_front) std::swap(parts[0], parts[1]);
    std::string all = sketch_.Op("Concat", parts, {Setting::Int("axis", 3)});
    if (random_.OneIn(2)) {
      const std::string most = sketch_.Reduce("ReduceMax", all, {-1});
      all = sketch_.Op("Sub", {all, most});
    }
    const std::string weights = sketch_.Op("Softmax", {all}, {Setting::Int("axis", -1)});
    return sketch_.Op("Slice", {weights, sketch_.List({in_front ? 1 : 0}),
                                sketch_.List({in_front ? kToEnd : -1}), sketch_.List({3})});
  }

  void DrawAttention() {
    const std::string q = Heads(heads_, false, true);
    const std::string k = Cached("k"), v = Cached("v");
    const std::string turned = sketch_.Op("Transpose", {k}, {Setting::List("perm", {0, 1, 3, 2})});
    const double low = random_.OneIn(2) ? -std::numeric_limits<double>::infinity()
                                        : static_cast<double>(-3.4028234663852886e38F);
    std::string scores;
    const int64_t scale = random_.Pick(0, 3);
    if (scale == 0) {
      scores = sketch_.Op("MatMul", {sketch_.Op("Mul", {q, sketch_.Number(0.5)}), turned});
    } else {
      scores = sketch_.Op("MatMul", {q, turned});
      if (scale == 1) scores = sketch_.Op("Mul", {scores, sketch_.Number(0.75)});
      if (scale == 2) scores = sketch_.Op("Div", {scores, sketch_.Number(1.5)});
    }
    const std::string sees = Visible();
    if (random_.OneIn(3)) {
      scores = sketch_.Op("Where", {sees, scores, sketch_.Number(low)});
    } else {
      const std::string added = sketch_.Op("Where", {sees, sketch_.Number(0), sketch_.Number(low)});
      scores = sketch_.Op("Add", {scores, added});
    }
    if (mask_ == MaskInput::kAdded) scores = sketch_.Op("Add", {scores, "mask"});
    if (mask_ == MaskInput::kPaddingAdded) {
      const std::string real = sketch_.Cast(sketch_.Unsqueeze("mask", {1, 2}), TensorProto::FLOAT);
      const std::string pads = sketch_.Op("Sub", {sketch_.Number(1), real});
      scores = sketch_.Op("Add", {scores, sketch_.Op("Mul", {pads, sketch_.Number(-1e9)})});
    }
    std::string weights = random_.OneIn(5)
                              ? WeightsBesideSink(scores)
                              : sketch_.Op("Softmax", {scores}, {Setting::Int("axis", -1)});
    if (random_.OneIn(5)) {
      weights = sketch_.Op("Where", {sketch_.Op("IsNaN", {weights}), sketch_.Number(0), weights});
    }
    const std::string context = sketch_.Op("MatMul", {weights, v});
    const std::string back =
        sketch_.Op("Transpose", {context}, {Setting::List("perm", {0, 2, 1, 3})});
    y_ = sketch_.Op("Reshape", {back, sketch_.List({0, 0, width_})});
  }

  void DrawEnd() {
    if (random_.OneIn(2)) y_ = sketch_.Op("MatMul", {y_, Weights(width_, width_)});
    if (random_.OneIn(2)) y_ = sketch_.Op("Add", {x_, y_});
    if (random_.OneIn(3)) {
      const std::string mean = sketch_.Reduce("ReduceMean", y_, {-1});
      y_ = sketch_.Op("Sub", {y_, mean});
    }
    sketch_.Op("MatMul", {y_, Weights(width_, 3)}, {}, "logits");
    sketch_.Output("logits", TensorProto::FLOAT, {"B", "S", "3"});
    const std::vector<std::string> cache =
        tokens_first_ ? std::vector<std::string>{"B", "P + S", std::to_string(kv_heads_), "2"}
                      : std::vector<std::string>{"B", std::to_string(kv_heads_), "P + S", "2"};
    sketch_.Output("present_k", TensorProto::FLOAT, cache);
    sketch_.Output("present_v", TensorProto::FLOAT, cache);
  }

  // Adds an output of integer arithmetic on token indices and lengths.
  void DrawNumber() {
    std::string n = random_.OneIn(3) ? sketch_.Unsqueeze(p_, {0}) : rows_;
    const int64_t steps = random_.Pick(1, 4);
    for (int64_t i = 0; i < steps; ++i) {
      const std::string c = sketch_.Int(random_.Pick(1, 9));
      switch (random_.Pick(0, 9)) {
        case 0:
          n = sketch_.Op("Add", {n, random_.OneIn(2) ? c : s_});
          break;
        case 1:
          n = sketch_.Op("Sub", {n, random_.OneIn(2) ? c : p_});
          break;
        case 2:
          n = sketch_.Op("Mul", {n, c});
          break;
        case 3:
          n = sketch_.Op("Div", {n, c});
          break;
        case 4:
          n = sketch_.Op("Mod", {n, c});
          break;
        case 5:
          n = sketch_.Op("Min", {n, c});
          break;
        case 6:
          n = sketch_.Op("Max", {n, c});
          break;
        case 7:
          n = sketch_.Op("Where", {sketch_.Op("Less", {n, c}), n, t_});
          break;
        case 8:
          n = sketch_.Op("Div", {n, sketch_.Op("Add", {random_.OneIn(2) ? p_ : s_, c})});
          break;
        default:
          n = sketch_.Op("Abs", {sketch_.Op("Sub", {n, c})});
      }
    }
    // Multiplying by 0 keeps one row per sequence and drops its content.
    const std::string zero = sketch_.Op("Mul", {places_, sketch_.Int(0)});
    sketch_.Op("Add", {zero, n}, {}, "number");
    sketch_.Output("number", TensorProto::INT64, {"N", "S"});
  }

  Random& random_;
  const Choices& choices_;
  Sketch sketch_;
  int64_t kv_heads_ = 1, heads_ = 1, width_ = 2;
  MaskInput mask_ = MaskInput::kNone;
  Places position_ = Places::kNone;
  bool tokens_first_ = false, turned_ = false;
  std::string tokens_, x_, y_, p_, s_, t_, rows_, columns_, places_;
};

}  // namespace

onnx::ModelProto DrawSource(Random& random, const Choices& choices) {
  onnx::ModelProto model;
  model.set_ir_version(9);
  auto* import = model.add_opset_import();
  import->set_domain("");
  const int64_t opset = random.Of(Ints{13, 17, 18, 20});
  import->set_version(choices.opset == 0 ? opset : choices.opset);
  model.mutable_graph()->set_name("decoder");
  Decoder(random, choices, &model).Draw();
  return model;
}

}  // namespace kvlift::soundness
