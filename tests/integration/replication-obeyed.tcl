# Limits on clients must not affect the stream of the primary: a replica executes it with any limits, and delays it
# while a script is busy. The same holds for the full copy in each mode, and for files. A replica that starts from its
# file continues the stream at the position in the file. The primary is in Tcl (harness/primary.tcl). seconds: 55

set id [string repeat a 40]
proc link_is {state} {
    wait_for_condition 20000 {[info_field replication master_link_status] eq $state} "the link is not $state"
}
proc full_copy {chan copy offset} {
    primary_send $chan "+FULLRESYNC $::id $offset\r\n\$[string length $copy]\r\n$copy"
    primary_await $chan REPLCONF ACK $offset
    link_is up
}
proc synchronize {copy {offset 0}} {
    r replicaof 127.0.0.1 [primary_listen]
    primary_handshake chan
    full_copy $chan $copy $offset
    return $chan
}
proc errors {} {info_field stats unexpected_error_replies}
proc data_file {} {file join [srv dir] dump.rdb}

# A library that takes longer to load than a client may block the server. The first call determines the number of steps
# for this machine; the machine may be twice as fast later, when it is less busy.
set steps 0
proc slow_library {value} {
    if {!$::steps} {
        set ::steps 1000000
        while {![catch {r function load replace [slow_library $value]}]} {set ::steps [expr {$::steps * 3 / 2}]}
        set ::steps [expr {$::steps * 5 / 2}]
    }
    return "#!lua name=slow\nlocal n = 0\nwhile n < $::steps do n = n + 1 end\n
        server.register_function{function_name='slow', callback=function() return '$value' end, flags={'no-writes'}}"
}
# Loads it, like a primary.
proc load_slow {value {level 0}} {
    set c [new_client -level $level]
    $c debug role as-primary
    $c -send function load replace [slow_library $value]
    wait_for_condition 10000 {![catch {r $level fcall_ro slow 0} is] && $is eq $value} "the library is not there"
    $c -close
}
# Starts a script and waits until it is busy.
proc busy {script} {
    set c [new_client]
    $c -send eval_ro $script 0
    wait_for_condition 20000 {[catch {r ping} why] && [string match BUSY* $why]} "the script is not busy"
    return $c
}

