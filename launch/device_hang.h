// Ends a process whose device hangs (runtime/device_watch.h), with kExitHang and a message about the work that the
// device does not finish.
//
// Nothing is freed and MPI_Finalize is not called, because both may wait for the device, or for ranks that wait for
// this one. The launcher then ends the job: mpirun and srun do so when a rank exits without MPI_Finalize.
#pragma once

#include <functional>
#include <string>

namespace hadal {

inline constexpr int kLongestFlushSeconds = 10;
// Prints "hadal <who>: <what>" to stderr, calls `flush`, and exits with kExitHang without running destructors. `flush`
// writes the run's logs; it may be empty. After kLongestFlushSeconds the process exits even if `flush` still waits for
// a file server or for a lock that the stuck thread holds. Any thread may call EndHung.
[[noreturn]] void EndHung(const std::string& who, const std::string& what, std::function<void()> flush);

}  // namespace hadal
