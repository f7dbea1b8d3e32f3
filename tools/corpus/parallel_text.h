// Reads parallel text: two UTF-8 files with one sentence per line, in which line n of one translates line n of the
// other; or one file with a tab between a sentence and its translation, TMX or JSON Lines (PairFile). Plain text is
// the target side alone: lines, or the documents of a file (DocumentFile).
//
// A byte order mark at the start of a file and "\r" at the end of a line are removed. The last line need not end in
// "\n". Nothing else is changed.
// Thread safety: one thread. Memory: one line per side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "runtime/data/language_tags.h"
#include "tools/corpus/text_lines.h"

namespace hadal {

struct TextPair {
  std::string source;  // paths; an empty source: plain text
  std::string target;
  std::string features;   // speech: prefix of the features of the target's lines (feature_reader.h)
  bool one_file = false;  // both paths name the same file, which has both sides
  bool reversed = false;  // with one_file: the second column is the source
  Direction direction;    // empty languages: not known
  std::string domain;     // of a list of texts; empty: none
  // Plain text: JSON's field, and whether blank lines separate documents (DocumentFile).
  std::string text_field = "text";
  bool blank_lines = false;
};

// Reads files in TMX or JSON Lines, which hold both sides of parallel text. A file's first bytes determine its format.
//
//   TMX (1.1 to 1.4b)  a translation unit is a pair: the <seg> of one variant (<tuv xml:lang="…">, or lang) in each
//                      language. Inline codes (bpt, ept, it, ph, ut, with sub) are left out with their content, hi only
//                      as a tag. The encoding is the file's.
//   JSON Lines         an object a line: {"translation": {"de": "…", "en": "…"}} as the datasets of Hugging Face have
//                      it, {"de": "…", "en": "…"}, or keys "source" and "target", "src" and "tgt".
// Languages are compared without case; if there is no "en", "en" finds the first of "en-US", "en-GB", …. A side that is
// missing is empty. Each run of white space, line ends included, becomes one space, because a side is one line.
// Thread safety: one thread. Memory: a unit, at most kMostLineBytes, and 64 KiB.
class PairFile {
 public:
  // Returns null if the file is in neither format. `reversed`: JSON's keys "source" and "src" name the target side, and
  // "target" and "tgt" the source side. Errors: those of OpenText.
  static absl::StatusOr<std::unique_ptr<PairFile>> Open(const std::string& path, const Direction& direction,
                                                        bool reversed);
  virtual ~PairFile() = default;

  // Reads the next pair; returns false at the end. If it is not UTF-8 or broken JSON, sets `invalid` to a description
  // (else "") and the sides to "". Blocking.
  // Errors: InvalidArgument, with the place in the file, if its format is violated, and at the end of a file in which
  // no pair had both languages.
  virtual absl::StatusOr<bool> Next(std::string& source, std::string& target, std::string& invalid) = 0;
};

// Reads the documents of a file for language models. A file's first bytes tell its format, for Megatron-LM's its name:
//
//   JSON Lines   an object a line, of which one field is the document
//   Megatron-LM  PREFIX.bin and PREFIX.idx (version 1): token ids; each entry of the index's list of documents ends one
//   plain text   blank lines separate documents, whose lines keep their ends; or, without `blank_lines`, each line is
//                one, which ParallelReader reads
// Text may be compressed (OpenText). Thread safety: one thread. Memory: a document, at most kMostLineBytes.
class DocumentFile {
 public:
  // Returns null for plain text without `blank_lines`, whose lines `rest` then has: a pipe can be read once.
  // `field`: JSON's. Errors: those of OpenText; InvalidArgument for fairseq's binarised text, which begins with the
  // same bytes, and DataLoss for an index that contradicts itself or its .bin.
  static absl::StatusOr<std::unique_ptr<DocumentFile>> Open(const std::string& path, const std::string& field,
                                                            bool blank_lines, std::optional<TextLines>* rest = nullptr);
  virtual ~DocumentFile() = default;

