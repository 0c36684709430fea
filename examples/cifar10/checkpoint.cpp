#include "checkpoint.hpp"

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <stdexcept>

namespace cifar10 {
namespace {

namespace fs = std::filesystem;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

void write_then_rename(OutputArchive& archive, const fs::path& file) {
  const fs::path unfinished = file.string() + ".part";
  archive.save_to(unfinished.string());
  fs::rename(unfinished, file);
}

}  // namespace

void save_checkpoint(const fs::path& file, const Network& network,
                     const torch::optim::Optimizer& optimizer, const Position& position) {
  OutputArchive archive;
  OutputArchive network_archive(archive.compilation_unit());
  OutputArchive optimizer_archive(archive.compilation_unit());
  network->save(network_archive);
  optimizer.save(optimizer_archive);
  archive.write("network", network_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("epochs", c10::IValue(position.epochs));
  archive.write("steps", c10::IValue(position.steps));
  write_then_rename(archive, file);
}

Position load_checkpoint(const fs::path& file, Network& network,
                         torch::optim::Optimizer& optimizer) {
  if (!fs::is_regular_file(file)) {
    throw std::runtime_error(
        fmt::format("cannot resume: there is no checkpoint '{}'", file.string()));
  }
  try {
    InputArchive archive, network_archive, optimizer_archive;
    archive.load_from(file.string());
    archive.read("network", network_archive);
    archive.read("optimizer", optimizer_archive);
    network->load(network_archive);
    optimizer.load(optimizer_archive);
    c10::IValue epochs, steps;
    archive.read("epochs", epochs);
    archive.read("steps", steps);
    return {.epochs = epochs.toInt(), .steps = steps.toInt()};
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format(
        "cannot resume: '{}' ({} bytes) is truncated or no checkpoint of this program: {}",
        file.string(), fs::file_size(file), error.what_without_backtrace()));
  }
}

void save_network(const fs::path& file, const Network& network) {
  OutputArchive archive;
  network->save(archive);
  write_then_rename(archive, file);
}

}  // namespace cifar10
