#pragma once

#include "launch/device_choice.h"
#include "tools/command_line.h"

namespace hadal {

// Adds --device to `command`, which sets request.kind; `request` must outlive CommandLine::Run.
inline void AddDeviceFlags(Command command, DeviceRequest& request) {
  command
      .AddOption("--device", request.kind,
                 "Where to compute: auto (a GPU if there is one that supports the model), cpu or cuda")
      .OneOf({"auto", "cpu", "cuda"})
      .ShowDefault();
}

}  // namespace hadal
