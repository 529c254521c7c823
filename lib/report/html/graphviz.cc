#include "report/html/graphviz.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <locale>
#include <map>
#include <sstream>
#include <thread>

#include "fmt/format.h"

namespace kvlift::html {
namespace {

constexpr double kPixels = 72;  // per inch, Graphviz's unit
constexpr auto kPatience = std::chrono::seconds(5);
constexpr int64_t kMostBytes = 1 << 22;

// An anonymous file in memory that `dot` reads from or writes to.
class Scratch {
 public:
  Scratch() : fd_(memfd_create("kvlift", MFD_CLOEXEC)) {}
  ~Scratch() {
    if (fd_ >= 0) close(fd_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  int fd() const { return fd_; }

  bool Fill(const std::string& text) {
    return fd_ >= 0 && pwrite(fd_, text.data(), text.size(), 0) == std::ssize(text);
  }

  std::string Text() const {
    struct stat info = {};
    if (fstat(fd_, &info) != 0 || info.st_size > kMostBytes) return "";
    std::string text(static_cast<size_t>(info.st_size), '\0');
    return pread(fd_, text.data(), text.size(), 0) == std::ssize(text) ? text : "";
  }

 private:
  int fd_;
};

// Waits for a process, and kills it after kPatience. Returns true if it ended with exit status 0.
bool Ended(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string RunDot(const std::string& graph) {
  Scratch in, out;
  if (out.fd() < 0 || !in.Fill(graph)) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = "dot", format = "-Tplain", numbers = "LC_ALL=C";
  const char* path = std::getenv("PATH");
  std::string where = fmt::format("PATH={}", path == nullptr ? "" : path);
  char* arguments[] = {name.data(), format.data(), nullptr};
  char* environment[] = {numbers.data(), where.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "dot", &actions, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 && Ended(child) ? out.Text() : "";
}

std::string DotText(const GraphSizes& sizes) {
  std::string text =
      "digraph {\nranksep=0.4 nodesep=0.2\n"
      "node [shape=box fixedsize=true label=\"\"]\nedge [arrowhead=none]\n";
  for (size_t n = 0; n < sizes.widths.size(); ++n) {
    text += fmt::format("n{} [width={:.3f} height={:.3f}]\n", n, sizes.widths[n] / kPixels,
                        sizes.height / kPixels);
  }
  for (const auto& [from, to] : sizes.edges) text += fmt::format("n{} -> n{}\n", from, to);
  return text + "}\n";
}

class PlainReader {
 public:
  PlainReader(const std::string& text, const GraphSizes& sizes) : in_(text), sizes_(sizes) {
    in_.imbue(std::locale::classic());
    places_.centres.resize(sizes.widths.size());
    places_.edges.resize(sizes.edges.size());
    for (size_t e = 0; e < sizes.edges.size(); ++e) open_[sizes.edges[e]].push_back(e);
  }

  std::optional<GraphPlaces> Read() {
    std::string line;
    size_t nodes = 0, edges = 0;
    while (std::getline(in_, line)) {
      std::istringstream words(line);
      words.imbue(std::locale::classic());
      std::string what;
      words >> what;
      if (what == "graph" && !Graph(words)) return std::nullopt;
      if (what == "node" && (++nodes, !Node(words))) return std::nullopt;
      if (what == "edge" && (++edges, !Edge(words))) return std::nullopt;
      if (what != "stop") continue;
      if (nodes != sizes_.widths.size() || edges != sizes_.edges.size()) return std::nullopt;
      return std::move(places_);
    }
    return std::nullopt;
  }

 private:
  static bool Number(std::istream& words, double* value) {
    return static_cast<bool>(words >> *value) && std::isfinite(*value) && std::abs(*value) < 1e6;
  }

  bool Graph(std::istream& words) {
    double scale = 0;
    if (!Number(words, &scale) || !Number(words, &places_.width) ||
        !Number(words, &places_.height)) {
      return false;
    }
    places_.width *= kPixels;
    places_.height *= kPixels;
    return true;
  }

  // Reads a name such as "n12". Returns false if there is no box 12.
  bool Box(std::istream& words, size_t* box) const {
    char letter = 0;
    return static_cast<bool>(words >> letter >> *box) && letter == 'n' &&
           *box < sizes_.widths.size();
  }

  bool Place(std::istream& words, Point* point) const {
    if (!Number(words, &point->x) || !Number(words, &point->y)) return false;
    point->x *= kPixels;
    point->y = places_.height - point->y * kPixels;
    return true;
  }

  bool Node(std::istream& words) {
    size_t box = 0;
    return Box(words, &box) && Place(words, &places_.centres[box]);
  }

  bool Edge(std::istream& words) {
    size_t from = 0, to = 0, count = 0;
    if (!Box(words, &from) || !Box(words, &to) || !(words >> count)) return false;
    auto& open = open_[{from, to}];
    if (open.empty() || count < 4 || count > 10000 || count % 3 != 1) return false;
    std::vector<Point>& spline = places_.edges[open.back()];
    open.pop_back();
    spline.resize(count);
    for (Point& point : spline) {
      if (!Place(words, &point)) return false;
    }
    return true;
  }

  std::istringstream in_;
  const GraphSizes& sizes_;
  GraphPlaces places_;
  std::map<std::pair<size_t, size_t>, std::vector<size_t>> open_;  // edges that are not placed yet
};

}  // namespace

std::optional<GraphPlaces> ReadPlainPlaces(const std::string& text, const GraphSizes& sizes) {
  return PlainReader(text, sizes).Read();
}

std::optional<GraphPlaces> PlaceByGraphviz(const GraphSizes& sizes) {
  const std::string text = RunDot(DotText(sizes));
  return text.empty() ? std::nullopt : ReadPlainPlaces(text, sizes);
}

}  // namespace kvlift::html
