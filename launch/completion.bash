# Completes hadal's subcommands and options in bash, from the output of --help. Installed to
# share/bash-completion/completions/hadal; without an installation: source launch/completion.bash
# zsh: autoload -U +X bashcompinit && bashcompinit, then the same.
_hadal() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} help i
  local -a commands=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${COMP_WORDS[i]} == [a-z]* ]] || break
    commands+=("${COMP_WORDS[i]}")
    [[ ${COMP_WORDS[1]} == @(bench|checkpoint|config|inspect|schedule) ]] || break
  done
  help=$("$program" "${commands[@]:0:2}" --help 2> /dev/null) || return
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(grep -oE -- '(^ +|,)--?[a-z][a-z-]*' <<< "$help" | tr -d ' ,')" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "$(sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\).*/\1/p' <<< "$help")" -- "$word")
    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _hadal hadal
