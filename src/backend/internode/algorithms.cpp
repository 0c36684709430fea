// SPDX-License-Identifier: Apache-2.0
// The algorithms that reduce a slice between hosts.
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/internode/reduction.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// Large groups halve pair by pair if messages to all others would be shorter than this.
constexpr std::int64_t min_message_bytes = 1024;

/// Each owner reduces one section and sends the result to the others. With `whole`, each owner
/// reduces the entire slice, so no second message is needed.
class DirectReduction : public InterNodeReduction {
 public:
  DirectReduction(const SliceTask& task, bool whole)
      : InterNodeReduction(task),
        whole_(whole),
        versions_(take((owners_.size() - 1) * combined_bytes(part_of(owners_.own).elements))) {
    const std::int64_t bytes = combined_bytes(part_of(owners_.own).elements);
    for_each_other([&](int owner, int rank) {
      exchange_.receive(rank, lane_, version(owner), bytes, receiving_);
      if (whole_) return;
      const Slice theirs = part_of(owner);
      exchange_.receive(rank, lane_ + 1, result_ + result_bytes(theirs.begin),
                        result_bytes(theirs.elements), pending_);
    });
  }

  void send() override {
    for_each_other([&](int owner, int rank) {
      const Slice theirs = part_of(owner);
      exchange_.send(rank, lane_, combined_ + combined_bytes(theirs.begin),
                     combined_bytes(theirs.elements), pending_);
    });
  }

  [[nodiscard]] bool advance() override {
    if (!reduced_ && receiving_ == 0) {
      reduce();
      reduced_ = true;
    }
    return reduced_ && pending_ == 0;
  }

  [[nodiscard]] bool has_sent_all() const override { return whole_ || reduced_; }

 private:
  /// The part of the slice that the owner reduces.
  [[nodiscard]] Slice part_of(int owner) const {
    return whole_ ? Slice{0, elements_} : section(owner);
  }

  /// The memory for the version of another owner.
  [[nodiscard]] std::byte* version(int owner) const {
    const int before = owner < owners_.own ? owner : owner - 1;
    return versions_ + before * combined_bytes(part_of(owners_.own).elements);
  }

  void reduce() {
    const Slice own = part_of(owners_.own);
    std::vector<std::byte*> all;
    all.reserve(static_cast<std::size_t>(owners_.size()));
    for (int owner = 0; owner < owners_.size(); ++owner)
      all.push_back(owner == owners_.own ? combined_ + combined_bytes(own.begin) : version(owner));
    // This owner's version may still be in transmission, so it must not be overwritten.
    const std::byte* const kept = all[static_cast<std::size_t>(owners_.own)];
    const auto inputs = combine_groups(
        std::move(all), kept,
        [&](reduction::Inputs group, std::byte* output) { combine(group, own.elements, output); });
    std::byte* const result = result_ + result_bytes(own.begin);
    finish(inputs, own.elements, versions_, result);
    if (whole_) return;
    for_each_other([&](int, int rank) {
      exchange_.send(rank, lane_ + 1, result, result_bytes(own.elements), pending_);
    });
  }

  /// Calls `use(owner, rank)` for the other owners. Each owner starts with its successor, to spread
  /// the load.
  template <typename Use>
  void for_each_other(Use use) const {
    for (int distance = 1; distance < owners_.size(); ++distance) {
      const int owner = (owners_.own + distance) % owners_.size();
      use(owner, owners_.rank(owner));
    }
  }

  const bool whole_;
  std::byte* const versions_;  // the other owners' versions of this owner's part
  bool reduced_ = false;
  int pending_ = 0;    // all messages to send, and results to receive
  int receiving_ = 0;  // versions to receive
};

