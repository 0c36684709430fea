// SPDX-License-Identifier: Apache-2.0
// GPU tensors of some of the ranks: process sets, joins, ranks that disagree, ranks that leave, and
// a GPU that fails; with doubles of CUDA and NCCL.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "gpu_session.hpp"
#include "session/api/cuda_device.hpp"

namespace kolo::internal {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class GpuGroups : public GpuSession {
 protected:
  /// Its elements are the number of this rank, from 1 on.
  float* ones(std::int64_t elements) {
    return make(elements, [](std::int64_t) { return rank() + 1; });
  }
  static double sum_over(const std::vector<int>& ranks) {
    double sum = 0;
    for (const int rank : ranks) sum += rank + 1;
    return sum;
  }
  static std::vector<int> others_than(int rank) {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::erase(ranks, rank);
    return ranks;
  }
  void expect_all(const float* tensor, std::int64_t elements, double value) {
    cuda_->synchronize(stream());
    for (std::int64_t k = 0; k < elements; ++k)
      ASSERT_FLOAT_EQ(tensor[k], static_cast<float>(value)) << "element " << k;
  }
  /// Fails unless an allreduce of all ranks works.
  void expect_usable() {
    float* const tensor = ones(3);
    allreduce(view(tensor, 3), {.name = "is the session usable?", .op = ReduceOp::sum});
    expect_all(tensor, 3, sum_of_ranks() + size());
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, GpuGroups, gpu_paths, name_of_path);

/// Operations of even ranks, of odd ranks and of all ranks are in progress at once, in a different
/// order on each rank.
TEST_P(GpuGroups, ProcessSetsSideBySide) {
  const CudaStreamScope scope(stream());
  std::array<std::vector<int>, 2> halves;
  for (int rank = 0; rank < size(); ++rank)
    halves[static_cast<std::size_t>(rank % 2)].push_back(rank);
  const std::vector<int>& own = halves[static_cast<std::size_t>(rank() % 2)];
  for (int round = 0; round < 3; ++round) {
    std::vector<ProcessSet> sets;
    for (const auto& half : halves)
      if (!half.empty()) sets.push_back(add_process_set(half));
    const ProcessSet& set = sets[static_cast<std::size_t>(rank() % 2)];
    struct Pending {
      float* tensor;
      bool of_all;
      Future<void> future{};
    };
    std::vector<Pending> pending;
    for (int i = 0; i < 12; ++i) pending.push_back({ones(400 + i), i % 2 == 0});
    std::vector<std::size_t> order(pending.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 random(static_cast<std::uint64_t>(rank()));
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      AllreduceOptions options{.name = std::to_string(i), .op = ReduceOp::sum};
      if (!pending[i].of_all) options.process_set = set;
      pending[i].future =
          allreduce_async(view(pending[i].tensor, 400 + static_cast<std::int64_t>(i)), options);
    }
    for (std::size_t i = 0; i < pending.size(); ++i) {
      pending[i].future.wait();
      expect_all(pending[i].tensor, 400 + static_cast<std::int64_t>(i),
                 pending[i].of_all ? sum_of_ranks() + size() : sum_over(own));
    }
    for (const ProcessSet& each : sets) remove_process_set(each);
  }
  // The communicators of the sets are made of that of all ranks, and are kept.
  if (nccl_ != nullptr) {
    EXPECT_LE(nccl_->inits() + nccl_->shrinks(), size() == 1 ? 1 : 2);
  }
}

/// Each rank is the first to join in one epoch.
TEST_P(GpuGroups, RanksThatHaveJoinedTakeNoPart) {
  const CudaStreamScope scope(stream());
  for (int first = 0; first < size(); ++first) {
    expect_usable();
    if (rank() != first) {
      const std::vector<int> present = others_than(first);
      for (int step = 0; step < 3; ++step) {
        float* const large = ones(70000);
        float* const small = ones(5);
        Future<void> one = allreduce_async(view(large, 70000), {.name = "large"});
        Future<void> two = allreduce_async(view(small, 5),
                                           {.name = "small", .average_over = AverageOver::present});
        one.wait();
        two.wait();
        expect_all(large, 70000, sum_over(present) / size());
        expect_all(small, 5, sum_over(present) / static_cast<double>(present.size()));
      }
    }
    const int last = join();
    if (size() > 1) {
      EXPECT_NE(last, first);
    }
    expect_usable();
  }
  if (nccl_ != nullptr) {
    EXPECT_EQ(nccl_->inits(), 1);
    EXPECT_EQ(nccl_->aborts(), 0);
  }
}

/// As with data that cannot be shared evenly.
TEST_P(GpuGroups, ARankThatJoinsFirstInEachEpochMakesNoNewCommunicators) {
  const CudaStreamScope scope(stream());
  for (int epoch = 0; epoch < 4; ++epoch) {
    expect_usable();
    for (int step = 0; step < 2 && rank() != 0; ++step) {
      float* const tensor = ones(500);
      allreduce(view(tensor, 500), {.name = "gradient", .op = ReduceOp::sum});
      expect_all(tensor, 500, sum_over(others_than(0)));
    }
    join();
  }
  expect_usable();
  if (nccl_ != nullptr) {
    EXPECT_EQ(nccl_->inits(), 1);
    EXPECT_EQ(nccl_->shrinks(), rank() == 0 ? 0 : 1);
  }
}

TEST_P(GpuGroups, AMismatchLeavesTheSessionUsable) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const CudaStreamScope scope(stream());
  expect_usable();
  float* const tensor = ones(9);
  const std::int64_t elements = rank() == 0 ? 8 : 9;
  try {
    allreduce(view(tensor, elements), {.name = "x"});
    ADD_FAILURE() << "it was not refused";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), HasSubstr("shape [8] on rank 0"));
  }
  expect_usable();
}

