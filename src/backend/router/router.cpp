// SPDX-License-Identifier: Apache-2.0
#include "backend/router/router.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "backend/batch.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

bool on_gpu(const Batch& batch) { return batch.kind.device.type == DeviceType::cuda; }

template <std::size_t size>
void put(std::string_view text, std::array<char, size>& into) {
  std::copy_n(text.begin(), std::min(text.size(), size - 1), into.begin());
}

}  // namespace

void CpuRouter::use_hosts(const std::vector<int>& node_of) {
  inter_node_.emplace(*messenger_, node_of, memory_->arena());
}

Route CpuRouter::route_of(const Batch& batch) const {
  if (memory_ != nullptr && memory_->can_execute(batch) && !(mpi_ && is_adasum(batch)))
    return Route::shared_memory;
  if (inter_node_ && inter_node_->can_execute(batch)) return Route::inter_node;
  return Route::mpi;
}

std::unique_ptr<Execution> CpuRouter::start(Batch batch) {
  const Route route = route_of(batch);
  if (route == Route::shared_memory) return memory_->start(std::move(batch));
  if (!mpi_)
    throw BackendError(
        fmt::format("\"{}\" needs a network, and this session has none", to_string(batch.kind)));
  return route == Route::inter_node ? inter_node_->start(std::move(batch))
                                    : mpi_->start(std::move(batch));
}

std::unique_ptr<Execution> CpuRouter::prepare(const Batch& batch) {
  return route_of(batch) == Route::shared_memory ? memory_->prepare(batch) : nullptr;
}

/// A batch of GPU tensors, or a batch that is held back. During steps on GPU tensors, the GPU is
/// the thread's current device, and errors name the rank.
class Router::Deferred : public Execution {
 public:
  Deferred(Router& owner, Batch batch)
      : owner_(owner), on_gpu_(backend::on_gpu(batch)), batch_(std::move(batch)) {
    if (!on_gpu_) return;
    ++owner_.gpu_executions_;
    ++owner_.to_launch_;
  }
  ~Deferred() override {
    std::erase(owner_.held_back_, this);
    if (on_gpu_) --owner_.gpu_executions_;
    count_launched();
    // An abandoned batch leaves kernels on the stream that only an abort ends.
    if (on_gpu_ && execution_ != nullptr && !done_ && owner_.nccl_) owner_.nccl_->abort();
  }
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  [[nodiscard]] const Batch& batch() const { return batch_; }

  /// Starts the batch. An exception is kept for the next step.
  void start() {
    attempt([this] { execution_ = owner_.start_now(std::move(batch_)); });
  }
  /// Called in a `catch` block: keeps the exception in flight for the next step.
  void fail() {
    attempt([] { throw; });
  }
  [[nodiscard]] bool failed() const { return error_ != nullptr; }

  Progress step() override {
    bool moved = false;
    if (execution_ == nullptr && !error_) moved = owner_.advance();
    if (error_) std::rethrow_exception(error_);
    if (execution_ == nullptr) return moved ? Progress::moved : Progress::waiting;
    Progress progress = Progress::waiting;
    run([&] { progress = execution_->step(); });
    done_ = progress == Progress::done;
    if (progress == Progress::launched) count_launched();
    return progress;
  }

  [[nodiscard]] std::shared_ptr<gpu::Completion> completion() const override {
    return execution_ != nullptr ? execution_->completion() : nullptr;
  }

  [[nodiscard]] Awaited waits_for() const override {
    if (execution_ != nullptr) return execution_->waits_for();
    if (owner_.agreement_) return owner_.agreement_->infos.waits_for();
    return {};
  }

