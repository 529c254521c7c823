#include "exec/session/session.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/status.h"
#include "exec/kernels/common/pitch.h"
#include "exec/memory/budget.h"
#include "exec/memory/memory.h"
#include "exec/memory/team.h"
#include "exec/session/frame.h"
#include "exec/session/program_impl.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

struct CacheState {
  View value;  // absent until set; its data is in `buffer`
  Buffer buffer;
  bool replaced = false;  // the fed value of this step is in the pair's other buffer
};

absl::Status CopyInto(const View& value, int64_t pitch, Buffer& buffer, View& copy) {
  if (value.bytes() < 0) return absl::InvalidArgumentError("a cache is a tensor of numbers");
  KV_RETURN_IF_ERROR(buffer.Reserve(SpannedBytes(value.type, value.shape, pitch)));
  View result = value;
  result.data = buffer.data();
  result.pitch = pitch;
  CopyView(value, result);
  copy = std::move(result);  // `copy` may be `value`
  return absl::OkStatus();
}

// Returns the pitch for a new value of a cache, given the view `present` that it replaces.
int64_t PitchFor(const PairPlan& pair, const View& value, const View& present) {
  if (!pair.apart || value.shape.size() < 3 || ElementBits(value.type) % 8 != 0) return 0;
  const auto heads = absl::MakeSpan(value.shape).subspan(0, value.shape.size() - 2);
  if (std::all_of(heads.begin(), heads.end(), [](int64_t dim) { return dim == 1; })) return 0;
  const bool keeps = present.pitch > 0 && present.shape.back() == value.shape.back() &&
                     RoomyPitch(value.shape, 0) < present.pitch;
  return keeps ? present.pitch : GrowingPitch(value.shape);
}

}  // namespace

struct Session::Impl {
  explicit Impl(std::shared_ptr<const Program> compiled)
      : program(std::move(compiled)), frame(program), graph(program->graph()) {
    const Plan& plan = program->impl().plan;
    caches.resize(plan.pairs.size());
    next.resize(plan.pairs.size());
    rooms.resize(plan.pairs.size());
    results.resize(plan.pairs.size());
    inputs.resize(graph.graph_inputs().size());
    pair_of_input.assign(inputs.size(), -1);
    pair_of_output.assign(graph.graph_outputs().size(), -1);
    for (size_t p = 0; p < plan.pairs.size(); ++p) {
      pair_of_input[plan.pairs[p].input_index] = static_cast<int>(p);
      pair_of_output[plan.pairs[p].output_index] = static_cast<int>(p);
    }
  }

  absl::Status CheckInput(int i, const View& value) const;
  absl::Status BindInputs(const Feeds& feeds);
  absl::Status BindCache(int pair, const Tensor* fed, View& input);
  bool IsFetched(ValueId v) const;
  absl::Status RunFrame();
  absl::Status Execute(Fetches* fetches);
  absl::Status StoreCaches();
  void CommitCaches(Fetches* fetches);

  std::shared_ptr<const Program> program;
  Frame frame;
  const Graph& graph;
  Observer observer;
  bool wants_team = false;
  std::vector<int> pair_of_input, pair_of_output;  // -1: not a cache
  std::vector<CacheState> caches;                  // by pair
  std::vector<Buffer> next;                        // by pair: the second buffer
  std::vector<CacheRoom> rooms;  // by pair: the buffers of `caches`, as the frame takes them
  std::vector<View> results;     // by pair: the present of this step
  std::vector<View> inputs;      // by graph input
  int64_t copied = 0;            // bytes of caches that the last step copied
};

absl::Status Session::Impl::CheckInput(int i, const View& value) const {
  const ValueId v = graph.graph_inputs()[i];
  const TensorType& type = graph.type(v);
  const auto bad = [&](const std::string& text) {
    return absl::InvalidArgumentError(fmt::format("input \"{}\": {}", graph.name(v), text));
  };
  if (value.absent()) return bad("the tensor is empty");
  KV_RETURN_IF_ERROR(CheckElements(value.shape));
  if (type.elem_type != 0 && type.elem_type != value.type) {
    return bad(fmt::format("has type {}, {} declared", ElementTypeName(value.type),
                           ElementTypeName(type.elem_type)));
  }
  if (!type.shape.has_value()) return absl::OkStatus();
  bool fits = type.shape->size() == value.shape.size();
  for (size_t d = 0; fits && d < value.shape.size(); ++d) {
    const std::optional<int64_t>& declared = (*type.shape)[d].value;
    fits = !declared.has_value() || *declared == value.shape[d];
  }
  if (fits) return absl::OkStatus();
  std::string declared;
  for (const Dim& dim : *type.shape) {
    declared += declared.empty() ? "" : ", ";
    declared += dim.value.has_value() ? fmt::format("{}", *dim.value)
                : dim.param.empty()   ? "?"
                                      : dim.param;
  }
  return bad(fmt::format("has shape {}, [{}] declared", ShapeString(value.shape), declared));
}

