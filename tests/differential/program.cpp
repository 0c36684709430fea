// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/dtype.hpp"
#include "base/format.hpp"
#include "support/random.hpp"

namespace kolo::internal::differential {
namespace {

using Ranks = std::vector<int>;

const std::vector<DType> reals{DType::f16, DType::bf16, DType::f32, DType::f64};
const std::vector<DType> numbers{DType::u8,  DType::i8,   DType::u16, DType::i16,
                                 DType::u32, DType::i32,  DType::u64, DType::i64,
                                 DType::f16, DType::bf16, DType::f32, DType::f64};
const std::vector<DType> all_types{DType::u8,  DType::i8,  DType::u16,    DType::i16, DType::u32,
                                   DType::i32, DType::u64, DType::i64,    DType::f16, DType::bf16,
                                   DType::f32, DType::f64, DType::boolean};

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::allreduce: return "allreduce";
    case Kind::reducescatter: return "reducescatter";
    case Kind::allgather: return "allgather";
    case Kind::alltoall: return "alltoall";
    case Kind::broadcast: return "broadcast";
    case Kind::broadcast_string: return "broadcast of a string";
    default: return "barrier";
  }
}

bool reduces(Kind kind) { return kind == Kind::allreduce || kind == Kind::reducescatter; }

class Maker {
 public:
  Maker(std::uint64_t seed, int ranks) : random_(seed), seed_(seed), ranks_(ranks) {
    sets_.push_back(first_ranks());
  }

  Program make() {
    Program program;
    program.seed = seed_;
    program.fusion_threshold = random_.one_of<std::int64_t>({0, 200, 5000, 1 << 26});
    program.cache_capacity = random_.one_of<std::int64_t>({0, 1, 3, 8, 1000});
    const int phases = random_.between(1, 8);
    for (int i = 0; i < phases; ++i) {
      program.phases.push_back(make_phase());
      if (random_.once_in(2)) repeat_last(program.phases);
    }
    return program;
  }