  // Reads the next document, or its ids as decimal numbers with spaces; returns false at the end. If it is not UTF-8,
  // broken JSON or lacks the field, sets `invalid` to a description (else ""). Blocking.
  // Errors: InvalidArgument with the place in the file.
  virtual absl::StatusOr<bool> Next(std::string& text, std::string& invalid) = 0;
  // The line, or document of Megatron-LM's, at which the last document begins, from 1.
  virtual int64_t place() const = 0;
  virtual bool has_ids() const { return false; }
};

// Whether `path` is PREFIX.bin or PREFIX.idx of token ids.
bool IsTokenFile(const std::string& path);

// The name of a corpus of this text, for users: "en-de", "en-de domain"; without languages "FILE / FILE".
std::string CorpusName(const TextPair& pair);

// The CorpusName of each text; of texts that have the same one, all but the first get a number: "train.de (2)". The
// sampling order of a text and its lines in reports depend on its name.
std::vector<std::string> CorpusNames(const std::vector<TextPair>& pairs);

// A pair of lines, and whether it can be used.
struct ParallelLine {
  int64_t number = 0;  // from 1; of a document: where it begins
  std::string source;
  std::string target;
  bool has_ids = false;  // `target` is token ids, as decimal numbers
  std::string invalid;   // empty, or "FILE:LINE: " and what is wrong with its encoding or its JSON
  bool empty = false;    // a side is blank
};

class ParallelReader {
 public:
  // Pipes and compressed files are read, too. Errors: those of OpenText.
  static absl::StatusOr<ParallelReader> Open(const TextPair& pair);

  // Reads the next pair of lines, or for plain text the next line. Returns false at the end. Blocking.
  // Errors: InvalidArgument if one file ends before the other, with both counts, for a line without a tab where
  // there are columns, and for what TextLines and PairFile reject.
  absl::StatusOr<bool> Next(ParallelLine& line);

  // Byte order marks and carriage returns removed so far.
  bool had_byte_order_mark() const {
    return (source_ && source_->had_byte_order_mark()) || (target_ && target_->had_byte_order_mark());
  }
  int64_t carriage_returns() const {
    return (source_ ? source_->carriage_returns() : 0) + (target_ ? target_->carriage_returns() : 0);
  }
  // Lines of a file of columns with more than two.
  int64_t more_columns() const { return more_columns_; }
  // Returns a warning with a remedy if a file of columns seems to have a header or quotes, which would become text;
  // else "".
  std::string Oddity() const;

 private:
  absl::StatusOr<bool> NextLines(ParallelLine& line);
  absl::Status SplitColumns(ParallelLine& line);
  absl::Status UnequalCounts(TextLines& longer, const TextLines& shorter) const;

  ParallelReader() = default;

  TextPair pair_;
  std::optional<TextLines> source_;          // of two files
  std::optional<TextLines> target_;          // or the one file; neither if it has a format of its own
  std::unique_ptr<PairFile> pairs_;          // the reader of both sides in one such file
  std::unique_ptr<DocumentFile> documents_;  // plain text's
  int64_t lines_ = 0, more_columns_ = 0, quoted_ = 0;
  bool has_header_ = false;
};

using TextHashes = absl::flat_hash_set<uint64_t>;

// Returns the hash of both sides and the direction.
uint64_t HashOfPair(const Direction& direction, const ParallelLine& line);

// Finds the pairs of lines, and the single sides, that have occurred before in the text of a direction.
//
// Text is compared by 64-bit hashes. Of n different pairs, about n²/2^65 are wrongly taken for repeated: 3e-4 at 1e8.
// Memory: three hashes a pair (one for plain text), at most 75 bytes with the free places of the hash sets. The sets of
// a direction are freed after its last text.
class RepeatedText {
 public:
  // Which parts of a pair have occurred in an earlier line of its direction, in this text or an earlier one.
  struct Repeated {
    bool pair = false;
    bool source = false;  // false for plain text
    bool target = false;  // false for plain text
  };

  explicit RepeatedText(const std::vector<TextPair>& texts);

  // Adds a line of the text with index `text`; `hash`: its HashOfPair. REQUIRES: `text` never decreases.
  Repeated Add(size_t text, const ParallelLine& line, uint64_t hash);

 private:
  struct Seen {
    TextHashes pairs, sources, targets;
  };
  struct Text {
    std::string direction;
    bool plain = false;
    bool last = false;  // of its direction
  };

  std::vector<Text> texts_;
  size_t text_ = 0;                   // of the last line
  std::map<std::string, Seen> seen_;  // by direction
};

}  // namespace hadal
