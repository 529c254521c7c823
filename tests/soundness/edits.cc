#include "soundness/edits.h"

#include <functional>
#include <limits>
#include <vector>

#include "fmt/format.h"
#include "onnxio/model.h"

namespace kvlift::soundness {
namespace {

using onnx::TensorProto;

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

class Editor {
 public:
  Editor(onnx::ModelProto* model, const Types& types, Random& random)
      : model_(model), graph_(model->mutable_graph()), types_(types), random_(random) {}

  std::string Run() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const int64_t kind = random_.Pick(0, 19);
      std::string done;
      if (kind < 13) done = EditOperand();
      if (kind == 13) done = SwapOperands();
      if (kind == 14) done = ChangeOperator();
      if (kind == 15) done = ChangeAttribute();
      if (kind == 16) done = ChangeConstant();
      if (kind == 17) done = Rewire();
      if (kind == 18) done = random_.OneIn(2) ? DropOperand() : RenameDimension();
      if (kind == 19) done = EditOutput();
      if (!done.empty()) return done;
    }
    return "";
  }

 private:
  using Change = std::function<std::string(Sketch&, const std::string&)>;
  struct Named {
    std::string name;
    Change change;
  };

  TypeOf Look(const std::string& value) const {
    const auto it = types_.find(value);
    return it == types_.end() ? TypeOf() : it->second;
  }

  // An extent of an input of the graph, as a number.
  std::string SomeExtent(Sketch& sketch) {
    std::vector<const onnx::ValueInfoProto*> inputs;
    for (const auto& input : graph_->input()) {
      if (input.type().tensor_type().shape().dim_size() > 0) inputs.push_back(&input);
    }
    const auto* input = random_.Of(inputs);
    const int rank = input->type().tensor_type().shape().dim_size();
    for (int attempt = 0; attempt < 8; ++attempt) {
      const int64_t axis = random_.Pick(0, rank - 1);
      if (input->type().tensor_type().shape().dim(static_cast<int>(axis)).has_dim_param()) {
        return sketch.Extent(input->name(), axis);
      }
    }
    return sketch.Extent(input->name(), 0);
  }

  std::string Equals(Sketch& sketch) {
    const std::string extent = SomeExtent(sketch);
    const std::string c = sketch.Int(random_.Pick(1, 9));
    return sketch.Op(random_.OneIn(2) ? "Equal" : "Greater", {extent, c});
  }

  std::string Through(Sketch& sketch, const std::string& x, int32_t via, int32_t type) {
    return sketch.Cast(sketch.Cast(x, via), type);
  }

  // Along one axis; all axes are likely.
  std::vector<Named> Moves(const TypeOf& type) {
    std::vector<Named> all;
    if (type.rank == 0) return all;
    const int64_t axis = random_.Pick(0, type.rank - 1), c = random_.Pick(1, 9);
    all.push_back({fmt::format("Slice[0:{}]", c),
                   [axis, c](Sketch& s, const std::string& x) { return s.Slice(x, 0, c, axis); }});
    all.push_back({fmt::format("Slice[-{}:]", c), [axis, c](Sketch& s, const std::string& x) {
                     return s.Slice(x, -c, kToEnd, axis);
                   }});
    all.push_back({"Slice[0:-1]",
                   [axis](Sketch& s, const std::string& x) { return s.Slice(x, 0, -1, axis); }});
    all.push_back(
        {"first", [axis](Sketch& s, const std::string& x) { return s.Slice(x, 0, 1, axis); }});
    all.push_back(
        {"reversed", [axis](Sketch& s, const std::string& x) {
           return s.Op("Slice", {x, s.List({-1}), s.List({-kToEnd}), s.List({axis}), s.List({-1})});
         }});
    all.push_back({"first expanded", [axis](Sketch& s, const std::string& x) {
                     return s.Op("Expand", {s.Slice(x, 0, 1, axis), s.Op("Shape", {x})});
                   }});
    all.push_back({"longer, cut", [axis, this](Sketch& s, const std::string& x) {
                     const std::string two = s.Op("Concat", {x, x}, {Setting::Int("axis", axis)});
                     const std::string n = s.Unsqueeze(SomeExtent(s), {0});
                     return s.Op("Slice", {two, s.List({0}), n, s.List({axis})});
                   }});
    if (type.rank > 1) {
      const int64_t other = (axis + 1) % type.rank;
      all.push_back({"transposed", [axis, other, &type](Sketch& s, const std::string& x) {
                       Ints perm;
                       for (int64_t k = 0; k < type.rank; ++k) perm.push_back(k);
                       std::swap(perm[axis], perm[other]);
                       return s.Op("Transpose", {x}, {Setting::List("perm", perm)});
                     }});
      all.push_back({"flat and back", [](Sketch& s, const std::string& x) {
                       const std::string shape = s.Op("Shape", {x});
                       return s.Op("Reshape", {s.Op("Reshape", {x, s.List({-1})}), shape});
                     }});
    }
    return all;
  }

