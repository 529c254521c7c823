// Reports the progress of a verdict, part by part, with an estimate of the time that is left.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kvlift {

class Pace {
 public:
  using Say = std::function<void(std::string)>;
  using Clock = std::function<double()>;  // seconds since some moment

  // say: receives the lines; null: none are made. clock: null: the machine's steady clock.
  explicit Pace(Say say = nullptr, Clock clock = nullptr);

  // Announces `count` parts of one kind, say "plan".
  void Begin(std::string_view kind, size_t count);
  // Reports that the next part begins: "plan 3 of 14 (ragged), about 12 s left of these". The name
  // may be empty.
  void Next(std::string_view name = {});

 private:
  // Returns how many seconds the current part and all later ones take if each takes as long as
  // those before did; 0: not known yet.
  double Left() const;

  Say say_;
  Clock clock_;
  std::string kind_;
  size_t count_ = 0, at_ = 0;  // at_: the number of the current part, from 1 on
  double begun_ = 0;           // when the first part began, in seconds of the clock
};

}  // namespace kvlift
