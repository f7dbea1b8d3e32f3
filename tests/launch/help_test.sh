#!/usr/bin/env bash
# Every option with a number refuses what is none, what is not finite and, but for those named below, what is negative, before anything is done.
# Every command's --help reads alike: a description begins with a capital letter, a number or a quoted word and ends without a full stop; an option
# that takes one number and may be left out shows what it then is, as =VALUE or in words ("default").
# Usage: help_test.sh HADAL
set -u
hadal=${1:?usage: help_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

# commands [WORD…]: the names of the subcommands of `hadal WORD…`.
commands() { "$hadal" "$@" --help | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && NF { print $1 }'; }

# entries [WORD…]: a line an option, positional and subcommand of `hadal WORD…`: how it is given, a tab, its description.
entries() {
  "$hadal" "$@" --help | awk '
    /^[A-Z][a-z]+:$/ { on = 1; next }
    !on || !NF { next }
    /^  [^ ]/ { given = length($0) < 30 || substr($0, 29, 2) != "  " ? $0 : substr($0, 1, 30); if (given == $0) next; text = substr($0, 31) }
    /^   / { text = substr($0, 31) }
    { sub(/^ +/, "", given); sub(/ +$/, "", given); print given "\t" text }'
}

# refusal OPTION VALUE COMMAND…: what the command prints of the value. It ends there: the option is refused before anything is done.
refusal() { "$hadal" "${@:3}" "--$1=$2" 2>&1 | head -n 1; }
# These are refused later, with the model's own limits, or are real numbers.
checked_later=" length-penalty max-len-a max-len-b max-len min-len no-repeat-ngram temperature top-k top-p "
numbers() {
  local given text name value
  while IFS=$'\t' read -r given text; do
    [[ $given =~ --([a-z0-9-]+)\  ]] || continue  # it takes a value
    name=${BASH_REMATCH[1]}
    [[ $(refusal "$name" x7x "$@") == *"Value x7x is not "* ]] || continue
    numeric=$((numeric + 1))
    for value in nan inf 1e999; do
      [[ $(refusal "$name" $value "$@") == *"--$name: Value $value is not "* ]] || fail "hadal $* --$name=$value is accepted"
    done
    [[ $checked_later == *" $name "* || $(refusal "$name" -1 "$@") == *"--$name: "* ]] || fail "hadal $* --$name=-1 is accepted"
  done < <(entries "$@")
}

check() {
  local given text
  "$hadal" "$@" --help | head -n 1 | grep -q '^[A-Z`].*[^.]$' || fail "hadal $*: begins with \"$("$hadal" "$@" --help | head -n 1)\""
  while IFS=$'\t' read -r given text; do
    [[ $text =~ ^[A-Z0-9\`\"] ]] || fail "hadal $*: $given: \"$text\" does not begin with a capital letter"
    [[ $text != *[^.]. ]] || fail "hadal $*: $given: \"$text\" ends with a full stop"
    if [[ $given =~ ^-.*\ (INT|FLOAT|MIB) && ! $given =~ =|REQUIRED|\.\.\.|Excludes && $text != *default* ]]; then
      fail "hadal $*: $given: \"$text\" shows no default"
    fi
    checked=$((checked + 1))
  done < <(entries "$@")
}

checked=0 numeric=0
for command in $(commands); do
  check "$command"; numbers "$command"
  for part in $(commands "$command"); do check "$command" "$part"; numbers "$command" "$part"; done
done
[ $checked -gt 200 ] || fail "only $checked entries were found: is --help still laid out as it was?"
[ $numeric -gt 90 ] || fail "only $numeric options with numbers were found"
finished