  std::vector<Named> OfIntegers(const TypeOf& type) {
    const int32_t t = type.type;
    const int64_t c = random_.Pick(0, 12);
    std::vector<Named> all;
    const auto add = [&](std::string name, Change change) {
      all.push_back({std::move(name), std::move(change)});
    };
    for (const std::string op : {"Min", "Max", "Sub", "Add"}) {
      add(fmt::format("{} {}", op, c), [op, c, t](Sketch& s, const std::string& x) {
        return s.Op(op, {x, s.Int(c, t)});
      });
    }
    add(fmt::format("Mod {}", c + 1), [c, t](Sketch& s, const std::string& x) {
      return s.Op("Mod", {x, s.Int(c + 1, t)});
    });
    const int64_t k = random_.Of(Ints{2, 3, int64_t{1} << 28, (int64_t{1} << 30) / 3});
    add(fmt::format("Mul {} Div", k), [k, t](Sketch& s, const std::string& x) {
      return s.Op("Div", {s.Op("Mul", {x, s.Int(k, t)}), s.Int(k, t)});
    });
    const int64_t huge = random_.Of(Ints{int64_t{1} << 60, int64_t{1} << 62, kToEnd / 5});
    if (t == TensorProto::INT64) {
      add(fmt::format("Mul {} Div", huge), [huge](Sketch& s, const std::string& x) {
        return s.Op("Div", {s.Op("Mul", {x, s.Int(huge)}), s.Int(huge)});
      });
      add(fmt::format("int32 Mul {} Div", k), [k](Sketch& s, const std::string& x) {
        const std::string n = s.Int(k, TensorProto::INT32);
        const std::string small = s.Cast(x, TensorProto::INT32);
        return s.Cast(s.Op("Div", {s.Op("Mul", {small, n}), n}), TensorProto::INT64);
      });
      add("float16 times", [](Sketch& s, const std::string& x) {
        const std::string n = s.Int(300), back = s.Int(300);
        const std::string half = s.Cast(s.Op("Mul", {x, n}), TensorProto::FLOAT16);
        return s.Op("Div", {s.Cast(half, TensorProto::INT64), back});
      });
      add("bfloat16 times", [](Sketch& s, const std::string& x) {
        const std::string half = s.Cast(s.Op("Mul", {x, s.Int(77)}), TensorProto::BFLOAT16);
        return s.Op("Div", {s.Cast(half, TensorProto::INT64), s.Int(77)});
      });
      add("int8 times", [](Sketch& s, const std::string& x) {
        const std::string small = s.Cast(s.Op("Mul", {x, s.Int(16)}), TensorProto::INT8);
        return s.Op("Div", {s.Cast(small, TensorProto::INT64), s.Int(16)});
      });
      add("length of a Range", [this, c](Sketch& s, const std::string& x) {
        const std::string left = s.Op("Sub", {s.Int(c), SomeExtent(s)});
        const std::string range = s.Op("Range", {s.Int(0), left, s.Int(1)});
        return s.Op("Add", {x, s.Op("Sub", {s.Extent(range, 0), left})});
      });
      add("length of a Slice", [this, c](Sketch& s, const std::string& x) {
        const std::string n = SomeExtent(s);
        const std::string range = s.Op("Range", {s.Int(0), n, s.Int(1)});
        const std::string start = s.Unsqueeze(s.Op("Sub", {n, s.Int(c)}), {0});
        const std::string rest = s.Op("Slice", {range, start, s.List({kToEnd}), s.List({0})});
        return s.Op("Add", {x, s.Op("Sub", {s.Extent(rest, 0), s.Int(c)})});
      });
      add("Div by an extent", [this, c](Sketch& s, const std::string& x) {
        const std::string n = s.Op("Add", {SomeExtent(s), s.Int(1)});
        return s.Op("Add", {x, s.Op("Div", {SomeExtent(s), s.Op("Add", {n, s.Int(c)})})});
      });
      add("difference of extents", [this](Sketch& s, const std::string& x) {
        return s.Op("Add", {x, s.Op("Sub", {SomeExtent(s), SomeExtent(s)})});
      });
      add("looked up", [this](Sketch& s, const std::string& x) {
        const std::string n = SomeExtent(s);
        const std::string range = s.Op("Range", {s.Int(0), s.Int(64), s.Int(1)});
        const std::string at = s.Op("Div", {n, s.Op("Add", {SomeExtent(s), s.Int(1)})});
        return s.Op("Add", {x, s.Op("Gather", {range, at})});
      });
    }
    add(fmt::format("Div {} Mul", c + 1), [c, t](Sketch& s, const std::string& x) {
      return s.Op("Mul", {s.Op("Div", {x, s.Int(c + 1, t)}), s.Int(c + 1, t)});
    });
    add("Abs", [](Sketch& s, const std::string& x) { return s.Op("Abs", {x}); });
    add("Neg Neg", [](Sketch& s, const std::string& x) { return s.Op("Neg", {s.Op("Neg", {x})}); });
    add(fmt::format("Where == {}", c), [c, t](Sketch& s, const std::string& x) {
      const std::string at = s.Op("Equal", {x, s.Int(c, t)});
      return s.Op("Where", {at, s.Int(c + 1, t), x});
    });
    add("Where extent", [this, t](Sketch& s, const std::string& x) {
      return s.Op("Where", {Equals(s), s.Op("Add", {x, s.Int(1, t)}), x});
    });
    for (const int32_t via : {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16,
                              TensorProto::INT8, TensorProto::UINT8, TensorProto::BOOL}) {
      add(fmt::format("through {}", onnx::TensorProto_DataType_Name(via)),
          [this, via, t](Sketch& s, const std::string& x) { return Through(s, x, via, t); });
    }
    if (type.rank > 0) {
      const int64_t axis = random_.Pick(0, type.rank - 1);
      for (const std::string op : {"ReduceMax", "ReduceMin", "ReduceSum"}) {
        add(op, [op, axis](Sketch& s, const std::string& x) { return s.Reduce(op, x, {axis}); });
      }
      add("CumSum", [axis, t](Sketch& s, const std::string& x) {
        return s.Op("Sub", {s.Op("CumSum", {x, s.Int(axis)}),
                            s.Op("CumSum", {x, s.Int(axis)}, {Setting::Int("exclusive", 1)})});
      });
    }
    return all;
  }