start_server {no_rdma 1 overrides {enable-debug-command yes save "" appendonly no busy-reply-threshold 10} tags\
    {replication}} {
    r set a 1
    r save
    set copy [file_bytes [data_file]]

    test "libraries of the stream and of files may take longer than those of clients" -needs {ours 1} {
        assert_error_like "*timeout*" {r function load replace [slow_library 0]}
        set chan [synchronize $copy]
        primary_send $chan [resp_command FUNCTION LOAD [slow_library 1]]
        wait_for_condition 10000 {![catch {r fcall_ro slow 0} is] && $is eq "1"}
        set payload [r function dump]
        primary_send $chan "[resp_command FUNCTION FLUSH][resp_command FUNCTION RESTORE $payload]"
        set load [resp_command FUNCTION LOAD REPLACE [slow_library 2]]
        primary_send $chan "[resp_command MULTI]$load[resp_command EXEC]"
        wait_for_condition 10000 {![catch {r fcall_ro slow 0} is] && $is eq "2"}
        assert_equal {0 up} [list [errors] [info_field replication master_link_status]]
        lead
        assert_error_like "*timeout*" {r function restore $payload replace}
        r debug reload
        assert_equal 2 [r fcall_ro slow 0]
        aof_turn_on
        load_slow 3
        r debug loadaof
        assert_equal 3 [r fcall_ro slow 0]
        r config set appendonly no
        r save
        restart_server
        assert_equal 3 [r fcall_ro slow 0]
    }

    test "libraries of a full copy may take longer than those of clients, in each mode" -needs {ours 1} {
        r set a 1
        load_slow 4
        r save
        set slow [file_bytes [data_file]]
        foreach mode {disabled on-empty-db flush-before-load swapdb} {
            r function flush
            r flushall
            r config set repl-diskless-load $mode
            set chan [synchronize $slow 5]
            assert_equal 4 [r fcall_ro slow 0] $mode
            # The same history: with swapdb the server serves the old data meanwhile.
            primary_drop $chan
            primary_handshake chan
            full_copy $chan $slow 6
            assert_equal {4 1} [list [r fcall_ro slow 0] [r get a]] $mode
            lead
        }
        r config set repl-diskless-load disabled
        r function flush
    }

    test "limits for clients do not stop the stream" -needs {ours 1} {
        foreach {options denied request} {
            {maxmemory 1 maxmemory-policy noeviction replica-ignore-maxmemory no} OOM {SET key value}
            {maxmemory 1 maxmemory-policy noeviction replica-ignore-maxmemory no} OOM
                {EVAL "#!lua\nreturn redis.call('set', KEYS[1], 'value')" 1 key}
            {min-replicas-to-write 1} "" {SET key value}
            {proto-max-bulk-len 1mb} ERR {SETRANGE key 2000000 value}
            {save "3600 1" replica-ignore-disk-write-errors yes} MISCONF {SET key value}
        } {
            set chan [synchronize $copy]
            r config set replica-read-only no
            dict for {name value} $options {
                set before($name) [config_get $name]
                r config set $name $value
            }
            if {$denied eq "MISCONF"} {
                file delete [data_file]
                file mkdir [data_file]
                r bgsave
                wait_for_condition 10000 {[info_field persistence rdb_last_bgsave_status] eq "err"}
            }
            if {$denied ne ""} {assert_error_like "$denied*" {r {*}$request}}
            set sent "[resp_command {*}$request][resp_command DEL own]"
            primary_send $chan $sent
            primary_await $chan REPLCONF ACK [string length $sent]
            assert_equal {1 up} [list [r exists key] [info_field replication master_link_status]] $request
            foreach name [dict keys $options] {r config set $name $before($name)}
            if {$denied eq "MISCONF"} {
                file delete [data_file]
                r bgsave
                wait_for_condition 10000 {[info_field persistence rdb_last_bgsave_status] eq "ok"}
            }
            r config set replica-read-only yes
            lead
        }
        assert_equal 0 [errors]
    }

    test "permissions of clients do not stop the stream" -needs {ours 1} {
        set chan [synchronize $copy]
        r acl setuser default -set
        set sent [resp_command SET key value]
        primary_send $chan $sent
        primary_await $chan REPLCONF ACK [string length $sent]
        assert_equal value [r get key]
        r acl setuser default +@all
        lead
    }

    test "a request of the stream may be larger than what the replica reads ahead" -needs {ours 1} {
        set chan [synchronize $copy]
        set count 1000000
        set sent "*[expr {$count + 2}]\r\n\$5\r\nRPUSH\r\n\$4\r\nlist\r\n"
        append sent [string repeat "\$64\r\n[string repeat x 64]\r\n" $count]
        primary_send $chan $sent
        primary_await $chan REPLCONF ACK [string length $sent]
        assert_equal [list $count up] [list [r llen list] [info_field replication master_link_status]]
        lead
        r del list
    }

    test "the stream waits for a busy script, with acknowledgements, and is executed afterwards" -needs {ours 1} {
        r config set repl-timeout 2
        set chan [synchronize $copy]
        set c [busy {while true do end}]
        set large [string repeat x 2000000]
        set sent "[resp_command SET large $large][resp_command SELECT 3][resp_command SET k v]"
        append sent "[resp_command MULTI][resp_command INCR n][resp_command INCR n][resp_command EXEC]"
        primary_send $chan $sent
        for {set i 0} {$i < 4} {incr i} {assert_equal 0 [lindex [primary_await $chan REPLCONF ACK] 2]}
        r script kill
        primary_await $chan REPLCONF ACK [string length $sent]
        assert_equal [list 2000000 0 up] [list [r strlen large] [errors] [info_field replication master_link_status]]
        r select 3
        assert_equal {v 2} [list [r get k] [r get n]]
        r select 0
        $c -close
        lead
    }

    test "a link that breaks while a script is busy continues behind what was executed" -needs {ours 1} {
        r config set repl-timeout 60
        set chan [synchronize $copy 10]
        set c [busy {while true do end}]
        primary_send $chan [resp_command INCR n]
        primary_await $chan REPLCONF ACK 10
        primary_drop $chan
        r script kill
        assert_equal "PSYNC $id 11" [primary_handshake chan]
        primary_send $chan "+CONTINUE\r\n[resp_command INCR n]"
        wait_for_condition 10000 {[r get n] eq "1"}
        $c -close
        lead
    }

    test "a replica whose data are replaced by an older file copies them again" -needs {ours 1} {
        aof_turn_on
        r config set appendonly no
        foreach command {{debug loadaof} {debug reload nosave}} {
            set chan [synchronize $copy 10]
            assert_equal OK [r {*}$command]
            primary_send $chan [resp_command INCR n]
            assert_equal "PSYNC ? -1" [primary_handshake chan]
            full_copy $chan $copy 20
            lead
        }
    }

    test "SCRIPT KILL ends a busy script on a replica that lost its link and serves no stale data" -needs {ours 1} {
        r config set replica-serve-stale-data no
        set chan [synchronize $copy]
        set c [busy {while true do end}]
        primary_drop $chan
        wait_for_condition 10000 {[catch {r ping} why] && [string match MASTERDOWN* $why]} "the link is not lost"
        assert_error_like "BUSY *" {r function kill}
        assert_equal OK [r script kill]
        assert_error_like "ERR Script killed by user*" {$c -read}
        $c -close
        lead
        r config set replica-serve-stale-data yes
    }

    test "requests of other clients evict nothing under a busy script" {
        r flushall
        r config resetstat
        r config set maxmemory-policy allkeys-random maxmemory [expr {[info_field memory used_memory] + 3000000}]
        set c [new_client]
        $c -send eval {
            for i = 1, 100 do redis.call('set', 'k' .. i, string.rep('x', 100000)) end
            local before = redis.call('dbsize')
            local refused
            repeat
                for i = 1, 100000 do refused = i end
                refused = string.match(redis.call('info', 'commandstats'), 'cmdstat_getdel:[^\r]*rejected_calls=(%d+)')
            until tonumber(refused or 0) >= 20
            return {before, redis.call('dbsize')}
        } 0
        wait_for_condition 20000 {[catch {r ping} why] && [string match BUSY* $why]} "the script is not busy"
        for {set i 0} {$i < 20} {incr i} {assert_error_like "BUSY*" {r getdel nothing}}
        assert_equal {100 100} [$c -read]
        r ping
        wait_for_condition 10000 {[r dbsize] < 100} "nothing is evicted afterwards"
        r config set maxmemory 0
        $c -close
        r flushall
    }

    # The last test, because the server stays configured as a replica.
    test "a replica that starts from its file continues in the database that the stream had selected" -needs {ours 1} {
        set chan [synchronize $copy 100]
        set executed "[resp_command SELECT 3][resp_command SET k v]"
        set open "[resp_command MULTI][resp_command SELECT 5][resp_command SET b 1]"
        primary_send $chan $executed$open
        wait_for_condition 10000 \
            {[info_field replication slave_read_repl_offset] == 100 + [string length $executed$open]}
        r save
        primary_close
        set port [primary_listen]
        restart_server -signal KILL -overrides [list replicaof "127.0.0.1 $port"]
        assert_equal "PSYNC $id [expr {101 + [string length $executed]}]" [primary_handshake chan]
        # It also keeps the position over a restart without a primary.
        r save
        # The old process is gone before its connection: it may not come back.
        restart_server -signal KILL
        primary_drop $chan
        assert_equal "PSYNC $id [expr {101 + [string length $executed]}]" [primary_handshake chan]
        set rest "[resp_command SET k2 v2]$open[resp_command EXEC][resp_command SET c 1]"
        primary_send $chan "+CONTINUE\r\n$rest"
        primary_await $chan REPLCONF ACK [expr {100 + [string length $executed$rest]}]
        r select 3
        assert_equal {v v2} [list [r get k] [r get k2]]
        r select 5
        assert_equal {1 1} [list [r get b] [r get c]]
        r select 0
        assert_equal {} [r keys k*]
        lead
    }
}

