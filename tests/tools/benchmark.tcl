# valkey-benchmark: what it sends, what it counts, what it prints. seconds: 9

set bench [file join [expr {[info exists ::env(TOOLS)] ? $::env(TOOLS) : "$::root/src"}] valkey-benchmark]

# Runs the benchmark against the server of the suite: {code out err}.
proc bench {args} {
    set got [run -timeout 50 $::bench -h [srv host] -p [srv port] {*}$args]
    return [list [dict get $got code] [dict get $got out] [dict get $got err]]
}
proc bench_out {args} {
    lassign [bench {*}$args] code out err
    assert_equal {0 {}} [list $code $err] $args
    return $out
}
proc calls {command} {
    set stats [r info commandstats]
    if {![regexp "cmdstat_$command:calls=(\\d+)" $stats -> n]} {return 0}
    return $n
}

# The lines of a run with --fuzz that show what was sent.
proc fuzz_commands {out} {
    set lines {}
    foreach line [split $out \n] {
        if {[regexp {\[client \d+\] send Command: .*} $line shown]} {lappend lines $shown}
    }
    return $lines
}

start_server {} {
    test "exactly as many requests are sent as were asked for" {
        foreach args {{-n 1000 -c 7} {-n 1003 -c 5 -P 16} {-n 1 -c 50} {-n 5000 -c 10 --threads 2}\
            {-n 777 -c 4 -P 10 --threads 3}} {
            r set counted 0
            set out [bench_out -q {*}$args incr counted]
            assert_equal [lindex $args 1] [r get counted] $args
            assert_regexp {incr counted: \d+\.\d\d requests per second, p50=\d+\.\d\d\d msec\n$} \
                [string map {\r {}} $out]
        }
    }

    test "options that change nothing are accepted with a warning, or silently" {
        lassign [bench -q -e -n 3 -c 1 -t ping_mbulk] code out err
        assert_equal 0 $code
        assert_match "*WARNING: -e option has no effect*" $err
        assert_equal "" [lindex [bench -q --rfr all -n 3 -c 1 -t ping_mbulk] 2]
        lassign [bench -q --threads 501 -n 3 -c 1 -t ping_mbulk] code out err
        assert_equal 0 $code
        assert_match "*WARNING: Too many threads, limiting threads to 500.*" $err
    }

    test "the test of MGET reads ten keys" {
        set before [calls mget]
        assert_match "*MGET (10 keys): *" [bench_out -q -n 4 -c 2 -t mget]
        assert_equal 4 [expr {[calls mget] - $before}]
    }

    # What the report says was done.
    proc completed {out} {
        assert {[regexp {(\d+) requests completed in ([\d.]+) seconds} $out -> requests seconds]} $out
        return [list $requests $seconds]
    }

    test "--duration sends for that time instead of a number of requests" {
        foreach args {{-c 5} {-c 6 -P 10 --threads 2}} {
            r set counted 0
            lassign [completed [bench_out --duration 1 {*}$args incr counted]] requests seconds
            assert_equal $requests [r get counted] $args
            assert {$requests > 0 && $seconds >= 0.99} "$requests requests in $seconds s"
        }
        lassign [bench --duration 1 -n 10 -t set] code out err
        assert {$code != 0}
        assert_match "*Options -n and --duration are mutually exclusive.*" $out$err
    }

    test "--warmup sends without counting first" {
        r set counted 0
        lassign [completed [bench_out --warmup 1 -n 100 -c 5 incr counted]] requests
        assert_equal 100 $requests
        assert {[r get counted] > 100} "nothing was sent to warm up"
    }

    test "--rps keeps below that rate" {
        foreach args {{-n 300 -c 5} {-n 300 -c 4 --threads 2} {-n 300 -c 3 -P 10}} {
            r set counted 0
            lassign [completed [bench_out --rps 1000 {*}$args incr counted]] requests seconds
            assert_equal {300 300} [list $requests [r get counted]] $args
            # What a stall of 10 ms in each thread lost is caught up with; so is the first batch of each.
            assert {$seconds >= 0.24} "$seconds s: $args"
        }
    }

    test "the report has all its parts" {
        # A run that takes long shows its progress first, in the same line.
        regsub -all {[^\n]*\r} [bench_out -n 2000 -c 5 -t set] "" out
        foreach line {"====== SET ======" "  2000 requests completed in * seconds" "  5 parallel clients"\
            "  3 bytes payload" "  keep alive: 1"
            "  transport: tcp" "  host configuration \"save\": *" "  host configuration \"appendonly\": no"\
                "  multi-thread: no"
            "Latency by percentile distribution:" "0.000% <= * milliseconds (cumulative count *)"\
                "100.000% <= * milliseconds (cumulative count 2000)"
            "Cumulative distribution of latencies:" "Summary:" "  throughput summary: * requests per second"\
                "  latency summary (msec):"
            "          avg       min       p50       p95       p99       max"} {
            assert {[lsearch -glob [split $out \n] $line] >= 0} "no line like $line"
        }
        assert_regexp {\n +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3}\n} $out
    }

    test "--csv has a header and a row for each test" {
        set lines [split [string trim [bench_out --csv -n 500 -t ping,set,get]] \n]
        set latencies [lmap l {avg min p50 p95 p99 max} {string cat \" $l _latency_ms \"}]
        assert_equal [join [list {"test"} {"rps"} {*}$latencies] ,] [lindex $lines 0]
        assert_equal "PING_INLINE PING_MBULK SET GET" \
            [lmap l [lrange $lines 1 end] {string trim [lindex [split $l ,] 0] \"}]
        foreach l [lrange $lines 1 end] {assert_regexp {^"[A-Z_]+"(,"\d+\.\d+"){7}$} $l}
    }

    test "the shares of the distribution only grow, and end with all requests" {
        set out [bench_out -n 3000 -c 10 -P 3 -t set]
        foreach part {{Latency by percentile distribution:} {Cumulative distribution of latencies:}} {
            set at [string first $part $out]
            set last -1
            set latency -1
            foreach line [split [string range $out $at [string first \n\n $out $at]] \n] {
                if {![regexp {<= ([\d.]+) milliseconds \(cumulative count (\d+)\)} $line -> ms count]} continue
                assert {$count >= $last && $ms >= $latency} $line
                set last $count
                set latency $ms
            }
            assert_equal 3000 $last
        }
    }

    test "keys, values and random numbers are what the options say" {
        r flushall
        bench_out -q -n 100 -t set -d 100
        assert_equal key:__rand_int__ [r keys *]
        assert_equal 100 [string length [r get key:__rand_int__]]
        r flushall
        bench_out -q -n 3000 -r 50 -P 10 -t set
        assert_equal 50 [r dbsize]
        for {set i 0} {$i < 50} {incr i} {assert_equal 1 [r exists [format key:%012d $i]]}
        r flushall
        bench_out -q -n 1000 -r 1000 --sequential -P 7 set seq:__rand_int__ __data__
        assert_equal 1000 [r dbsize]
        r flushall
        bench_out -q -n 500 -r 1000000 mset __rand_1st__ __rand_2nd__ same:__rand_1st__ __rand_1st__
        foreach key [r keys same:*] {assert_equal [r get $key] [string range $key 5 end]}
        assert_morethan [llength [r keys same:*]] 400
    }

    test "a sequence of commands is sent as a whole" {
        r flushall
        r config resetstat
        # 10 commands are two and a half sequences of four.
        set out [bench_out -q -n 10 -c 1 -- multi {;} set key __data__ {;} incr counter {;} exec]
        assert_regexp {multi ; set key __data__ ; incr counter ; exec: [\d.inf]+ requests per second} $out
        assert_equal {3 3 3 3} [lmap command {multi set incr exec} {calls $command}]
        assert_equal {3 3} [list [r get counter] [r strlen key]]
        foreach args {{-n 1000 -c 7} {-n 1000 -c 5 -P 16} {-n 1000 -c 4 --threads 2 -P 3}} {
            r flushall
            bench_out -q {*}$args incr a {;} incr b
            assert_equal {500 500} [r mget a b] $args
        }
    }

    test "a number before a command of a sequence repeats it" {
        r flushall
        lassign [completed [bench_out -n 40 -c 1 3 incr a {;} incr b]] requests
        assert_equal {40 30 10} [list $requests {*}[r mget a b]]
    }

    test "an empty command of a sequence is refused" -needs {ours 1} {
        foreach args {{; incr a} {incr a ;} {incr a ; ; incr b} {3} {3 ; incr a}} {
            lassign [bench -q -n 10 {*}$args] code out err
            assert_equal [list 1 "A command of the sequence is empty\n"] [list $code $err] $args
        }
        lassign [bench -q -n 10 1000 1001 incr a] code out err
        assert_equal [list 1 "The sequence has too many commands\n"] [list $code $err]
    }

    test "the commands of a sequence share their numbers" {
        r flushall
        bench_out -q -n 20 -c 1 -r 100000 rpush l __rand_1st__ {;} rpush l __rand_1st__
        foreach {a b} [r lrange l 0 -1] {assert_equal $a $b}
        assert_morethan [llength [lsort -unique [r lrange l 0 -1]]] 5
    }

    test "--sequential counts for each name" {
        r flushall
        bench_out -q -n 4 -c 1 -r 3 --sequential rpush l __rand_1st__ __rand_int__ __rand_int__ __rand_2nd__
        assert_equal {0 0 1 0 1 2 0 1 2 1 2 2 0 0 1 0} [lmap n [r lrange l 0 -1] {scan $n %d}]
    }

    test "--sequential: the tests of a run continue the numbers, and a score has its own" {
        r flushall
        bench_out -q -n 3 -c 1 -r 10 --sequential -t set,zadd,sadd
        assert_equal {key:000000000000 key:000000000001 key:000000000002 myset myzset} [lsort [r keys *]]
        assert_equal {element:000000000003 element:000000000004 element:000000000005} [lsort [r smembers myset]]
        assert_equal {element:000000000000 6 element:000000000001 7 element:000000000002 8} \
            [r zrange myzset 0 -1 withscores]
    }

    test "--seed repeats the random numbers" {
        foreach round {1 2} {
            r flushall
            bench_out -q -n 50 -c 1 -r 1000000 --seed 42 -t set
            lappend seen [lsort [r keys *]]
        }
        assert_equal [lindex $seen 0] [lindex $seen 1]
    }

    test "--dbnum and -3 are said on every connection" {
        r flushall
        bench_out -q -n 50 -c 5 -3 --dbnum 4 -t set
        assert_equal 0 [r dbsize]
        assert_match "*db4:keys=1*" [r info keyspace]
    }

    test "-k 0 connects for each request" {
        set before [info_field stats total_connections_received]
        lassign [bench -q -n 100 -c 3 -k 0 -t ping_mbulk] code out err
        assert_equal 0 $code
        assert_morethan [expr {[info_field stats total_connections_received] - $before}] 99
    }

    test "--num-functions is how many functions the library has, --num-keys-in-fcall how many keys FCALL gets" {
        r function flush
        bench_out -q -n 10 -c 1 -t function_load --num-functions 3
        assert_equal 3 [llength [dict get [lindex [r function list] 0] functions]]
        set monitor [new_client]
        $monitor monitor
        bench_out -q -n 1 -c 1 -t function_load,fcall --num-keys-in-fcall 3
        while {![regexp {"FCALL" "\S+" "(\d+)"(.*)} [$monitor -readline] -> count keys]} {}
        assert_equal {3 3} [list $count [llength $keys]]
        $monitor -close
        r function flush
    }

    test "--enable-tracking lets every connection track its keys" {
        set id [spawn $::bench -h [srv host] -p [srv port] -q -n 1000000000 -c 4 --enable-tracking -t get]
        wait_for_condition 20000 {[info_field clients tracking_clients] == 4}
        kill_process TERM [spawn_pid $id]
        spawn_wait $id
        wait_for_condition 20000 {[info_field clients tracking_clients] == 0}
    }

    test "--precision is the number of decimal places of latencies" {
        assert_regexp {p50=\d+\.\d{5} msec} [bench_out -q -n 10 -t set --precision 5]
        assert_regexp {p50=\d+\.\d{3} msec} [bench_out -q -n 10 -t set]
    }

    test "-x takes the last argument from standard input" {
        set got [run -stdin "from stdin" $::bench -h [srv host] -p [srv port] -q -n 10 -x set stdin:k]
        assert_equal 0 [dict get $got code]
        assert_equal "from stdin" [r get stdin:k]
        assert_match "*set stdin:k: *" [dict get $got out] ;# without the text
    }

    test "an error of the server ends an own command" {
        lassign [bench -q -n 100 foo bar] code out err
        assert_equal [list 1 "Error from server: ERR unknown command 'foo', with args beginning with: 'bar' \n"] \
            [list $code $err]
        r set text abc
        lassign [bench -q -n 100 -P 10 incr text] code out err
        assert_equal [list 1 "Error from server: ERR value is not an integer or out of range\n"] [list $code $err]
    }

    test "nobody listens: exit code 1 and the reason" {
        set port [free_port]
        set got [run $::bench -p $port -q -t set]
        assert_equal [list 1 "" "Could not connect to server at 127.0.0.1:$port: Connection refused\n"] \
            [list [dict get $got code] [dict get $got out] [dict get $got err]]
    }

    test "wrong options are refused by name" {
        foreach option {--bogus -n -t} {
            lassign [bench $option] code out err
            assert_equal 1 $code
            assert_match "Invalid option \"$option\" or option argument missing*" $err$out
        }
        foreach args {{-n x} {-c 0} {-P -1} {-d 99999999999}} {assert_equal 1 [lindex [bench {*}$args] 0] $args}
    }

    test "a test that does not exist is named" -needs {ours 1} {
        assert_equal [list 0 {} "WARNING: -t: no test is named \"png\"; --help lists them.\n"] [bench -q -n 10 -t png]
        lassign [bench -q -n 10 -t ,lrange_100,PING_MBULK,gt,] code out err
        assert_equal [list 0 "WARNING: -t: no test is named \"gt\"; --help lists them.\n"] [list $code $err]
        assert_match "*PING_MBULK: *" $out
    }

    test "the help lists every standard test" -needs {ours 1} {
        set help [bench_out --help]
        foreach name {ping set get incr lpush rpush lpop rpop sadd hset spop zadd zpopmin lrange mset mget xadd\
            function_load fcall} {
            assert_regexp "-t <tests>.*\\m$name\\M.*--num-functions" $help
        }
    }

    test "-t with a command is ignored with a warning" {
        lassign [bench -q -n 10 -t set ping] code out err
        assert_equal 0 $code
        assert_match "WARNING: Option -t is ignored*" $err
    }

    test "--cluster on a server without cluster mode fails with the server's reason" -needs {ours 1} {
        assert_equal [list 1 {} "ERROR: failed to fetch the cluster's slots: ERR This instance has cluster support\
            disabled\n"] [bench -q -n 10 --cluster -t set]
    }

    test "TLS to a port without TLS fails with the reason" -needs {ours 1} {
        lassign [bench -q -n 10 --tls --insecure -t set] code out err
        assert_equal {1 {}} [list $code $out]
        assert_match "Could not connect to server at *: SSL_connect failed: wrong version number\n" $err
    }

    test "--help and --version" {
        assert_match "*Usage: valkey-benchmark*--rdma*" [bench_out --help]
        assert_match "valkey-benchmark \[0-9\]*" [bench_out --version]
    }

    test "-I opens connections and waits" {
        set id [spawn $::bench -h [srv host] -p [srv port] -I -c 20]
        wait_for_condition 10000 {[info_field clients connected_clients] >= 21}
        assert_match "Creating 20 idle connections and waiting forever*" [spawn_out $id]
        kill_process TERM [spawn_pid $id]
        spawn_wait $id
    }

    test "all standard tests run" {
        r config resetstat
        set out [bench_out -q -n 200 -c 5 -P 4 -r 100]
        foreach name {PING_INLINE PING_MBULK SET GET INCR LPUSH RPUSH LPOP RPOP SADD HSET SPOP ZADD ZPOPMIN LRANGE_100\
            LRANGE_600 MSET XADD FCALL} {
            assert_match "*$name*: * requests per second*" $out
            # Several tests may use one command.
            assert_morethan [calls [lindex [split [string tolower $name] _] 0]] 199
        }
    }

    test "values larger than any buffer come back whole" {
        bench_out -q -n 100 -c 4 -d 3000000 -t set,get
        assert_equal 3000000 [r strlen key:__rand_int__]
    }

    test "a server that goes away in the middle is reported" {
        set id [spawn $::bench -h [srv host] -p [srv port] -q -n 100000000 -c 5 -t ping_mbulk]
        wait_for_condition 10000 {[info_field clients connected_clients] > 5}
        r client kill type normal skipme yes
        set got [spawn_wait $id]
        assert_equal 1 [dict get $got code]
        assert_match "*rror*" [dict get $got err]
    }
}

start_server {overrides {requirepass secret}} {
    test "a password is given on every connection" {
        assert_match "*requests per second*" [bench_out -a secret -q -n 100 -t set]
        assert_match "*requests per second*" [bench_out -a secret --user default -q -n 100 -t set]
        set got [run $::bench -u valkey://default:secret@[srv host]:[srv port] -q -n 100 -t set]
        assert_equal 0 [dict get $got code]
    }

    test "no password, or a wrong one, ends the program" {
        lassign [bench -q -n 100 -t set] code out err
        assert_equal [list 1 "Node [srv host]:[srv port] replied with error:\nNOAUTH Authentication required.\n"] \
            [list $code $err]
        lassign [bench -a wrong -q -n 100 -t set] code out err
        assert_equal [list 1 "Node [srv host]:[srv\
            port] replied with error:\nWRONGPASS invalid username-password pair or user is disabled.\n"]\
            [list $code $err]
    }
}

start_server {} {
    test "--fuzz sends random commands, and the server survives them" {
        foreach modes {{} {--fuzz-mode malformed-commands} {--fuzz-mode malformed-commands,config-commands}} {
            r flushall
            set out [bench_out --fuzz -n 1500 -c 7 --seed 11 {*}$modes]
            assert_match "*Running fuzzer with 7 clients, seed 11\n*=== FINAL STATISTICS ===*Total commands sent:\
                1500\n*Malformed replies: 0\n*Success rate: *%\n" $out
            assert_equal PONG [r ping]
        }
    }

    test "--fuzz with the same --seed sends the same commands in the same order" {
        set first [fuzz_commands [bench_out --fuzz -n 300 -c 3 --seed 5 --fuzz-loglevel debug]]
        r flushall
        assert_equal 300 [llength $first]
        foreach line $first {dict set names [lindex [regexp -inline {send Command: (\S+)} $line] 1] 1}
        assert_morethan [dict size $names] 80 "only a few commands were sent"
        assert_equal $first [fuzz_commands [bench_out --fuzz -n 300 -c 3 --seed 5 --fuzz-loglevel debug]]
        assert {$first ne [fuzz_commands [bench_out --fuzz -n 300 -c 3 --seed 6 --fuzz-loglevel debug]]} \
            "the seed has no effect"
        assert_equal {} [bench_out --fuzz -n 100 -c 3 --fuzz-loglevel none]
    }

    test "--fuzz refuses modes and levels that it does not know" {
        foreach {arguments reason} {
            {--fuzz --fuzz-mode bogus} "--fuzz-mode takes malformed-commands, config-commands, or both*"
            {--fuzz --fuzz-loglevel bogus} "--fuzz-loglevel takes none, error, info or debug*"
            {--fuzz-mode config-commands} "--fuzz-mode needs --fuzz*"
            {--fuzz get a} "--fuzz takes no command,*"
            {--fuzz --fuzz-mode} "Invalid option \"--fuzz-mode\" or option argument missing*"
        } {
            lassign [bench {*}$arguments] code out err
            assert_equal 1 $code $arguments
            assert_match $reason $err $arguments
        }
    }
}

test "--fuzz fails, and shows the last commands, when the server ends" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port
    set c [new_client -port $port]
    set fuzzer [spawn $::bench -h 127.0.0.1 -p $port --fuzz --duration 40 -c 3 --fuzz-loglevel error]
    wait_for_condition 20000 {[regexp {total_commands_processed:(\d+)} [$c info stats] -> n] && $n > 100}
    kill_process KILL [spawn_pid $handle]
    set got [spawn_wait $fuzzer 30000]
    assert_equal 1 [dict get $got code]
    assert_match "*The server does not answer: *Last command of client 3: *" [dict get $got out]
}
