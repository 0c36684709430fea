// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/internode/placement.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/internode/section_halving.hpp"
#include "backend/shm/pipeline.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// A piece is a window on the rows of all ranks. The ranks of a host deposit their contributions
/// for all ranks in their slots. Each rank reduces the contributions for the ranks of which it
/// takes care, and sends them the results. A rank combines the versions of all hosts in the same
/// order as in an allreduce, and so gets the same bits.
///
/// Among many hosts of equally many ranks, a rank would send a few bytes to each host. There the
/// ranks with the same place on their hosts combine the results by halving instead.
///
/// The network accesses only memory of the exchange.
class Reducescatter : public shm::Pipeline {
 public:
  Reducescatter(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given,
                std::shared_ptr<const Counterparts> counterparts, shm::LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        exchange_(endpoint, batch().order()),
        kept_counterparts_(std::move(counterparts)),
        own_(index_of(endpoint.rank, batch())),
        is_target_(batch().ranks.size()),
        windows_(batch(), arena.slot_bytes()) {
    std::vector<int> local;
    for (const int peer : counterparts_.local_peers()) local.push_back(rank_of(peer));
    name_ranks(std::move(local));
    // Ranks on other hosts come first: their results have to travel.
    targets_ = counterparts_.cared_for(index());
    targets_.push_back(own_);
    for (const int target : targets_) is_target_[static_cast<std::size_t>(target)] = true;
    owners_ = owners_of_place(batch().ranks, own_, counterparts_, max_owners_at_once);
  }

 private:
  struct PieceState {
    Window window{};
    std::byte* versions = nullptr;  // versions of this rank's rows, by host
    std::byte* outgoing = nullptr;  // reduced rows of this rank's targets
    int receiving = 0;
    int sending = 0;
    std::unique_ptr<SectionHalving> halving{};  // null if ranks send to each other
    bool sent = false;
    bool finished = false;
  };

  bool step_transfers() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over the network"};
  }

  NextPiece begin(std::size_t number) override {
    return windows_.next(pieces_[number].window) ? NextPiece::piece : NextPiece::none;
  }

  void deposit(std::size_t number) override {
    const Window& window = pieces_[number].window;
    for (int target = 0; target < window.size; ++target) {
      if (reads_input(window, target)) continue;
      const std::int64_t elements = window.elements_of(target);
      fusion::convert(window.input_of(target), window.tensor->dtype, elements,
                      part_for(number, index(), target), window.wire);
      worked(2 * elements * signed_size_of(window.wire));
    }
    receive_versions(number);
  }

  void receive_versions(std::size_t number) {
    PieceState& state = pieces_[number];
    state.sent = state.finished = false;
    if (halves(state.window)) {
      reduction::Arithmetic arithmetic = outer_arithmetic(batch(), type_of(state.window));
      arithmetic.postscale = 1.0;
      arithmetic.divisor = 1;
      state.halving = std::make_unique<SectionHalving>(SectionHalving::Task{
          exchange_, owners_, static_cast<int>(number), state.window.elements_of(0), arithmetic});
      return;
    }
    state.versions = exchange_.take(counterparts_.hosts() * part_bytes(state.window));
    state.outgoing = exchange_.take(std::ssize(targets_) * part_bytes(state.window));
    for (int host = 0; host < counterparts_.hosts(); ++host)
      if (host != counterparts_.own_host())
        exchange_.receive(rank_of(counterparts_.on_behalf_of_this(host)), static_cast<int>(number),
                          version(state, host), bytes_for(state.window, own_), state.receiving);
  }

  [[nodiscard]] bool combines(std::size_t /*number*/) const override { return true; }

  Progress combine(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (!state.sent) {
      send_versions(number);
      state.sent = true;
      return Progress::moved;
    }
    const bool complete =
        state.halving == nullptr ? state.receiving == 0 : state.halving->advance();
    if (!state.finished && complete) {
      finish(state);
      state.finished = true;
      return Progress::moved;
    }
    if (!state.finished || state.sending > 0) return Progress::waiting;
    if (state.halving == nullptr) {
      exchange_.give_back(state.versions);
      exchange_.give_back(state.outgoing);
    } else {
      if (!state.halving->has_sent_all()) return Progress::waiting;
      state.halving->give_back();
      state.halving.reset();
    }
    return Progress::done;
  }

  void send_versions(std::size_t number) {
    PieceState& state = pieces_[number];
    if (state.halving != nullptr) return halve(number);
    std::byte* outgoing = state.outgoing;
    for (const int target : targets_) {
      const bool own = target == own_;
      std::byte* const reduced = own ? version(state, counterparts_.own_host()) : outgoing;
      reduce_inside(number, target, reduced);
      if (own) continue;
      exchange_.send(rank_of(target), static_cast<int>(number), reduced,
                     bytes_for(state.window, target), state.sending);
      outgoing += part_bytes(state.window);
    }
  }

