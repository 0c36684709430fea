// SPDX-License-Identifier: Apache-2.0
// A rank's status: through its page in shared memory, and as bytes.
#include <memory>

#include "negotiation/wire/codec.hpp"
#include "node/status_page.hpp"
#include "samples.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using namespace negotiation;

bool run(Bytes bytes) {
  static const auto page = std::make_unique<node::StatusPage>();
  if (!page->write(std::as_bytes(bytes))) {
    require(bytes.size() > status_target.max_bytes, "a page has no room for a short status");
    return false;
  }
  RankStatus first;
  try {
    first = decode_status(page->read());
  } catch (const ProtocolError&) {
    return false;
  }
  require(decode_status(encode_status(first)) == first,
          "a status is another one when it is written and read again");
  return true;
}

Seed seed_of(const std::string& name, const RankStatus& status) {
  const std::vector<std::byte> bytes = encode_status(status);
  return {name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

std::vector<Seed> seeds() {
  RankStatus working = sample_status();
  working.ended.reset();
  return {seed_of("nothing", {}), seed_of("working", working), seed_of("ended", sample_status())};
}

}  // namespace

const Target status_target{.name = "status", .max_bytes = 1024, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