/// Some owners that exchange data in a step of an algorithm.
struct Circle {
  std::vector<int> ranks{};  // in the order in which they are combined
  int own = 0;               // the place of this owner
  /// The second of two owners gives all to the first, and later gets the result from it.
  bool folds = false;

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// The number of other owners before this place.
  [[nodiscard]] int before(int place) const { return place < own ? place : place - 1; }
  /// Calls `use(place, rank)` for the others, on each owner in a different order, so that not all
  /// send to the same one first.
  template <typename Use>
  void for_each_other(Use use) const {
    for (int next = 1; next < size(); ++next) {
      const int place = (own + next) % size();
      use(place, ranks[static_cast<std::size_t>(place)]);
    }
  }
};

/// The circles of this owner, one after another, in which a group combines its data as
/// `combine_group` does. `in_pairs`: only for groups of more than `max_factor`. Otherwise all of
/// the group form one circle.
std::vector<Circle> circles_of(const StepGroup& group, const Owners& owners, bool in_pairs) {
  std::vector<Circle> circles;
  const int own = group.own_digit(owners);
  const auto rank = [&](int digit) { return group.rank_with(owners, digit); };
  if (!in_pairs) {
    Circle& all = circles.emplace_back(Circle{.own = own});
    for (int digit = 0; digit < group.factor; ++digit) all.ranks.push_back(rank(digit));
    return circles;
  }
  const int pairs = pairs_of(group.factor);
  const bool is_folded = own < 2 * pairs;
  if (is_folded) {
    const int first = own - own % 2;
    circles.push_back({{rank(first), rank(first + 1)}, own % 2, true});
    if (own != first) return circles;
  }
  const auto left = [&](int place) { return rank(place < pairs ? 2 * place : place + pairs); };
  const int place = is_folded ? own / 2 : own - pairs;
  for (int distance = 1; distance < group.factor - pairs; distance *= 2) {
    const int first = place & ~distance;
    circles.push_back({{left(first), left(first + distance)}, place == first ? 0 : 1, false});
  }
  return circles;
}

/// Recursive doubling for any number of owners. In the step of a factor f, groups of f owners send
/// each other what they have combined so far, so that each owner's combination then covers f times
/// as many owners. Large groups do so pair by pair. An owner sends few messages, but each has all
/// elements of the slice, so this suits short slices.
class DoublingReduction : public InterNodeReduction {
 public:
  explicit DoublingReduction(const SliceTask& task) : InterNodeReduction(task) {
    const std::vector<StepGroup> groups = step_groups(owners_.size());
    for (const StepGroup& group : groups) add_rounds(group, &group == &groups.back());
    for (Round& round : rounds_) receive(round);
  }

  void send() override { send_in(rounds_.front()); }

  [[nodiscard]] bool advance() override {
    // The next combination overwrites the one in transmission, so it waits for the sends.
    while (round_ < rounds_.size() && rounds_[round_].receiving == 0 && sending_ == 0) {
      end(rounds_[round_]);
      if (++round_ < rounds_.size()) send_in(rounds_[round_]);
    }
    return round_ == rounds_.size() && sending_ == 0;
  }

  [[nodiscard]] bool has_sent_all() const override { return round_ >= last_sending_; }

 private:
  struct Round {
    Circle circle{};
    bool sends = true;
    bool receives = true;
    bool shares = false;            // what arrives is what the whole group has combined
    bool final = false;             // it is the result, or becomes the result
    std::byte* versions = nullptr;  // the versions of the other owners
    int receiving = 0;
  };

  void add_rounds(const StepGroup& group, bool last) {
    const std::vector<Circle> circles = circles_of(group, owners_, group.factor > max_factor);
    for (const Circle& circle : circles) {
      const bool gives = circle.folds && circle.own == 1;
      rounds_.push_back({.circle = circle, .sends = !circle.folds || gives, .receives = !gives});
    }
    if (const Circle& first = circles.front(); first.folds) {
      if (first.own == 0) rounds_.back().final = last;
      rounds_.push_back({first, first.own == 0, first.own == 1, true, last});
    } else {
      rounds_.back().final = last;
    }
    for (std::size_t round = 0; round < rounds_.size(); ++round)
      if (rounds_[round].sends) last_sending_ = round;
  }

