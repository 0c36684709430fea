// SPDX-License-Identifier: Apache-2.0
// Copies modules, optimizers, tensors and the states of random number generators to states and
// back.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/elastic.hpp"
#include "kolo/torch/sharded_optimizer.hpp"
#include "kolo/torch/state.hpp"
#include "torch/checkpoint/host_tensors.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "torch/sharded/sharded_unit.hpp"
#include "training/safetensors/safetensors.hpp"

namespace kolo {

using namespace internal;
namespace {

using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

std::string bytes_of(OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

// True if all entries of an archive, or of the nested archive `name`, are in `names`.
bool has_only(const c10::ClassType& archive, const std::string& prefix,
              const std::set<std::string>& names) {
  for (std::size_t i = 0; i < archive.numAttributes(); ++i) {
    const std::string name = prefix + archive.getAttributeName(i);
    const auto nested = archive.getAttribute(i)->cast<c10::ClassType>();
    if (nested ? !has_only(*nested, name + '.', names) : !names.contains(name)) return false;
  }
  return true;
}

// Saves the module into an archive, and returns the archive if `save` of the module or of a
// submodule has written more than the listed tensors. To see the entries, it reads the archive's
// class, which LibTorch adds to the compilation unit. An archive holds references, so nothing is
// copied here.
std::optional<OutputArchive> archive_with_more(const ::torch::nn::Module& module,
                                               const NamedParameters& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  const auto unit = std::make_shared<::torch::jit::CompilationUnit>();
  OutputArchive archive(unit);
  const auto type = unit->get_class(c10::QualifiedName("__torch__.Module"));
  module.save(archive);
  if (type != nullptr && has_only(*type, "", names)) return std::nullopt;
  return archive;
}

// Reads an archive onto `device`: its tensors may have been saved on a device that this rank does
// not have. LibTorch's errors are rewritten, because they contain pages of stack trace.
void read(const std::string& bytes, const char* what, const ::torch::Device& device,
          const std::function<void(InputArchive&)>& load) {
  try {
    std::istringstream stream(bytes);
    InputArchive archive;
    archive.load_from(stream, device);
    load(archive);
  } catch (const c10::Error& error) {
    throw InvalidArgument(std::string("this state cannot be loaded as ") + what + ": " +
                          error.what_without_backtrace());
  }
}

void refuse_freed(const ::torch::nn::Module& module) {
  const auto check = [](const ::torch::nn::Module& each) {
    const auto* const unit = dynamic_cast<const detail::ShardedModule*>(&each);
    if (unit != nullptr && ShardedUnit::of(*unit) && ShardedUnit::of(*unit)->is_freed())
      throw InvalidArgument(
          "state: the module's parameters are in shards, and freed here. Call full_state() or "
          "state_view() of its FullySharded");
  };
  check(module);
  for (const auto& child : module.modules(/*include_self=*/false)) check(*child);
}

// The tensors of a module before it is loaded. Loading replaces their data, on the device and with
// the shapes of the archive.
class TensorsBefore {
 public:
  explicit TensorsBefore(const ::torch::nn::Module& module) {
    for (const auto& tensors : {module.named_parameters(), module.named_buffers()})
      for (const auto& item : tensors)
        if (item.value().defined())
          tensors_.push_back({item.key(), item.value(), item.value().detach()});
  }

  // The device of the first tensor.
  [[nodiscard]] ::torch::Device device() const {
    return tensors_.empty() ? ::torch::Device(c10::DeviceType::CPU)
                            : tensors_.front().before.device();
  }

  void restore_devices() {
    for (auto& [name, tensor, before] : tensors_)
      if (tensor.device() != before.device()) tensor.set_data(tensor.detach().to(before.device()));
  }

  // Throws if a tensor has another shape than before. All tensors then get their old data back.
  void require_same_shapes() {
    for (const auto& [name, tensor, before] : tensors_) {
      if (tensor.sizes() == before.sizes()) continue;
      const std::string message =
          c10::str("this state is of another module: '", name, "' has the shape ", tensor.sizes(),
                   " in it and ", before.sizes(), " here");
      for (auto& each : tensors_) each.tensor.set_data(each.before);
      throw InvalidArgument(message);
    }
  }

 private:
  struct Tensor {
    std::string name;
    ::torch::Tensor tensor;
    ::torch::Tensor before;  // shares the data
  };

  std::vector<Tensor> tensors_{};
};

// The device of the first parameter.
::torch::Device device_of(const ::torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const ::torch::Tensor& parameter : group.params()) return parameter.device();
  return {c10::DeviceType::CPU};
}

// The entry of an archive that names the shards of a ShardedOptimizer.
constexpr const char* place_key = "shard";

void require_same_place(InputArchive& archive, ::torch::optim::Optimizer& optimizer) {
  auto* const sharded = dynamic_cast<detail::ShardedBase*>(&optimizer);
  if (sharded != nullptr) sharded->adopt_parameters();
  c10::IValue there;
  const bool has_place = archive.try_read(place_key, there) && there.isString();
  internal::require_same_place(has_place ? there.toStringRef() : "",
                               sharded == nullptr ? "" : sharded->place());
}

std::string group_key(std::size_t group) { return "options" + std::to_string(group); }

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
std::vector<::torch::Tensor> states_from(const StateView& saved, std::size_t generators_here) {
  std::vector<::torch::Tensor> states;
  for (std::size_t i = 0; i < generators_here; ++i) {
    const auto found = saved.tensors.find(state_name(i));
    if (found == saved.tensors.end())
      throw InvalidArgument("load_random_state: the state has no tensor '" + state_name(i) + "'");
    states.push_back(tensor_of(found->second, found->first));
  }
  states.resize(std::max(states.size(), saved.tensors.size()));
  return states;
}

}  // namespace

StateView state_view(const ::torch::nn::Module& module) {
  refuse_freed(module);
  const NamedParameters tensors = detail::module_tensors(module);
  if (auto archive = archive_with_more(module, tensors)) return bytes_of(*archive);
  const auto storable = [](const auto& named) { return is_storable(named.second); };
  if (std::all_of(tensors.begin(), tensors.end(), storable)) return state_view(tensors);
  OutputArchive archive;
  module.save(archive);
  return bytes_of(archive);
}

StateView state_view(const NamedParameters& tensors) {
  StateView view;
  for (const auto& [name, tensor] : tensors) add_tensor(view, name, tensor);
  return view;
}

StateDict state(const ::torch::nn::Module& module) { return state_view(module).copy(); }
StateDict state(const NamedParameters& tensors) { return state_view(tensors).copy(); }
StateDict state(const ::torch::optim::Optimizer& optimizer) { return state_view(optimizer).copy(); }

void load_state(::torch::nn::Module& module, const StateView& state) {
  if (!is_archive(state)) {
    load_state(detail::module_tensors(module), state);
    return;
  }
  TensorsBefore tensors(module);
  read(state.text(), "this module", tensors.device(), [&](InputArchive& archive) {
    module.load(archive);
    const at::NoGradGuard no_grad;
    tensors.require_same_shapes();
    tensors.restore_devices();
  });
}

void load_state(const NamedParameters& into, const StateView& state) {
  (void)copy_by_name("this state cannot be loaded as this module", state, into, {});
}

// `Optimizer::load` restores the options in LibTorch 2 but not in 1.13, so they are saved next to
// its archive.
StateView state_view(const ::torch::optim::Optimizer& optimizer) {
  if (auto saved = save_optimizer(optimizer)) return *std::move(saved);
  try {
    OutputArchive archive;
    OutputArchive entries(archive.compilation_unit());
    if (const auto* sharded = dynamic_cast<const detail::ShardedBase*>(&optimizer)) {
      sharded->save_shards(entries);
      archive.write(place_key, c10::IValue(sharded->place()));
    } else {
      optimizer.save(entries);
    }
    archive.write("optimizer", entries);
    const auto& groups = optimizer.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      OutputArchive options(archive.compilation_unit());
      groups[i].options().serialize(options);
      archive.write(group_key(i), options);
    }
    return bytes_of(archive);
  } catch (const c10::Error& error) {
    // LBFGS has undefined tensors until its history is full.
    throw InvalidArgument(std::string("LibTorch cannot save the state of this optimizer now: ") +
                          error.what_without_backtrace());
  }
}

