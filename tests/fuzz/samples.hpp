// SPDX-License-Identifier: Apache-2.0
// Parts of messages with a value in every field.
#pragma once

#include "negotiation/wire/message.hpp"

namespace kolo::internal::fuzz {

[[nodiscard]] inline RankSet sample_ranks() {
  RankSet ranks = RankSet::range(0, 511);
  ranks.insert(RankSet::of(700));
  return ranks;
}

[[nodiscard]] inline Descriptor sample_descriptor() {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::bf16, Shape{64, 0, 3}}, {DType::i64, Shape{any_length, 3}}, {}};
  descriptor.op = ReduceOp::adasum;
  descriptor.prescale = 0.1;
  descriptor.postscale = -2.0;
  descriptor.compression = Compression::bf16;
  descriptor.average_over = AverageOver::present;
  descriptor.alone = true;
  descriptor.root = 3;
  descriptor.device = {DeviceType::cuda, 7};
  descriptor.step = 123456789012;
  descriptor.ranks = RankSet::range(2, 5);
  descriptor.removed = 17;
  return descriptor;
}

[[nodiscard]] inline negotiation::RankStatus sample_status() {
  using std::chrono::milliseconds;
  return {.rank = 3,
          .process = 4711,
          .state = ProcessState::stopped,
          .heard = milliseconds(1200),
          .idle = milliseconds(3000),
          .submitted = true,
          .waits = true,
          .blocked = true,
          .pending = 2,
          .operations = {{{.name = "weight"}, OperationType::allreduce, milliseconds(900)},
                         {{.number = 4, .set = 2}, OperationType::barrier, milliseconds(0)}},
          .batch = "batch 7 (allreduce \"x\", 4 MB)",
          .awaits = "to deposit piece 3",
          .awaited = RankSet::of(1),
          .ended = Failure{FailureKind::peer_left, "rank 1 was killed", "weight", RankSet::of(1)}};
}

}  // namespace kolo::internal::fuzz
