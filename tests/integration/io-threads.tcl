# Threads that read, parse and write for clients (io-threads): requests and replies are neither lost nor mixed up nor
# reordered, in any situation. seconds: 10

# Starts valkey-benchmark against the current server, over the transport of the run; returns a handle.
proc benchmark {args} {
    set where [list -h 127.0.0.1 -p [srv port]]
    if {$::opt(rdma)} {lappend where --rdma {*}[tls_tool_options]}
    spawn {*}$::opt(launcher) [tool valkey-benchmark] {*}$where -q {*}$args
}
proc benchmark_end {handle {ms 60000}} {
    set got [spawn_wait $handle $ms]
    assert_equal 0 [dict get $got code] [dict get $got err]
    return $got
}
# Increments a counter in a pipeline and checks that each reply is the next number.
proc count_up {c n} {
    for {set i 0} {$i < $n} {incr i} {$c -send incr counter:$c}
    for {set i 1} {$i <= $n} {incr i} {assert_equal $i [$c -read]}
    $c del counter:$c
}
set have_benchmark [list file [file join $::root src valkey-benchmark] ours 1]

start_server {overrides {io-threads 4} tags {io-threads}} {
    test "io-threads is what the file says" -needs {ours 1} {
        assert_equal 4 [config_get io-threads]
        wait_for_condition 5000 {[info_field server io_threads_active] == 0} "idle threads are not active"
    }

    test "INFO shows the CPU time of each thread" -needs {ours 1} {
        r config set io-threads-always-active yes
        r ping
        assert_regexp {used_active_time_io_thread_1:\d+\.\d{6}\r} [r info cpu]
        r config set io-threads-always-active no
    }

    test "INFO counts what the threads read and wrote" -needs {ours 1} {
        set reads [info_field stats io_threaded_reads_processed]
        set writes [info_field stats io_threaded_writes_processed]
        for {set i 0} {$i < 20} {incr i} {r ping}
        assert_morethan [info_field stats io_threaded_reads_processed] [expr {$reads + 19}]
        assert_morethan [info_field stats io_threaded_writes_processed] [expr {$writes + 19}]
    }

    test "keys of requests that arrive together are prefetched, up to prefetch-batch-max-size" -needs {ours 1} {
        r debug populate 50000
        set clients {}
        for {set i 0} {$i < 8} {incr i} {lappend clients [new_client]}
        # While the server sleeps, the threads collect a request of each client.
        proc together {clients} {
            r -send debug sleep 0.1
            foreach c $clients {$c -send get key:7}
            foreach c $clients {assert_equal value:7 [$c -read]}
            assert_equal OK [r -read]
        }
        proc prefetched {} {info_field stats io_threaded_total_prefetch_entries}
        wait_for_condition 5000 {[together $clients; prefetched] >= 2} "requests of several clients are prefetched"
        assert_range [info_field stats io_threaded_total_prefetch_batches] 1 [prefetched]
        r config set prefetch-batch-max-size 1
        set before [prefetched]
        together $clients
        set c [new_client]
        for {set i 0} {$i < 10} {incr i} {$c -send get key:$i}
        for {set i 0} {$i < 10} {incr i} {assert_equal value:$i [$c -read]}
        assert_equal $before [prefetched]
        r config set prefetch-batch-max-size 16
        for {set i 0} {$i < 10} {incr i} {$c -send get key:$i}
        for {set i 0} {$i < 10} {incr i} {assert_equal value:$i [$c -read]}
        r config resetstat
        assert_equal 0 [prefetched]
        r flushall
    }

    test "answers of a pipeline come in the order of its requests" {
        set clients {}
        for {set i 0} {$i < 8} {incr i} {lappend clients [new_client]}
        foreach c $clients {for {set i 0} {$i < 2000} {incr i} {$c -send echo $c:$i}}
        foreach c $clients {for {set i 0} {$i < 2000} {incr i} {assert_equal $c:$i [$c -read]}}
        foreach c $clients {count_up $c 500}
    }

    test "a pipeline that takes longer than a turn does not starve others and keeps its order" {
        set c [new_client]
        r set long [set long [numbered 200000]]
        for {set i 0} {$i < 300} {incr i} {$c -send strlen long; $c -send echo $i; $c -send get long}
        assert_equal PONG [r ping]
        for {set i 0} {$i < 300} {incr i} {
            assert_equal 200000 [$c -read]
            assert_equal $i [$c -read]
            assert_equal $long [$c -read]
        }
    }

    test "requests in pieces, inline requests and quoted ones are executed in order" {
        set c [new_client]
        set text ""
        foreach request {"ECHO plain\r\n" "ECHO \"in quotes \\x41\"\r\n" "\r\n" "*2\r\n\$4\r\nECHO\r\n\$3\r\nabc\r\n"\
            "*0\r\n" "echo 'more quotes'\n"} {
            append text $request
        }
        set text [string repeat $text 20]
        foreach piece {1 3 7 64 4096} {
            for {set i 0} {$i < [string length $text]} {incr i $piece} {
                $c -write [string range $text $i [expr {$i + $piece - 1}]]
                if {$i % 50 == 0} {$c -flush}
            }
            $c -flush
            for {set i 0} {$i < 20} {incr i} {
                foreach answer {plain "in quotes A" abc "more quotes"} {assert_equal $answer [$c -read]}
            }
        }
    }

    test "large values go both ways, among small ones" {
        set c [new_client]
        set values {}
        foreach size [scaled_sizes {10 16383 16384 65535 65536 65537 300000 3000000}] {
            set value [string repeat [randstring 997 997 alpha] [expr {$size / 997 + 1}]]
            set value [string range $value 1 $size]
            lappend values $value
            $c -send set large:$size $value
            $c -send echo between
            $c -send mset large:a:$size $value large:b:$size $value x y
            $c -send get large:$size
            $c -send getrange large:b:$size 0 3
        }
        foreach value $values {
            assert_equal OK [$c -read]
            assert_equal between [$c -read]
            assert_equal OK [$c -read]
            assert {[$c -read] eq $value}
            assert_equal [string range $value 0 3] [$c -read]
        }
        r flushall
    }

    test "a protocol error answers what came before it, then itself, then ends the connection" {
        foreach {bad error} {
            "*1\r\nPING\r\n" "-ERR Protocol error: expected '$', got 'P'"
            "*3\r\n\$3\r\nSET\r\n\$1\r\nx\r\n\$-1\r\n" "-ERR Protocol error: invalid bulk length"
            "*1000000000000\r\n" "-ERR Protocol error: invalid multibulk length"
            "ECHO \"x\r\n" "-ERR Protocol error: unbalanced quotes in request"
        } {
            set c [new_client]
            $c -write "ECHO before\r\n[string repeat "PING\r\n" 50]ECHO \"quoted before\"\r\n${bad}PING\r\n"
            $c -flush
            assert_equal before [$c -read]
            for {set i 0} {$i < 50} {incr i} {assert_equal PONG [$c -read]}
            assert_equal "quoted before" [$c -read]
            assert_equal $error [$c -readline]
            assert_closed $c
        }
        assert_equal PONG [r ping]
    }

    test "QUIT and killed clients get what they were owed" {
        r set owed [set owed [numbered 1000000]]
        set c [new_client]
        for {set i 0} {$i < 5} {incr i} {$c -send get owed}
        $c -send quit
        for {set i 0} {$i < 5} {incr i} {assert_equal $owed [$c -read]}
        assert_equal OK [$c -read]
        assert_closed $c
        set c [new_client]
        set id [$c client id]
        $c -send get owed
        $c -send client kill id $id skipme no
        assert_equal $owed [$c -read]
        assert_equal 1 [$c -read]
        assert_closed $c
    }

    test "CLIENT PAUSE holds requests where they are, large ones too" {
        set a [new_client]
        set b [new_client]
        r client pause 100000 write
        set value [string repeat p 200000]
        $a -send set paused $value
        for {set i 0} {$i < 100} {incr i} {$a -send echo $i}
        $b -write "SET \"quoted key\" v\r\nECHO after\r\n"
        $b -flush
        wait_for_condition 5000 {[info_field clients blocked_clients] == 2}
        assert_equal 0 [r exists paused]
        r client unpause
        assert_equal OK [$a -read]
        for {set i 0} {$i < 100} {incr i} {assert_equal $i [$a -read]}
        assert_equal OK [$b -read]
        assert_equal after [$b -read]
        assert {[r get paused] eq $value}
        assert_equal v [r get "quoted key"]
    }

    test "a client that is killed while it is paused leaves nothing behind" {
        set a [new_client]
        set id [$a client id]
        r client pause 100000 write
        $a -send set never 1
        $a -send set never 2
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        assert_equal 1 [r client kill id $id]
        assert_closed $a
        r client unpause
        assert_equal 0 [r exists never]
    }

    test "what others write to a client reaches it in between: MONITOR" {
        set m [new_client]
        assert_equal OK [$m monitor]
        for {set i 0} {$i < 300} {incr i} {r echo $i}
        for {set i 0} {$i < 300} {incr i} {assert_match "*\"echo\" \"$i\"" [$m -readline]}
    }

    test "a client that reads nothing passes its output limit" {
        r config set client-output-buffer-limit "normal 2000000 0 0"
        r set much [string repeat m 500000]
        set c [new_client]
        set before [info_field stats client_output_buffer_limit_disconnections]
        catch {
            for {set i 0} {$i < 100} {incr i} {$c -send get much}
            $c -flush
        }
        wait_for_condition 10000 {[info_field stats client_output_buffer_limit_disconnections] == $before + 1}
        r config set client-output-buffer-limit "normal 0 0 0"
        assert_equal PONG [r ping]
    }

    test "a client that sends a request without end passes the query buffer's limit" {
        r config set client-query-buffer-limit 1048576
        set c [new_client]
        set before [info_field stats client_query_buffer_limit_disconnections]
        catch {
            $c -write "*2\r\n\$4\r\nECHO\r\n\$3000000\r\n[string repeat q 2000000]"
            $c -flush
        }
        wait_for_condition 10000 {[info_field stats client_query_buffer_limit_disconnections] == $before + 1}
        r config set client-query-buffer-limit 1073741824
        assert_closed $c
    }

    test "what a client has sent of a request counts against maxmemory-clients" {
        r client no-evict on
        set arguments [string repeat "\$10000\r\n[string repeat h 10000]\r\n" 2000]
        foreach half [list "*2\r\n\$4\r\nECHO\r\n\$30000000\r\nhalf" "*100000\r\n$arguments"] {
            set c [new_client]
            $c ping
            set before [info_field stats evicted_clients]
            catch {$c -write $half; $c -flush}
            r config set maxmemory-clients 10000000
            wait_for_condition 10000 {[info_field stats evicted_clients] == $before + 1}
            r config set maxmemory-clients 0
            assert_closed $c
        }
        r client no-evict off
    }

    test "CLIENT LIST shows the buffers of connections on threads" {
        set c [new_client]
        $c client setname threaded
        set long [numbered 50000]
        $c -write "*2\r\n\$4\r\nECHO\r\n\$50000\r\n[string range $long 0 19999]"
        $c -flush
        wait_for_condition 5000 {[regexp {name=threaded [^\n]* tot-net-in=\d+} [r client list]]}
        regexp -line {^id=.* name=threaded .*$} [r client list] line
        assert_match *transport=[expr {$::opt(rdma) ? "rdma" : $::opt(tls) ? "tls" : "tcp"}]* $line
        $c -write "[string range $long 20000 end]\r\n"
        assert_equal $long [$c -read]
    }

    test "clients come and go under load" -needs $have_benchmark -timeout 100 {
        set load [benchmark -t set,get -n [scaled 200000 2000] -c 10 -P 16 -d 100 -r 1000]
        set churn [benchmark -t ping_mbulk -n [scaled 1000 50] -c 10 -k 0]
        for {set i 0} {$i < 20} {incr i} {
            set c [new_client]
            count_up $c 50
            if {$i % 2} {$c -close}
        }
        benchmark_end $churn
        benchmark_end $load
        assert_equal PONG [r ping]
        wait_for_condition 10000 {[info_field clients connected_clients] <= 12}
    }

    test "10,000 connects and disconnects under load" -needs $have_benchmark -tags {long} -timeout 300 {
        if {"long" ni $::opt(allow)} {skip_test "only with --tags long"}
        set load [benchmark -t set,get -n 1000000 -c 20 -P 8 -d 512 -r 1000]
        benchmark_end [benchmark -t ping_mbulk -n 10000 -c 50 -k 0] 250000
        benchmark_end $load 250000
        assert_equal PONG [r ping]
        wait_for_condition 10000 {[info_field clients connected_clients] <= 12}
    }

    test "killing everybody under load" -needs $have_benchmark {
        for {set round 0} {$round < 5} {incr round} {
            set load [benchmark -t set,get -n 10000000 -c 10 -P 16 -d 3000]
            wait_for_condition 5000 {[info_field clients connected_clients] > 10}
            after 50
            r client kill type normal
            kill_process KILL [spawn_pid $load]
            catch {spawn_wait $load}
        }
        wait_for_condition 10000 {[info_field clients connected_clients] <= 12}
        assert_equal PONG [r ping]
    }
}