  std::vector<Named> OfReals(const TypeOf& type) {
    const int32_t t = type.type;
    std::vector<Named> all;
    const auto add = [&](std::string name, Change change) {
      all.push_back({std::move(name), std::move(change)});
    };
    const double c = random_.Of(std::vector<double>{1, 2, 100, 1e4});
    add(fmt::format("Min {}", c), [c, t](Sketch& s, const std::string& x) {
      return s.Op("Min", {x, s.Like(t, c)});
    });
    add(fmt::format("Max -{}", c), [c, t](Sketch& s, const std::string& x) {
      return s.Op("Max", {x, s.Like(t, -c)});
    });
    add("Mul 1.125", [t](Sketch& s, const std::string& x) {
      return s.Op("Mul", {x, s.Like(t, 1.125)});
    });
    add("Mul 1", [t](Sketch& s, const std::string& x) { return s.Op("Mul", {x, s.Like(t, 1)}); });
    add("Add 0.25", [t](Sketch& s, const std::string& x) {
      return s.Op("Add", {x, s.Like(t, 0.25)});
    });
    add("Add 0", [t](Sketch& s, const std::string& x) { return s.Op("Add", {x, s.Like(t, 0)}); });
    add("Neg Neg", [](Sketch& s, const std::string& x) { return s.Op("Neg", {s.Op("Neg", {x})}); });
    add("Abs", [](Sketch& s, const std::string& x) { return s.Op("Abs", {x}); });
    add("Where extent", [this, t](Sketch& s, const std::string& x) {
      return s.Op("Where", {Equals(s), s.Op("Mul", {x, s.Like(t, 1.5)}), x});
    });
    add("Where IsNaN of itself", [t](Sketch& s, const std::string& x) {
      return s.Op("Where", {s.Op("IsNaN", {x}), s.Like(t, 0), x});
    });
    add("Where negative", [t](Sketch& s, const std::string& x) {
      return s.Op("Where", {s.Op("Less", {x, s.Like(t, 0)}), s.Like(t, 0), x});
    });
    add("Dropout in training", [](Sketch& s, const std::string& x) {
      const std::string yes = s.Cast(s.Int(1), TensorProto::BOOL);
      return s.Op("Dropout", {x, s.Number(0.5), yes});
    });
    for (const int32_t via : {TensorProto::FLOAT16, TensorProto::BFLOAT16, TensorProto::DOUBLE,
                              TensorProto::INT32, TensorProto::INT8, TensorProto::UINT8,
                              TensorProto::BOOL, TensorProto::INT64, TensorProto::FLOAT8E4M3FN}) {
      if (via == t) continue;
      add(fmt::format("through {}", onnx::TensorProto_DataType_Name(via)),
          [this, via, t](Sketch& s, const std::string& x) { return Through(s, x, via, t); });
    }
    if (type.rank > 0) {
      const int64_t axis = random_.Pick(0, type.rank - 1);
      for (const std::string op : {"ReduceMean", "ReduceMax"}) {
        add(op, [op, axis](Sketch& s, const std::string& x) { return s.Reduce(op, x, {axis}); });
      }
      add("without the mean", [axis](Sketch& s, const std::string& x) {
        return s.Op("Sub", {x, s.Reduce("ReduceMean", x, {axis})});
      });
      add("Softmax", [axis](Sketch& s, const std::string& x) {
        return s.Op("Softmax", {x}, {Setting::Int("axis", axis)});
      });
    }
    if (type.rank == 4) {
      add("one column more, softmax", [t](Sketch& s, const std::string& x) {
        const std::string first = s.Slice(x, 0, 1, 3);
        const std::string sink = s.Op("Mul", {first, s.Like(t, 0)});
        const std::string wide = s.Op("Concat", {x, sink}, {Setting::Int("axis", 3)});
        const std::string weights = s.Op("Softmax", {wide}, {Setting::Int("axis", 3)});
        return s.Slice(weights, 0, -1, 3);
      });
    }
    return all;
  }

