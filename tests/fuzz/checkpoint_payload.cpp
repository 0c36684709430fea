// SPDX-License-Identifier: Apache-2.0
// The parts of a checkpoint.
#include "training/checkpoint_payload.hpp"

#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

std::string encode_again(const internal::CheckpointPayload& payload) {
  std::vector<std::string> own;
  for (const Blobs& blobs : payload.own) own.push_back(internal::encode(blobs));
  return internal::encode(payload.parts, own);
}

bool run(Bytes bytes) {
  internal::CheckpointPayload first;
  try {
    first = internal::decode(as_text(bytes));
  } catch (const InvalidArgument&) {
    return false;
  }
  const internal::CheckpointPayload second = internal::decode(encode_again(first));
  require(first.parts == second.parts && first.own == second.own,
          "a checkpoint is another one when it is written and read again");
  return true;
}

std::vector<Seed> seeds() {
  const Blobs parts{{"model", "0123456789"}, {"sampler", "kolo.sampler.1 0 0 0 10 1"}, {"", ""}};
  const std::string own = internal::encode({{"random", "\x01\x02"}});
  return {{"nothing", internal::encode(Blobs{}, std::vector<std::string>{})},
          {"parts", internal::encode(parts, std::vector<std::string>{})},
          {"ranks", internal::encode(parts, {own, internal::encode(Blobs{}), own})}};
}

}  // namespace

const Target checkpoint_payload_target{
    .name = "checkpoint_payload", .max_bytes = 512, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
