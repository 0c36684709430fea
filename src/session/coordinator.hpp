// One turn of the crank: moves messages, negotiates, executes batches and finishes operations.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "negotiation/negotiator.hpp"
#include "session/links.hpp"
#include "session/operation_queue.hpp"
#include "session/recording.hpp"

namespace kolo::session {

/// Used by one thread at a time: by who holds the driver's token. Nothing here blocks.
class Coordinator {
 public:
  Coordinator(const negotiation::NegotiatorOptions& options, OperationQueue& queue, Links& links,
              Recording& recording);

  /// `path` as for kolo::write_flight_record.
  std::string write_flight_record(const std::string& path) {
    return recording_.write(path, "the program asked for it", pending());
  }

  /// Does what can be done now. True if anything moved.
  bool turn();

  /// This rank leaves, after what it has submitted. Only the first call counts.
  void leave(bool clean, const std::string& reason);

  /// True while an answer or a batch is awaited: turns should come soon.
  [[nodiscard]] bool outstanding() const { return negotiator_.outstanding() || executing(); }
  /// True while batches run: they move only during turns.
  [[nodiscard]] bool executing() const { return !running_.empty(); }
  /// True while other ranks' progress with data, or with a plan, is awaited.
  [[nodiscard]] bool awaits_data() const { return executing() || negotiator_.awaits_board(); }
  /// A turn is due then, even if nothing has happened.
  [[nodiscard]] std::chrono::steady_clock::time_point deadline() const {
    return negotiator_.deadline();
  }
  /// How many operations were submitted so far.
  [[nodiscard]] std::uint64_t submissions() const { return submissions_; }
  /// True once every other rank has been sent word that this one left, or cannot be.
  [[nodiscard]] bool departed() const {
    return failed() || (negotiator_.left() && transport_.flushed());
  }
  /// True once all ranks have left and none needs this one.
  [[nodiscard]] bool ended() const {
    return failed() || (negotiator_.ended() && transport_.flushed() && !executing());
  }
  /// True after an error from which there is no way back: all operations fail with it.
  [[nodiscard]] bool failed() const { return failure_ != nullptr; }

 private:
  struct Running {
    std::unique_ptr<backend::Execution> execution;
    std::vector<detail::Operation*> operations;
    negotiation::SetId set;
    std::uint64_t sequence;
  };

  /// What is submitted and not done.
  [[nodiscard]] Recording::Pending pending() const;
  void record_faults(const negotiation::Actions& actions);

  bool submit();
  negotiation::Ticket keep(detail::Operation* operation);
  bool negotiate();
  bool execute();
  void start(const negotiation::Execute& execute);
  void finish(detail::Operation* operation, std::exception_ptr error, std::int64_t answer = 0);
  detail::Operation* take_operation(negotiation::Ticket ticket);
  void fail_everything(std::exception_ptr failure, const std::string& reason);
  /// What has to be looked after now and then.
  void look();

  negotiation::Negotiator negotiator_;
  OperationQueue& queue_;
  Links& links_;
  transport::Transport& transport_;
  Recording& recording_;
  std::vector<detail::Operation*> taken_;        // from the queue just now
  std::vector<detail::Operation*> negotiating_;  // by ticket; null where it is free
  std::vector<negotiation::Ticket> free_tickets_;
  std::deque<Running> running_;
  std::uint64_t submissions_ = 0;
  std::chrono::steady_clock::time_point now_{};        // of this turn
  std::uint64_t plans_ = 0;                            // that were begun
  std::chrono::steady_clock::time_point next_look_{};  // when the negotiator is told the time again
  std::vector<int> lost_{};  // at the last look: what they had sent before has been read since
  bool leaving_ = false;
  std::exception_ptr failure_;
};

}  // namespace kolo::session
