#include "session/cpu_backend.hpp"

#include <utility>

namespace kolo::session {

/// MPI is active while it lives.
class CpuBackend::MpiExecution : public backend::Execution {
 public:
  MpiExecution(std::unique_ptr<backend::Execution> execution, transport::MpiActivity& activity)
      : execution_(std::move(execution)), activity_(activity) {
    activity_.begin();
  }
  ~MpiExecution() override { activity_.end(); }
  MpiExecution(const MpiExecution&) = delete;
  MpiExecution& operator=(const MpiExecution&) = delete;

  [[nodiscard]] backend::Progress step() override { return execution_->step(); }
  [[nodiscard]] backend::Awaited waits_for() const override { return execution_->waits_for(); }

 private:
  std::unique_ptr<backend::Execution> execution_;
  transport::MpiActivity& activity_;
};

void CpuBackend::use_memory_everywhere(const std::vector<int>& node_of) {
  between_hosts_.emplace(data_, node_of, memory_->arena());
}

void CpuBackend::choose_way(HostAllreduce choice) {
  if (!between_hosts_) return;
  using backend::hierarchical::Way;
  using backend::hierarchical::Ways;
  switch (choice) {
    case HostAllreduce::automatic: return between_hosts_->try_ways();
    case HostAllreduce::direct: return between_hosts_->use(Ways());
    case HostAllreduce::ring: return between_hosts_->use(Ways(Way::ring));
    case HostAllreduce::doubling: return between_hosts_->use(Ways(Way::doubling));
  }
}

backend::Backend& CpuBackend::network_for(const backend::Batch& batch) {
  if (between_hosts_ && between_hosts_->can_execute(batch)) return *between_hosts_;
  return mpi_;
}

std::unique_ptr<backend::Execution> CpuBackend::start(backend::Batch batch) {
  if (memory_ != nullptr && memory_->can_execute(batch)) return memory_->start(std::move(batch));
  return std::make_unique<MpiExecution>(network_for(batch).start(std::move(batch)), activity_);
}

}  // namespace kolo::session