start_server {overrides {io-threads 3 maxclients 5} tags {io-threads}} {
    test "a client above maxclients receives the error and is closed" {
        set clients {}
        r ping
        for {set i 0} {$i < 4} {incr i} {lappend clients [new_client]; [lindex $clients end] ping}
        set c [new_client]
        assert_too_many_clients $c
        foreach c $clients {assert_equal PONG [$c ping]}
    }
}

start_server {overrides {io-threads 3 requirepass secret} auth secret tags {io-threads}} {
    test "before AUTH requests are small, after it they are not, even in one pipeline" {
        set c [new_client]
        set value [string repeat v 50000]
        set bulk "*3\r\n\$3\r\nSET\r\n\$1\r\nk\r\n\$50000\r\n$value\r\n"
        $c -write "PING\r\n*2\r\n\$4\r\nAUTH\r\n\$6\r\nsecret\r\n${bulk}*2\r\n\$6\r\nSTRLEN\r\n\$1\r\nk\r\n"
        $c -flush
        assert_error "NOAUTH Authentication required." {$c -read}
        assert_equal OK [$c -read]
        assert_equal OK [$c -read]
        assert_equal 50000 [$c -read]
        set c [new_client]
        $c -write $bulk
        $c -flush
        assert_equal "-ERR Protocol error: unauthenticated bulk length" [$c -readline]
        assert_closed $c
        set c [new_client]
        $c -write "*11\r\n"
        $c -flush
        assert_equal "-ERR Protocol error: unauthenticated multibulk length" [$c -readline]
        assert_closed $c
    }
}