absl::Status Session::Impl::BindCache(int pair, const Tensor* fed, View& input) {
  CacheState& cache = caches[pair];
  const PairPlan& plan = program->impl().plan.pairs[pair];
  cache.replaced = false;
  const bool same = fed != nullptr && !cache.value.absent() && fed->data() == cache.value.data &&
                    fed->view().pitch == cache.value.pitch && fed->shape() == cache.value.shape &&
                    fed->type() == cache.value.type;
  if (fed == nullptr || same) {
    if (cache.value.absent()) {
      return absl::InvalidArgumentError(
          fmt::format("cache \"{}\" has no value", plan.decision.pair.input));
    }
    input = cache.value;
    return absl::OkStatus();
  }
  if (plan.writer == kNoNode) {
    input = fed->view();
    return absl::OkStatus();
  }
  // The cache is written in place, so the step works on a copy: the old value stays valid if it
  // fails.
  KV_RETURN_IF_ERROR(CopyInto(fed->view(), 0, next[pair], input));
  cache.replaced = true;
  return absl::OkStatus();
}

absl::Status Session::Impl::BindInputs(const Feeds& feeds) {
  size_t used = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = graph.name(graph.graph_inputs()[i]);
    const auto feed = feeds.find(name);
    const Tensor* fed = feed == feeds.end() ? nullptr : &feed->second;
    used += fed != nullptr;
    if (fed != nullptr) {
      KV_RETURN_IF_ERROR(CheckInput(static_cast<int>(i), fed->view()));
    }
    if (pair_of_input[i] >= 0) {
      KV_RETURN_IF_ERROR(BindCache(pair_of_input[i], fed, inputs[i]));
    } else if (fed == nullptr) {
      return absl::InvalidArgumentError(fmt::format("input \"{}\" is missing", name));
    } else {
      inputs[i] = fed->view();
    }
  }
  if (used == feeds.size()) return absl::OkStatus();
  for (const auto& [name, tensor] : feeds) {
    const ValueId v = graph.Find(name);
    const auto known = graph.graph_inputs();
    if (v == kNoValue || std::find(known.begin(), known.end(), v) == known.end()) {
      return absl::InvalidArgumentError(fmt::format("\"{}\" is no graph input", name));
    }
  }
  return absl::OkStatus();
}

// Copies each present that is elsewhere into one of its pair's buffers. Overwrites no cache.
absl::Status Session::Impl::StoreCaches() {
  copied = 0;
  for (size_t p = 0; p < caches.size(); ++p) {
    const PairPlan& pair = program->impl().plan.pairs[p];
    results[p] = frame.output_view(pair.output_index);
    if (results[p].absent()) return absl::InternalError("cache output was never computed");
    const std::byte* data = results[p].data;
    const bool own = data == caches[p].buffer.data() || data == next[p].data();
    if (!own || data == nullptr) {
      copied += results[p].bytes();
      KV_RETURN_IF_ERROR(CopyInto(results[p], 0, next[p], results[p]));
    }
  }
  return absl::OkStatus();
}

void Session::Impl::CommitCaches(Fetches* fetches) {
  for (size_t p = 0; p < caches.size(); ++p) {
    CacheState& cache = caches[p];
    const PairPlan& pair = program->impl().plan.pairs[p];
    if (results[p].data == next[p].data()) {
      copied += inputs[pair.input_index].bytes();
      std::swap(cache.buffer, next[p]);
    }
    cache.value = results[p];
    if (!program->options().fetch_caches) continue;
    (*fetches)[graph.name(pair.present)] = Tensor::Wrap(cache.value, cache.buffer.memory());
  }
}

