# TIME, DEBUG, SHUTDOWN, and the logs of slow and large commands. seconds: 4

start_server {tags {server}} {
    test "TIME is the time" {
        lassign [r time] s us
        assert_range [expr {$s - [clock seconds]}] -1 1
        assert_range $us 0 999999
        lassign [r time] s2 us2
        assert {$s2 * 1000000 + $us2 >= $s * 1000000 + $us}
        assert_match {\* {$*} {$*}} [r -typed time]
        arity_errors {{time x}}
    }

    test "LASTSAVE, LOLWUT and ROLE answer" -needs {command lolwut command role command lastsave} {
        assert_range [expr {[clock seconds] - [r lastsave]}] 0 100
        assert_match "*ver. *" [r lolwut]
        assert_typed {* $master :0 *} role
    }

    # --- DEBUG -----------------------------------------------------------------------

    test "DEBUG SLEEP blocks the server" {
        set began [clock milliseconds]
        assert_typed +OK debug sleep 0.3
        assert_range [expr {[clock milliseconds] - $began}] 290 2000
        set c [new_client]
        $c ping ;# over TLS or RDMA it is connected now
        $c -send debug sleep 0.2
        after 20
        set began [clock milliseconds]
        r ping
        assert_range [expr {[clock milliseconds] - $began}] 50 2000
        assert_equal OK [$c -read]
    }

    test "DEBUG POPULATE makes keys" {
        r flushall
        replies {
            {debug populate 3} +OK
            {mget key:0 key:1 key:2 key:3} {* $value:0 $value:1 $value:2 nil$}
            {debug populate 2 foo 10} +OK
            {get foo:1} "$value:1\x00\x00\x00"
            {strlen foo:0} :10
            {set foo:0 mine} +OK
            {debug populate 3 foo 10} +OK
            {get foo:0} {$mine}
            {dbsize} :6
            {debug populate x} "-ERR value is out of range, must be positive"
            {debug populate -1} "-ERR value is out of range, must be positive"
        }
        r flushall
    }

    test "DEBUG OBJECT describes a value" {
        r set a hello
        assert_regexp {^Value at:0x[0-9a-f]+ refcount:1 encoding:embstr serializedlength:\d+ lru:\d+\
            lru_seconds_idle:\d+} [r debug object a]
        assert_typed "-ERR no such key" debug object none
    }

    test "DEBUG DIGEST depends on content, not on order of making" {
        r flushall
        assert_typed +[string repeat 0 40] debug digest
        r mset a 1 b 2
        set one [r debug digest]
        assert_regexp {^[0-9a-f]{40}$} $one
        r flushall
        r set b 2
        r set a 1
        assert_equal $one [r debug digest]
        r set a 2
        assert_not_equal $one [r debug digest]
        r set a 1
        assert_equal $one [r debug digest]
        assert_equal [r debug digest-value a] [r debug digest-value a]
        assert {[lindex [r debug digest-value a] 0] ne [lindex [r debug digest-value b] 0]}
        assert_typed "* +[string repeat 0 40]" debug digest-value none
    }

    test "DEBUG LOG writes to the log, DEBUG ERROR answers an error" {
        set from [log_size]
        r debug log "hello from the test"
        wait_for_log "DEBUG LOG: hello from the test" $from
        assert_typed "-FOO bar" debug error "FOO bar"
    }

    test "DEBUG HTSTATS describes the tables" {
        r flushall
        r debug populate 100
        assert_match "*number of entries: 100*" [r debug htstats 0]
    }

    test "DEBUG HELP and unknown subcommands" {
        set help [r debug help]
        assert_match "DEBUG <subcommand>*" [lindex $help 0]
        foreach word {OBJECT POPULATE SLEEP SET-ACTIVE-EXPIRE PROTOCOL LOG} {assert_match "*$word*" $help}
        replies {
            {debug} "-ERR wrong number of arguments for 'debug' command"
            {debug foo} "-ERR unknown subcommand or wrong number of arguments for 'foo'. Try DEBUG HELP."
            {debug sleep} "-ERR unknown subcommand or wrong number of arguments for 'sleep'. Try DEBUG HELP."
            {debug populate} "-ERR unknown subcommand or wrong number of arguments for 'populate'. Try DEBUG HELP."
            {debug set-active-expire}\
                "-ERR unknown subcommand or wrong number of arguments for 'set-active-expire'. Try DEBUG HELP."
        }
    }

    # --- SHUTDOWN that does not end the server --------------------------------------------------------

    test "SHUTDOWN refuses wrong options and ABORT without a shutdown" {
        replies {
            {shutdown foo} "-ERR syntax error"
            {shutdown save nosave} "-ERR syntax error"
            {shutdown abort} "-ERR No shutdown in progress."
            {shutdown abort now} "-ERR syntax error"
            {shutdown nosave abort} "-ERR syntax error"
            {ping} +PONG
        }
    }

    # --- Logs of commands ------------------------------------------------------------------

    test "SLOWLOG keeps the slow commands" -needs {command slowlog} {
        r config set slowlog-log-slower-than 100000
        r slowlog reset
        assert_typed :0 slowlog len
        r ping
        assert_typed :0 slowlog len
        r debug sleep 0.2
        assert_typed :1 slowlog len
        set e [lindex [r slowlog get] 0]
        assert_equal 6 [llength $e]
        assert_equal {debug sleep 0.2} [lindex $e 3]
        assert_range [expr {[clock seconds] - [lindex $e 1]}] 0 3
        assert_morethan [lindex $e 2] 190000
        assert_regexp {^127\.0\.0\.1:\d+$} [lindex $e 4]
        r config set slowlog-log-slower-than 0
        r slowlog reset
        r config set slowlog-max-len 5
        for {set i 0} {$i < 10} {incr i} {r get key:$i}
        r config set slowlog-log-slower-than 1000000
        assert_typed :5 slowlog len
        assert_equal {get key:9} [lindex [r slowlog get 1] 0 3]
        assert_equal 3 [llength [r slowlog get 3]]
        assert_equal 5 [llength [r slowlog get -1]]
        r config set slowlog-log-slower-than 10000 slowlog-max-len 128
        r slowlog reset
    }

    test "SLOWLOG shortens long commands" -needs {command slowlog} {
        r config set slowlog-log-slower-than 0
        r slowlog reset
        r del {*}[lrepeat 40 x]
        r set a [string repeat y 200]
        set log [r slowlog get -1]
        r config set slowlog-log-slower-than 10000
        set found 0
        foreach e $log {
            if {[lindex $e 3 0] eq "del"} {
                assert_equal 32 [llength [lindex $e 3]]
                assert_equal "... (10 more arguments)" [lindex $e 3 end]
                incr found
            }
            if {[lindex $e 3 0] eq "set"} {
                assert_equal "[string repeat y 128]... (72 more bytes)" [lindex $e 3 2]
                incr found
            }
        }
        assert_equal 2 $found
        replies {
            {slowlog foo} "-ERR unknown subcommand 'foo'. Try SLOWLOG HELP."
            {slowlog get x} "-ERR count should be greater than or equal to -1"
            {slowlog get -2} "-ERR count should be greater than or equal to -1"
        }
    }

    # The entries of one command in a log, oldest first: {size arguments} each.
    proc logged {type names} {
        set found {}
        foreach entry [lreverse [r commandlog get -1 $type]] {
            if {[string tolower [lindex $entry 3 0]] in $names} {
                lappend found [list [lindex $entry 2] [lindex $entry 3]]
            }
        }
        return $found
    }

    test "COMMANDLOG also hides secrets in transactions, and logs the executed commands with the bytes of both" \
        -needs {command commandlog} {
        set c [new_client]
        r config set commandlog-request-larger-than 0 commandlog-reply-larger-than 0
        foreach type {slow large-request large-reply} {r commandlog reset $type}
        $c multi
        $c config set primaryauth topsecret
        $c auth user othersecret
        $c set key [string repeat v 10]
        $c get key
        $c exec
        catch {$c get}
        catch {$c nosuch command}
        set names {multi config auth set get nosuch exec}
        assert_equal [list {15 multi} {58 {config set primaryauth (redacted)}} {42 {auth (redacted) (redacted)}} \
            {39 {set key vvvvvvvvvv}} {22 {get key}}] [logged large-request $names]
        set replies [logged large-reply $names]
        assert_equal {multi config auth set get} [lmap e $replies {lindex $e 1 0}]
        assert_equal {5 5 5 17} [lmap i {0 1 3 4} {lindex $replies $i 0}]
        assert_equal {{config set primaryauth (redacted)} {auth (redacted) (redacted)}} \
            [lmap i {1 2} {lindex $replies $i 1}]
        foreach type {slow large-request large-reply} {assert_not_match *secret* [r commandlog get -1 $type]}
        # Commands of discarded and aborted transactions were not executed.
        foreach type {large-request large-reply} {r commandlog reset $type}
        $c multi
        $c set key discarded
        $c discard
        $c multi
        $c set key aborted
        catch {$c nosuch}
        catch {$c exec}
        assert_equal {multi discard multi} [lmap e [logged large-request {multi discard set exec}] {lindex $e 1 0}]
        # Large arguments are received separately, but count as well.
        r commandlog reset large-request
        $c set key [string repeat x 100000]
        assert_equal 100033 [lindex [logged large-request set] 0 0]
        $c -write "set key value\r\n"
        assert_equal +OK [$c -readline]
        assert_equal 15 [lindex [logged large-request set] 1 0]
        r config set commandlog-request-larger-than 1048576 commandlog-reply-larger-than 1048576
        r config set primaryauth ""
    }

    test "MONITOR hides a secret behind many other arguments" {
        set m [new_client]
        $m monitor
        set c [new_client]
        set words {}
        for {set i 0} {$i < 20} {incr i} {lappend words setname name$i}
        catch {$c hello 3 {*}$words auth user topsecret}
        catch {$c echo end}
        set seen ""
        while {![string match *end* $seen]} {append seen [$m -readline]}
        assert_match {*"name9" *"(redacted)" "(redacted)"*} $seen
        assert_not_match *secret* $seen
    }

    test "MONITOR escapes what is not printable, and quotes and backslashes" {
        set m [new_client]
        $m monitor
        r echo "a\"b\\c\n\r\t\a\b\x00\x1f \x7f\xffg"
        r echo ""
        assert_match {*] "echo" "a\\"b\\\\c\\n\\r\\t\\a\\b\\x00\\x1f \\x7f\\xffg"} [$m -readline]
        assert_match {*] "echo" ""} [$m -readline]
    }

    test "a MONITOR client may not touch data, and gets nothing after its QUIT" {
        set m [new_client]
        assert_equal OK [$m monitor]
        foreach command {{get k} {set k v} {dbsize} {keys *}} {
            $m -write [resp_command {*}$command]
            assert_equal "-ERR Replica can't interact with the keyspace" [$m -readline]
        }
        # A second MONITOR gets no reply.
        $m -write [resp_command monitor][resp_command ping]
        assert_equal +PONG [$m -readline]
        assert_match {*"ping"} [$m -readline]
        $m -write [resp_command quit]
        assert_equal +OK [$m -readline]
        assert_closed $m
        assert_equal PONG [r ping]
    }

    test "a MONITOR client that wants no replies gets no commands either" {
        set m [new_client]
        $m -write [resp_command client reply off][resp_command monitor]
        $m -flush
        wait_for_condition 5000 {[string match *cmd=monitor* [r client list]]}
        r ping
        $m -write [resp_command client reply on][resp_command client reply skip][resp_command echo done]
        assert_equal +OK [$m -readline]
    }

    test "COMMANDLOG keeps slow commands, large requests and large replies" -needs {command commandlog} {
        foreach type {slow large-request large-reply} {r commandlog reset $type}
        r config set commandlog-request-larger-than 1000 commandlog-reply-larger-than 2000
        r set big [string repeat x 3000]
        r get big
        assert_typed :1 commandlog len large-request
        assert_typed :1 commandlog len large-reply
        set e [lindex [r commandlog get -1 large-reply] 0]
        assert_equal {get big} [lindex $e 3]
        assert_morethan [lindex $e 2] 3000
        r commandlog reset large-reply
        assert_typed :0 commandlog len large-reply
        r config set commandlog-request-larger-than 1048576 commandlog-reply-larger-than 1048576
        assert_match "-ERR *" [r -typed commandlog len foo]
    }

    test "LATENCY keeps the worst events and histograms" -needs {command latency} {
        r config set latency-monitor-threshold 50
        r latency reset
        r debug sleep 0.1
        set e [lindex [r latency latest] 0]
        assert_equal command [lindex $e 0]
        assert_range [lindex $e 2] 90 1000
        assert_equal 1 [llength [r latency history command]]
        assert_equal 1 [r latency reset]
        assert_equal {} [r latency latest]
        r config set latency-monitor-threshold 0
        r config resetstat
        r set a 1
        r get a
        set h [r latency histogram get]
        assert_equal {get} [dict keys $h]
        assert_equal 1 [dict get $h get calls]
        assert_typed "-ERR unknown subcommand 'foo'. Try LATENCY HELP." latency foo
    }

    test "LATENCY LATEST has the sum and the number of all times" -needs {command latency} {
        r config set latency-monitor-threshold 10
        r latency reset
        for {set i 0} {$i < 3} {incr i} {r debug sleep 0.02}
        lassign [lindex [r latency latest] 0] name time last max sum count
        assert_equal {command 3} [list $name $count]
        assert {$max >= $last && $last >= 20 && $sum >= 60 && $sum >= $max + 40} [r latency latest]
        r config set latency-monitor-threshold 0
        r latency reset
    }

    test "LATENCY GRAPH draws four rows of bars, and the ages below" -needs {command latency} {
        r config set latency-monitor-threshold 10
        r latency reset
        r debug sleep 0.02
        set lines [split [r latency graph command] \n]
        assert_regexp {^command - high \d+ ms, low \d+ ms \(all time high \d+ ms\)$} [lindex $lines 0]
        assert_equal [string repeat - 80] [lindex $lines 1]
        # Usually one sample; two if the second changed meanwhile.
        assert_equal [lrepeat 5 [string length [lindex $lines 2]]] [lmap line [lrange $lines 2 6] {string length $line}]
        assert_regexp {^[_#]+$} [string map {| #} [lindex $lines 5]]
        assert_regexp {^ +$} [lindex $lines 6]
        assert_regexp {^\d+$} [lindex $lines 7]
        assert_equal {} [lindex $lines end]
        assert_typed "-ERR No samples available for event 'nosuch'" latency graph nosuch
        r config set latency-monitor-threshold 0
        r latency reset
    }

    test "LATENCY DOCTOR names the events, their number, and what helps" -needs {command latency} {
        r config set latency-monitor-threshold 0
        r latency reset
        assert_match "*CONFIG SET latency-monitor-threshold*" [r latency doctor]
        r config set latency-monitor-threshold 1000
        assert_not_match "*CONFIG SET latency-monitor-threshold*" [r latency doctor]
        r config set latency-monitor-threshold 10
        r debug sleep 0.02
        assert_regexp {\n1\. command: 1 latency spikes \(average \d+ms, mean deviation 0ms, period \d+\.\d\d sec\)\.\
            Worst all time event \d+ms\.\n} [r latency doctor]
        assert_regexp {COMMANDLOG|Slow Log} [r latency doctor]
        r config set latency-monitor-threshold 0
        r latency reset
    }

    test "MEMORY DOCTOR reports memory that the data does not need" -needs {command memory} {
        r flushall
        set little [r memory doctor]
        r debug populate 50000 doctor 200
        assert {[r memory doctor] ne $little}
        r flushall sync
        r debug populate 25000 doctor 200
        assert_match "*peak*" [r memory doctor]
        r flushall sync
    }

    test "MEMORY MALLOC-STATS shows the statistics of the allocator" -needs {command memory} {
        set stats [r memory malloc-stats]
        if {[string match jemalloc* [info_field memory mem_allocator]]} {
            assert_match "*Begin jemalloc statistics*Allocated:*" $stats
        } else {
            assert_equal "Stats not supported for the current allocator" $stats
        }
    }

    test "the buckets of LATENCY HISTOGRAM have Valkey's bounds" -needs {command latency} {
        r config resetstat
        foreach seconds {0 0.00003 0.0001 0.001 0.02 0.3 1.2} {r debug sleep $seconds}
        set bounds {1 2 4 8 16 33 66 132 264 528 1056 2113 4227 8454 16908 33816 67633 135266 270532 541065 1073741}
        set last 0
        dict for {bound count} [dict get [r latency histogram debug] debug histogram_usec] {
            assert {$bound in $bounds && $count > $last} "$bound $count"
            set last $count
        }
        assert_equal {1073741 7} [list $bound $count]
    }

    test "MEMORY USAGE returns the size of a key" -needs {command memory} {
        r set a [string repeat x 1000]
        assert_range [r memory usage a] 1000 1400
        assert_typed nil$ memory usage none
        assert_typed "-ERR syntax error" memory usage a foo
        assert_equal OK [r memory purge]
        set s [r memory stats]
        foreach f {peak.allocated total.allocated startup.allocated keys.count} {assert {[dict exists $s $f]} $f}
    }

    test "the server works while an idle server uses little CPU time" {
        # An idle event loop must not spin.
        set before [info_field cpu used_cpu_user]
        set began [clock milliseconds]
        after 600
        set used [expr {[info_field cpu used_cpu_user] - $before}]
        assert_lessthan $used 0.15
    }
}

# --- SHUTDOWN ------------------------------------------------------------------------------

foreach options {{} nosave {nosave now} {nosave force} {NOSAVE NOW FORCE}} {
    start_server {tags {server}} {
        test "SHUTDOWN [string tolower $options] ends the server in order" {
            expect_server_exit
            r set a b
            set c [new_client]
            $c ping
            set from [log_size]
            r -send shutdown {*}$options
            assert_equal 1 [r -eof]
            assert_closed $c
            assert_equal 0 [server_reap [srv id]]
            set log [log_text $from]
            assert_match "*User requested shutdown... (user request from 'id=* addr=*')*" $log
            assert_match "*Valkey is now ready to exit, bye bye...*" $log
            assert {![file exists [srv dir]/dump.rdb]}
        }
    }
}

start_server {tags {server}} {
    test "commands pipelined behind SHUTDOWN are not executed" {
        expect_server_exit
        r -write "[resp_command shutdown nosave][resp_command set a b]"
        assert_equal 1 [r -eof]
        assert_equal 0 [server_reap [srv id]]
    }
}

start_server {overrides {save "900 1"} tags {server}} {
    test "SHUTDOWN and SIGTERM save where there are save points, a restart has the keys" -needs {command bgsave} {
        r set a value
        restart_server
        assert_equal value [r get a]
        r set b value ex 1000
        expect_server_exit
        r -send shutdown save
        assert_equal 1 [r -eof]
        assert_equal 0 [server_reap [srv id]]
        assert {[file exists [srv dir]/dump.rdb]}
    }
}
