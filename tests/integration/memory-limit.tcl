# Limits of the process. With a limited address space, requests and announced lengths that exceed the memory are
# rejected, and the server continues. It also continues when a file reaches the limit of its size. seconds: 9

proc status {} {
    set file [open /proc/[srv pid]/status]
    set text [chan read $file]
    chan close $file
    return $text
}
# Limits the address space of the server to `mib` MiB more than it uses now.
proc limit_memory {mib} {
    regexp {VmSize:\s+(\d+) kB} [status] -> kib
    exec prlimit --pid [srv pid] --as=[expr {($kib + $mib * 1024) * 1024}]:
}
proc unlimit_memory {} {exec prlimit --pid [srv pid] --as=unlimited:}
# A sanitizer reserves terabytes, and valgrind has its own allocator.
proc limits_work {} {
    regexp {VmSize:\s+(\d+) kB} [status] -> kib
    return [expr {$kib < 1024 * 1024 * 1024 && !$::opt(valgrind) && [auto_execok prlimit] ne ""}]
}

start_server {tags {limits}} {
    test "strings that a command would make too long for the memory are refused" -needs {true {[limits_work]}} {
        r config set proto-max-bulk-len 8gb
        r set short abc
        r set long [string repeat x 1000]
        limit_memory 200
        foreach command {
            {setrange none 3000000000 x} {setrange short 3000000000 x} {setbit none 24000000000 1}\
                {setbit long 24000000000 1}
            {bitfield none set u8 24000000000 1} {bitfield long incrby u8 24000000000 1}
        } {
            assert_equal "-ERR Insufficient memory for the string" [r -typed {*}$command] $command
        }
        assert_typed :0 exists none
        assert_typed {$abc} get short
        assert_typed :1000 strlen long
        unlimit_memory
    }

    # Over RDMA the server has address space for large arguments before the limit.
    test "strings made of others are refused where memory is too short" -needs {true {[limits_work]}} \
        -tags {tcp-only} {
        r setrange a 150000000 x
        limit_memory 100
        assert_equal "-ERR Insufficient memory for the string" [r -typed bitop or result a]
        assert_equal "-ERR Insufficient memory for the string" [r -typed append a [string repeat x 10000000]]
        assert_typed :0 exists result
        assert_typed :150000001 strlen a
        unlimit_memory
        assert_typed :150000001 bitop or result a
        r del a result
    }

    proc payload {bytes} {return $bytes[binary format s 11]\0\0\0\0\0\0\0\0}

    test "RESTORE refuses lengths that memory is too short for" -needs {true {[limits_work]}} {
        r debug set-skip-checksum-validation 1
        set packed [string repeat \0\0 2000000]
        set claimed [expr {4000000 * 80}]
        set string [binary format ccIcI 0xc3 0x80 [string length $packed] 0x80 $claimed]$packed
        limit_memory 200
        foreach {name value} [list string \x00$string list \x12\x01\x01$string set \x02\x01$string hash \
            \x04\x01$string$string \
            zset \x05\x01${string}12345678 listpack \x10$string ziplist \x0d$string stream \x15\x01$string] {
            assert_equal "-ERR Bad data format" [r -typed restore key 0 [payload $value]] $name
            assert_typed :0 exists key
        }
        # Lengths far beyond the bytes that follow.
        foreach length [list \x80\x7f\xff\xff\xff \x81\x00\x00\xff\xff\xff\xff\xff\xff \
            \x81\xff\xff\xff\xff\xff\xff\xff\xff] {
            foreach type {\x00 \x01 \x02 \x04 \x05 \x0e \x10 \x12 \x15} {
                assert_equal "-ERR Bad data format" [r -typed restore key 0 [payload [subst $type]${length}abc]]
            }
        }
        r debug set-skip-checksum-validation 0
        unlimit_memory
        assert_equal PONG [r ping]
    }

}

# Adds a large entry to a stream. The server receives the entry while there is enough memory; then memory is
# insufficient for a copy.
proc add_without_memory_for_a_copy {client id len} {
    set before [client_memory $id]
    $client -write "*5\r\n\$4\r\nXADD\r\n\$1\r\ns\r\n\$1\r\n*\r\n\$1\r\nf\r\n\$$len\r\nx"
    wait_for_condition 5000 {[client_memory $id] > $before + $len}
    limit_memory 30
    $client -write [string repeat x [expr {$len - 1}]]\r\n
    set reply [$client -readline]
    unlimit_memory
    return $reply
}
proc client_memory {id} {
    regexp {tot-mem=(\d+)} [r client list id $id] -> bytes
    return $bytes
}

