#include "tools/device_flags.h"

namespace hadal {

void AddDeviceFlags(Command command, DeviceRequest& request) {
  command
      .AddOption("--device", request.kind,
                 "Where to compute: auto (a GPU if there is one that supports the model), cpu or cuda")
      .OneOf({"auto", "cpu", "cuda"})
      .ShowDefault();
}

}  // namespace hadal
