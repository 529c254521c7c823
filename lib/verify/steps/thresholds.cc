#include "verify/steps/thresholds.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"
#include "ir/operators/operator_traits.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// Numbers from this on stand for "no end".
constexpr int64_t kEndless = (int64_t{1} << 31) - 1;
constexpr int64_t kMostElements = 4;

bool IsOneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// Whether the numbers of an operand are bounds, lengths or parts of predicates. Axes, shapes and
// indices are not.
bool IsMeant(std::string_view op, int operand) {
  if (op == "Slice") return operand == 1 || operand == 2;
  return IsComparison(op) ||
         IsOneOf(op, {"Min", "Max", "Clip", "Range", "Where", "Add", "Sub", "Mul", "Div", "Mod",
                      "Trilu", "OneHot", "ConstantOfShape"});
}

bool HoldsLengths(int32_t type) {
  return type == TensorProto::INT64 || type == TensorProto::INT32 || type == TensorProto::UINT64 ||
         type == TensorProto::UINT32 || type == TensorProto::INT16 || type == TensorProto::UINT16;
}

// Returns the smallest whole number that the type does not hold; 0 for types that hold all that
// lengths and positions may be, and for types that hold no numbers.
int64_t FirstNumberLost(int64_t type) {
  switch (type) {
    case TensorProto::FLOAT16:
      return 2049;
    case TensorProto::BFLOAT16:
      return 257;
    case TensorProto::FLOAT8E4M3FN:
    case TensorProto::FLOAT8E4M3FNUZ:
      return 17;
    case TensorProto::FLOAT8E5M2:
    case TensorProto::FLOAT8E5M2FNUZ:
      return 9;
    case TensorProto::INT8:
      return 128;
    case TensorProto::UINT8:
      return 256;
    case TensorProto::INT16:
      return 32768;
    case TensorProto::UINT16:
      return 65536;
    default:
      return 0;
  }
}

using Constants = absl::flat_hash_map<std::string, const TensorProto*>;

// Adds the initializers of a graph and the results of its Constant nodes, by name.
void AddConstants(const onnx::GraphProto& graph, Constants* constants) {
  for (const TensorProto& tensor : graph.initializer()) (*constants)[tensor.name()] = &tensor;
  for (const NodeProto& node : graph.node()) {
    if (node.op_type() != "Constant") continue;
    if (const auto* value = FindAttribute(node, "value")) {
      (*constants)[node.output(0)] = &value->t();
    }
  }
}

class Collector {
 public:
  explicit Collector(const onnx::ModelProto& model) { Read(model.graph()); }
  const std::set<int64_t>& numbers() const { return numbers_; }
  // The numbers of rows of Gather tables.
  const std::set<int64_t>& rows() const { return rows_; }
  // How often a number is an operand of a comparison, a minimum or a maximum.
  const std::map<int64_t, int>& chosen_by() const { return chosen_by_; }
  // The numbers that are operands of comparisons.
  const std::set<int64_t>& compared() const { return compared_; }
  // How often whole numbers are cast to types, by the smallest number that the type does not hold.
  const std::map<int64_t, int>& casts() const { return casts_; }

 private:
  void Read(const onnx::GraphProto& graph) {
    AddConstants(graph, &constants_);
    TakeWholeNumbers(graph);
    for (const NodeProto& node : graph.node()) {
      for (int k = 0; k < node.input_size(); ++k) Look(node, k);
      for (const auto& attribute : node.attribute()) {
        if (attribute.type() == onnx::AttributeProto::GRAPH) Read(attribute.g());
        const bool bounds = IsOneOf(node.op_type(), {"Slice", "Clip"});
        if (bounds) {
          for (int64_t v : attribute.ints()) Add(static_cast<double>(v), &numbers_);
          if (attribute.type() == onnx::AttributeProto::FLOAT) Add(attribute.f(), &numbers_);
        }
      }
    }
  }

