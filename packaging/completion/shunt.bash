# SPDX-License-Identifier: Apache-2.0
# Completion of shunt for bash, written by scripts/completions from the help texts.

# _shunt_values COMMAND:OPTION: what the option's values are, in the array `values`: words, /any, /files, or /optional,
# a file that may be left out.
_shunt_values() {
    case "$1" in
    bench:--collective)
        values=("allreduce reducescatter reduce allgather alltoall broadcast gather scatter sendrecv all")
        ;;
    bench:--root | bench:-b | bench:-e | bench:-f | bench:-g | bench:-n | bench:-w | bench:--rounds | bench:-c | \
        bench:-G | bench:-i | bench:-m | bench:-r | bench:-t | bench:-z | bench:-a | bench:-p | tune:--collective | \
        tune:-b | tune:-e | tune:-g | tune:-d | tune:--limit | doctor:--limit)
        values=(/any)
        ;;
    bench:--secret | bench:--csv | bench:--json | bench:-F | tune:--table | tune:--csv | tune:--json | tune:--plot \
        | run:--json | doctor:--json | info:--json | info:--dump)
        values=(/files)
        ;;
    bench:-d)
        values=("int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 all")
        ;;
    bench:-o)
        values=("sum prod max min avg premulsum all")
        ;;
    bench:--place)
        values=("out in both")
        ;;
    bench:--check)
        values=("0 1")
        ;;
    tune:--mode)
        values=("eager captured")
        ;;
    tune:--diff)
        values=(/files /files)
        ;;
    watch:--json | info:--topology)
        values=(/optional)
        ;;
    *) values=() ;;
    esac
}

_shunt_files() {
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
}

# _shunt_value VALUE: complete a value.
_shunt_value() {
    case "$1" in
    /any) ;;
    /*) _shunt_files ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word") ;;
    esac
}

# _shunt_program INDEX: complete a command line of its own, which begins at the word INDEX.
_shunt_program() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)) && [[ $word != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$word" | sort -u)
    else
        _shunt_files
    fi
}

# _shunt_words COMMAND: complete an option or an argument.
_shunt_words() {
    local words
    case "$1" in
    bench)
        words="--collective --root -b -e -f -g --launched --secret -n -w -d -o --rounds --graph --place --in-place --messages \
        --roots --skew --check --csv --json --no-nccl --floor --host-time --beside --choose --help -c -F -G -i -m -r \
        -t -z -a -p"
        ;;
    tune)
        words="--collective -b -e -g -d --mode --limit --table --csv --json --beside --check --diff --plot --help"
        ;;
    run)
        words="--audit --deterministic --no-tune --report --json --help"
        ;;
    doctor)
        words="--limit --json --help"
        ;;
    watch)
        words="--all --once --json --help"
        set -- /proc/[0-9]*
        words+=" ${*##*/}"
        ;;
    info)
        words="--json --topology --dump --help"
        ;;
    settings)
        words="--markdown --man --help"
        ;;
    *) return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

_shunt() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-} values=() at i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _shunt_value "bench tune run doctor watch info settings help version --help --version"
        return
    fi
    for ((i = 2; i <= COMP_CWORD; i++)); do
        at=${COMP_WORDS[i]}
        if ((${#values[@]} > 0)) && [[ ${values[0]} != /optional || $at != -* ]]; then
            if ((i == COMP_CWORD)); then
                _shunt_value "${values[0]}"
                return
            fi
            values=("${values[@]:1}")
        elif [[ $command == @(run|doctor) && ${COMP_WORDS[i - 1]} == -- || $command == @(run) && $at != -* ]]; then
            _shunt_program "$i"
            return
        else
            _shunt_values "$command:$at"
        fi
    done
    _shunt_words "$command"
}

complete -F _shunt shunt
