// One rank of lost_peer_test: rank 1 leaves in the way the argument names, rank 0 waits for a message that never comes.
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "absl/time/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/mpi_environment.h"

namespace hadal {
namespace {

constexpr int kNoEnvironment = 90;
constexpr int kSurvived = 91;

int Run(int argc, char** argv) {
  const std::string_view way = argc > 1 ? argv[1] : "";
  auto environment = MpiEnvironment::Start(&argc, &argv, /*end_timeout=*/absl::Milliseconds(500));
  if (!environment.ok() || (*environment)->size() != 2) return kNoEnvironment;
  auto communicator = (*environment)->NewCommunicator();
  if (!communicator.ok()) return kNoEnvironment;
  Communicator& c = **communicator;
  if (!Collectives(c, absl::Seconds(30)).Barrier("the start").ok()) return kNoEnvironment;

  if (c.rank() == 1) {
    std::fprintf(stderr, "rank 1 leaves\n");
    if (way == "exit") _exit(3);
    if (way == "kill") kill(getpid(), SIGKILL);
    if (way == "abort") c.Abort(5);
    return 0;  // "return": waits for rank 0, which does not reach the end
  }
  int value = 0;
  absl::StatusOr<CommRequest> receive = c.Receive(&value, sizeof(value), 1, 0);
  const absl::Status status =
      receive.ok() ? c.Wait(*receive, absl::Now() + absl::Seconds(60), "a lost peer") : receive.status();
  std::fprintf(stderr, "rank 0 survived: %s\n", status.ToString().c_str());
  return kSurvived;
}

}  // namespace
}  // namespace hadal

int main(int argc, char** argv) { return hadal::Run(argc, argv); }