void load_state(::torch::optim::Optimizer& optimizer, const StateView& state) {
  if (!is_archive(state)) {
    load_optimizer(state, optimizer);
    return;
  }
  read(state.text(), "this optimizer's state", device_of(optimizer), [&](InputArchive& archive) {
    require_same_place(archive, optimizer);
    InputArchive entries;
    archive.read("optimizer", entries);
    // Loading only adds state, so the state of parameters that the archive lacks would survive.
    optimizer.state().clear();
    if (auto* const sharded = dynamic_cast<detail::ShardedBase*>(&optimizer)) {
      sharded->load_shards(entries);
    } else {
      optimizer.load(entries);
    }
    auto& groups = optimizer.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      InputArchive options;
      archive.read(group_key(i), options);
      groups[i].options().serialize(options);
    }
  });
}

StateDict random_state() {
  StateDict states;
  std::vector<at::Generator> all = generators();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::lock_guard lock(all[i].mutex());  // other threads may draw numbers
    StateView one;
    add_tensor(one, state_name(i), all[i].get_state());
    states.tensors.merge(one.copy().tensors);
  }
  return states;
}

void load_random_state(const StateView& state) {
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

namespace kolo::elastic::detail {

void TorchTensorHandler::save(StateDict& state) {
  const at::NoGradGuard no_grad;
  const ::torch::Tensor host = tensor_.detach().to(c10::DeviceType::CPU).contiguous();
  save_bytes(state, host.data_ptr(), host.nbytes());
}

void TorchTensorHandler::load(const StateDict& state) {
  const at::NoGradGuard no_grad;
  const ::torch::Tensor host = at::empty(
      tensor_.sizes(), tensor_.options().device(c10::DeviceType::CPU).requires_grad(false));
  const std::string& bytes = state.text();
  if (host.nbytes() != bytes.size()) throw_wrong_size(host.nbytes(), bytes.size());
  std::memcpy(host.data_ptr(), bytes.data(), bytes.size());
  tensor_.copy_(host);
}

}  // namespace kolo::elastic::detail