start_server {overrides {io-threads 3} tags {io-threads}} {
    test "SHUTDOWN under load ends the process in order" -needs $have_benchmark {
        set load [benchmark -t set,get -n 10000000 -c 10 -P 16]
        wait_for_condition 5000 {[info_field clients connected_clients] > 10}
        set watcher [new_client]
        $watcher ping
        expect_server_exit
        set pid [srv pid]
        catch {r shutdown nosave}
        wait_for_condition 10000 {![process_alive $pid]}
        assert_closed $watcher
        kill_process KILL [spawn_pid $load]
        catch {spawn_wait $load}
    }
}

proc client_field_of {id field} {dict get [client_fields [r client list id $id]] $field}

start_server {overrides {io-threads 3} tags {io-threads}} {
    test "CLIENT LIST shows the bytes of an incomplete request" {
        foreach n {3000 20000 300000 3000000} {
            set c [new_client]
            set id [$c client id]
            $c -write "*1\r\n\$$n\r\n[string repeat v $n]"
            $c -flush
            wait_for_condition 5000 {[client_field_of $id qbuf] == $n}
            assert {[client_field_of $id tot-mem] > $n}
            $c -close
        }
    }

    test "the bytes of a reply count as sent when the client has it" {
        set c [new_client]
        set id [$c client id]
        for {set i 0} {$i < 100} {incr i} {
            set sent [client_field_of $id tot-net-out]
            assert_equal PONG [$c ping]
            assert_equal [expr {$sent + 7}] [client_field_of $id tot-net-out]
        }
    }

    test "a request beyond maxmemory-clients closes its client before it is executed" {
        r config set maxmemory-clients 3000000
        # Often enough for each order in which the thread's messages and figures may be seen.
        for {set i 0} {$i < 30} {incr i} {
            set name name:$i
            set c [new_client]
            set id [$c client id]
            catch {$c mset $name 1 other [string repeat v 3000000]} error
            assert_closed $c
            assert_equal "" [r client list id $id]
            assert_equal 0 [r exists $name]
        }
        r config set maxmemory-clients 0
    }

    test "a reply beyond the hard output limit is not sent" -needs {ours 1} {
        r set large [string repeat v 100000]
        r config set client-output-buffer-limit "normal 10 0 0"
        set c [new_client]
        $c -send get large
        assert_closed $c
        r config set client-output-buffer-limit "normal 0 0 0"
        assert_equal 1 [info_field stats client_output_buffer_limit_disconnections]
    }

    test "the log shows what of a request could not be parsed" -needs {ours 1} {
        r config set loglevel verbose
        r config set hide-user-data-from-log no
        set from [log_size]
        set c [new_client]
        $c -write "*1\r\nblabla\r\n"
        $c -flush
        assert_match "-ERR Protocol error*" [$c -readline]
        assert_closed $c
        wait_for_log "Query buffer: 'blabla" $from
    }

    test "a request with very many arguments leaves no memory in its thread" -needs {ours 1} {
        r flushall
        set before [info_field memory used_memory]
        set members {}
        for {set i 0} {$i < 100000} {incr i} {lappend members $i}
        foreach key {a b c} {
            set c [new_client]
            assert_equal 100000 [$c sadd $key {*}$members]
            $c -close
        }
        r unlink a b c
        wait_for_condition 10000 {[info_field memory used_memory] < $before + 1000000}
    }
}