  // Finds the values that hold whole numbers by their type, or because they are moved or added
  // from such values, and counts their casts. Nodes stand in topological order.
  void TakeWholeNumbers(const onnx::GraphProto& graph) {
    const auto declare = [&](const onnx::ValueInfoProto& value) {
      if (HoldsLengths(value.type().tensor_type().elem_type())) whole_.insert(value.name());
    };
    for (const auto& value : graph.input()) declare(value);
    for (const auto& value : graph.value_info()) declare(value);
    for (const auto& [name, tensor] : constants_) {
      if (HoldsLengths(tensor->data_type())) whole_.insert(name);
    }
    for (const NodeProto& node : graph.node()) {
      const std::string& op = node.op_type();
      if (node.input_size() == 0 || node.output_size() == 0) continue;
      if (IsOneOf(op, {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"})) {
        whole_.insert(node.output(0));
        continue;
      }
      const bool first = whole_.contains(node.input(0));
      if (op == "Cast" && first) {
        const auto* to = FindAttribute(node, "to");
        const int64_t lost = to == nullptr ? 0 : FirstNumberLost(to->i());
        if (lost > 0) ++casts_[lost];
        whole_.insert(node.output(0));
      } else if (first && IsOneOf(op, {"Identity",  "Reshape",   "Unsqueeze", "Squeeze", "Expand",
                                       "Transpose", "Slice",     "Gather",    "Flatten", "Tile",
                                       "ReduceSum", "ReduceMax", "ReduceMin", "CumSum",  "Range",
                                       "Add",       "Sub",       "Mul",       "Max",     "Min",
                                       "Concat",    "Neg",       "Clip"})) {
        whole_.insert(node.output(0));
      } else if (op == "Where" && node.input_size() > 1 && whole_.contains(node.input(1))) {
        whole_.insert(node.output(0));
      }
    }
  }

  void Look(const NodeProto& node, int operand) {
    const auto it = constants_.find(node.input(operand));
    if (it == constants_.end()) return;
    const TensorProto& tensor = *it->second;
    if (node.op_type() == "Gather" && operand == 0) {
      if (tensor.dims_size() > 0) Add(static_cast<double>(tensor.dims(0)), &rows_);
      return;
    }
    if (!IsMeant(node.op_type(), operand)) return;
    int64_t elements = 1;
    for (int64_t d : tensor.dims()) elements *= d;
    if (elements < 1 || elements > kMostElements) return;
    const int32_t type = tensor.data_type();
    if (type != TensorProto::INT64 && type != TensorProto::INT32 && type != TensorProto::FLOAT) {
      return;
    }
    const auto values = NumbersOf(tensor);
    const bool compares = IsComparison(node.op_type());
    for (double v : values) {
      const auto number = Add(v, &numbers_);
      if (number && compares) compared_.insert(*number);
      if (number && (compares || IsOneOf(node.op_type(), {"Min", "Max", "Clip"}))) {
        ++chosen_by_[*number];
      }
    }
  }

  static std::vector<double> NumbersOf(const TensorProto& t) {
    std::vector<double> values;
    values.insert(values.end(), t.int64_data().begin(), t.int64_data().end());
    values.insert(values.end(), t.int32_data().begin(), t.int32_data().end());
    values.insert(values.end(), t.float_data().begin(), t.float_data().end());
    const std::string& raw = t.raw_data();
    const auto read = [&]<typename T>(T zero) {
      for (size_t at = 0; at + sizeof(T) <= raw.size(); at += sizeof(T)) {
        T value = zero;
        std::copy_n(raw.data() + at, sizeof(T), reinterpret_cast<char*>(&value));
        values.push_back(static_cast<double>(value));
      }
    };
    if (t.data_type() == TensorProto::INT64) read(int64_t{0});
    if (t.data_type() == TensorProto::INT32) read(int32_t{0});
    if (t.data_type() == TensorProto::FLOAT) read(float{0});
    return values;
  }

  // Adds a whole number from 3 on, and returns it; nullopt for other numbers.
  static std::optional<int64_t> Add(double value, std::set<int64_t>* to) {
    const double size = std::fabs(value);
    if (size < 3 || size >= static_cast<double>(kEndless) || size != std::floor(size)) {
      return std::nullopt;
    }
    to->insert(static_cast<int64_t>(size));
    return static_cast<int64_t>(size);
  }

  Constants constants_;
  absl::flat_hash_set<std::string> whole_;
  std::set<int64_t> numbers_, rows_, compared_;
  std::map<int64_t, int> chosen_by_, casts_;
};

// Returns the keys whose counts differ, ascending.
std::vector<int64_t> OfOtherCounts(const std::map<int64_t, int>& a, std::map<int64_t, int> b) {
  for (const auto& [key, count] : a) b[key] -= count;
  std::vector<int64_t> keys;
  for (const auto& [key, more] : b) {
    if (more != 0) keys.push_back(key);
  }
  return keys;
}

}  // namespace

Unmatched FindUnmatched(const onnx::ModelProto& before, const onnx::ModelProto& after) {
  const Collector a(before), b(after);
  Unmatched unmatched;
  std::set<int64_t> numbers;
  std::set_symmetric_difference(a.numbers().begin(), a.numbers().end(), b.numbers().begin(),
                                b.numbers().end(), std::inserter(numbers, numbers.end()));
  std::set_symmetric_difference(a.rows().begin(), a.rows().end(), b.rows().begin(), b.rows().end(),
                                std::inserter(numbers, numbers.end()));
  unmatched.numbers.assign(numbers.begin(), numbers.end());
  const std::vector<int64_t> chosen = OfOtherCounts(a.chosen_by(), b.chosen_by());
  std::set<int64_t> compared;
  std::set_intersection(a.compared().begin(), a.compared().end(), b.compared().begin(),
                        b.compared().end(), std::inserter(compared, compared.end()));
  compared.insert(chosen.begin(), chosen.end());
  std::set_difference(compared.begin(), compared.end(), numbers.begin(), numbers.end(),
                      std::back_inserter(unmatched.compared));
  unmatched.casts = OfOtherCounts(a.casts(), b.casts());
  return unmatched;
}

std::vector<int64_t> RowsOfTables(const onnx::ModelProto& model) {
  constexpr int64_t kLeast = 9, kMost = 4208;
  constexpr size_t kMostSizes = 10;
  Constants constants;
  AddConstants(model.graph(), &constants);
  std::set<int64_t> sizes;
  for (const NodeProto& node : model.graph().node()) {
    if (!IsOneOf(node.op_type(), {"Gather", "GatherND", "GatherElements", "Slice"})) continue;
    const auto table = constants.find(node.input(0));
    if (table == constants.end() || table->second->dims_size() < 2) continue;
    for (int64_t size : table->second->dims()) {
      if (size >= kLeast && size <= kMost && sizes.size() < kMostSizes) sizes.insert(size);
    }
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace kvlift
