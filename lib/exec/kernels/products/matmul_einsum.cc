// Einsum. Two operands without repeated letters are permuted and multiplied as matrices, in the
// order of MatMul over the contracted letters. All other equations are summed element by element.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/products/gemm_product.h"
#include "exec/kernels/products/matmul.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

using Dims = absl::InlinedVector<int64_t, 6>;

// A short text on the stack, so that a step allocates nothing.
class Letters {
 public:
  Letters() = default;
  explicit Letters(std::string_view text) : chars_(text.begin(), text.end()) {}
  Letters& operator+=(char c) {
    chars_.push_back(c);
    return *this;
  }
  Letters operator+(const Letters& other) const {
    Letters result = *this;
    result.chars_.insert(result.chars_.end(), other.begin(), other.end());
    return result;
  }
  std::string_view text() const { return {chars_.data(), chars_.size()}; }
  size_t find(char c, size_t from = 0) const { return text().find(c, from); }
  size_t size() const { return chars_.size(); }
  char operator[](size_t i) const { return chars_[i]; }
  const char* begin() const { return chars_.data(); }
  const char* end() const { return chars_.data() + chars_.size(); }

 private:
  absl::InlinedVector<char, 56> chars_;
};
using Terms = absl::InlinedVector<Letters, 3>;

// Letters are ASCII. The dimensions of an ellipsis get the codes 1, 2, ... counted from its end.
struct EinsumPlan {
  Terms inputs;
  Letters output;
  std::array<int64_t, 128> size{};  // of each letter
  Shape out;
};

Letters WithoutSpaces(std::string_view text) {
  Letters result;
  for (char c : text) {
    if (c != ' ') result += c;
  }
  return result;
}

// Replaces "..." by the codes of `count` dimensions.
Letters ExpandEllipsis(std::string_view term, int64_t count) {
  const size_t at = term.find("...");
  if (at == std::string_view::npos) return Letters(term);
  Letters dims;
  for (int64_t i = count; i > 0; --i) dims += static_cast<char>(i);
  return Letters(term.substr(0, at)) + dims + Letters(term.substr(at + 3));
}

Letters ImplicitOutput(const Terms& inputs, int64_t ellipsis) {
  std::array<int, 128> seen{};
  for (const Letters& term : inputs) {
    for (char c : term) ++seen[static_cast<size_t>(c)];
  }
  Letters out;
  for (int64_t i = ellipsis; i > 0; --i) out += static_cast<char>(i);
  for (size_t c = 'A'; c < 128; ++c) {
    if (seen[c] == 1) out += static_cast<char>(c);
  }
  return out;
}

absl::StatusOr<EinsumPlan> PlanEinsum(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, std::max<size_t>(1, context.inputs.size())));
  const Letters compact = WithoutSpaces(StringAttribute(context, "equation", ""));
  const std::string_view equation = compact.text();
  const size_t arrow = equation.find("->");
  const std::string_view left = equation.substr(0, arrow);
  EinsumPlan plan;
  for (size_t from = 0; from <= left.size();) {
    const size_t comma = std::min(left.find(',', from), left.size());
    plan.inputs.emplace_back(left.substr(from, comma - from));
    from = comma + 1;
  }
  const auto bad = [&] {
    return Invalid(context, fmt::format("equation \"{}\" does not fit the inputs", equation));
  };
  if (plan.inputs.size() != context.inputs.size()) return bad();
  int64_t ellipsis = 0;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const bool has = plan.inputs[i].text().find("...") != std::string_view::npos;
    const int64_t letters = static_cast<int64_t>(plan.inputs[i].size()) - (has ? 3 : 0);
    const int64_t dims = static_cast<int64_t>(context.inputs[i].shape.size()) - letters;
    if (dims < 0 || (!has && dims != 0) || dims > 30) return bad();
    plan.inputs[i] = ExpandEllipsis(plan.inputs[i].text(), dims);
    if (has) ellipsis = std::max(ellipsis, dims);
    if (context.inputs[i].type != context.inputs[0].type) {
      return Invalid(context, "inputs differ in type");
    }
    for (size_t d = 0; d < plan.inputs[i].size(); ++d) {
      const auto c = static_cast<unsigned char>(plan.inputs[i][d]);
      if (!std::isalpha(c) && c >= 32) return bad();
      const int64_t size = context.inputs[i].shape[d];
      int64_t& known = plan.size[c];
      if (known != 0 && known != size && known != 1 && size != 1) return bad();
      if (known == 0 || known == 1) known = size;
    }
  }
  plan.output = arrow == std::string_view::npos
                    ? ImplicitOutput(plan.inputs, ellipsis)
                    : ExpandEllipsis(equation.substr(arrow + 2), ellipsis);
  for (const char c : plan.output) {
    const bool known = std::any_of(plan.inputs.begin(), plan.inputs.end(), [&](const auto& term) {
      return term.find(c) != std::string_view::npos;
    });
    if (!known || plan.output.find(c) != plan.output.text().rfind(c)) return bad();
    plan.out.push_back(plan.size[static_cast<size_t>(c)]);
  }
  return plan;
}

// Returns the stride of each of `letters` in an operand. Strides of repeated letters add up;
// missing letters have stride 0.
Dims StridesOf(const Letters& letters, const Letters& term, const Shape& shape) {
  Dims result(letters.size(), 0);
  int64_t stride = 1;
  for (size_t d = term.size(); d-- > 0;) {
    const size_t at = letters.find(term[d]);
    if (at != std::string_view::npos && shape[d] != 1) result[at] += stride;
    stride *= shape[d];
  }
  return result;
}

Dims SizesOf(const EinsumPlan& plan, const Letters& letters) {
  Dims sizes;
  for (char c : letters) sizes.push_back(plan.size[static_cast<size_t>(c)]);
  return sizes;
}

