// LIBS: exec
// The team of threads of a step: every unit once, on any number of threads, nested, and repeated
// so often that threads that fall behind meet later jobs.
#include "exec/memory/team.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace kvlift::exec {
namespace {

std::vector<int> CountUnits(int threads, int64_t units) {
  std::vector<int> counts(units, 0);
  RunUnits(threads, units, [&](int64_t unit) { ++counts[unit]; });
  return counts;
}

TEST(TeamTest, RunsEveryUnitOnceInsideAndOutsideOfARegion) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t units : {0, 1, 2, 7, 100}) {
      EXPECT_EQ(CountUnits(threads, units), std::vector<int>(units, 1));
    }
    RunWithTeam(threads, [&] {
      for (int repeat = 0; repeat < 300; ++repeat) {
        const int64_t units = repeat % 17;
        ASSERT_EQ(CountUnits(threads, units), std::vector<int>(units, 1));
      }
    });
  }
}

TEST(TeamTest, UsesItsThreads) {
  std::atomic<int> inside{0};
  RunWithTeam(2, [&] {
    // Two units that wait for each other need two threads.
    RunUnits(2, 2, [&](int64_t) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(TeamTest, SleepingThreadsAreWoken) {
  RunWithTeam(2, [&] {
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::atomic<int> inside{0};
      RunUnits(2, 2, [&](int64_t) {
        inside.fetch_add(1);
        while (inside.load() < 2) std::this_thread::yield();
      });
    }
  });
}

TEST(TeamTest, AUnitRunsItsOwnUnitsAlone) {
  std::vector<std::vector<int>> counts(8);
  RunWithTeam(3, [&] {
    RunUnits(3, 8, [&](int64_t unit) {
      const std::thread::id self = std::this_thread::get_id();
      counts[unit].assign(5, 0);
      RunUnits(3, 5, [&, self](int64_t inner) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        ++counts[unit][inner];
      });
    });
  });
  EXPECT_EQ(counts, std::vector<std::vector<int>>(8, std::vector<int>(5, 1)));
}

TEST(TeamTest, SeveralTeamsAtTheSameTime) {
  std::vector<std::thread> hosts;
  std::atomic<int64_t> sum{0};
  for (int h = 0; h < 3; ++h) {
    hosts.emplace_back([&] {
      RunWithTeam(2, [&] {
        for (int repeat = 0; repeat < 50; ++repeat) {
          RunUnits(2, 10, [&](int64_t unit) { sum.fetch_add(unit); });
        }
      });
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(sum.load(), 3 * 50 * 45);
}

TEST(TeamTest, RequestsTellWhetherThreadsWereOfUse) {
  const int64_t before = TeamRequests();
  RunUnits(1, 10, [](int64_t) {});
  RunUnits(4, 1, [](int64_t) {});
  EXPECT_EQ(TeamRequests(), before);
  RunUnits(4, 10, [](int64_t) {});
  EXPECT_EQ(TeamRequests(), before + 1);
}

}  // namespace
}  // namespace kvlift::exec