  std::vector<Named> OfTruths() {
    std::vector<Named> all;
    const auto add = [&](std::string name, Change change) {
      all.push_back({std::move(name), std::move(change)});
    };
    add("Not Not", [](Sketch& s, const std::string& x) { return s.Op("Not", {s.Op("Not", {x})}); });
    for (const int32_t via : {TensorProto::FLOAT, TensorProto::UINT8, TensorProto::FLOAT16}) {
      add(fmt::format("through {}", onnx::TensorProto_DataType_Name(via)),
          [this, via](Sketch& s, const std::string& x) {
            return Through(s, x, via, TensorProto::BOOL);
          });
    }
    add("Where extent", [this](Sketch& s, const std::string& x) {
      return s.Op("Xor", {Equals(s), x});
    });
    const int64_t c = random_.Pick(1, 12);
    for (const std::string op : {"And", "Or"}) {
      add(fmt::format("{} columns < {}", op, c), [op, c](Sketch& s, const std::string& x) {
        const std::string n = s.Op("Gather", {s.Op("Shape", {x}), s.Int(-1)});
        const std::string columns = s.Op("Range", {s.Int(0), n, s.Int(1)});
        const std::string near = s.Op("Less", {columns, s.Int(c)});
        return s.Op(op, {x, near});
      });
    }
    return all;
  }

  std::vector<Named> Changes(const TypeOf& type) {
    std::vector<Named> all;
    if (type.type == TensorProto::INT64 || type.type == TensorProto::INT32) all = OfIntegers(type);
    if (type.type == TensorProto::FLOAT) all = OfReals(type);
    if (type.type == TensorProto::BOOL) all = OfTruths();
    if (all.empty()) return all;
    if (type.rank > 0 && random_.OneIn(3)) return Moves(type);
    return all;
  }

  std::string Prefix() const { return fmt::format("edit{}_", graph_->node_size()); }

