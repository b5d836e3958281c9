# SPDX-License-Identifier: Apache-2.0
# Completion of shunt for fish, written by scripts/completions from the help texts.

# __shunt_is COMMAND: this is the command.
function __shunt_is
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $argv[1]
end

function __shunt_is_first
    test (count (commandline -opc)) -eq 1
end

complete -c shunt -f
complete -c shunt -n __shunt_is_first -a help -d 'print the commands'
complete -c shunt -n __shunt_is_first -l help -d 'print the commands'
complete -c shunt -n __shunt_is_first -a version -d 'print the version'
complete -c shunt -n __shunt_is_first -l version -d 'print the version'
complete -c shunt -n __shunt_is_first -a bench -d 'measure collectives, ours and the real NCCL\'s in the same run'
complete -c shunt -n '__shunt_is bench' -l collective -x \
    -a 'allreduce reducescatter reduce allgather alltoall broadcast gather scatter sendrecv all' -d 'collective'
complete -c shunt -n '__shunt_is bench' -l root -x -d 'root of reduce, broadcast, gather and scatter: a rank, or rotate ...'
complete -c shunt -n '__shunt_is bench' -s b -x -d 'from this many bytes'
complete -c shunt -n '__shunt_is bench' -s e -x -d 'to this many bytes'
complete -c shunt -n '__shunt_is bench' -s f -x -d 'each size is N times the one before'
complete -c shunt -n '__shunt_is bench' -s g -x -d 'ranks, 1 to 8'
complete -c shunt -n '__shunt_is bench' -l launched -d 'be one rank of those that torchrun, mpirun or srun started, on one ...'
complete -c shunt -n '__shunt_is bench' -l secret -r -F -d 'what a rank of another node or user shows rank 0: a file of 16 to ...'
complete -c shunt -n '__shunt_is bench' -s n -x -d 'calls of one timed run, and of one graph'
complete -c shunt -n '__shunt_is bench' -s w -x -d 'calls before each timed run'
complete -c shunt -n '__shunt_is bench' -s d -x \
    -a 'int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 all' -d 'type'
complete -c shunt -n '__shunt_is bench' -s o -x \
    -a 'sum prod max min avg premulsum all' -d 'operator'
complete -c shunt -n '__shunt_is bench' -l rounds -x -d 'timed runs'
complete -c shunt -n '__shunt_is bench' -l graph -d 'capture the calls of a run into a CUDA graph and replay it'
complete -c shunt -n '__shunt_is bench' -l place -x \
    -a 'out in both' -d 'in place: output over input, or one within the other, as NCCL ...'
complete -c shunt -n '__shunt_is bench' -l in-place -d 'the same as --place in'
complete -c shunt -n '__shunt_is bench' -l messages -d 'alltoall by sends and receives in a group'
complete -c shunt -n '__shunt_is bench' -l roots -d 'allgather by broadcasts, reducescatter by reduces, in a group: one ...'
complete -c shunt -n '__shunt_is bench' -l skew -d 'all buffers one element off alignment, and one element fewer'
complete -c shunt -n '__shunt_is bench' -l check -x \
    -a '0 1' -d 'compare every element with the expected one, and the ranks\' bits'
complete -c shunt -n '__shunt_is bench' -l csv -r -F -d 'write the rows as CSV'
complete -c shunt -n '__shunt_is bench' -l json -r -F -d 'write the rows as JSON'
complete -c shunt -n '__shunt_is bench' -l no-nccl -d 'do not measure the real NCCL'
complete -c shunt -n '__shunt_is bench' -l floor -d 'measure what this machine\'s links and launches allow, and print ...'
complete -c shunt -n '__shunt_is bench' -l host-time -d 'measure what a call costs the host, and a launch of an empty ...'
complete -c shunt -n '__shunt_is bench' -l beside -d 'measure the calls beside matrix products, too: milliseconds until ...'
complete -c shunt -n '__shunt_is bench' -l choose -d 'measure how long the library takes to choose what to do with a call'
complete -c shunt -n '__shunt_is bench' -l help -d 'print this'
complete -c shunt -n '__shunt_is bench' -s c -x -d '0 is --check 0'
complete -c shunt -n '__shunt_is bench' -s F -r -F -d '--csv FILE'
complete -c shunt -n '__shunt_is bench' -s G -x -d '--graph unless N is 0'
complete -c shunt -n '__shunt_is bench' -s i -x -d 'each size is so much more than the one before, without -f'
complete -c shunt -n '__shunt_is bench' -s m -x -d 'N calls in a group'
complete -c shunt -n '__shunt_is bench' -s r -x -d '--root N'
complete -c shunt -n '__shunt_is bench' -s t -x -d 'N times the ranks of -g'
complete -c shunt -n '__shunt_is bench' -s z -x -d 'wait for each call, unless N is 0'
complete -c shunt -n '__shunt_is bench' -s a -x -d '3 alone: times are the slowest rank\'s'
complete -c shunt -n '__shunt_is bench' -s p -x -d 'nothing: ranks always init in parallel'
complete -c shunt -n __shunt_is_first -a tune -d 'measure every algorithm on this machine, and write a table that ...'
complete -c shunt -n '__shunt_is tune' -l collective -x -d 'as for shunt bench, with commas'
complete -c shunt -n '__shunt_is tune' -s b -x -d 'from this many bytes'
complete -c shunt -n '__shunt_is tune' -s e -x -d 'to this many bytes'
complete -c shunt -n '__shunt_is tune' -s g -x -d 'only this number of ranks'
complete -c shunt -n '__shunt_is tune' -s d -x -d 'types, as for shunt bench, with commas'
complete -c shunt -n '__shunt_is tune' -l mode -x \
    -a 'eager captured' -d 'how calls are timed'
