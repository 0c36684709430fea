// Which transport carries a control message between CPUs.
#pragma once

#include <vector>

#include "transport/transport.hpp"

namespace kolo::session {

/// Through memory to ranks of this host, through the network to others.
class CpuTransport : public transport::Transport {
 public:
  /// `network` may be null if there are no others. Both outlive this.
  explicit CpuTransport(transport::Transport* network) : network_(network) {}

  /// `neighbours`: the ranks that are reached so, ascending.
  void use_memory(transport::Transport& memory, std::vector<int> neighbours);

  void send(int peer, transport::Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override;
  [[nodiscard]] const Failure* loss() const override;

 private:
  transport::Transport* network_;
  transport::Transport* memory_ = nullptr;
  std::vector<int> neighbours_{};
};

}  // namespace kolo::session
