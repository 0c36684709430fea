// SPDX-License-Identifier: Apache-2.0
#include "transport/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace kolo::internal {
namespace {

constexpr std::size_t block_bytes = 64;
constexpr std::size_t rounds = 64;
using State = std::array<std::uint32_t, 8>;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, rounds> constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The first 32 bits of the fractional parts of the square roots of the first eight primes.
constexpr State begin{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::uint32_t word_at(std::span<const std::byte> bytes) {
  std::uint32_t word = 0;
  for (const std::byte byte : bytes.first<4>()) word = word << 8 | std::to_integer<unsigned>(byte);
  return word;
}

void add_block(State& state, std::span<const std::byte> block) {
  std::array<std::uint32_t, rounds> words{};
  for (std::size_t i = 0; i < 16; ++i) words[i] = word_at(block.subspan(4 * i));
  for (std::size_t i = 16; i < rounds; ++i) {
    const std::uint32_t a = words[i - 15];
    const std::uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + constants[i] + words[i];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State more{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += more[i];
}

}  // namespace

Digest sha256(std::span<const std::byte> bytes) {
  State state = begin;
  std::span<const std::byte> rest = bytes;
  for (; rest.size() >= block_bytes; rest = rest.subspan(block_bytes))
    add_block(state, rest.first(block_bytes));
  // The padding: a 1 bit, zeros, and the message's length in bits in the last eight bytes.
  std::array<std::byte, 2 * block_bytes> end{};
  std::ranges::copy(rest, end.begin());
  end[rest.size()] = std::byte{0x80};
  const std::size_t size = rest.size() + 9 <= block_bytes ? block_bytes : 2 * block_bytes;
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (std::size_t i = 0; i < 8; ++i) end[size - 1 - i] = static_cast<std::byte>(bits >> 8 * i);
  for (std::size_t at = 0; at < size; at += block_bytes)
    add_block(state, std::span(end).subspan(at, block_bytes));
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts) {
  std::array<std::byte, block_bytes> block{};
  if (key.size() > block_bytes)
    std::ranges::copy(sha256(key), block.begin());
  else
    std::ranges::copy(key, block.begin());
  std::vector<std::byte> inner(block_bytes);
  std::vector<std::byte> outer(block_bytes);
  for (std::size_t i = 0; i < block_bytes; ++i) {
    inner[i] = block[i] ^ std::byte{0x36};
    outer[i] = block[i] ^ std::byte{0x5c};
  }
  for (const auto& part : parts) inner.insert(inner.end(), part.begin(), part.end());
  const Digest digest = sha256(inner);
  outer.insert(outer.end(), digest.begin(), digest.end());
  return sha256(outer);
}

bool is_same_digest(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

}  // namespace kolo::internal
