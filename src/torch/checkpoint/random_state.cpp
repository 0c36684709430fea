// SPDX-License-Identifier: Apache-2.0
// The states of the random number generators of a rank's devices.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/state.hpp"
#include "torch/checkpoint/host_tensors.hpp"

namespace kolo {

using namespace internal;
namespace {

// The generator of the CPU, then the generator of this rank's GPU if there is one.
std::vector<at::Generator> generators() {
  std::vector<at::Generator> all{at::globalContext().defaultGenerator(at::kCPU)};
  const ::torch::Device device = local_device();
  if (!device.is_cpu()) all.push_back(at::globalContext().defaultGenerator(device));
  return all;
}

// The name of a generator's state, by the position of the generator.
std::string state_name(std::size_t generator) { return generator == 0 ? "cpu" : "cuda"; }

// Returns the saved states in the order of `generators`. For each further state, whose generator
// this process lacks, an undefined tensor follows, so that the caller can report the number.
std::vector<::torch::Tensor> states_from(const StateDict& saved, std::size_t generators_here) {
  std::vector<::torch::Tensor> states;
  for (std::size_t i = 0; i < generators_here; ++i) {
    const auto found = saved.tensors.find(state_name(i));
    if (found == saved.tensors.end())
      throw InvalidArgument("load_random_state: the state has no tensor '" + state_name(i) + "'");
    states.push_back(to_tensor(found->second));
  }
  states.resize(std::max(states.size(), saved.tensors.size()));
  return states;
}

}  // namespace

StateDict random_state() {
  HostTensors states;
  std::vector<at::Generator> all = generators();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::lock_guard lock(all[i].mutex());  // other threads may draw numbers
    states.add(state_name(i), all[i].get_state());
  }
  return StateDict(states.views());
}

void load_random_state(const StateDict& state) {
  try {
    std::vector<at::Generator> all = generators();
    const std::vector<::torch::Tensor> states = states_from(state, all.size());
    if (states.size() != all.size()) {
      throw InvalidArgument("load_random_state: the state is for " + std::to_string(states.size()) +
                            " generators, this process has " + std::to_string(all.size()));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::lock_guard lock(all[i].mutex());
      all[i].set_state(states[i]);
    }
  } catch (const c10::Error& error) {
    throw InvalidArgument(
        std::string("load_random_state: this is not a state of random numbers: ") +
        error.what_without_backtrace());
  }
}

}  // namespace kolo