/// The memory of a registered buffer and the rest, however many batches are under way.
TEST_P(GpuGroups, MemoryIsBoundedByTheLargestBatch) {
  const CudaStreamScope scope(stream());
  constexpr std::int64_t elements = 20000;
  constexpr int count = 24;
  std::vector<float*> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(ones(elements));
  const std::size_t before = cuda_->peak_bytes();
  // A buffer for all tensors, those that it has grown from, and one for each table of segments.
  constexpr std::size_t all = count * elements * sizeof(float);
  cuda_->max_bytes = before + 4 * all;
  for (int round = 0; round < 3; ++round) {
    std::vector<Future<void>> futures;
    for (int i = 0; i < count; ++i)
      futures.push_back(allreduce_async(view(tensors[static_cast<std::size_t>(i)], elements),
                                        {.name = std::to_string(i)}));
    for (Future<void>& future : futures) future.wait();
  }
  for (const float* tensor : tensors) expect_all(tensor, elements, sum_of_ranks() / size() + 1);
  EXPECT_LE(cuda_->peak_bytes(), before + 4 * all);
}

TEST_P(GpuGroups, MemoryThatIsUsedUpIsAnErrorOfAllRanks) {
  if (GetParam() == GpuPathTested::staged) GTEST_SKIP() << "needs hardly any of the GPU's memory";
  const CudaStreamScope scope(stream());
  expect_usable();
  float* const one = ones(200000);
  float* const two = ones(200000);
  if (rank() == 0) cuda_->max_bytes = cuda_->peak_bytes();
  const auto exceed = [&] {
    grouped_allreduce({view(one, 200000), view(two, 200000)});
    synchronize();  // the other ranks launch their part
  };
  EXPECT_THROW(exceed(), Error);
}

/// The others wait in kernels that never end; then they copy what they have off the GPU.
TEST_P(GpuGroups, AfterTheFaultOfOneGpuTheOthersSaveTheirModel) {
  if (size() == 1) GTEST_SKIP() << "nobody would be left";
  const CudaStreamScope scope(stream());
  expect_usable();
  constexpr std::size_t elements = 50000;
  float* const model = ones(elements);
  float* const other = ones(elements);
  allreduce(view(model, elements), {.name = "model", .op = ReduceOp::sum});
  synchronize();
  barrier();                              // the model is whole on all ranks before the fault
  leaves_memory_ = rank() == size() - 1;  // CUDA releases none any more
  if (rank() == size() - 1)
    cuda_->enqueue(stream(), [this] {
      cuda_->break_down("an illegal memory access was encountered");
      return true;
    });
  try {
    allreduce(view(other, elements), {.name = "gradient"});
    synchronize();  // the call may end before the fault
    ADD_FAILURE() << "it did not fail";
  } catch (const Error& error) {
    const std::string last = std::to_string(size() - 1);
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("illegal memory access"), HasSubstr("rank " + last)));
  }
  if (rank() == size() - 1) return;
  std::vector<float> saved(elements);
  const CudaDevice gpu(std::make_shared<CudaDevice::State>(cuda_, rank()));
  gpu.copy_to_host(saved.data(), reinterpret_cast<const std::byte*>(model),
                   elements * sizeof(float));
  expect_all(saved.data(), elements, sum_of_ranks() + size());
}

/// Work launched by a failed operation must not write the tensor after the operation has ended.
TEST_P(GpuGroups, ATensorOfAFailedOperationIsTheProgramsAgain) {
  if (size() == 1) GTEST_SKIP() << "nobody would be left";
  const CudaStreamScope scope(stream());
  expect_usable();
  synchronize();
  barrier();  // the fault ends no batch but the next
  constexpr std::int64_t elements = 200000;
  std::array<float*, 2> tensors{};
  for (float*& tensor : tensors)
    tensor = reinterpret_cast<float*>(cuda_->make_memory(elements * sizeof(float)));
  // Others launch what this rank has no memory for.
  if (rank() == 0) cuda_->faults.plan("cudaEventQuery");
  try {
    grouped_allreduce({view(tensors[0], elements), view(tensors[1], elements)});
    barrier();
  } catch (const Error&) {
    for (float* const tensor : tensors) cuda_->unmap_memory(reinterpret_cast<std::byte*>(tensor));
  }
}

/// The aborts of other ranks, which have batches, wait for this one's.
TEST_P(GpuGroups, ASessionThatFailsBetweenBatchesAbortsItsCommunicators) {
  const CudaStreamScope scope(stream());
  expect_usable();
  std::vector<float> row(3);
  std::vector<float> rows(3 * static_cast<std::size_t>(size()));
  const auto allocate = [fails = rank() == 0, &rows](std::span<const std::int64_t>) -> void* {
    if (fails) throw std::runtime_error("no memory");
    return rows.data();
  };
  const auto gather = [&] {
    allgather(ConstTensorView(row.data(), Shape{3}), allocate);
    barrier();  // the others may have all rows
  };
  EXPECT_THROW(gather(), Error);
  shutdown();
  if (nccl_ != nullptr) {
    EXPECT_EQ(nccl_->aborts(), 1);
    EXPECT_EQ(nccl_->communicators(), 0);
  }
}

TEST_P(GpuGroups, ARankThatLeavesEndsWhatTheOthersWaitFor) {
  if (size() == 1) GTEST_SKIP() << "nobody would be left";
  const CudaStreamScope scope(stream());
  expect_usable();
  if (rank() == 0) return shutdown();
  float* const tensor = ones(30);
  EXPECT_THROW(allreduce(view(tensor, 30), {.name = "x"}), PeerLeft);
}

}  // namespace
}  // namespace kolo::internal
