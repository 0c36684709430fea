// One operation submitted on this rank, from the call until its future is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "backend/backend.hpp"
#include "base/descriptor.hpp"
#include "negotiation/key.hpp"

namespace kolo::session {
class Engine;
}

namespace kolo::detail {

/// Shared by its future and the session. Done once; what is written before is seen by who sees
/// done.
class Operation {
 public:
  Operation(std::shared_ptr<session::Engine> engine, negotiation::Key key, Descriptor descriptor,
            backend::Member member)
      : key_(std::move(key)),
        descriptor_(std::move(descriptor)),
        member_(member),
        engine_(std::move(engine)) {}

  [[nodiscard]] const negotiation::Key& key() const { return key_; }
  [[nodiscard]] const Descriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] const backend::Member& member() const { return member_; }
  [[nodiscard]] const std::shared_ptr<session::Engine>& engine() const { return engine_; }

  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Null if it succeeded. Only once done.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

  /// By the driver, once.
  void finish(std::exception_ptr error) {
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
  }

 private:
  negotiation::Key key_;
  Descriptor descriptor_;
  backend::Member member_;
  std::shared_ptr<session::Engine>
      engine_;  // lives as long as an operation may have to be waited for
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
};

}  // namespace kolo::detail