  std::string EditOperand() {
    if (graph_->node_size() == 0) return "";
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    if (graph_->node(n).input_size() == 0) return "";
    const int k = static_cast<int>(random_.Pick(0, graph_->node(n).input_size() - 1));
    const std::string value = graph_->node(n).input(k), op = graph_->node(n).op_type();
    const TypeOf type = Look(value);
    const std::vector<Named> changes = Changes(type);
    if (changes.empty()) return "";
    const Named& change = random_.Of(changes);
    Sketch sketch(model_, Prefix(), n);
    const std::string result = change.change(sketch, value);
    graph_->mutable_node(sketch.at())->set_input(k, result);
    return fmt::format("{} at {}/{}", change.name, op, k);
  }

  std::string EditOutput() {
    const int k = static_cast<int>(random_.Pick(0, graph_->output_size() - 1));
    const std::string name = graph_->output(k).name();
    const std::vector<Named> changes = Changes(Look(name));
    if (changes.empty()) return "";
    const std::string inner = Prefix() + "inner";
    bool made = false;
    for (auto& node : *graph_->mutable_node()) {
      for (std::string& output : *node.mutable_output()) {
        if (output == name) {
          output = inner;
          made = true;
        }
      }
      for (std::string& input : *node.mutable_input()) {
        if (input == name) input = inner;
      }
    }
    if (!made) return "";
    const Named& change = random_.Of(changes);
    Sketch sketch(model_, Prefix());
    const std::string result = change.change(sketch, inner);
    sketch.Op("Identity", {result}, {}, name);
    return fmt::format("{} at output {}", change.name, name.substr(0, 7));
  }

