// SPDX-License-Identifier: Apache-2.0
// The parts of a checkpoint, as rank 0 sends them.
#include "training/checkpoint/checkpoint_payload.hpp"

#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

bool run(Bytes bytes) {
  internal::CheckpointPayload first;
  try {
    first = internal::decode(as_text(bytes));
  } catch (const InvalidArgument&) {
    return false;
  }
  const internal::CheckpointPayload second = internal::decode(internal::encode(first));
  require(first.parts == second.parts && first.own == second.own,
          "a checkpoint is another one when it is written and read again");
  return true;
}

std::vector<Seed> seeds() {
  const Blobs parts{{"model", "0123456789"}, {"sampler", "kolo.sampler.1 0 0 0 10 1"}, {"", ""}};
  const Blobs own{{"random", "\x01\x02"}};
  using internal::CheckpointPayload;
  return {{"nothing", internal::encode(CheckpointPayload{})},
          {"parts", internal::encode(CheckpointPayload{.parts = parts})},
          {"ranks", internal::encode(CheckpointPayload{parts, {own, {}, own}})}};
}

}  // namespace

const Target checkpoint_payload_target{
    .name = "checkpoint_payload", .max_bytes = 512, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