  void receive(Round& round) {
    if (!round.receives) return;
    if (!is_result(round))
      round.versions = take((round.circle.size() - 1) * combined_bytes(elements_));
    round.circle.for_each_other([&](int place, int rank) {
      if (is_result(round))
        exchange_.receive(rank, lane_ + 1, result_, result_bytes(elements_), round.receiving);
      else
        exchange_.receive(rank, lane_, version(round, place), combined_bytes(elements_),
                          round.receiving);
    });
  }

  void send_in(const Round& round) {
    if (!round.sends) return;
    round.circle.for_each_other([&](int, int rank) {
      if (is_result(round))
        exchange_.send(rank, lane_ + 1, result_, result_bytes(elements_), sending_);
      else
        exchange_.send(rank, lane_, combined_, combined_bytes(elements_), sending_);
    });
  }

  void end(const Round& round) {
    if (!round.receives || is_result(round)) return;
    if (round.shares) {
      std::memcpy(combined_, round.versions, static_cast<std::size_t>(combined_bytes(elements_)));
      return;
    }
    std::vector<const std::byte*> inputs;
    inputs.reserve(static_cast<std::size_t>(round.circle.size()));
    for (int place = 0; place < round.circle.size(); ++place)
      inputs.push_back(place == round.circle.own ? combined_ : version(round, place));
    if (round.final)
      finish(inputs, elements_, combined_, result_);
    else
      combine(inputs, elements_, combined_);
  }

  /// True if the result itself travels, from the first of a folded pair to the second.
  [[nodiscard]] static bool is_result(const Round& round) { return round.shares && round.final; }

  [[nodiscard]] std::byte* version(const Round& round, int place) const {
    return round.versions + round.circle.before(place) * combined_bytes(elements_);
  }

  std::vector<Round> rounds_{};
  std::size_t round_ = 0;
  std::size_t last_sending_ = 0;  // the last round in which this owner sends
  int sending_ = 0;
};

/// Recursive halving and doubling (Rabenseifner) for any number of owners. In the step of a factor
/// f, groups of f owners divide their range into f parts, and each owner combines one part for its
/// group. The next step divides that part, within groups whose owners come from different groups of
/// this step. After the last step each owner has combined one section of the slice. The results
/// travel through the same groups in reverse order.
///
/// The network carries as many bytes as with `direct`, in fewer messages: an owner of 64 sends 12
/// instead of 126. If the number of owners is prime, both algorithms are the same, unless messages
/// would be very short: then large groups proceed pair by pair. If pairs have to be folded, the
/// second owner of such a pair combines nothing, and the first one's NIC carries its data too.
class HalvingReduction : public InterNodeReduction {
 public:
  explicit HalvingReduction(const SliceTask& task) : InterNodeReduction(task) {
    Slice range{0, elements_};
    for (const StepGroup& group : step_groups(owners_.size())) {
      const bool in_pairs = group.factor > max_factor &&
                            combined_bytes(range.elements) < group.factor * min_message_bytes;
      for (Circle& circle : circles_of(group, owners_, in_pairs)) {
        steps_.push_back({.range = range, .circle = std::move(circle)});
        range = own_part(steps_.back());
      }
    }
    for (Step& step : steps_) receive(step);
    results_left_ = steps_.size();
  }

  void send() override { send_parts(steps_.front()); }

  [[nodiscard]] bool advance() override {
    while (combined_steps_ < steps_.size() && steps_[combined_steps_].receiving == 0) {
      combine_part(steps_[combined_steps_++]);
      if (combined_steps_ < steps_.size())
        send_parts(steps_[combined_steps_]);
      else
        send_results(steps_.back());
    }
    if (combined_steps_ < steps_.size()) return false;
    while (results_left_ > 0 && steps_[results_left_ - 1].collecting == 0) {
      --results_left_;
      if (results_left_ > 0) send_results(steps_[results_left_ - 1]);
    }
    return results_left_ == 0 && sending_ == 0;
  }

