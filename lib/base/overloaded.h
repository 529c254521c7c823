// Makes one visitor of several lambdas, for std::visit. A variant that gets another alternative
// then does not compile until each visitor handles it.
#pragma once

namespace kvlift {

template <typename... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <typename... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

}  // namespace kvlift
