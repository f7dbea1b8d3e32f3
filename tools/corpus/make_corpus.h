// `hadal make-corpus` writes German number words and their English translations: a corpus for a first run without other
// data. The Python package pyhadal (tools/python/pyhadal/make_corpus.py) does the work, with the standard library
// alone.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddMakeCorpusCommand(Command app, int& exit_code);

}  // namespace hadal