 private:
  [[nodiscard]] Ranks first_ranks() const {
    Ranks ranks(static_cast<std::size_t>(ranks_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  Ranks some_ranks() {
    Ranks ranks = first_ranks();
    random_.shuffle(ranks);
    ranks.resize(1 + random_.below(ranks.size()));
    std::ranges::sort(ranks);
    return ranks;
  }

  Phase make_phase() {
    Phase phase;
    for (int i = random_.between(0, 2); i > 0; --i)
      if (const auto change = make_change()) phase.changes.push_back(*change);
    phase.in_step = random_.once_in(4);
    phase.threads = phase.in_step ? 1 : random_.one_of({1, 1, 2, 4});
    names_.clear();
    for (int i = random_.between(1, 25); i > 0; --i)
      phase.operations.push_back(make_operation(first_ranks()));
    if (!random_.once_in(3)) return phase;
    phase.joining = some_ranks();
    Ranks present;
    std::ranges::set_difference(first_ranks(), phase.joining, std::back_inserter(present));
    if (present.empty()) return phase;
    for (int i = random_.between(0, 12); i > 0; --i) {
      Operation operation = make_operation(present);
      if (!operation.present.empty()) phase.without_joined.push_back(std::move(operation));
    }
    return phase;
  }

  /// Like a training loop: repeats operations with other data, with an occasional mistake.
  void repeat_last(std::vector<Phase>& phases) {
    const bool world_only = !random_.once_in(4);
    Phase phase{.operations = phases.back().operations,
                .in_step = phases.back().in_step,
                .threads = phases.back().threads};
    if (world_only) std::erase_if(phase.operations, [](const auto& one) { return one.set != 0; });
    for (Operation& operation : phase.operations) {
      operation.mistake.reset();
      operation.refused_first = false;
    }
    for (int i = random_.between(2, 20); i > 0; --i) {
      Phase again = phase;
      for (Operation& operation : again.operations) {
        operation.number = campaign::hash({seed_, ++made_});
        if (operation.present.size() > 1 && random_.once_in(200)) make_mistake(operation);
      }
      phases.push_back(std::move(again));
    }
  }

  std::optional<SetChange> make_change() {
    if (sets_.size() > 1 && random_.once_in(3)) {
      const std::size_t removed = 1 + random_.below(sets_.size() - 1);
      SetChange change{.removed = removed};
      change.while_pending = sets_[removed].size() > 1 && random_.once_in(2);
      std::swap(sets_[removed], sets_.back());
      sets_.pop_back();
      return change;
    }
    Ranks ranks = some_ranks();
    if (std::find(sets_.begin() + 1, sets_.end(), ranks) == sets_.end()) sets_.push_back(ranks);
    return SetChange{.added = std::move(ranks)};
  }

  Operation make_operation(const Ranks& submitting) {
    const std::size_t set = random_.once_in(2) ? 0 : random_.below(sets_.size());
    const bool named = !random_.once_in(4);
    const std::string name = named ? new_name(set) : "";
    Operation operation = template_for(set, name);
    operation.number = campaign::hash({seed_, ++made_});
    operation.name = name;
    operation.set = set;
    operation.members = sets_[set];
    std::ranges::set_intersection(operation.members, submitting,
                                  std::back_inserter(operation.present));
    operation.root = random_.one_of(operation.members);
    operation.refused_first = random_.once_in(10);
    avoid_rounding(operation);
    if (operation.present.size() > 1 && random_.once_in(8)) make_mistake(operation);
    return operation;
  }

  /// No name twice in a phase, and the same ones in every phase.
  std::string new_name(std::size_t set) { return "tensor " + std::to_string(names_[set]++); }

  /// The operation that had this name before, so that it is cached; occasionally a new one.
  Operation template_for(std::size_t set, const std::string& name) {
    if (name.empty()) return make_template();
    const auto [found, is_new] = templates_.try_emplace({sets_[set], name});
    if (is_new || random_.once_in(5)) found->second = make_template();
    return found->second;
  }

  Operation make_template() {
    Operation operation;
    operation.kind = random_.one_of({Kind::allreduce, Kind::allreduce, Kind::allreduce,
                                     Kind::reducescatter, Kind::allgather, Kind::alltoall,
                                     Kind::broadcast, Kind::broadcast_string, Kind::barrier});
    operation.in_place = random_.once_in(2);
    if (reduces(operation.kind)) make_reduction(operation);
    if (operation.kind == Kind::barrier || operation.kind == Kind::broadcast_string)
      return operation;
    const bool single = operation.kind == Kind::alltoall || operation.kind == Kind::broadcast;
    for (int i = single || random_.once_in(2) ? 1 : random_.between(2, 4); i > 0; --i)
      operation.tensors.push_back(make_tensor(operation));
    return operation;
  }

  void make_reduction(Operation& operation) {
    operation.op = random_.one_of({ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                                   ReduceOp::product, ReduceOp::adasum});
    if (operation.kind == Kind::reducescatter && operation.op == ReduceOp::adasum)
      operation.op = ReduceOp::sum;
    operation.prescale = random_.one_of({1.0, 1.0, 0.5, 2.0});
    operation.postscale = random_.one_of({1.0, 1.0, 0.5, 3.0});
    operation.compression = random_.one_of(
        {Compression::none, Compression::none, Compression::fp16, Compression::bf16});
    if (operation.kind == Kind::reducescatter) return;
    operation.average_over = random_.one_of({AverageOver::all, AverageOver::present});
    operation.fuse_exactly = random_.once_in(4);
  }

  Tensor make_tensor(const Operation& operation) {
    Tensor tensor;
    const bool sums = operation.op == ReduceOp::sum || operation.op == ReduceOp::average;
    const bool reduced = reduces(operation.kind);
    tensor.dtype = random_.one_of(reduced && operation.op == ReduceOp::adasum ? reals
                                  : reduced && sums                           ? numbers
                                                                              : all_types);
    const bool needs_rows =
        operation.kind == Kind::reducescatter || operation.kind == Kind::alltoall;
    std::vector<std::int64_t> lengths;
    for (int i = random_.between(needs_rows ? 1 : 0, 3); i > 0; --i)
      lengths.push_back(random_.once_in(12) ? 0 : random_.one_of({1, 2, 3, 5, 7}));
    if (!lengths.empty() && random_.once_in(8)) lengths.front() = random_.one_of({100, 1000, 5000});
    tensor.shape = Shape(lengths);
    return tensor;
  }

  /// An average of reals is exact only if the sum is a multiple of the divisor, and then is not
  /// multiplied by a third.
  static void avoid_rounding(Operation& operation) {
    if (operation.op == ReduceOp::average && operation.divisor() % 3 == 0)
      operation.postscale = 1.0;
  }

  void make_mistake(Operation& operation) {
    std::vector<Mistake> possible;
    if (operation.kind != Kind::barrier) possible.push_back(Mistake::kind);
    if (!operation.tensors.empty()) {
      possible.push_back(Mistake::dtype);
      possible.push_back(Mistake::shape);
    }
    if (reduces(operation.kind))
      for (const Mistake mistake : {Mistake::reduce_op, Mistake::prescale, Mistake::compression})
        possible.push_back(mistake);
    if (operation.tensors.size() > 1) possible.push_back(Mistake::number_of_tensors);
    const bool broadcasts =
        operation.kind == Kind::broadcast || operation.kind == Kind::broadcast_string;
    if (broadcasts) possible.push_back(Mistake::root);
    if (possible.empty()) return;
    operation.mistake = random_.one_of(possible);
    operation.odd = random_.one_of(operation.present);
  }

  campaign::Random random_;
  std::uint64_t seed_;
  int ranks_;
  std::uint64_t made_ = 0;
  std::vector<Ranks> sets_{};
  std::map<std::size_t, int> names_{};  // how many of the phase, by set
  std::map<std::pair<Ranks, std::string>, Operation> templates_{};
};

}  // namespace

Program make_program(std::uint64_t seed, int ranks) { return Maker(seed, ranks).make(); }

Operation as_submitted(Operation operation, int rank) {
  if (!operation.mistake || operation.odd != rank) return operation;
  switch (*operation.mistake) {
    case Mistake::dtype: {
      DType& dtype = operation.tensors.back().dtype;
      dtype = dtype == DType::f32 ? DType::f64 : DType::f32;
      break;
    }
    case Mistake::shape: {
      std::vector<std::int64_t> lengths(operation.tensors.back().shape.lengths().begin(),
                                        operation.tensors.back().shape.lengths().end());
      if (lengths.empty()) lengths.push_back(1);
      lengths.push_back(2);
      operation.tensors.back().shape = Shape(lengths);
      break;
    }
    case Mistake::reduce_op:
      operation.op = operation.op == ReduceOp::max ? ReduceOp::min : ReduceOp::max;
      break;
    case Mistake::prescale: operation.prescale = 7.0; break;
    case Mistake::compression:
      operation.compression =
          operation.compression == Compression::fp16 ? Compression::bf16 : Compression::fp16;
      break;
    case Mistake::root:
      operation.root = *std::ranges::find_if(operation.members,
                                             [&](int member) { return member != operation.root; });
      break;
    case Mistake::kind:
      operation.kind = Kind::barrier;
      operation.tensors.clear();
      break;
    case Mistake::number_of_tensors: operation.tensors.pop_back(); break;
  }
  return operation;
}

std::string to_string(const Operation& operation) {
  std::string text = fmt::format("{} \"{}\" of ranks {}, present {}", name_of(operation.kind),
                                 operation.name, operation.members, operation.present);
  for (const Tensor& tensor : operation.tensors)
    text += fmt::format(", {} {}", kolo::internal::to_string(tensor.dtype),
                        kolo::internal::to_string(tensor.shape));
  if (reduces(operation.kind))
    text += fmt::format(", {}, scales {} and {}, compression {}",
                        kolo::internal::to_string(operation.op), operation.prescale,
                        operation.postscale, kolo::internal::to_string(operation.compression));
  if (operation.mistake)
    text +=
        fmt::format(", mistake {} of rank {}", static_cast<int>(*operation.mistake), operation.odd);
  return text;
}

}  // namespace kolo::internal::differential