int64_t Count(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

int64_t At(const Dims& dims, const Dims& strides, int64_t flat) {
  int64_t offset = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    offset += flat % dims[i] * strides[i];
    flat /= dims[i];
  }
  return offset;
}

bool Contains(const Letters& text, char c) { return text.find(c) != std::string_view::npos; }

bool HasRepeats(const Letters& term) {
  for (size_t i = 0; i < term.size(); ++i) {
    if (term.find(term[i], i + 1) != std::string_view::npos) return true;
  }
  return false;
}

// The letters of a product of two operands, by their role.
struct Roles {
  Letters batch, left, right, inner;
};

bool AsProduct(const KernelContext& context, const EinsumPlan& plan, Roles* roles) {
  if (plan.inputs.size() != 2 || HasRepeats(plan.inputs[0]) || HasRepeats(plan.inputs[1]) ||
      HasRepeats(plan.output)) {
    return false;
  }
  for (size_t i = 0; i < 2; ++i) {
    for (size_t d = 0; d < plan.inputs[i].size(); ++d) {
      const char c = plan.inputs[i][d];
      if (context.inputs[i].shape[d] != plan.size[static_cast<size_t>(c)]) return false;
      const bool other = Contains(plan.inputs[1 - i], c), out = Contains(plan.output, c);
      if (!other && !out) return false;
    }
  }
  for (char c : plan.output) {
    const bool a = Contains(plan.inputs[0], c), b = Contains(plan.inputs[1], c);
    (a && b ? roles->batch : a ? roles->left : roles->right) += c;
  }
  for (char c : plan.inputs[0]) {
    if (!Contains(plan.output, c)) roles->inner += c;
  }
  return true;
}

template <typename T>
void Multiply2(KernelContext& context, const EinsumPlan& plan, const Roles& roles) {
  using C = Compute<T>;
  const Dims batch = SizesOf(plan, roles.batch), left = SizesOf(plan, roles.left);
  const Dims right = SizesOf(plan, roles.right), inner = SizesOf(plan, roles.inner);
  const int64_t nb = Count(batch), m = Count(left), n = Count(right), k = Count(inner);
  ScratchScope scratch;
  C* a = scratch.Get<C>(nb * m * k);
  C* b = scratch.Get<C>(nb * k * n);
  C* c = scratch.Get<C>(nb * m * n);
  const auto gather = [&](size_t input, const Letters& letters, C* to) {
    const Dims sizes = SizesOf(plan, letters);
    const Dims strides = StridesOf(letters, plan.inputs[input], context.inputs[input].shape);
    const T* from = context.inputs[input].as<T>();
    const int64_t count = Count(sizes);
    for (int64_t i = 0; i < count; ++i) to[i] = Widen(from[At(sizes, strides, i)]);
  };
  gather(0, roles.batch + roles.left + roles.inner, a);
  gather(1, roles.batch + roles.inner + roles.right, b);
  for (int64_t i = 0; i < nb; ++i) {
    Product<C> product;
    product.m = m;
    product.n = n;
    product.k = k;
    product.a = a + i * m * k;
    product.a_row = k;
    product.b = b + i * k * n;
    product.b_k = n;
    product.c = c + i * m * n;
    product.c_row = n;
    Multiply(product, context.threads);
  }
  const Letters order = roles.batch + roles.left + roles.right;
  const Dims sizes = SizesOf(plan, order), strides = StridesOf(order, plan.output, plan.out);
  T* out = context.outputs[0].as<T>();
  for (int64_t i = 0; i < nb * m * n; ++i) out[At(sizes, strides, i)] = Narrow<T>(c[i]);
}

// Integers wrap around.
template <typename C>
C Times(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}
template <typename C>
C Plus(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename T>
void SumAll(KernelContext& context, const EinsumPlan& plan) {
  using C = Compute<T>;
  Letters summed;
  for (const Letters& term : plan.inputs) {
    for (char c : term) {
      if (!Contains(plan.output, c) && !Contains(summed, c)) summed += c;
    }
  }
  const Dims outer = SizesOf(plan, plan.output), inner = SizesOf(plan, summed);
  absl::InlinedVector<Dims, 3> outer_strides, inner_strides;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Shape& shape = context.inputs[i].shape;
    outer_strides.push_back(StridesOf(plan.output, plan.inputs[i], shape));
    inner_strides.push_back(StridesOf(summed, plan.inputs[i], shape));
  }
  const int64_t terms = Count(inner), count = Count(outer);
  T* out = context.outputs[0].as<T>();
  for (int64_t o = 0; o < count; ++o) {
    C sum{};
    for (int64_t t = 0; t < terms; ++t) {
      C product{1};
      for (size_t i = 0; i < plan.inputs.size(); ++i) {
        const int64_t at = At(outer, outer_strides[i], o) + At(inner, inner_strides[i], t);
        product = Times(product, static_cast<C>(Widen(context.inputs[i].as<T>()[at])));
      }
      sum = Plus(sum, product);
    }
    out[o] = Narrow<T>(sum);
  }
}

}  // namespace

absl::Status EinsumShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(EinsumPlan plan, PlanEinsum(context));
  SetSpec(context, 0, context.inputs[0].type, std::move(plan.out));
  return absl::OkStatus();
}

absl::Status EinsumCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const EinsumPlan plan, PlanEinsum(context));
  if (context.outputs[0].size() == 0) return absl::OkStatus();
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (kIsFloat<T>) {
      Roles roles;
      if (AsProduct(context, plan, &roles)) {
        Multiply2<T>(context, plan, roles);
        return absl::OkStatus();
      }
    }
    SumAll<T>(context, plan);
    return absl::OkStatus();
  });
}

}  // namespace kvlift::exec