bool Session::Impl::IsFetched(ValueId v) const {
  if (!graph.is_graph_output(v)) return false;
  if (program->options().fetch_caches) return true;
  const auto outputs = graph.graph_outputs();
  return pair_of_output[std::find(outputs.begin(), outputs.end(), v) - outputs.begin()] < 0;
}

// The team starts with the step if the last step made use of it. A step of small nodes needs no
// second thread.
absl::Status Session::Impl::RunFrame() {
  const int64_t before = TeamRequests();
  absl::Status status;
  for (size_t p = 0; p < caches.size(); ++p) {
    const CacheState& cache = caches[p];
    rooms[p] = {cache.buffer.data(), cache.buffer.capacity(),
                cache.value.absent() ? 0 : cache.value.bytes()};
  }
  RunWithTeam(wants_team ? program->impl().threads : 1, [&] {
    status = WithinMemory([&] { return frame.Run(inputs, absl::MakeSpan(next), observer, rooms); });
  });
  wants_team = TeamRequests() != before;
  return status;
}

absl::Status Session::Impl::Execute(Fetches* fetches) {
  KV_RETURN_IF_ERROR(RunFrame());
  for (size_t i = 0; i < pair_of_output.size(); ++i) {
    if (pair_of_output[i] >= 0) continue;
    KV_ASSIGN_OR_RETURN((*fetches)[graph.name(graph.graph_outputs()[i])],
                        frame.Output(static_cast<int>(i)));
  }
  KV_RETURN_IF_ERROR(StoreCaches());
  CommitCaches(fetches);
  return absl::OkStatus();
}

Session::Session(std::shared_ptr<const Program> program)
    : impl_(std::make_unique<Impl>(std::move(program))) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

absl::Status Session::SetCache(const std::string& input, const Tensor& value) {
  const std::vector<PairPlan>& pairs = impl_->program->impl().plan.pairs;
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].decision.pair.input != input) continue;
    KV_RETURN_IF_ERROR(impl_->CheckInput(pairs[p].input_index, value.view()));
    CacheState& cache = impl_->caches[p];
    if (value.data() != nullptr && value.data() == cache.buffer.data() &&
        value.view().pitch == cache.value.pitch) {
      cache.value = value.view();
      return absl::OkStatus();
    }
    const int64_t pitch = PitchFor(pairs[p], value.view(), cache.value);
    return CopyInto(value.view(), pitch, cache.buffer, cache.value);
  }
  return absl::NotFoundError(fmt::format("\"{}\" is no cache input", input));
}

absl::StatusOr<Tensor> Session::Cache(const std::string& input) const {
  const std::vector<PairPlan>& pairs = impl_->program->impl().plan.pairs;
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].decision.pair.input != input) continue;
    const CacheState& cache = impl_->caches[p];
    if (cache.value.absent()) {
      return absl::FailedPreconditionError(fmt::format("cache \"{}\" has no value", input));
    }
    if (cache.value.pitch == 0) return Tensor::Wrap(cache.value, cache.buffer.memory());
    Tensor dense(cache.value.type, cache.value.shape);
    CopyView(cache.value, dense.view());
    return dense;
  }
  return absl::NotFoundError(fmt::format("\"{}\" is no cache input", input));
}

absl::Status Session::Step(const Feeds& feeds, Fetches* fetches) {
  Impl& impl = *impl_;
  const StepClock clock;
  KV_RETURN_IF_ERROR(impl.BindInputs(feeds));
  // The results of the last step are released first, so that their memory can be reused.
  for (auto it = fetches->begin(); it != fetches->end();) {
    const ValueId v = impl.graph.Find(it->first);
    if (v == kNoValue || !impl.IsFetched(v)) {
      it = fetches->erase(it);
    } else {
      it->second = Tensor();
      ++it;
    }
  }
  const absl::Status status = WithinMemory([&] { return impl.Execute(fetches); });
  if (!status.ok()) impl.frame.Undo();
  return status;
}

MemoryUse Session::memory() const {
  MemoryUse use;
  impl_->frame.AddMemory(&use);
  for (size_t p = 0; p < impl_->caches.size(); ++p) {
    use.caches +=
        static_cast<int64_t>(impl_->caches[p].buffer.capacity() + impl_->next[p].capacity());
  }
  return use;
}

int64_t Session::cache_bytes_copied() const { return impl_->copied; }

void Session::set_observer(Observer observer) { impl_->observer = std::move(observer); }

}  // namespace kvlift::exec