# Threads of the server's process whose name begins with io_thread_.
proc io_threads_of {pid} {
    set count 0
    foreach name [glob -nocomplain /proc/$pid/task/*/comm] {
        if {![catch {file_bytes $name} text] && [string match io_thread_* $text]} {incr count}
    }
    return $count
}

# The number of clients that I/O threads serve: each client sends one request, and the threads count the requests that
# they read.
proc served_by_threads {clients} {
    set reads [info_field stats io_threaded_reads_processed]
    set own [expr {[info_field stats io_threaded_reads_processed] - $reads}]
    set reads [info_field stats io_threaded_reads_processed]
    foreach c $clients {$c ping}
    expr {[info_field stats io_threaded_reads_processed] - $reads - $own}
}

# The number of clients of each event loop of the server, in ascending order, without loops that have none.
proc clients_by_loop {} {
    set sizes {}
    set sockets [regexp -all -inline -line {(?:^| )fd=\d+} [r client list]]
    foreach file [glob -nocomplain /proc/[srv pid]/fdinfo/*] {
        if {[catch {file_bytes $file} text]} continue
        set watched 0
        foreach {- fd} [regexp -all -inline -line {^tfd: *(\d+) } $text] {
            if {" fd=$fd" in $sockets} {incr watched}
        }
        if {$watched} {lappend sizes $watched}
    }
    lsort -integer $sizes
}

start_server {overrides {io-threads 1} tags {io-threads}} {
    test "CONFIG SET io-threads refuses what is out of range" {
        foreach n {0 -1 257 x ""} {assert_error_like "ERR CONFIG SET failed*" {r config set io-threads $n}}
        assert_equal 1 [config_get io-threads]
    }

    test "CONFIG SET io-threads moves the connections of sockets, in both directions" -needs {ours 1} {
        set clients [list [srv client]]
        for {set i 0} {$i < 9} {incr i} {lappend clients [new_client]}
        set blocked [new_client]
        $blocked -send blpop moved 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        set subscriber [new_client]
        $subscriber subscribe news
        # Over RDMA a connection keeps its thread: all of these belong to the main thread.
        foreach n {4 2 5 1 3} {
            assert_typed +OK config set io-threads $n
            assert_equal $n [config_get io-threads]
            set expected [expr {$::opt(rdma) || $n == 1 ? 0 : [llength $clients]}]
            wait_for_condition 10000 {[served_by_threads $clients] == $expected}
            assert_equal 1 [r publish news $n]
            assert_equal [list message news $n] [$subscriber -read]
            foreach c $clients {count_up $c 20}
        }
        r rpush moved value
        assert_equal {moved value} [$blocked -read]
        foreach c [list {*}[lrange $clients 1 end] $blocked $subscriber] {$c -close}
    }

    test "connections that are accepted by a thread over RDMA stay there" -needs {ours 1} -tags {rdma} {
        if {!$::opt(rdma)} {skip_test "only with --rdma"}
        r config set io-threads 4
        set c [new_client]
        $c ping
        r config set io-threads 1
        assert_equal 1 [served_by_threads [list $c]]
    }

    test "connections are spread evenly over the threads when there are more of them" -needs {ours 1} {
        if {$::opt(rdma)} {skip_test "RDMA connections stay where they are"}
        r config set io-threads 2
        set clients [list [srv client]]
        for {set i 0} {$i < 8} {incr i} {lappend clients [new_client]}
        wait_for_condition 10000 {[served_by_threads $clients] == 9}
        foreach {n sizes} {4 {3 3 3} 3 {4 5} 4 {3 3 3}} {
            r config set io-threads $n
            wait_for_condition 10000 {[clients_by_loop] eq $sizes}
            foreach c $clients {count_up $c 20}
        }
        foreach c [lrange $clients 1 end] {$c -close}
        r config set io-threads 1
    }

    test "a request that has arrived in part moves with its connection" -needs {ours 1} {
        foreach {from to} {1 4 4 2 3 1} {
            r config set io-threads $from
            set clients {}
            foreach head {"*2\r\n\$4\r\nEC" "*2\r\n\$4\r\nECHO\r\n\$30\r\nabc" "ECHO 'abc"} {
                lappend clients [set c [new_client]]
                $c ping
                $c -write $head
                $c -flush
            }
            set large [new_client]
            $large -write "*2\r\n\$4\r\nECHO\r\n\$100000\r\n[string repeat l 40000]"
            $large -flush
            r config set io-threads $to
            set rests [list "HO\r\n\$3\r\nabc\r\n" "[string repeat d 27]\r\n" "'\r\n"]
            foreach c $clients rest $rests answer [list abc abc[string repeat d 27] abc] {
                $c -write $rest
                $c -flush
                assert_equal $answer [$c -read]
                count_up $c 20
                $c -close
            }
            $large -write "[string repeat m 60000]\r\n"
            $large -flush
            assert_equal [string repeat l 40000][string repeat m 60000] [$large -read]
            $large -close
        }
        r config set io-threads 1
    }

    test "io-threads changes under load, and no reply is lost" -needs $have_benchmark {
        set load [benchmark -n [scaled 60000 2000] -c 20 -P 4 -d 200 -t set,get,incr]
        set clients {}
        foreach n {4 1 8 2 16 3 1 6 1 2} {
            assert_typed +OK config set io-threads $n
            lappend clients [set c [new_client]]
            $c set big:$n [string repeat $n 100000]
            foreach one $clients {count_up $one 100}
        }
        foreach n {4 8 16} {assert_equal [string repeat $n 100000] [r get big:$n]}
        benchmark_end $load
    }
}

# The replies of a client wait for the file while much more of its input arrives.
start_server {overrides {io-threads 3 appendonly yes appendfsync always} tags {io-threads aof}} {
    test "pipelines of large requests continue after replies have waited for the append-only file" {
        set clients {}
        for {set i 0} {$i < 4} {incr i} {lappend clients [new_client]}
        set sizes {10 5000 70000 300000}
        foreach size $sizes {set value_of($size) [string repeat v $size]}
        for {set round 0} {$round < 12} {incr round} {
            set expected {}
            foreach c $clients {
                for {set i 0} {$i < 40} {incr i} {
                    set size [lindex $sizes [expr {($round + $i * 7 + $i / 4) % 4}]]
                    $c -send set $c:[expr {$i % 8}] $value_of($size)
                    $c -send strlen $c:[expr {$i % 8}]
                    lappend expected OK $size
                }
            }
            foreach c $clients {
                for {set i 0} {$i < 80} {incr i} {
                    assert_equal [lindex $expected 0] [$c -read]
                    set expected [lrange $expected 1 end]
                }
            }
        }
        foreach c $clients {$c -close}
        wait_for_condition 20000 {[llength [split [string trim [r client list]] \n]] == 1} {
            fail "clients remain: [r client list]"
        }
    }
}

start_server {overrides {io-threads 4} no_rdma 1 tags {tcp-only}} {
    test "the first connections of each thread add little to the memory in use" -needs {ours 1} {
        r ping
        set before [info_field memory used_memory]
        set clients [list [new_client] [new_client] [new_client]]
        foreach c $clients {assert_equal PONG [$c ping]}
        assert {[info_field memory used_memory] - $before < 60000}
    }
}
