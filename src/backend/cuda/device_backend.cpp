#include "backend/cuda/device_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::backend::cuda {
namespace {

bool on_gpu(const Batch& batch) { return batch.kind.device.type == DeviceType::cuda; }

template <std::size_t size>
void put(std::string_view text, std::array<char, size>& into) {
  std::copy_n(text.begin(), std::min(text.size(), size - 1), into.begin());
}

}  // namespace

/// A batch of GPU tensors, or one that is held back. What is done for the former has the GPU as the
/// thread's current device, and says on which rank it fails.
class DeviceBackend::Deferred : public Execution {
 public:
  Deferred(DeviceBackend& owner, Batch batch)
      : owner_(owner), on_gpu_(cuda::on_gpu(batch)), batch_(std::move(batch)) {
    if (on_gpu_) ++owner_.executions_;
  }
  ~Deferred() override {
    std::erase(owner_.held_back_, this);
    if (on_gpu_) --owner_.executions_;
    if (on_gpu_ && execution_ != nullptr && !done_ && owner_.nccl_) owner_.nccl_->abort();
  }
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  [[nodiscard]] const Batch& batch() const { return batch_; }

  /// What it throws is kept for its next step.
  void start() {
    try {
      run([this] { execution_ = owner_.start_now(std::move(batch_)); });
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  Progress step() override {
    bool moved = false;
    if (execution_ == nullptr && !error_) run([&] { moved = owner_.advance(); });
    if (error_) std::rethrow_exception(error_);
    if (execution_ == nullptr) return moved ? Progress::moved : Progress::waiting;
    Progress progress = Progress::waiting;
    run([&] { progress = execution_->step(); });
    done_ = progress == Progress::done;
    return progress;
  }

  [[nodiscard]] Awaited waits_for() const override {
    if (execution_ != nullptr) return execution_->waits_for();
    if (owner_.meeting_) return owner_.meeting_->exchange.waits_for();
    return {};
  }

 private:
  template <typename Work>
  void run(Work work) {
    if (!on_gpu_) return work();
    try {
      const DeviceGuard guard(*owner_.gpu_.runtime(), owner_.gpu_.index());
      work();
    } catch (const BackendError& error) {
      if (owner_.nccl_) owner_.nccl_->abort();
      throw BackendError(
          fmt::format("on rank {}, cuda:{}: {}", owner_.rank_, owner_.gpu_.index(), error.what()));
    }
  }

  DeviceBackend& owner_;
  bool on_gpu_;
  Batch batch_;  // until it is started
  std::unique_ptr<Execution> execution_{};
  std::exception_ptr error_{};
  bool done_ = false;
};

DeviceBackend::~DeviceBackend() = default;

std::unique_ptr<Execution> DeviceBackend::start(Batch batch) {
  if (!on_gpu(batch) && held_back_.empty()) return cpu_.start(std::move(batch));
  auto deferred = std::make_unique<Deferred>(*this, std::move(batch));
  held_back_.push_back(deferred.get());
  static_cast<void>(advance());
  return deferred;
}

bool DeviceBackend::advance() {
  bool moved = false;
  while (!held_back_.empty()) {
    if (meeting_) {
      const Progress progress = meeting_->exchange.step();
      if (progress != Progress::done) return moved || progress == Progress::moved;
      end_meeting();
    } else if (must_meet(held_back_.front()->batch())) {
      begin_meeting(held_back_.front()->batch());
    } else {
      Deferred* const next = held_back_.front();
      held_back_.pop_front();
      next->start();
    }
    moved = true;
  }
  return moved;
}

bool DeviceBackend::must_meet(const Batch& batch) const {
  return on_gpu(batch) && !paths_.contains(batch.ranks);
}

void DeviceBackend::begin_meeting(const Batch& batch) {
  const DeviceGuard guard(*gpu_.runtime(), gpu_.index());
  find_nccl();
  meeting_.emplace(cpu_, batch, to_bytes(own_card(batch)));
}

void DeviceBackend::end_meeting() {
  const DeviceGuard guard(*gpu_.runtime(), gpu_.index());
  const std::vector<int> ranks = meeting_->ranks;
  std::vector<Card> cards;
  for (std::size_t i = 0; i < ranks.size(); ++i) cards.push_back(to_card(meeting_->exchange.of(i)));
  meeting_.reset();
  const Path path = choose_path(ranks, cards);
  const std::string who = to_string(RankSet::of(ranks));
  last_path_ = path.nccl ? "nccl" : "staged: " + path.why_not;
  if (path.nccl) {
    log(LogLevel::info, fmt::format("GPU tensors of the ranks {} travel over NCCL", who));
    nccl_->connect(ranks, cards.front().unique_id);
  } else if (options_.operations == GpuOperations::nccl) {
    throw BackendError(
        fmt::format("gpu_operations is nccl, but NCCL cannot be used by the ranks "
                    "{}: {}",
                    who, path.why_not));
  } else {
    log(LogLevel::info,
        fmt::format("GPU tensors of the ranks {} travel through the memory of their hosts: {}", who,
                    path.why_not));
  }
  paths_.emplace(ranks, path);
}

void DeviceBackend::find_nccl() {
  if (std::exchange(looked_for_nccl_, true)) return;
  if (options_.operations == GpuOperations::staged) {
    why_no_nccl_ = "gpu_operations is staged";
    return;
  }
  try {
    if (std::shared_ptr<nccl::Library> library = find_library_())
      nccl_.emplace(std::move(library), gpu_, cpu_, rank_, options_.nccl);
    else
      why_no_nccl_ = "this build of Kolo is without NCCL";
  } catch (const BackendError& error) {
    why_no_nccl_ = error.what();
  }
}

Card DeviceBackend::own_card(const Batch& batch) {
  Card card;
  card.uuid = gpu_.properties().uuid;
  card.device = gpu_.index();
  put(gpu_.properties().pci_bus_id, card.pci_bus_id);
  put(why_no_nccl_, card.why_no_nccl);
  if (!nccl_) return card;
  card.nccl_version = nccl_->library().version();
  if (batch.ranks.front() == rank_ && !nccl_->has_parent(batch.ranks))
    card.unique_id = nccl_->library().make_unique_id();
  return card;
}

std::unique_ptr<Execution> DeviceBackend::start_now(Batch batch) {
  if (!on_gpu(batch)) return cpu_.start(std::move(batch));
  if (paths_.at(batch.ranks).nccl && nccl::NcclBackend::can_execute(batch))
    return nccl_->start(std::move(batch));
  return make_staged(gpu_, cpu_, std::move(batch), rank_, options_.chunk_bytes);
}

}  // namespace kolo::backend::cuda
