// The calls that record_api_calls has recorded during the build, in the format of tests/support/api_recording.h.
#pragma once

namespace hadal::testing {

extern const char kRecordedApiCalls[];

}  // namespace hadal::testing