complete -c shunt -n '__shunt_is tune' -l limit -x -d 'stop after this many seconds'
complete -c shunt -n '__shunt_is tune' -l table -r -F -d 'the table to write, or to check'
complete -c shunt -n '__shunt_is tune' -l csv -r -F -d 'write what was measured as CSV'
complete -c shunt -n '__shunt_is tune' -l json -r -F -d 'write it as JSON'
complete -c shunt -n '__shunt_is tune' -l beside -d 'measure candidates beside matrix products, too'
complete -c shunt -n '__shunt_is tune' -l check -d 'as above'
complete -c shunt -n '__shunt_is tune' -l diff -r -F -d 'where two tables differ'
complete -c shunt -n '__shunt_is tune' -l plot -r -F -d 'which algorithm for which size, as a picture'
complete -c shunt -n '__shunt_is tune' -l help -d 'print this'
complete -c shunt -n __shunt_is_first -a run -d 'run a program with Shunt in NCCL\'s place: shunt run -- CMD'
complete -c shunt -n '__shunt_is run' -l audit -d 'give Shunt also to programs that open NCCL or nccl_ep by any other ...'
complete -c shunt -n '__shunt_is run' -l deterministic -d 'give the same bits for the same values at every size, also where ...'
complete -c shunt -n '__shunt_is run' -l no-tune -d 'measure nothing'
complete -c shunt -n '__shunt_is run' -l report -d 'at the end, on stderr: for each collective and size how many calls ...'
complete -c shunt -n '__shunt_is run' -l json -r -F -d 'write that report as JSON, too'
complete -c shunt -n '__shunt_is run' -l help -d 'print this'
complete -c shunt -n '__shunt_is run' \
    -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c shunt -n __shunt_is_first -a doctor -d 'check whether Shunt serves programs here, and if not, why: shunt ...'
complete -c shunt -n '__shunt_is doctor' -l limit -x -d 'end CMD after this many seconds'
complete -c shunt -n '__shunt_is doctor' -l json -r -F -d 'write the same as JSON'
complete -c shunt -n '__shunt_is doctor' -l help -d 'print this'
complete -c shunt -n '__shunt_is doctor; and contains -- -- (commandline -opc)' \
    -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c shunt -n __shunt_is_first -a watch -d 'what the communicators of running processes do, and who is late: ...'
complete -c shunt -n '__shunt_is watch' -l all -d 'of all processes'
complete -c shunt -n '__shunt_is watch' -l once -d 'once'
complete -c shunt -n '__shunt_is watch' -l json -r -F -d 'as JSON, a line each time, without the text'
complete -c shunt -n '__shunt_is watch' -l help -d 'print this'
complete -c shunt -n '__shunt_is watch' -a '(__fish_complete_pids)'
complete -c shunt -n __shunt_is_first -a info -d 'devices, links, the NCCL found, settings, decision table'
complete -c shunt -n '__shunt_is info' -l json -r -F -d 'write the same as JSON'
complete -c shunt -n '__shunt_is info' -l topology -r -F -d 'print instead GPUs, NICs, the links between them, the class that ...'
complete -c shunt -n '__shunt_is info' -l dump -r -F -d 'write this machine in that format, for NCCL_TOPO_FILE'
complete -c shunt -n '__shunt_is info' -l help -d 'print this'
complete -c shunt -n __shunt_is_first -a settings -d 'the settings and what each means'
complete -c shunt -n '__shunt_is settings' -l markdown -d 'as the table of docs/settings.md'
complete -c shunt -n '__shunt_is settings' -l man -d 'as a part of the manual page'
complete -c shunt -n '__shunt_is settings' -l help -d 'print this'
