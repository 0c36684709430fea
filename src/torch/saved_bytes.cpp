// SPDX-License-Identifier: Apache-2.0
// Converts modules and optimizers to bytes and back.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/checkpoint.hpp"

namespace kolo {

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

// The devices of a module's tensors. Loading moves the tensors to the archive's device.
class TensorDevices {
 public:
  explicit TensorDevices(const ::torch::nn::Module& module) {
    for (const auto& tensors : {module.parameters(), module.buffers()})
      for (const ::torch::Tensor& tensor : tensors)
        if (tensor.defined()) devices_.emplace_back(tensor, tensor.device());
  }

  // The device of the first tensor.
  [[nodiscard]] ::torch::Device first() const {
    return devices_.empty() ? ::torch::Device(c10::DeviceType::CPU) : devices_.front().second;
  }

  void restore() {
    const at::NoGradGuard no_grad;
    for (auto& [tensor, device] : devices_)
      if (tensor.device() != device) tensor.set_data(tensor.detach().to(device));
  }

 private:
  std::vector<std::pair<::torch::Tensor, ::torch::Device>> devices_{};
};

// The device of the first parameter.
::torch::Device device_of(const ::torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const ::torch::Tensor& parameter : group.params()) return parameter.device();
  return {c10::DeviceType::CPU};
}

std::string group_key(std::size_t group) { return "options" + std::to_string(group); }

}  // namespace

std::string to_bytes(const ::torch::nn::Module& module) {
  OutputArchive archive;
  module.save(archive);
  return bytes_of(archive);
}

void from_bytes(const std::string& bytes, ::torch::nn::Module& module) {
  TensorDevices devices(module);
  read(bytes, "this module", devices.first(), [&](InputArchive& archive) {
    module.load(archive);
    devices.restore();
  });
}

// `Optimizer::load` restores the options in LibTorch 2 but not in 1.13, so they are saved next to
// its archive.
std::string to_bytes(const ::torch::optim::Optimizer& optimizer) {
  OutputArchive archive;
  OutputArchive state(archive.compilation_unit());
  optimizer.save(state);
  archive.write("optimizer", state);
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    OutputArchive options(archive.compilation_unit());
    groups[i].options().serialize(options);
    archive.write(group_key(i), options);
  }
  return bytes_of(archive);
}

void from_bytes(const std::string& bytes, ::torch::optim::Optimizer& optimizer) {
  read(bytes, "this optimizer's state", device_of(optimizer), [&](InputArchive& archive) {
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