# Separate servers, because the allocator keeps the address space of freed memory.
foreach threads {1 3} {
    start_server [list overrides [list io-threads $threads] tags {limits}] {
        # FLUSHALL after a failure is the first work of a background thread, when no memory is left.
        test "a reply for which there is no memory closes its connection, with io-threads $threads" \
            -needs {ours 1 true {[limits_work]}} {
            r sadd s [string repeat m 100]
            r hset h f v
            r zadd z 1 m
            set idle [new_client]
            limit_memory 100
            foreach command {{srandmember s -4000000000} {hrandfield h -4000000000 withvalues}
                {zrandmember z -4000000000 withscores} {srandmember s -9223372036854775807}} {
                set c [new_client]
                $c -send {*}$command
                wait_for_condition 30000 {[catch {r exists s h z} found] == 0 && $found == 3}
                assert_closed $c 30000
                wait_for_log "*No memory is left for the requests or replies of a client*cmd=[lindex $command 0]*"
                assert_equal PONG [r ping]
                assert_equal PONG [$idle ping]
            }
            for {set i 0} {$i < 200} {incr i} {r hset large $i [string repeat v 100]}
            assert_equal OK [r flushall async]
            wait_for_condition 5000 {[info_field memory lazyfree_pending_objects] == 0}
            unlimit_memory
        }
    }
}

start_server {overrides {appendonly yes appendfsync always} tags {limits}} {
    test "a reply that waits for an fsync, and for which there is no memory, closes its connection" \
        -needs {ours 1 true {[limits_work]}} {
        r sadd s [string repeat m 100]
        limit_memory 100
        set c [new_client]
        $c -write [resp_command SET k v][resp_command SRANDMEMBER s -4000000000]
        wait_for_log "*No memory is left for the requests or replies of a client*cmd=srandmember*" 0 30000
        assert_closed $c 30000
        assert_equal v [r get k]
        unlimit_memory
    }
}

start_server {tags {limits}} {
    test "a reply to a script for which there is no memory is an error" -needs {ours 1 true {[limits_work]}} {
        r sadd s [string repeat m 100]
        r rpush l a b
        limit_memory 100
        foreach call {call pcall} {
            set script "local r = server.${call}('srandmember', 's', -4000000000)
                return r.err and server.error_reply(r.err)"
            assert_match "-OOM the reply is too large for the memory that is left*" [r -typed eval $script 0]
        }
        assert_equal {a b} [r eval "return server.call('lrange', 'l', 0, -1)" 0]
        unlimit_memory
    }

    test "a request of a script for which there is no memory is refused" -needs {ours 1 true {[limits_work]}} {
        limit_memory 150
        set script "local s = string.rep('x', 10485760) server.call('rpush', 'large', [string repeat s, 15]s)"
        assert_match "-OOM the request is too large for the memory that is left*" [r -typed eval $script 0]
        assert_typed :0 exists large
        unlimit_memory
    }

    test "a MONITOR whose line exceeds the memory is closed" -needs {ours 1 true {[limits_work]}} {
        set monitor [new_client]
        $monitor monitor
        limit_memory 150
        assert_equal OK [r set k [string repeat \0 40000000]]
        assert_closed $monitor
        unlimit_memory
        r del k
    }
}

proc bulk {text} {return "\$[string length $text]\r\n$text\r\n"}

# With zero copy, large arguments lie in address space that the server has reserved before the limit.
foreach threads {1 3} {
    set overrides [list io-threads $threads]
    if {$::opt(rdma)} {lappend overrides rdma-zero-copy-min 0}
    start_server [list overrides $overrides tags {limits}] {
        test "arguments for which there is no memory close their connection, with io-threads $threads" \
            -needs {ours 1 true {[limits_work]}} {
            # An RDMA connection needs memory before it can be accepted.
            set clients [list [new_client] [new_client]]
            foreach c [list {*}$clients r] {assert_equal PONG [$c ping]}
            limit_memory 60
            foreach {count len} {1000000 100 10000 20000} c $clients {
                $c -write "*[expr {$count + 1}]\r\n[bulk DEL]"
                set argument [bulk [string repeat x $len]]
                set part [string repeat $argument [expr {2000000 / $len}]]
                for {set sent 0} {$sent < $count * $len} {incr sent 2000000} {
                    if {[catch {$c -write $part}]} break
                }
                assert_closed $c 30000
                assert_equal PONG [r ping]
            }
            unlimit_memory
        }
    }
}

