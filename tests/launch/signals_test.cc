#include "launch/signals.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/linear.h"
#include "launch/exit_code.h"
#include "runtime/compute_thread.h"
#include "runtime/mapped_file.h"
#include "runtime/stream.h"
#include "runtime/thread_team.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

constexpr int kRows = 256, kInput = 64, kOutput = 128, kThreads = 2;

struct Product {
  std::vector<float> x = std::vector<float>(kRows * kInput);
  std::vector<float> weight = std::vector<float>(kOutput * kInput);
  std::vector<float> y = std::vector<float>(kRows * kOutput);

  Product() {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 31) - 15;
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 17) - 8;
  }

  // The three products of a layer; all numbers are small integers.
  void Run(const Stream& stream) {
    const Matrix input(x.data(), kRows, kInput), output(y.data(), kRows, kOutput),
        matrix(weight.data(), kOutput, kInput);
    LinearForward(stream, {.x = input, .weight = matrix, .y = output});
    LinearBackwardInput(stream, {.dy = output, .weight = matrix, .dx = input});
    LinearBackwardWeight(stream, {.dy = output, .x = input, .d_weight = matrix});
  }
};

// A library's product that uses the stack pointer as a general register would have its operand written over: handlers
// have a stack of their own.
TEST(Signals, ThatComeInTheMiddleOfAProductLeaveMemoryAlone) {
  InstallStopSignals();
  std::atomic<bool> ready = false, done = false;
  std::atomic<pthread_t> worker = {};
  int products = 0, wrong = 0;
  std::thread computing([&] {
    PrepareComputeThread();
    const Stream stream = Stream::Cpu(kThreads);
    ThreadTeam::OfThisThread().Run(kThreads, [&](int t) {
      if (t == 1) worker = pthread_self();
      while (worker == pthread_t{}) std::this_thread::yield();
    });
    Product expected;
    expected.Run(stream);
    ready = true;
    do {
      Product product;
      product.Run(stream);
      ++products;
      if (product.x != expected.x || product.y != expected.y || product.weight != expected.weight) ++wrong;
    } while (!done);
  });
  while (!ready) std::this_thread::yield();
  constexpr int kSignals = 4000;
  for (int i = 0; i < kSignals; ++i) {
    pthread_kill(i % 2 == 0 ? computing.native_handle() : worker.load(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  done = true;
  computing.join();
  EXPECT_TRUE(StopSignalled());
  EXPECT_GT(products, 0);
  EXPECT_EQ(wrong, 0);
}

// In a process of its own, since signals are the whole process's: 0 where the signal was ignored, 7 where it asks to
// stop.
[[noreturn]] void Raise(int signal) {
  InstallStopSignals();
  IgnoreClosedPipes();
  IgnoreFileSizeSignal();
  std::raise(signal);
  std::_Exit(StopSignalled() ? 7 : 0);
}

TEST(SignalsDeathTest, ATerminalThatGoesAwayAsksToStopButNotUnderNohup) {
  const auto hang_up = [](__sighandler_t before) {
    std::signal(SIGHUP, before);  // the tests themselves may run under nohup
    Raise(SIGHUP);
  };
  EXPECT_EXIT(hang_up(SIG_DFL), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(hang_up(SIG_IGN), ::testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, FullFilesAndClosedPipesEndNothing) {
  EXPECT_EXIT(Raise(SIGXFSZ), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Raise(SIGPIPE), ::testing::ExitedWithCode(0), "");
}

// Asked once, a run saves and ends; the second Ctrl-C insists. TERM comes twice from Slurm, HUP from a terminal.
TEST(SignalsDeathTest, OnlyTheSecondCtrlCEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto live_through = [](std::initializer_list<int> signals) {
    std::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
    InstallStopSignals();
    for (const int signal : signals) std::raise(signal);
    std::_Exit(StopSignalled() ? 0 : 1);
  };
  EXPECT_EXIT(live_through({}), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(live_through({SIGINT}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGUSR2}), ::testing::ExitedWithCode(0), "") << "submitit's";
  EXPECT_EXIT(live_through({SIGTERM, SIGUSR1, SIGUSR1}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGHUP, SIGHUP}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGINT, SIGHUP}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGHUP, SIGTERM}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGUSR1, SIGINT}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGUSR1, SIGTERM}), ::testing::ExitedWithCode(0), "") << "Slurm's, while the run saves";
  EXPECT_EXIT(live_through({SIGTERM, SIGCONT, SIGTERM}), ::testing::ExitedWithCode(0), "") << "at Slurm's time limit";
  EXPECT_EXIT(live_through({SIGINT, SIGTERM, SIGTERM}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGTERM, SIGUSR1, SIGINT}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(live_through({SIGINT, SIGTERM, SIGINT}), ::testing::KilledBySignal(SIGINT), "");
}

// A shard of a run's corpus, say, that somebody prepares again in its place.
[[noreturn]] void ReadAFileThatIsCut() {
  ExplainLostPages();
  const TemporaryDirectory directory;
  const std::string path = directory / "train.00000.shard";
  SetContents(path, std::string(100000, 'x'));
  const MappedFile file = *MappedFile::Open(path);
  std::filesystem::resize_file(path, 5000);
  std::filesystem::remove_all(directory.path());  // this process does not come to its end
  const volatile std::byte* const bytes = file.bytes().data();
  std::_Exit(bytes[4999] == std::byte{'x'} && bytes[90000] == std::byte{'x'} ? 0 : 1);
}

TEST(SignalsDeathTest, AFileThatIsCutWhileItIsReadIsNamed) {
  EXPECT_EXIT(ReadAFileThatIsCut(), ::testing::ExitedWithCode(kExitCheckpoint),
              "hadal: .*train.00000.shard: a part of the file is gone .*hadal prepare");
}

TEST(SignalsDeathTest, ABusErrorOfNoFileEndsTheProcessAsEver) {
  const auto raise = [] {
    ExplainLostPages();
    std::raise(SIGBUS);
    std::_Exit(0);
  };
  EXPECT_EXIT(raise(), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace hadal
