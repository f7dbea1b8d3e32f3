// The end of a process whose device hangs (runtime/device_watch.h): it reports what the device does not finish, and
// exits with kExitHang.
//
// Nothing is freed and MPI_Finalize is not called, because both may wait for the device, or for ranks that wait for
// this one. The launcher then ends the job: mpirun and srun do so when a rank exits without MPI_Finalize.
#pragma once

#include <functional>
#include <string>

namespace hadal {

// Prints "hadal <who>: <what>" to stderr, calls `flush`, and exits with kExitHang without running destructors.
// `flush` (the run's logs; may be empty) runs on a thread of its own and may take kLongestFlushSeconds: a file server,
// or a lock that the stuck thread holds, must not keep the process. Any thread may call it.
inline constexpr int kLongestFlushSeconds = 10;
[[noreturn]] void EndHung(const std::string& who, const std::string& what, std::function<void()> flush);

}  // namespace hadal
