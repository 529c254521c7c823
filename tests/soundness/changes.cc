#include "soundness/changes.h"

#include <limits>
#include <utility>

#include "fmt/format.h"

namespace kvlift::soundness {
namespace {

using onnx::TensorProto;

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

std::string Through(Sketch& sketch, const std::string& x, int32_t via, int32_t type) {
  return sketch.Cast(sketch.Cast(x, via), type);
}

}  // namespace

std::string Changes::SomeExtent(Sketch& sketch) {
  std::vector<const onnx::ValueInfoProto*> inputs;
  for (const auto& input : graph_.input()) {
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

std::string Changes::Equals(Sketch& sketch) {
  const std::string extent = SomeExtent(sketch);
  const std::string c = sketch.Int(random_.Pick(1, 9));
  return sketch.Op(random_.OneIn(2) ? "Equal" : "Greater", {extent, c});
}

std::vector<NamedChange> Changes::Moves(const TypeOf& type) {
  std::vector<NamedChange> all;
  if (type.rank == 0) return all;
  const int64_t axis = random_.Pick(0, type.rank - 1), c = random_.Pick(1, 9);
  all.push_back({fmt::format("Slice[0:{}]", c),
                 [axis, c](Sketch& s, const std::string& x) { return s.Slice(x, 0, c, axis); }});
  all.push_back({fmt::format("Slice[-{}:]", c), [axis, c](Sketch& s, const std::string& x) {
                   return s.Slice(x, -c, kToEnd, axis);
                 }});
  all.push_back(
      {"Slice[0:-1]", [axis](Sketch& s, const std::string& x) { return s.Slice(x, 0, -1, axis); }});
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
    all.push_back({"transposed", [axis, other, rank = type.rank](Sketch& s, const std::string& x) {
                     Ints perm;
                     for (int64_t k = 0; k < rank; ++k) perm.push_back(k);
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

std::vector<NamedChange> Changes::OfIntegers(const TypeOf& type) {
  const int32_t t = type.type;
  const int64_t c = random_.Pick(0, 12);
  std::vector<NamedChange> all;
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
        [via, t](Sketch& s, const std::string& x) { return Through(s, x, via, t); });
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

std::vector<NamedChange> Changes::OfReals(const TypeOf& type) {
  const int32_t t = type.type;
  std::vector<NamedChange> all;
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
        [via, t](Sketch& s, const std::string& x) { return Through(s, x, via, t); });
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

std::vector<NamedChange> Changes::OfTruths() {
  std::vector<NamedChange> all;
  const auto add = [&](std::string name, Change change) {
    all.push_back({std::move(name), std::move(change)});
  };
  add("Not Not", [](Sketch& s, const std::string& x) { return s.Op("Not", {s.Op("Not", {x})}); });
  for (const int32_t via : {TensorProto::FLOAT, TensorProto::UINT8, TensorProto::FLOAT16}) {
    add(fmt::format("through {}", onnx::TensorProto_DataType_Name(via)),
        [via](Sketch& s, const std::string& x) { return Through(s, x, via, TensorProto::BOOL); });
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

std::vector<NamedChange> Changes::Of(const TypeOf& type) {
  std::vector<NamedChange> all;
  if (type.type == TensorProto::INT64 || type.type == TensorProto::INT32) all = OfIntegers(type);
  if (type.type == TensorProto::FLOAT) all = OfReals(type);
  if (type.type == TensorProto::BOOL) all = OfTruths();
  if (all.empty()) return all;
  if (type.rank > 0 && random_.OneIn(3)) return Moves(type);
  return all;
}

}  // namespace kvlift::soundness
