// SPDX-License-Identifier: Apache-2.0
// Converts modules and optimizers to bytes and back.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/safetensors.hpp"
#include "kolo/torch/sharded_optimizer.hpp"
#include "torch/checkpoint/host_tensors.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "training/checkpoint/safetensors_names.hpp"

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
    throw InvalidArgument(std::string("these bytes cannot be read as ") + what + ": " +
                          error.what_without_backtrace());
  }
}

// A module's tensors before it is loaded. Loading replaces their data, on the archive's device and
// with the archive's shapes.
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

  // Throws if a tensor has another shape now; then all have their old data again.
  void require_same_shapes() {
    for (const auto& [name, tensor, before] : tensors_) {
      if (tensor.sizes() == before.sizes()) continue;
      const std::string message =
          c10::str("these bytes are of another module: '", name, "' has the shape ", tensor.sizes(),
                   " in them and ", before.sizes(), " here");
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

// LibTorch's archives are zip files. They have what a safetensors file cannot hold.
bool is_archive(const std::string& bytes) { return bytes.starts_with("PK"); }

SafetensorsViews views_of(const std::string& bytes, const std::string& subject) {
  try {
    return parse_safetensors(bytes);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(subject + ": " + error.what());
  }
}

// In an archive, for a ShardedOptimizer.
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

}  // namespace

std::string to_bytes(const ::torch::nn::Module& module) {
  const NamedParameters tensors = tensors_of(module);
  const auto storable = [](const auto& named) { return is_storable(named.second); };
  if (std::all_of(tensors.begin(), tensors.end(), storable)) {
    const HostTensors host(tensors);
    return to_safetensors(host.views());
  }
  OutputArchive archive;
  module.save(archive);
  return bytes_of(archive);
}

void from_bytes(const std::string& bytes, ::torch::nn::Module& module) {
  if (!is_archive(bytes)) {
    const std::string subject = "these bytes cannot be read as this module";
    (void)copy_by_name(subject, views_of(bytes, subject).tensors, tensors_of(module), {});
    return;
  }
  TensorsBefore tensors(module);
  read(bytes, "this module", tensors.device(), [&](InputArchive& archive) {
    module.load(archive);
    const at::NoGradGuard no_grad;
    tensors.require_same_shapes();
    tensors.restore_devices();
  });
}

// `Optimizer::load` restores the options in LibTorch 2 but not in 1.13, so they are saved next to
// its archive.
std::string to_bytes(const ::torch::optim::Optimizer& optimizer) {
  if (auto bytes = save_optimizer(optimizer)) return *std::move(bytes);
  try {
    OutputArchive archive;
    OutputArchive state(archive.compilation_unit());
    optimizer.save(state);
    archive.write("optimizer", state);
    if (const auto* sharded = dynamic_cast<const detail::ShardedBase*>(&optimizer))
      archive.write(place_key, c10::IValue(sharded->place()));
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

void from_bytes(const std::string& bytes, ::torch::optim::Optimizer& optimizer) {
  if (!is_archive(bytes)) {
    load_optimizer(bytes, optimizer);
    return;
  }
  read(bytes, "this optimizer's state", device_of(optimizer), [&](InputArchive& archive) {
    require_same_place(archive, optimizer);
    InputArchive state;
    archive.read("optimizer", state);
    // Loading only adds: without this, state of parameters that the archive lacks would survive.
    optimizer.state().clear();
    optimizer.load(state);
    auto& groups = optimizer.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      InputArchive options;
      archive.read(group_key(i), options);
      groups[i].options().serialize(options);
    }
  });
}

}  // namespace kolo
