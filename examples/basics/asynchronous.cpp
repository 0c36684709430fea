// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls, groups, process sets, and the error that a mistake raises.
#include <kolo/kolo.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  kolo::Session session(argc, argv, {.fusion_threshold = 64 << 20, .stall_warning = 30s});

  // Names let ranks submit in different orders.
  std::vector<float> weight(4096, 1.0F);
  std::vector<float> bias(64, 1.0F);
  kolo::Future<void> a;
  kolo::Future<void> b;
  if (kolo::rank() % 2 == 0) {
    a = kolo::allreduce_async(weight, {.name = "weight", .compression = kolo::Compression::bf16});
    b = kolo::allreduce_async(bias, {.name = "bias", .prescale = 0.5, .postscale = 2.0});
  } else {
    b = kolo::allreduce_async(bias, {.name = "bias", .prescale = 0.5, .postscale = 2.0});
    a = kolo::allreduce_async(weight, {.name = "weight", .compression = kolo::Compression::bf16});
  }
  a.wait();
  if (!b.wait_for(10s)) std::cerr << "bias is late\n";
  b.wait();

  // A group completes as a whole, in one batch.
  kolo::grouped_allreduce({weight, bias}, {.name = "layer1", .op = kolo::ReduceOp::sum});

  // A matrix: any memory with a shape.
  kolo::TensorView matrix(weight.data(), {64, 64});
  kolo::allreduce(matrix, {.op = kolo::ReduceOp::max});

  // A subset of the ranks. Every rank of the world creates the set; its members use it.
  if (kolo::size() >= 2) {
    const kolo::ProcessSet pair = kolo::add_process_set({0, 1});
    if (pair.contains(kolo::rank())) {
      kolo::allreduce(bias, {.op = kolo::ReduceOp::sum, .process_set = pair});
      kolo::barrier(pair);
    }
    kolo::remove_process_set(pair);
  }

  // A mistake on one rank throws on every rank, and the session stays usable.
  if (kolo::size() >= 2) {
    std::vector<float> odd(kolo::rank() == 0 ? 7 : 8);
    try {
      kolo::allreduce(odd, {.name = "odd"});
    } catch (const kolo::Mismatch& error) {
      std::cerr << error.what() << '\n';  // names "odd", the ranks, and [7] against [8]
    }
  }
  kolo::allreduce(bias);

  // A buffer can be moved into the operation; the future returns it.
  kolo::Future<std::vector<float>> owned =
      kolo::allreduce_async(std::vector<float>(16, 1.0F), {.name = "owned"});
  if (owned.get().front() != 1.0F) return 1;

  // Ranks with less data join early; `join` returns the last rank to join, on all ranks.
  const int last = kolo::join();
  std::cout << "rank " << kolo::rank() << ": rank " << last << " was last\n";
}
