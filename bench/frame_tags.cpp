// SPDX-License-Identifier: Apache-2.0
// The time in which a control message's tag is made and checked, and the header's with it, by the
// length of the message: medians, in microseconds.
#include <fmt/format.h>
#include <sodium.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "blocks.hpp"
#include "transport/frame_tags.hpp"

namespace {

using kolo::internal::transport::FrameTags;

double microseconds_each(std::size_t bytes) {
  constexpr int frames = 1000;
  constexpr int rounds = 101;
  const kolo::internal::transport::FrameKey key{};
  FrameTags sent(key);
  FrameTags received(key);
  const std::vector<std::byte> header(8);
  const std::vector<std::byte> body(bytes);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int frame = 0; frame < frames; ++frame) {
      const auto short_tag = sent.header_tag(header);
      const auto tag = sent.next(header, body);
      if (!received.accepts_header(header, short_tag) || !received.accepts(header, body, tag))
        std::abort();
    }
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    times.push_back(spent.count() / frames);
  }
  return blocks::median(times);
}

}  // namespace

int main() {
  if (sodium_init() < 0) return 1;
  for (const std::size_t bytes : {16U, 64U, 256U, 1024U, 4096U})
    fmt::print("{} {:.3f}\n", bytes, microseconds_each(bytes));
}