  /// Begins the halving. The targets are one rank of each host, starting with the next host.
  void halve(std::size_t number) {
    PieceState& state = pieces_[number];
    const Window& window = state.window;
    int host = counterparts_.own_host();
    for (const int target : targets_) {
      host = (host + 1) % counterparts_.hosts();
      std::byte* const section = state.halving->section(host);
      reduce_inside(number, target, section);
      // All sections have the length of the longest.
      const std::int64_t bytes = bytes_for(window, target);
      std::memset(section + bytes, 0, static_cast<std::size_t>(bytes_for(window, 0) - bytes));
    }
    state.halving->send();
  }

  /// True if halving suits the window: the sections then have about equal lengths.
  [[nodiscard]] bool halves(const Window& window) const {
    return owners_.size() > 0 && 2 * window.elements_of(window.size - 1) >= window.elements_of(0);
  }

  /// Reduces the contributions of this host's ranks for `target`.
  void reduce_inside(std::size_t number, int target, std::byte* reduced) {
    const Window& window = pieces_[number].window;
    const std::int64_t elements = window.elements_of(target);
    if (elements == 0) return;
    inputs_.clear();
    for (int rank = 0; rank < size(); ++rank)
      inputs_.push_back(rank == index() && reads_input(window, target)
                            ? window.input_of(target)
                            : part_for(number, rank, target));
    reduction::reduce(inner_arithmetic(batch(), window.wire, type_of(window)), inputs_, elements,
                      reduced);
    worked((size() + 1) * elements * signed_size_of(window.wire));
  }

  /// Combines the versions of all hosts.
  void finish(const PieceState& state) {
    const Window& window = state.window;
    const std::int64_t elements = window.elements_of(own_);
    if (elements == 0) return;
    const DType type = type_of(window);
    const reduction::Arithmetic arithmetic = outer_arithmetic(batch(), type);
    const auto inputs = last_inputs(state, arithmetic);
    if (type == window.tensor->dtype) {
      reduction::reduce(arithmetic, inputs, elements, window.output());
    } else {
      std::byte* const scratch =
          state.halving == nullptr ? state.versions : state.halving->last_inputs().front();
      reduction::reduce(arithmetic, inputs, elements, scratch);
      fusion::convert(scratch, type, elements, window.output(), window.tensor->dtype);
    }
    worked((counterparts_.hosts() + 1) * elements * signed_size_of(type));
  }

  /// The inputs of the last combination, after all others.
  [[nodiscard]] std::vector<const std::byte*> last_inputs(const PieceState& state,
                                                          reduction::Arithmetic arithmetic) const {
    if (state.halving != nullptr)
      return {state.halving->last_inputs().begin(), state.halving->last_inputs().end()};
    arithmetic.postscale = 1.0;
    arithmetic.divisor = 1;
    std::vector<std::byte*> versions;
    versions.reserve(static_cast<std::size_t>(counterparts_.hosts()));
    for (int host = 0; host < counterparts_.hosts(); ++host)
      versions.push_back(version(state, host));
    return combine_groups(
        std::move(versions), nullptr, [&](reduction::Inputs group, std::byte* output) {
          reduction::reduce(arithmetic, group, state.window.elements_of(own_), output);
        });
  }

  /// Does nothing: the results are in place already.
  void collect(std::size_t /*number*/) override {}

  /// The type of partial results, before the last reduction.
  [[nodiscard]] static DType type_of(const Window& window) {
    return combined_type(window.wire, window.tensor->dtype);
  }
  [[nodiscard]] static std::int64_t bytes_for(const Window& window, int target) {
    return window.elements_of(target) * signed_size_of(type_of(window));
  }
  [[nodiscard]] static std::int64_t part_bytes(const Window& window) {
    return window.max_elements * signed_size_of(type_of(window));
  }
  [[nodiscard]] static std::byte* version(const PieceState& state, int host) {
    return state.versions + host * part_bytes(state.window);
  }
  [[nodiscard]] int rank_of(int index) const {
    return batch().ranks[static_cast<std::size_t>(index)];
  }

  /// True if `target` is in this rank's care and needs no conversion: its contribution is read from
  /// the input and need not be deposited.
  [[nodiscard]] bool reads_input(const Window& window, int target) const {
    return !window.converts() && is_target_[static_cast<std::size_t>(target)];
  }

  /// The contribution of a rank of this host for `target`, in that rank's slot.
  [[nodiscard]] std::byte* part_for(std::size_t number, int rank, int target) const {
    return memory(rank, number) + target * pieces_[number].window.max_bytes();
  }

  mpi::Exchange exchange_;
  const std::shared_ptr<const Counterparts> kept_counterparts_;
  const Counterparts& counterparts_ = *kept_counterparts_;
  int own_;          // this rank's index in the batch
  Owners owners_{};  // the ranks that combine by halving; none if hosts are few or uneven
  std::vector<int> targets_{};  // the ranks in this rank's care, itself included
  std::vector<bool> is_target_;
  Windows windows_;
  std::array<PieceState, shm::slot_count> pieces_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(shm::Arena& arena, mpi::Endpoint& endpoint,
                                              Batch batch,
                                              std::shared_ptr<const Counterparts> counterparts,
                                              shm::LocalRanks local_ranks) {
  return std::make_unique<Reducescatter>(arena, endpoint, std::move(batch), std::move(counterparts),
                                         std::move(local_ranks));
}

}  // namespace kolo::internal::backend::internode
