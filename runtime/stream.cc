#include "runtime/stream.h"

#include <omp.h>

namespace hadal {

int Stream::ThreadIndex() { return omp_get_thread_num(); }

void UseSerialLibraries() { omp_set_num_threads(1); }

}  // namespace hadal