  std::string SwapOperands() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->input_size() < 2) return "";
    node->mutable_input()->SwapElements(0, 1);
    return fmt::format("operands swapped of {}", node->op_type());
  }

  std::string ChangeOperator() {
    static const std::vector<std::vector<std::string>>* const kinds =
        new std::vector<std::vector<std::string>>{
            {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"},
            {"Add", "Sub", "Mul", "Div"},
            {"And", "Or", "Xor"},
            {"Min", "Max"},
            {"ReduceMax", "ReduceMin", "ReduceMean"},
            {"Sin", "Cos"}};
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    for (const auto& kind : *kinds) {
      for (const std::string& op : kind) {
        if (node->op_type() != op) continue;
        const std::string& other = random_.Of(kind);
        if (other == op) return "";
        node->set_op_type(other);
        return fmt::format("{} for {}", other, op);
      }
    }
    return "";
  }

  std::string ChangeAttribute() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->op_type() == "Attention" && random_.OneIn(3)) {
      for (auto& attribute : *node->mutable_attribute()) {
        if (attribute.name() != "is_causal") continue;
        attribute.set_i(1 - attribute.i());
        return "is_causal turned";
      }
      auto* attribute = node->add_attribute();
      attribute->set_name("is_causal");
      attribute->set_type(onnx::AttributeProto::INT);
      attribute->set_i(1);
      return "is_causal added";
    }
    if (node->attribute_size() == 0) return "";
    auto* attribute =
        node->mutable_attribute(static_cast<int>(random_.Pick(0, node->attribute_size() - 1)));
    const std::string what = fmt::format("{} of {}", attribute->name(), node->op_type());
    if (random_.OneIn(6)) {
      attribute->set_name("");
      std::vector<onnx::AttributeProto> kept;
      for (const auto& a : node->attribute()) {
        if (!a.name().empty()) kept.push_back(a);
      }
      node->clear_attribute();
      for (const auto& a : kept) *node->add_attribute() = a;
      return fmt::format("{} left out", what);
    }
    if (attribute->type() == onnx::AttributeProto::INT) {
      attribute->set_i(attribute->i() + (random_.OneIn(2) ? 1 : -1));
    } else if (attribute->type() == onnx::AttributeProto::FLOAT) {
      attribute->set_f(attribute->f() * 1.25F);
    } else if (attribute->ints_size() > 1) {
      const int a = static_cast<int>(random_.Pick(0, attribute->ints_size() - 2));
      attribute->mutable_ints()->SwapElements(a, a + 1);
    } else {
      return "";
    }
    return fmt::format("{} changed", what);
  }

  std::string ChangeConstant() {
    if (graph_->initializer_size() == 0) return "";
    auto* tensor = graph_->mutable_initializer(
        static_cast<int>(random_.Pick(0, graph_->initializer_size() - 1)));
    std::string reader = "?";
    for (const auto& node : graph_->node()) {
      for (int k = 0; k < node.input_size(); ++k) {
        if (node.input(k) == tensor->name()) reader = fmt::format("{}/{}", node.op_type(), k);
      }
    }
    if (tensor->float_data_size() > 0) {
      const int i = static_cast<int>(random_.Pick(0, tensor->float_data_size() - 1));
      tensor->set_float_data(
          i, random_.OneIn(2) ? tensor->float_data(i) * 1.5F : tensor->float_data(i) + 0.5F);
    } else if (tensor->int64_data_size() > 0) {
      const int i = static_cast<int>(random_.Pick(0, tensor->int64_data_size() - 1));
      const int64_t x = tensor->int64_data(i);
      const int64_t to = random_.Of(Ints{0, 1, 2, 3, 5, 8, -1, x == kToEnd ? 7 : x + 1});
      tensor->set_int64_data(i, to);
    } else {
      return "";
    }
    return fmt::format("constant at {}", reader);
  }

  std::string Rewire() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->input_size() == 0) return "";
    const int k = static_cast<int>(random_.Pick(0, node->input_size() - 1));
    const TypeOf type = Look(node->input(k));
    if (type.type == 0) return "";
    std::vector<std::string> others;
    const auto offer = [&](const std::string& name) {
      const TypeOf other = Look(name);
      if (name != node->input(k) && other.type == type.type && other.rank == type.rank) {
        others.push_back(name);
      }
    };
    for (const auto& input : graph_->input()) offer(input.name());
    for (const auto& tensor : graph_->initializer()) offer(tensor.name());
    for (int m = 0; m < n; ++m) {
      for (const std::string& output : graph_->node(m).output()) offer(output);
    }
    if (others.empty()) return "";
    node->set_input(k, random_.Of(others));
    return fmt::format("another value at {}/{}", node->op_type(), k);
  }

  std::string DropOperand() {
    const int n = static_cast<int>(random_.Pick(0, graph_->node_size() - 1));
    auto* node = graph_->mutable_node(n);
    if (node->input_size() < 2) return "";
    const int k = static_cast<int>(random_.Pick(1, node->input_size() - 1));
    if (node->input(k).empty()) return "";
    node->set_input(k, "");
    while (node->input_size() > 0 && node->input(node->input_size() - 1).empty()) {
      node->mutable_input()->RemoveLast();
    }
    return fmt::format("left out {}/{}", node->op_type(), k);
  }

  // Of an input's dimensions; outputs keep theirs.
  std::string RenameDimension() {
    static const std::vector<std::string>* const names = new std::vector<std::string>{
        "kvlift.P", "kvlift.S", "P of the sequence", "S", "P", "B", "T", "max_sequence_length"};
    auto* input =
        graph_->mutable_input(static_cast<int>(random_.Pick(0, graph_->input_size() - 1)));
    auto* shape = input->mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape->dim_size() == 0) return "";
    auto* dim = shape->mutable_dim(static_cast<int>(random_.Pick(0, shape->dim_size() - 1)));
    if (!dim->has_dim_param()) return "";
    const std::string old = dim->dim_param();
    dim->set_dim_param(random_.Of(*names));
    return fmt::format("dimension {} called {}", old, dim->dim_param());
  }

  onnx::ModelProto* model_;
  onnx::GraphProto* graph_;
  const Types& types_;
  Random& random_;
};

void Add(const onnx::ValueInfoProto& info, Types* types) {
  if (!info.type().has_tensor_type() || !info.type().tensor_type().has_shape()) return;
  (*types)[info.name()] = {info.type().tensor_type().elem_type(),
                           info.type().tensor_type().shape().dim_size()};
}

}  // namespace

Types InferredTypes(const onnx::ModelProto& model) {
  Types types;
  const auto inferred = InferShapes(model);
  const onnx::GraphProto& graph = inferred.ok() ? inferred->graph() : model.graph();
  for (const auto& info : graph.input()) Add(info, &types);
  for (const auto& info : graph.output()) Add(info, &types);
  for (const auto& info : graph.value_info()) Add(info, &types);
  for (const auto& tensor : graph.initializer()) {
    types[tensor.name()] = {tensor.data_type(), tensor.dims_size()};
  }
  return types;
}

std::string Edit(onnx::ModelProto* model, const Types& types, Random& random) {
  return Editor(model, types, random).Run();
}

}  // namespace kvlift::soundness