 private:
  void count_launched() {
    if (on_gpu_ && !std::exchange(is_launched_, true)) --owner_.to_launch_;
  }
  template <typename Work>
  void attempt(Work work) {
    try {
      run(work);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  template <typename Work>
  void run(Work work) {
    if (!on_gpu_) return work();
    try {
      const gpu::DeviceGuard guard(*owner_.gpu_.runtime(), owner_.gpu_.index());
      work();
    } catch (const BackendError& error) {
      if (owner_.nccl_) owner_.nccl_->abort();
      throw BackendError(
          fmt::format("on rank {}, cuda:{}: {}", owner_.rank_, owner_.gpu_.index(), error.what()));
    }
  }

  Router& owner_;
  bool on_gpu_;
  Batch batch_;  // empty once it has started
  std::unique_ptr<Execution> execution_{};
  std::exception_ptr error_{};
  bool is_launched_ = false;  // or over
  bool done_ = false;
};

/// The thread writes all members and then sets `is_done`. The release store pairs with the acquire
/// load in `advance_first`, after which the driver may read them.
struct Router::Preparation {
  std::shared_ptr<nccl::Library> library{};
  std::string why_not{};
  nccl::UniqueId unique_id{};
  std::exception_ptr error{};
  std::atomic<bool> is_done{false};

  /// `find` is empty if an earlier preparation has looked for NCCL.
  void prepare(gpu::Runtime& runtime, int device, const FindLibrary& find, bool needs_id) {
    try {
      const gpu::DeviceGuard guard(runtime, device);
      if (find) look_for_nccl(find);
      if (library != nullptr && needs_id) unique_id = library->make_unique_id();
    } catch (...) {
      error = std::current_exception();
    }
    is_done.store(true, std::memory_order_release);
  }

 private:
  void look_for_nccl(const FindLibrary& find) {
    try {
      library = find();
      if (library == nullptr) why_not = "this build of Kolo is without NCCL";
    } catch (const BackendError& failure) {
      why_not = failure.what();
    }
  }
};

Router::~Router() {
  if (!preparer_.stop(options_.exit_timeout))
    log(LogLevel::warning, "an NCCL call does not return; its thread is leaked");
}

std::unique_ptr<Execution> Router::start(Batch batch) {
  if (!on_gpu(batch) && held_back_.empty()) return cpu_.start(std::move(batch));
  auto deferred = std::make_unique<Deferred>(*this, std::move(batch));
  held_back_.push_back(deferred.get());
  static_cast<void>(advance());
  return deferred;
}

std::unique_ptr<Execution> Router::prepare(const Batch& batch) {
  // This batch must not overtake batches that are held back.
  return on_gpu(batch) || !held_back_.empty() ? nullptr : cpu_.prepare(batch);
}

/// Waits for the GPU after the aborts, for at most `exit_timeout`. Otherwise launched work could
/// write to a tensor that the program owns again.
void Router::abandon() noexcept {
  if (nccl_) nccl_->abort();
  cpu_.abandon();
  if (gpu_executions_ == 0) return;
  try {
    gpu_.finish(options_.exit_timeout);
  } catch (const std::exception& error) {  // a GPU that fails writes nothing
    log(LogLevel::warning, error.what());
  }
}

bool Router::advance() {
  try {
    return advance_first();
  } catch (...) {
    // The error belongs to the batch that is being prepared, whichever batch's step this is.
    held_back_.front()->fail();
    return true;
  }
}

bool Router::advance_first() {
  bool moved = false;
  // Batches start strictly in their order, which is the same on all ranks.
  while (!held_back_.empty() && !held_back_.front()->failed()) {
    if (agreement_) {
      const Progress progress = agreement_->infos.step();
      if (progress != Progress::done) return moved || progress == Progress::moved;
      end_agreement();
    } else if (preparation_ != nullptr) {
      if (!preparation_->is_done.load(std::memory_order_acquire)) return moved;
      begin_agreement(held_back_.front()->batch());
    } else if (const Batch& batch = held_back_.front()->batch();
               on_gpu(batch) && !paths_.contains(batch.ranks)) {
      begin_to_prepare(batch);
    } else {
      Deferred* const next = held_back_.front();
      held_back_.pop_front();
      next->start();
    }
    moved = true;
  }
  return moved;
}

/// Prepares in a thread: the driver must not wait for dlopen, which loads hundreds of megabytes, or
/// for ncclGetUniqueId, which searches for networks and opens a socket.
void Router::begin_to_prepare(const Batch& batch) {
  preparation_ = std::make_shared<Preparation>();
  FindLibrary find;
  if (!std::exchange(looked_for_nccl_, true)) {
    if (settings_.gpu_operations == GpuOperations::staged)
      why_no_nccl_ = "gpu_operations is staged";
    else
      find = find_library_;
  } else if (nccl_) {
    preparation_->library = nccl_->shared_library();
  }
  const bool needs_id = batch.ranks.front() == rank_ && !(nccl_ && nccl_->has_parent(batch.ranks));
  preparer_.post(
      [preparation = preparation_, find, needs_id, runtime = gpu_.runtime(),
       device = gpu_.index()] { preparation->prepare(*runtime, device, find, needs_id); });
}

void Router::begin_agreement(const Batch& batch) {
  const gpu::DeviceGuard guard(*gpu_.runtime(), gpu_.index());
  const std::shared_ptr<Preparation> done = std::exchange(preparation_, nullptr);
  if (done->error) std::rethrow_exception(done->error);
  if (!done->why_not.empty()) why_no_nccl_ = done->why_not;
  if (done->library != nullptr && !nccl_)
    nccl_.emplace(done->library, gpu_, cpu_, rank_, settings_, options_.exit_timeout);
  nccl::GpuInfo info = own_info();
  info.unique_id = done->unique_id;
  agreement_.emplace(cpu_, batch, info);
}

void Router::end_agreement() {
  const gpu::DeviceGuard guard(*gpu_.runtime(), gpu_.index());
  const std::vector<int> ranks = agreement_->ranks;
  std::vector<nccl::GpuInfo> infos;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    infos.push_back(agreement_->infos.get<nccl::GpuInfo>(i));
  agreement_.reset();
  const nccl::GpuPath path = nccl::select_path(ranks, infos);
  const std::string names = to_string(RankSet::of(ranks));
  if (path.nccl) {
    const int version = nccl_->library().version();
    log(LogLevel::info, fmt::format("GPU tensors of ranks {} use NCCL {}.{}.{}", names,
                                    version / 10000, version / 100 % 100, version % 100));
    nccl_->connect(ranks, infos.front().unique_id);
  } else if (settings_.gpu_operations == GpuOperations::nccl) {
    throw BackendError(fmt::format("gpu_operations is nccl, but ranks {} cannot use NCCL: {}",
                                   names, path.why_not));
  } else {
    // Staging is far slower than NCCL. One rank warns, unless the user asked for it.
    const bool warns = settings_.gpu_operations != GpuOperations::staged && ranks.front() == rank_;
    log(warns ? LogLevel::warning : LogLevel::info,
        fmt::format("GPU tensors of ranks {} are staged through host memory: {}", names,
                    path.why_not));
  }
  paths_.emplace(ranks, path);
}

nccl::GpuInfo Router::own_info() {
  nccl::GpuInfo info;
  info.uuid = gpu_.properties().uuid;
  info.device = gpu_.index();
  put(gpu_.properties().pci_bus_id, info.pci_bus_id);
  put(why_no_nccl_, info.why_no_nccl);
  if (!nccl_) return info;
  info.nccl_version = nccl_->library().version();
  info.may_share_gpu = nccl_->library().allows_shared_gpus() ? 1 : 0;
  return info;
}

std::unique_ptr<Execution> Router::start_now(Batch batch) {
  if (!on_gpu(batch)) return cpu_.start(std::move(batch));
  if (paths_.at(batch.ranks).nccl && nccl::NcclBackend::can_execute(batch))
    return nccl_->start(std::move(batch));
  return gpu::make_staged(gpu_, cpu_, std::move(batch), rank_, options_.chunk_bytes);
}

}  // namespace kolo::internal::backend