# The I/O thread has memory for the request, but perhaps not for the copy that it hands to the main thread. Separate
# servers: see above.
foreach count {130000 140000 150000} {
    start_server {overrides {io-threads 3} tags {limits}} {
        test "a request for whose $count arguments an I/O thread has no memory ends its connection only" \
            -needs {ours 1 true {[limits_work]}} {
            set c [new_client]
            foreach client [list $c r] {assert_equal PONG [$client ping]}
            limit_memory 60
            catch {$c -write "*[expr {$count + 1}]\r\n[bulk DEL][string repeat [bulk [string repeat x 100]] $count]"}
            if {![catch {$c -readline} reply]} {
                assert_regexp {^(-ERR Protocol error: not enough memory|-OOM |:0$)} $reply
            }
            assert_equal PONG [r ping]
            unlimit_memory
        }
    }
}

start_server {tags {limits}} {
    test "COMMAND GETKEYS is refused where memory is too short" -needs {ours 1 true {[limits_work]}} \
        -tags {tcp-only} {
        r ping
        limit_memory 60
        assert_equal "-ERR Insufficient memory for the keys" [r -typed command getkeys del {*}[lrepeat 600000 a]]
        unlimit_memory
    }
}

start_server {tags {limits}} {
    test "LCS is refused where memory is too short" -needs {true {[limits_work]}} {
        r config set proto-max-bulk-len 8gb
        r set a [string repeat x 40000]
        r set b [string repeat x 40000]
        limit_memory 100
        assert_equal "-ERR Insufficient memory, failed allocating transient memory for LCS" [r -typed lcs a b]
        unlimit_memory
        r del a b
    }

    test "a large request is refused where memory is too short for a copy" -needs {true {[limits_work]}} \
        -tags {tcp-only} {
        r config set proto-max-bulk-len 512mb
        set c [new_client]
        limit_memory 100
        # There is no memory for the argument itself.
        $c -write "*3\r\n\$3\r\nSET\r\n\$1\r\nk\r\n\$400000000\r\n"
        assert_equal "-ERR Protocol error: not enough memory for the argument" [$c -readline]
        assert_closed $c
        unlimit_memory
        # There is memory for the argument, but not for a copy.
        set c [new_client]
        set id [$c client id]
        assert_match "-OOM *" [add_without_memory_for_a_copy $c $id 70000000]
        assert_typed :0 exists s
        assert_equal PONG [$c ping]
        # A transaction with such a request is aborted. The allocator may have kept the memory of the first request, so
        # this one is larger.
        $c multi
        assert_match "-OOM *" [add_without_memory_for_a_copy $c $id 140000000]
        assert_match "-EXECABORT *" [$c -typed exec]
    }
}

start_server {overrides {repl-diskless-load flush-before-load} no_rdma 1 tags {limits}} {
    test "a replica that has no memory for a value of the stream copies the data again" \
        -needs {ours 1 true {[limits_work]}} {
        r set a 1
        r save
        set copy [file_bytes [srv dir]/dump.rdb]
        r replicaof 127.0.0.1 [primary_listen]
        primary_handshake chan
        primary_send $chan "+FULLRESYNC [string repeat a 40] 0\r\n\$[string length $copy]\r\n$copy"
        primary_await $chan REPLCONF ACK 0
        limit_memory 100
        primary_send $chan [resp_command MULTI][resp_command SETRANGE a 400000000 x][resp_command EXEC]
        assert_equal "PSYNC ? -1" [primary_handshake chan]
        unlimit_memory
        r replicaof no one
        primary_close
    }

    test "a file with a value for which there is no memory is not loaded" -needs {ours 1 true {[limits_work]}} {
        aof_turn_on
        set file [open [aof_file i] ab]
        puts -nonewline $file [resp_command SETRANGE a 400000000 x]
        close $file
        limit_memory 100
        catch {r debug loadaof}
        wait_for_log "*no memory for a value*"
        expect_server_exit
    }
}

start_server {overrides {appendonly yes} no_rdma 1} {
    test "at the limit of a file's size writing fails as on a full disk, and the server continues" \
        -needs {ours 1 true {[auto_execok prlimit] ne ""}} {
        r config set save ""
        r set before [string repeat x 60000]
        exec prlimit --pid [srv pid] --fsize=100000:
        set c [new_client]
        $c -send set held [string repeat x 60000]
        wait_for_condition 20000 {[info_field persistence aof_last_write_status] eq "err"} "no write fails"
        assert_error "MISCONF Errors writing to the AOF file: File too large" {r set refused 1}
        exec prlimit --pid [srv pid] --fsize=1000:
        r config set rdbcompression no
        assert_error_like "ERR*" {r save}
        r bgsave
        wait_for_condition 20000 {[info_field persistence rdb_last_bgsave_status] eq "err"} "BGSAVE does not fail"
        exec prlimit --pid [srv pid] --fsize=unlimited:
        assert_equal OK [$c -read]
        assert_equal OK [r set after 1]
        restart_server -signal KILL
        assert_equal {60000 60000 1 0} [list [r strlen before] [r strlen held] [r get after] [r exists refused]]
    }
}