start_server {overrides {repl-diskless-sync-delay 0 enable-debug-command yes}} {
    test "a file that is written in the middle of a transaction names no position" -needs {ours 1} {
        lassign [replica_full_sync] c
        r config set save "3600 1"
        r flushall
        assert_match "*repl-offset*" [file_bytes [data_file]]
        r multi
        r set a 1
        r flushall
        r set b 1
        r exec
        assert_not_match "*repl-offset*" [file_bytes [data_file]]
        r config set save ""
    }
}

# A copy on two channels, and the data that is served while it is loaded.
start_server {overrides {repl-diskless-sync-delay 0 enable-debug-command yes dual-channel-replication-enabled yes}} {
    start_server {overrides {enable-debug-command yes dual-channel-replication-enabled yes repl-diskless-load swapdb}} {
        test "libraries of a copy on two channels may take longer than those of clients" -needs {ours 1} {
            r -1 set a 1
            load_slow 6 -1
            r replicaof 127.0.0.1 [srv -1 port]
            link_is up
            assert_equal 6 [r fcall_ro slow 0]
            r replicaof no one
        }
    }
}

start_server {no_rdma 1 config {{rename-command FLUSHDB ""} {rename-command XGROUP ""} {rename-command SET PUT}}\
    overrides {enable-debug-command yes save "" appendonly no} tags {replication}} {
    test "the stream and files may use commands that rename-command took away, and payloads of other options" \
        -needs {ours 1} {
        r put a 1
        r save
        set copy [file_bytes [data_file]]
        set payload [string replace [r dump a] end-9 end-8 [binary format s 99]]
        assert_error "ERR DUMP payload version or checksum are wrong" {r restore c 0 $payload}
        assert_error_like "ERR unknown command*" {r flushdb}
        set sent ""
        foreach request {{SET lost 1} FLUSHDB {XGROUP CREATE s g 0 MKSTREAM} {PUT b 1} {SET c 1}} {
            append sent [resp_command {*}$request]
        }
        append sent [resp_command RESTORE d 0 $payload]
        set chan [synchronize $copy]
        primary_send $chan $sent
        primary_await $chan REPLCONF ACK [string length $sent]
        assert_equal {0 {b c d s} up} \
            [list [errors] [lsort [r keys *]] [info_field replication master_link_status]]
        primary_send $chan [resp_command NOSUCH]
        assert_equal "PSYNC ? -1" [primary_handshake chan]
        lead
        aof_turn_on
        set file [open [aof_file i] ab]
        puts -nonewline $file $sent
        close $file
        r debug loadaof
        assert_equal {b c d s} [lsort [r keys *]]
    }
}
