// SPDX-License-Identifier: Apache-2.0
// The ranks in C++ of a job whose ranks are in several languages. program.c, program.py and
// program.f90 do the same and print the same: the bytes of each result, and each error.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <kolo/kolo.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int count = 100;

/// Prints the line in one piece, beside the other ranks'.
void print(const std::string& line) {
  std::fputs((line + '\n').c_str(), stdout);
  std::fflush(stdout);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
  }
  return text;
}

template <typename T>
void print_bits(const std::string& name, const std::vector<T>& values) {
  print("bits of " + name + ": " + hex(std::as_bytes(std::span(values))));
}

template <typename Error, typename Call>
void print_error(const char* kind, const Call& call) {
  try {
    call();
    print("no error");
  } catch (const Error& error) {
    std::string ranks;
    for (const int rank : error.ranks()) ranks += ' ' + std::to_string(rank);
    print("error " + std::string(kind) + " of '" + error.tensor() + "', ranks" + ranks + ": " +
          error.what());
  }
}

std::vector<float> make_values() {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 1.0F / (3.0F * static_cast<float>(i) + static_cast<float>(kolo::rank()) + 1.0F);
  return values;
}

void reduce() {
  auto values = make_values();
  kolo::allreduce(values, {.name = "gradient"});
  print_bits("allreduce", values);
  values = make_values();
  kolo::allreduce(
      values, {.op = kolo::ReduceOp::sum, .prescale = 0.5, .compression = kolo::Compression::bf16});
  print_bits("compressed allreduce", values);
  std::vector<double> doubles(7);
  std::vector<std::int32_t> integers(5);
  for (int i = 0; i < 7; ++i) doubles[static_cast<std::size_t>(i)] = 1.0 / (i + kolo::rank() + 2);
  for (int i = 0; i < 5; ++i) integers[static_cast<std::size_t>(i)] = i * (kolo::rank() + 1);
  kolo::grouped_allreduce({kolo::TensorView(doubles), kolo::TensorView(integers)},
                          {.op = kolo::ReduceOp::sum});
  print_bits("group's doubles", doubles);
  print_bits("group's integers", integers);
}

void move() {
  const auto values = make_values();
  const std::vector<float> rows(values.begin(), values.begin() + kolo::rank() + 1);
  print_bits("allgather", kolo::allgather(rows).values);
  auto received = values;
  kolo::broadcast(received, kolo::size() - 1);
  print_bits("broadcast", received);
  const auto own = kolo::reducescatter(values, {.op = kolo::ReduceOp::sum});
  print_bits("reducescatter", kolo::allgather(own).values);
  std::vector<std::int64_t> sent(2 * static_cast<std::size_t>(kolo::size()));
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = 100 * kolo::rank() + static_cast<std::int64_t>(i);
  print_bits("alltoall", kolo::allgather(kolo::alltoall(sent).values).values);
}

void use_sets_and_requests() {
  auto values = make_values();
  std::vector<int> even;
  for (int rank = 0; rank < kolo::size(); rank += 2) even.push_back(rank);
  const kolo::ProcessSet set = kolo::add_process_set(even);
  if (set.contains(kolo::rank()))
    kolo::allreduce(values, {.op = kolo::ReduceOp::max, .process_set = set});
  kolo::broadcast(values, 0);
  print_bits("set of even ranks", values);
  std::array both{make_values(), make_values()};
  const std::array<std::string, 2> names{"first", "second"};
  std::vector<kolo::Future<void>> futures;
  for (int i = 0; i < 2; ++i) {  // in another order on each second rank
    const auto k = static_cast<std::size_t>((i + kolo::rank()) % 2);
    const auto op = k == 0 ? kolo::ReduceOp::product : kolo::ReduceOp::min;
    futures.push_back(
        kolo::allreduce_async(kolo::TensorView(both.at(k)), {.name = names.at(k), .op = op}));
  }
  for (auto& future : futures) future.wait();
  print_bits("first request", both[0]);
  print_bits("second request", both[1]);
}

void make_mistakes() {
  auto values = make_values();
  const std::span some(values.data(), kolo::rank() == 1 ? count - 1 : count);
  print_error<kolo::Mismatch>("Mismatch", [&] { kolo::allreduce(some, {.name = "weights"}); });
  print_error<kolo::Mismatch>(
      "Mismatch", [&] { kolo::broadcast(values, kolo::rank() == 1 ? 1 : 0, {.name = "start"}); });
  if (kolo::rank() == kolo::size() - 1) return;
  print_error<kolo::PeerLeft>("PeerLeft", [&] { kolo::allreduce(values, {.name = "missed"}); });
}

}  // namespace

int main() {
  const kolo::Session session({.flight_recorder_dir = "off"});
  reduce();
  move();
  use_sets_and_requests();
  make_mistakes();
  return 0;
}
