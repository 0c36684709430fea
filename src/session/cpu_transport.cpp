#include "session/cpu_transport.hpp"

#include <algorithm>
#include <utility>

namespace kolo::session {

void CpuTransport::use_memory(transport::Transport& memory, std::vector<int> neighbours) {
  memory_ = &memory;
  neighbours_ = std::move(neighbours);
}

void CpuTransport::send(int peer, transport::Message message) {
  transport::Transport* const way =
      std::ranges::binary_search(neighbours_, peer) ? memory_ : network_;
  way->send(peer, std::move(message));
}

bool CpuTransport::poll(const Receiver& receive) {
  bool moved = memory_ != nullptr && memory_->poll(receive);
  if (network_ != nullptr) moved |= network_->poll(receive);
  return moved;
}

bool CpuTransport::flushed() const {
  return (memory_ == nullptr || memory_->flushed()) && (network_ == nullptr || network_->flushed());
}

const Failure* CpuTransport::loss() const {
  return network_ == nullptr ? nullptr : network_->loss();
}

}  // namespace kolo::session
