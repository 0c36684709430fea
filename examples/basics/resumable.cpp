// SPDX-License-Identifier: Apache-2.0
// A custom training loop that can stop at any time and resumes when it is started again, with the
// same or another number of ranks:
//
//     mpirun -np 4 resumable DIRECTORY [EPOCHS]
#include <kolo/kolo.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

// y = slope * x + offset, by gradient descent.
struct Line {
  double slope = 0.0, offset = 0.0;
  double slope_gradient = 0.0, offset_gradient = 0.0;
  double learning_rate = 0.0;

  std::vector<kolo::NamedTensor> gradients() {
    return {{"slope", slope_gradient}, {"offset", offset_gradient}};
  }
  void step() {
    slope -= learning_rate * slope_gradient;
    offset -= learning_rate * offset_gradient;
  }

  std::string bytes() const {
    std::string bytes(2 * sizeof(double), '\0');
    std::memcpy(bytes.data(), &slope, sizeof slope);
    std::memcpy(bytes.data() + sizeof slope, &offset, sizeof offset);
    return bytes;
  }
  void load_state(const std::string& bytes) {
    std::memcpy(&slope, bytes.data(), sizeof slope);
    std::memcpy(&offset, bytes.data() + sizeof slope, sizeof offset);
  }
};

struct Batch {
  std::vector<double> x, y;
};

// Stands for data that is read and decoded from files.
Batch load_batch(const std::vector<std::int64_t>& indices, std::int64_t number, std::int64_t size) {
  Batch batch;
  const auto end = static_cast<std::int64_t>(indices.size());
  for (std::int64_t i = number * size; i < std::min((number + 1) * size, end); ++i) {
    const double x = static_cast<double>(indices[static_cast<std::size_t>(i)]) / 1000.0;
    batch.x.push_back(x);
    batch.y.push_back(3.0 * x - 1.0);
  }
  return batch;
}

double gradients(Line& line, const Batch& batch) {
  line.slope_gradient = line.offset_gradient = 0.0;
  double loss = 0.0;
  const auto count = static_cast<double>(batch.x.size());
  for (std::size_t i = 0; i < batch.x.size(); ++i) {
    const double error = line.slope * batch.x[i] + line.offset - batch.y[i];
    loss += error * error / count;
    line.slope_gradient += 2.0 * error * batch.x[i] / count;
    line.offset_gradient += 2.0 * error / count;
  }
  return loss;
}

void train(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-')
    throw std::runtime_error("usage: resumable DIRECTORY [EPOCHS]");
  kolo::Session session(argc, argv);
  const std::int64_t epochs = argc > 2 ? std::atoi(argv[2]) : 20;
  constexpr std::int64_t batch_size = 10;

  Line line;
  kolo::DistributedOptimizer optimizer(line);
  kolo::DistributedSampler sampler({.examples = 1000, .seed = 42});
  kolo::MetricAverage metrics({"loss"});
  const std::int64_t steps_per_epoch = sampler.steps_left(batch_size);
  const kolo::LearningRateSchedule learning_rate({.peak = 0.1,
                                                  .warmup_from = 0.01,
                                                  .warmup = 1,
                                                  .steps_per_epoch = steps_per_epoch,
                                                  .milestones = {{15, 0.1}}});

  kolo::Checkpointer checkpoints({.directory = argv[1], .keep_last = 3});
  std::int64_t step = 0;
  if (const auto found = checkpoints.load_latest()) {
    line.load_state(found->part("line"));
    sampler.load_state(found->part("sampler"));
    step = found->step;
  }

  double loss = 0.0;
  while (sampler.epoch() < epochs) {
    const std::vector<std::int64_t> indices = sampler.indices();  // the rest of the epoch
    kolo::BackgroundLoader<Batch> batches(
        sampler.steps_left(batch_size),
        [&](std::int64_t number) { return load_batch(indices, number, batch_size); },
        {.threads = 2});
    while (const auto batch = batches.next()) {
      line.learning_rate = learning_rate(step);
      metrics.add("loss", gradients(line, *batch), static_cast<double>(batch->x.size()));
      optimizer.step();
      sampler.advance(batch_size);
      ++step;
      const bool stops = kolo::stop_requested();  // a scheduler is about to end the job
      if (stops || step % 50 == 0) {
        checkpoints.save(step, {{"line", line.bytes()}, {"sampler", sampler.state()}});
      }
      if (stops) return;
    }
    loss = metrics.over_all_ranks().at("loss");
    metrics.reset();
    sampler.begin_epoch(sampler.epoch() + 1);
    checkpoints.save(step, {{"line", line.bytes()}, {"sampler", sampler.state()}},
                     {.metric = loss});
  }
  if (kolo::rank() == 0) {
    std::printf("step %lld: %.17g x + %.17g, loss %g\n", static_cast<long long>(step), line.slope,
                line.offset, loss);
  }
}

int main(int argc, char** argv) {
  try {
    train(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
