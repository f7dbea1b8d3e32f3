// What a command does about a damaged file: the rules of damage.cc.
#pragma once

#include <optional>
#include <set>

#include "tests/torture/file_damage.h"

namespace hadal::torture {

inline constexpr int kNewest = 6;  // step of the newest checkpoint

enum class Kind {
  kCheckpointFile,  // has a checksum in the manifest, or is the manifest: refused, the checkpoint before it is taken
  kPointer,         // latest, best: found by name instead
  kOwner,           // attempt, resume_request: written anew where that can be
  kProbe,           // warned of, not used
  kMetrics,
  kDerived,         // is written anew, or only users read it
  kCorpusManifest,  // named by the user
  kCorpusFile,      // named by the corpus's manifest, with a checksum
};

// `path`: relative to the workplace. nullopt: of no known kind.
std::optional<Kind> KindOf(const std::string& path);

enum class Reader { kStart, kResume, kVerify, kTranslate, kReport };
inline constexpr const char* kReaderNames[] = {"start", "resume", "verify", "translate", "report"};

struct Expectation {
  std::set<int> codes;
  std::string words = {};  // what the output must hold; with an exit code other than 0 also the file's name
};

// What `reader` does when the file `path` has this damage. `best`: the step that the link of that name leads to.
Expectation Expected(Kind kind, const std::string& path, Damage damage, Reader reader, int best);

}  // namespace hadal::torture