  [[nodiscard]] bool has_sent_all() const override {
    return combined_steps_ == steps_.size() && results_left_ <= 1;
  }

 private:
  struct Step {
    Slice range{};  // the range that the circle divides
    Circle circle{};
    std::byte* versions = nullptr;  // the other owners' versions of this owner's part
    int receiving = 0;              // versions to receive
    int collecting = 0;             // results to receive
  };

  [[nodiscard]] static Slice part_of(const Step& step, int place) {
    if (step.circle.folds) return {step.range.begin, place == 0 ? step.range.elements : 0};
    const Slice part = slice_of(step.range.elements, place, step.circle.size());
    return {step.range.begin + part.begin, part.elements};
  }
  [[nodiscard]] static Slice own_part(const Step& step) { return part_of(step, step.circle.own); }

  [[nodiscard]] std::byte* version(const Step& step, int place) const {
    return step.versions + step.circle.before(place) * combined_bytes(own_part(step).elements);
  }

  void receive(Step& step) {
    const std::int64_t bytes = combined_bytes(own_part(step).elements);
    step.versions = take((step.circle.size() - 1) * bytes);
    step.circle.for_each_other([&](int place, int rank) {
      const Slice theirs = part_of(step, place);
      exchange_.receive(rank, lane_, version(step, place), bytes, step.receiving);
      exchange_.receive(rank, lane_ + 1, result_ + result_bytes(theirs.begin),
                        result_bytes(theirs.elements), step.collecting);
    });
  }

  void send_parts(const Step& step) {
    step.circle.for_each_other([&](int place, int rank) {
      const Slice theirs = part_of(step, place);
      exchange_.send(rank, lane_, combined_ + combined_bytes(theirs.begin),
                     combined_bytes(theirs.elements), sending_);
    });
  }

  /// Combines this owner's part. Data in transmission lies in other parts of the range.
  void combine_part(const Step& step) {
    const Slice own = own_part(step);
    std::byte* const combined = combined_ + combined_bytes(own.begin);
    std::vector<std::byte*> all;
    all.reserve(static_cast<std::size_t>(step.circle.size()));
    for (int place = 0; place < step.circle.size(); ++place)
      all.push_back(place == step.circle.own ? combined : version(step, place));
    all = combine_group(std::move(all), nullptr, [&](reduction::Inputs two, std::byte* output) {
      combine(two, own.elements, output);
    });
    const std::vector<const std::byte*> inputs(all.begin(), all.end());
    if (&step == &steps_.back())
      finish(inputs, own.elements, combined, result_ + result_bytes(own.begin));
    else
      combine(inputs, own.elements, combined);
  }

  void send_results(const Step& step) {
    const Slice own = own_part(step);
    step.circle.for_each_other([&](int, int rank) {
      exchange_.send(rank, lane_ + 1, result_ + result_bytes(own.begin), result_bytes(own.elements),
                     sending_);
    });
  }

  std::vector<Step> steps_{};
  std::size_t combined_steps_ = 0;
  std::size_t results_left_ = 0;  // steps whose results have not all arrived
  int sending_ = 0;
};

}  // namespace

std::unique_ptr<InterNodeReduction> make_inter_node_reduction(InterNodeAlgorithm algorithm,
                                                              const SliceTask& task) {
  switch (algorithm) {
    case InterNodeAlgorithm::whole: return std::make_unique<DirectReduction>(task, true);
    case InterNodeAlgorithm::direct: return std::make_unique<DirectReduction>(task, false);
    case InterNodeAlgorithm::doubling: return std::make_unique<DoublingReduction>(task);
    case InterNodeAlgorithm::halving: return std::make_unique<HalvingReduction>(task);
  }
  throw std::logic_error("no such algorithm");
}

}  // namespace kolo::internal::backend::internode
