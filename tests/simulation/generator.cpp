// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "support/random.hpp"

namespace kolo::internal::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) { program_.settings.seed = seed; }

  Program make() {
    make_settings();
    program_.scripts.resize(static_cast<std::size_t>(ranks_));
    const int rounds = ranks_ > 16 ? random_.between(1, 3) : random_.between(1, 7);
    for (int i = 0; i < rounds; ++i) make_round();
    const bool waits = random_.once_in(2);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (waits) add(rank, Act::Kind::wait);
      add(rank, Act::Kind::leave);
    }
    if (random_.once_in(6)) cut_off(Act::Kind::leave);
    if (random_.once_in(12)) cut_off(Act::Kind::die);
    if (random_.once_in(12)) die_after_leaving();
    if (random_.once_in(4)) make_pauses();
    return std::move(program_);
  }

 private:
  // ---- where it runs ----

  int number_of_ranks() {
    const std::size_t which = random_.below(1000);
    if (which < 600) return random_.between(2, 5);
    if (which < 900) return random_.between(6, 12);
    if (which < 985) return random_.between(13, 24);
    return random_.between(25, 64);
  }

  void make_settings() {
    Settings& settings = program_.settings;
    ranks_ = number_of_ranks();
    const bool one_host = random_.once_in(2);
    const int hosts = one_host ? 1 : random_.between(1, ranks_);
    const bool scattered = random_.once_in(2);
    for (int rank = 0; rank < ranks_; ++rank)
      settings.node_of.push_back(scattered ? random_.between(0, hosts - 1) : rank * hosts / ranks_);
    settings.board = hosts == 1;
    settings.arity = random_.one_of({1, 2, 3, 8});
    settings.fusion_threshold = random_.once_in(4) ? 0 : std::int64_t{1} << random_.below(16);
    settings.cache_capacity = random_.one_of({0, 1, 3, 8, 1024});
    careful_ = !random_.once_in(3);
    if (!careful_) settings.stall_shutdown = milliseconds(random_.between(800, 3000));
    if (random_.once_in(4)) settings.stall_warning = milliseconds(random_.between(300, 2000));
    settings.latency_in_host = microseconds(random_.between(1, 20));
    settings.latency_between_hosts = microseconds(random_.one_of({2, 20, 200}));
    settings.jitter = random_.one_of({0.0, 1.0, 1.0, 10.0});
    settings.wake = microseconds(random_.one_of({0, 2, 50, 300}));
    settings.cost_of_message = Time(random_.one_of({0, 300, 3000}));
    settings.data_latency = microseconds(random_.one_of({1, 30, 500}));
    settings.compute_jitter = random_.one_of({0.0, 1.0, 10.0});
    pause_ = microseconds(random_.one_of({0, 5, 50, 500}));
  }

  // ---- what is submitted ----

  static constexpr OperationType types[] = {OperationType::allreduce, OperationType::allreduce,
                                            OperationType::allreduce, OperationType::reducescatter,
                                            OperationType::allgather, OperationType::alltoall,
                                            OperationType::broadcast, OperationType::barrier};

  Descriptor random_descriptor() {
    Descriptor descriptor;
    descriptor.type = types[random_.below(std::size(types))];
    if (descriptor.type == OperationType::barrier) return descriptor;
    const int tensors = random_.once_in(8) ? random_.between(2, 3) : 1;
    for (int i = 0; i < tensors; ++i)
      descriptor.tensors.push_back({random_.one_of({DType::f32, DType::f32, DType::f16}),
                                    Shape(random_.between(0, 40) * random_.between(1, 40))});
    if (descriptor.type == OperationType::broadcast)
      descriptor.root = random_.between(0, ranks_ - 1);
    if (descriptor.type == OperationType::allreduce) {
      descriptor.op = random_.one_of({ReduceOp::sum, ReduceOp::sum, ReduceOp::average});
      if (random_.once_in(10)) descriptor.prescale = 0.5;
      descriptor.alone = random_.once_in(20);
    }
    return descriptor;
  }

  /// Not what the others submit.
  Descriptor altered(Descriptor descriptor) {
    if (descriptor.tensors.empty()) {
      descriptor.type = OperationType::allreduce;
      descriptor.tensors = {{DType::f32, Shape(3)}};
      return descriptor;
    }
    switch (random_.below(6)) {
      case 0: descriptor.tensors.back().dtype = DType::i32; break;
      case 1: descriptor.tensors.back().shape = Shape(random_.between(2000, 2010)); break;
      case 2: descriptor.op = ReduceOp::max; break;
      case 3: descriptor.root = (descriptor.root + 1) % ranks_; break;
      case 4: descriptor.prescale = 2 + random_.between(0, 3); break;
      default: descriptor.tensors.push_back({DType::f32, Shape(1)}); break;
    }
    return descriptor;
  }

  int new_operation(Operation operation) {
    program_.operations.push_back(std::move(operation));
    return static_cast<int>(program_.operations.size()) - 1;
  }

  [[nodiscard]] Operation& operation(int number) {
    return program_.operations[static_cast<std::size_t>(number)];
  }

  int random_set() {
    if (known_sets_.empty() || random_.once_in(2)) return 0;
    return random_.one_of(known_sets_);
  }

  // ---- what ranks do ----

  void add(int rank, Act::Kind kind, int what = 0) {
    program_.scripts[static_cast<std::size_t>(rank)].push_back(
        {.kind = kind, .what = what, .group = group_});
  }

  void compute(int rank) {
    if (pause_.count() == 0) return;
    Time time = Time(random_.between(0, static_cast<int>(pause_.count())));
    if (random_.once_in(300)) time = milliseconds(random_.between(10, 40));
    if (random_.once_in(3000)) time = milliseconds(1500);
    program_.scripts[static_cast<std::size_t>(rank)].push_back(
        {.kind = Act::Kind::compute, .time = time, .group = group_});
  }

  /// Submits an operation that all ranks submit; a few ranks submit another one, none, or two
  /// instead.
  void submit(int rank, int what, std::optional<int> instead) {
    compute(rank);
    if (!instead) return add(rank, Act::Kind::submit, what);
    if (*instead >= 0) return add(rank, Act::Kind::submit, *instead);
    if (*instead == missing) return;
    add(rank, Act::Kind::submit, what);
    add(rank, Act::Kind::insist, what);
  }

  static constexpr int missing = -1;
  static constexpr int twice = -2;

  /// A mistake of some ranks with one operation: another one, none, or the same twice.
  struct Mistake {
    std::size_t at = 0;  // index among the submitted operations
    RankSet ranks{};
    int instead = 0;
  };

  std::optional<Mistake> random_mistake(const std::vector<int>& operations) {
    if (operations.empty() || !random_.once_in(4)) return std::nullopt;
    Mistake mistake{random_.below(operations.size())};
    const bool one = random_.once_in(2);
    const int chosen = random_.between(0, ranks_ - 1);
    for (int rank = 0; rank < ranks_; ++rank)
      if (one ? rank == chosen : random_.once_in(3)) mistake.ranks.insert(RankSet::of(rank));
    const std::size_t which = random_.below(careful_ ? 4 : 6);
    if (which >= 4) {
      mistake.instead = which == 4 ? missing : twice;
      return mistake;
    }
    Operation other = operation(operations[mistake.at]);
    if (other.descriptor.type == OperationType::add_process_set) {
      other.descriptor.ranks = RankSet::of(chosen);
    } else {
      other.descriptor = altered(other.descriptor);
    }
    mistake.instead = new_operation(std::move(other));
    return mistake;
  }

  void submit_all(int rank, const std::vector<int>& operations,
                  const std::vector<std::size_t>& order, const std::optional<Mistake>& mistake) {
    for (const std::size_t i : order) {
      std::optional<int> instead;
      if (mistake && mistake->at == i && mistake->ranks.contains(rank)) instead = mistake->instead;
      submit(rank, operations[i], instead);
    }
  }

  static std::vector<std::size_t> in_order(std::size_t count) {
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    return order;
  }

  // ---- rounds ----

  void make_round() {
    const std::size_t which = random_.below(10);
    if (which < 4) return make_steps();
    if (which < 6) return make_disorder();
    if (which < 7) return make_joins();
    if (which < 9 || known_sets_.empty()) return make_set();
    remove_set();
  }

  std::vector<int> some_operations(int most, bool of_sets) {
    std::vector<int> operations;
    const int count = random_.between(1, most);
    for (int i = 0; i < count; ++i) {
      Operation one{"w" + std::to_string(i), of_sets ? random_set() : 0, random_descriptor()};
      if (one.set != 0) one.name += "s" + std::to_string(one.set);
      operations.push_back(new_operation(std::move(one)));
    }
    return operations;
  }

  void make_steps() {
    const std::vector<int> operations = some_operations(ranks_ > 16 ? 4 : 8, false);
    const bool unnamed = random_.once_in(4);
    if (unnamed)
      for (const int number : operations)
        if (random_.once_in(2)) operation(number).name.clear();
    const int steps = random_.between(2, ranks_ > 16 ? 8 : 16);
    const bool counted = random_.once_in(4);
    const bool waits = !random_.once_in(4);
    for (int step = 0; step < steps; ++step) {
      ++group_;
      std::vector<int> of_step = operations;
      for (int& number : of_step) {
        if (!counted) break;
        Operation next = operation(number);
        next.descriptor.step = step;
        number = new_operation(std::move(next));
      }
      const auto mistake = random_.once_in(4) ? random_mistake(of_step) : std::nullopt;
      for (int rank = 0; rank < ranks_; ++rank) {
        std::vector<std::size_t> order = in_order(of_step.size());
        if (!unnamed && random_.once_in(30)) random_.shuffle(order);
        submit_all(rank, of_step, order, mistake);
        if (waits) add(rank, Act::Kind::wait);
      }
    }
  }

  /// Named operations, in another order on every rank; those without a name keep theirs.
  void make_disorder() {
    const int repetitions = random_.between(1, 3);
    const std::vector<int> operations = some_operations(ranks_ > 16 ? 6 : 10, true);
    for (int i = 0; i < repetitions; ++i) {
      ++group_;
      const auto mistake = random_mistake(operations);
      const bool waits = random_.once_in(2);
      for (int rank = 0; rank < ranks_; ++rank) {
        std::vector<std::size_t> order = in_order(operations.size());
        random_.shuffle(order);
        submit_all(rank, operations, order, mistake);
        if (waits) add(rank, Act::Kind::wait);
      }
    }
  }

  /// Ranks come to an end at different times. Where another rank has left, a join fails, and what
  /// some submitted more often to a set is waited for: then stalls must end.
  void make_joins() {
    ++group_;
    const std::vector<int> operations = some_operations(4, !careful_);
    Operation join;
    join.descriptor.type = OperationType::join;
    const int number = new_operation(std::move(join));
    const std::vector<int> of_new_set =
        !careful_ && random_.once_in(2) ? make_set_meanwhile() : std::vector<int>();
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::size_t submitted = random_.below(3 * operations.size() + 1);
      for (std::size_t i = 0; i < submitted; ++i)
        submit(rank, operations[i % operations.size()], std::nullopt);
      if (random_.once_in(2)) {
        for (const int what : of_new_set) {
          submit(rank, what, std::nullopt);
          add(rank, Act::Kind::wait);  // for the number of the set
        }
      }
      add(rank, Act::Kind::submit, number);
    }
  }

  /// A set that is used only while some have joined, and not even made by those.
  std::vector<int> make_set_meanwhile() {
    program_.sets.push_back(random_members());
    Operation make;
    make.set = static_cast<int>(program_.sets.size());
    make.descriptor.type = OperationType::add_process_set;
    make.descriptor.ranks = program_.sets.back();
    Operation use{"new", make.set, random_descriptor()};
    return {new_operation(std::move(make)), new_operation(std::move(use))};
  }

  RankSet random_members() {
    RankSet members;
    while (members.empty())
      for (int rank = 0; rank < ranks_; ++rank)
        if (random_.once_in(2)) members.insert(RankSet::of(rank));
    return members;
  }

  void make_set() {
    ++group_;
    const RankSet members = random_members();
    program_.sets.push_back(members);
    const int set = static_cast<int>(program_.sets.size());
    Operation make;
    make.set = set;
    make.descriptor.type = OperationType::add_process_set;
    make.descriptor.ranks = members;
    const std::vector<int> operations{new_operation(std::move(make))};
    const auto mistake = random_mistake(operations);
    for (int rank = 0; rank < ranks_; ++rank) {
      submit_all(rank, operations, {0}, mistake);
      add(rank, Act::Kind::wait);  // for its number
    }
    known_sets_.push_back(set);
  }

  void remove_set() {
    ++group_;
    const std::size_t which = random_.below(known_sets_.size());
    Operation remove;
    remove.set = known_sets_[which];
    remove.descriptor.type = OperationType::remove_process_set;
    const int number = new_operation(std::move(remove));
    // The same ranks are the same set: what one removes the other has no more.
    known_sets_.erase(known_sets_.begin() + static_cast<std::ptrdiff_t>(which));
    const bool waits = random_.once_in(2);
    for (int rank = 0; rank < ranks_; ++rank) {
      submit(rank, number, std::nullopt);
      if (waits) add(rank, Act::Kind::wait);
    }
  }

  /// A rank does nothing more from some place on.
  void cut_off(Act::Kind last) {
    Script& script = program_.scripts[random_.below(program_.scripts.size())];
    script.resize(random_.below(script.size() + 1));
    script.push_back({.kind = last, .group = ++group_});
  }

  /// A rank dies after it has left, while other ranks may still execute batches.
  void die_after_leaving() {
    const int rank = random_.between(0, ranks_ - 1);
    group_ += 1;
    if (random_.once_in(2)) compute(rank);
    add(rank, Act::Kind::die);
  }

  /// Pauses of one rank, such as one that passes on reports, or of the whole job.
  void make_pauses() {
    for (int i = random_.between(1, 3); i > 0; --i)
      program_.pauses.push_back(
          {.rank = random_.between(Pause::all, ranks_ - 1),
           .at = microseconds(random_.between(0, random_.one_of({2000, 50'000, 2'000'000}))),
           .length = milliseconds(random_.between(100, 4000))});
  }

  campaign::Random random_;
  Program program_;
  int ranks_ = 0;
  bool careful_ = true;
  Time pause_{};
  int group_ = 0;
  std::vector<int> known_sets_;
};

}  // namespace

Program make_program(std::uint64_t seed) { return Generator(seed).make(); }

}  // namespace kolo::internal::simulation
