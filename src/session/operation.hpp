// One operation submitted on this rank, from the call until its future is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "base/descriptor.hpp"
#include "diagnostics/recorder.hpp"
#include "negotiation/key.hpp"

namespace kolo::session {

class Engine;

/// What a user asks for.
struct Submission {
  std::string name{};  // "": none
  negotiation::SetId set = negotiation::world_set;
  Descriptor descriptor{};
  std::vector<backend::Member> members{};         // one for each tensor
  std::function<void(std::int64_t)> on_answer{};  // by the driver, before the operation is done
};

}  // namespace kolo::session

namespace kolo::detail {

/// Shared by its future and the session. Done once; what is written before is seen by who sees
/// done.
class Operation {
 public:
  Operation(std::shared_ptr<session::Engine> engine, negotiation::Key key,
            session::Submission submission)
      : key_(std::move(key)), submission_(std::move(submission)), engine_(std::move(engine)) {}

  [[nodiscard]] const negotiation::Key& key() const { return key_; }
  [[nodiscard]] const Descriptor& descriptor() const { return submission_.descriptor; }
  [[nodiscard]] const std::vector<backend::Member>& members() const { return submission_.members; }
  [[nodiscard]] const std::shared_ptr<session::Engine>& engine() const { return engine_; }

  /// The driver's.
  [[nodiscard]] diagnostics::Tag& tag() { return tag_; }
  [[nodiscard]] const diagnostics::Tag& tag() const { return tag_; }

  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Null if it succeeded. Only once done.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

  /// By the driver, once. `answer` is of operations that are answered by a number.
  void finish(std::exception_ptr error, std::int64_t answer = 0) {
    error_ = std::move(error);
    if (!error_ && submission_.on_answer) submission_.on_answer(answer);
    done_.store(true, std::memory_order_release);
  }

 private:
  negotiation::Key key_;
  session::Submission submission_;
  std::shared_ptr<session::Engine>
      engine_;  // lives as long as an operation may have to be waited for
  std::exception_ptr error_;
  diagnostics::Tag tag_{};
  std::atomic<bool> done_{false};
};

}  // namespace kolo::detail
