// The parts of a checkpoint.
#include "training/checkpoint_payload.hpp"

#include "kolo/error.hpp"
#include "target.hpp"

namespace kolo::fuzz {
namespace {

std::string encode_again(const detail::CheckpointPayload& payload) {
  std::vector<std::string> own;
  for (const Blobs& blobs : payload.own) own.push_back(detail::encode(blobs));
  return detail::encode(payload.parts, own);
}

bool run(Bytes bytes) {
  detail::CheckpointPayload first;
  try {
    first = detail::decode(as_text(bytes));
  } catch (const InvalidArgument&) {
    return false;
  }
  const detail::CheckpointPayload second = detail::decode(encode_again(first));
  require(first.parts == second.parts && first.own == second.own,
          "a checkpoint is another one when it is written and read again");
  return true;
}

std::vector<Seed> seeds() {
  const Blobs parts{{"model", "0123456789"}, {"sampler", "kolo.sampler.1 0 0 0 10 1"}, {"", ""}};
  const std::string own = detail::encode({{"random", "\x01\x02"}});
  return {{"nothing", detail::encode(Blobs{}, std::vector<std::string>{})},
          {"parts", detail::encode(parts, std::vector<std::string>{})},
          {"ranks", detail::encode(parts, {own, detail::encode(Blobs{}), own})}};
}

}  // namespace

const Target checkpoint_payload_target{
    .name = "checkpoint_payload", .most_bytes = 512, .run = run, .seeds = seeds};

}  // namespace kolo::fuzz
