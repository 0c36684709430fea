// SPDX-License-Identifier: Apache-2.0
// The optimizers of LibTorch that Kolo can save: their options and state by PyTorch's names.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <concepts>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include "kolo/torch/optimizer.hpp"
#include "kolo/torch/sharded_optimizer.hpp"

namespace kolo::internal {

namespace optim = ::torch::optim;

template <typename T, typename... Types>
concept OneOf = (std::same_as<std::remove_const_t<T>, Types> || ...);

// Calls `visit(name, value)` for each option or state, by PyTorch's names.
template <OneOf<optim::SGDOptions> Options, typename Visit>
void visit_each(Options& options, const Visit& visit) {
  visit("lr", options.lr());
  visit("momentum", options.momentum());
  visit("dampening", options.dampening());
  visit("weight_decay", options.weight_decay());
  visit("nesterov", options.nesterov());
}
template <OneOf<optim::SGDParamState> State, typename Visit>
void visit_each(State& state, const Visit& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}

template <OneOf<optim::AdamOptions, optim::AdamWOptions> Options, typename Visit>
void visit_each(Options& options, const Visit& visit) {
  visit("lr", options.lr());
  visit("betas", options.betas());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("amsgrad", options.amsgrad());
}
template <OneOf<optim::AdamParamState, optim::AdamWParamState> State, typename Visit>
void visit_each(State& state, const Visit& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <OneOf<optim::RMSpropOptions> Options, typename Visit>
void visit_each(Options& options, const Visit& visit) {
  visit("lr", options.lr());
  visit("alpha", options.alpha());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("momentum", options.momentum());
  visit("centered", options.centered());
}
template <OneOf<optim::RMSpropParamState> State, typename Visit>
void visit_each(State& state, const Visit& visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}

template <OneOf<optim::AdagradOptions> Options, typename Visit>
void visit_each(Options& options, const Visit& visit) {
  visit("lr", options.lr());
  visit("lr_decay", options.lr_decay());
  visit("weight_decay", options.weight_decay());
  visit("initial_accumulator_value", options.initial_accumulator_value());
  visit("eps", options.eps());
}
template <OneOf<optim::AdagradParamState> State, typename Visit>
void visit_each(State& state, const Visit& visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

// True if an optimizer with these options keeps state of this name for its parameters.
template <typename Options>
bool needs_state(const Options& options, std::string_view state) {
  if constexpr (requires { options.amsgrad(); })
    if (state == "max_exp_avg_sq") return options.amsgrad();
  if constexpr (requires { options.centered(); })
    if (state == "grad_avg") return options.centered();
  if constexpr (requires { options.momentum(); })
    if (state == "momentum_buffer") return options.momentum() > 0;
  return true;
}

template <typename O, typename S>
struct Kind {
  using Options = O;
  using State = S;
  const char* name;
};

// Calls `visit` with the kind of the optimizer; returns false for an optimizer of another class. A
// derived class may have state of its own, so the class must be the same.
template <typename Visit>
bool with_kind(const optim::Optimizer& optimizer, const Visit& visit) {
  const auto attempt = [&]<typename Base, typename K>(std::type_identity<Base>, K kind) {
    if (typeid(optimizer) != typeid(Base) &&
        typeid(optimizer) != typeid(DistributedOptimizer<Base>) &&
        typeid(optimizer) != typeid(ShardedOptimizer<Base>))
      return false;
    visit(kind);
    return true;
  };
  using optim::AdagradOptions, optim::AdagradParamState, optim::AdamOptions, optim::AdamParamState;
  using optim::AdamWOptions, optim::AdamWParamState, optim::RMSpropOptions;
  using optim::RMSpropParamState, optim::SGDOptions, optim::SGDParamState;
  return attempt(std::type_identity<optim::SGD>(), Kind<SGDOptions, SGDParamState>{"SGD"}) ||
         attempt(std::type_identity<optim::Adam>(), Kind<AdamOptions, AdamParamState>{"Adam"}) ||
         attempt(std::type_identity<optim::AdamW>(),
                 Kind<AdamWOptions, AdamWParamState>{"AdamW"}) ||
         attempt(std::type_identity<optim::RMSprop>(),
                 Kind<RMSpropOptions, RMSpropParamState>{"RMSprop"}) ||
         attempt(std::type_identity<optim::Adagrad>(),
                 Kind<AdagradOptions, AdagradParamState>{"Adagrad"});
}

// The key of a parameter's state: the tensor's address, which LibTorch 1.13 prints as text.
template <typename Map>
typename Map::key_type key_of(const Map&, const ::torch::Tensor& parameter) {
  void* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::same_as<typename Map::key_type, std::string>) {
    std::ostringstream text;
    text << address;
    return text.str();
  } else {
    return address;
  }
}

}  // namespace kolo::internal
