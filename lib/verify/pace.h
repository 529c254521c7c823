// Says what a verdict is at, part by part, and about how long the rest of these parts takes.
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

  // say: null if nothing is to be said. clock: null for the machine's own.
  explicit Pace(Say say = nullptr, Clock clock = nullptr);

  // `count` parts of one kind come next, a "plan" each, say.
  void Begin(std::string_view kind, size_t count);
  // The next part begins. Its name may be empty.
  void Next(std::string_view name = {});

 private:
  // Seconds that the parts from this one on take if they are like those before; 0: not known.
  double Left() const;

  Say say_;
  Clock clock_;
  std::string kind_;
  size_t count_ = 0, at_ = 0;  // at_: the part that runs, from 1 on
  double begun_ = 0;
};

}  // namespace kvlift
