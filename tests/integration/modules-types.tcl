# Value types of modules: commands on their keys, the methods that these call, files, payloads, replication. The module
# is tests/modules/typed.c. Unless a test needs a server of this project, genuine Valkey passes it, too.

proc typed {args} {list loadmodule [concat [file join $::root build modules typed.so] $args] save "" \
    enable-module-command yes enable-debug-command yes}
# The methods that were called since the last question.
proc called {} {split [string trim [r typed.called]] \n}
proc set_k {{key k} args} {r typed.set $key 5 -7 1.5 0.25 3.125 text bytes {*}$args}
set ::value {5 -7 1.5 0.25 3.125 text bytes}
set ::payload [binary format H* [join {
    0781b72a5e77e6a59403 0205 0281fffffffffffffff9 04000000000000f83f 030000803e 0508307863
    2e38702d32 050474657874 05056279746573 00
} ""]]

start_server [list overrides [typed handles] tags {modules}] {
    test "a key with a value of a module" {
        set_k
        assert_equal $::value [r typed.get k]
        assert_equal typed-all [r type k]
        assert_equal raw [r object encoding k]
        assert_equal {0 k} [r scan 0 type TYPED-ALL]
        assert_equal {0 {}} [r scan 0 type typed-old]
        assert_error "ERR unknown type name 'typed-new'" {r scan 0 type typed-new}
        assert_error_like "WRONGTYPE *" {r get k}
        assert_error_like "WRONGTYPE *" {r lpush k x}
        assert_equal {} [called]
        assert {[r memory usage k] > 1000000}
        assert_equal {{memory k:0}} [called]
        assert_equal 16de4e8be3b6abf464cc84e5ee878838e012924b [r debug digest-value k]
        assert_equal {{digest k:0}} [called]
        r typed.old o 9
        assert_equal 9 [r typed.get o]
        assert_equal 865b1024b47cf7b38672487172782cb7502865bb [r debug digest-value o]
        assert {[r memory usage o] < 200}
        r set s 1
        assert_error_like "WRONGTYPE *" {r typed.get s}
        assert_equal 0 [r typed.create typed-new]
        assert_error "ERR Error unloading module: the module exports one or more module-side data types, can't unload" \
            {r module unload typed}
    }

    test "COPY asks the module, and replaces nothing if there is no copy" {
        r flushall
        set_k
        called
        assert_equal 1 [r copy k k2]
        assert_equal 1 [r copy k k3 db 1]
        assert_equal {{copy k:0>k2:0} {copy k:0>k3:1}} [called]
        assert_equal $::value [r typed.get k2]
        assert_equal 0 [r copy k k2]
        assert_equal 1 [r copy k k2 replace]
        r typed.old o 9
        assert_error "ERR not supported for this module key" {r copy o o2}
        r typed.set n 13 1 1 1 1 a b
        r set t 1
        assert_error "ERR module key failed to copy" {r copy n t replace}
        assert_equal 1 [r get t]
    }

    test "a module hears that its value leaves a key" {
        r flushall
        set_k
        set_k other
        r select 1
        set_k there
        r select 0
        called
        r rename other another
        assert {"unlink other:0" in [called]}
        r set another x
        assert {"unlink another:0" in [called]}
        r move k 2
        assert {"unlink k:0" in [called]}
        set_k
        r pexpire k 1
        wait_for_condition 5000 {[r exists k] == 0} "the key does not expire"
        assert {"unlink k:0" in [called]}
        set_k
        r restore k 0 [r dump k] replace
        assert_equal {{load k:0} {unlink k:0}} [lsearch -all -inline -regexp [called] {load|unlink}]
        r select 1
        r del there
        assert {"unlink there:1" in [called]}
        r select 0
        r flushall
        assert_equal {} [called]
    }

    test "values are freed, whoever frees them" {
        r flushall sync
        wait_for_condition 5000 {[info_field memory lazyfree_pending_objects] == 0}
        set before [r typed.freed]
        set_k a
        set_k b 1000
        set_k c 0
        r typed.old d 1
        r del a
        r unlink b c d
        wait_for_condition 5000 {[r typed.freed] == $before + 4} "values are not freed"
        foreach i {1 2 3 4} {set_k key:$i}
        r flushall async
        wait_for_condition 5000 {[r typed.freed] == $before + 8} "values are not freed"
        set_k
        r set k string
        set_k k2
        r swapdb 0 1
        r flushdb sync
        assert_equal 0 [r dbsize]
        r swapdb 0 1
        assert_equal $::value [r typed.get k2]
        r flushall sync
        wait_for_condition 5000 {[r typed.freed] == $before + 10} "values are not freed"
    }

    test "a value is replaced under its key" {
        set_k
        r typed.set n 13 1 1 1 1 a b
        assert_equal OK [r typed.swap k n]
        assert_equal $::value [r typed.get n]
        r set s x
        assert_error "ERR not replaced" {r typed.swap s n}
        assert_equal $::value [r typed.loaded [r typed.saved n]]
        assert_equal {} [r typed.loaded ""]
        assert_equal {} [r typed.loaded [string range [r typed.saved n] 0 end-3]]
    }

    test "DUMP has the bytes of Valkey" {
        r flushall
        set_k
        called
        assert_equal $::payload [string range [r dump k] 0 end-10]
        assert_equal OK [r restore k2 0 [r dump k]]
        assert_equal $::value [r typed.get k2]
        assert_equal {{load k2:0}} [called]
    }

    test "a file has the values of modules, and their data without a key" {
        r flushall
        set_k
        r typed.old o 4711
        r pexpire o 100000000
        r typed.aux before
        keeps_data {r debug reload}
        assert_equal before [r typed.aux]
        set file [file join [srv dir] other.rdb]
        set got [run [tool valkey-check-rdb] [file join [srv dir] dump.rdb]]
        assert_match "*MODULE AUX for: typed-all*Checksum OK*2 keys read*" [dict get $got out]
        r typed.aux ""
        r save
        set got [run [tool valkey-check-rdb] [file join [srv dir] dump.rdb]]
        assert_not_match "*MODULE AUX*" [dict get $got out]
        r typed.aux before
    }

    test "a module saves and loads files" {
        set digest [r debug digest]
        set file [file join [srv dir] other.rdb]
        assert_equal OK [r typed.file SAVE $file]
        r flushall
        assert_equal OK [r typed.file LOAD $file]
        assert_equal $digest [r debug digest]
        assert_error "No such file or directory" {r typed.file LOAD $file.not}
        write_file $file "REDIS0011\xff\xff"
        assert_error "Input/output error" {r typed.file LOAD $file}
        r flushall
        set_k
    }

    test "an append-only file has the commands of the module" {
        r flushall
        set_k
        r pexpire k 100000000
        r config set aof-use-rdb-preamble no
        aof_turn_on
        set_k later
        keeps_data {r debug loadaof}
        assert {[r pttl k] > 0}
        r config set appendonly no
    }

    test "a replica gets the values" {
        r flushall
        set_k
        start_server [list overrides [typed handles]] {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 30000 {[info_field replication master_link_status] eq "up"} "no copy"
            assert_equal $::value [r typed.get k]
            r -1 typed.set later 1 1 1 1 1 a b
            wait_for_condition 10000 {[r exists later] == 1} "the command does not arrive"
            assert_equal [r -1 debug digest] [r debug digest]
            assert_error "Operation not supported" {r typed.file LOAD x}
        }
    }
}

# --- Hostile payloads, and values that a module cannot load ---

foreach handles {handles ""} {
    start_server [list overrides [typed {*}$handles] tags {modules}] {
        test "damaged payloads are refused ('$handles')" -needs {ours 1} {
            set_k
            set whole [string range [r dump k] 0 end-8]
            r debug set-skip-checksum-validation 1
            set sum [string repeat \0 8]
            for {set i 1} {$i < [string length $whole] - 2} {incr i} {
                foreach byte [list \0 \1 \2 \5 \x7f \x80 \x81 \xc3 \xff] {
                    set damaged [string replace $whole $i $i $byte]
                    if {[catch {r restore x 0 $damaged$sum replace} error]} {assert_match "ERR *" $error}
                }
                if {$i == [string length $whole] - 3} break
                assert_error_like "ERR Bad data format" {r restore x 0 [string range $whole 0 $i]\x0b\0$sum replace}
            }
            assert_equal $::value [r typed.get k]
            r debug set-skip-checksum-validation 0
        }
    }
}

start_server [list overrides [typed] tags {modules}] {
    test "without the module, or if it refuses a value, a file is not loaded" -needs {ours 1} {
        set_k
        r save
        set dir [srv dir]
        set module [file join $::root build modules typed.so]
        proc load_says {dir args} {dict get [run_server --dir $dir --port [free_port] --save "" {*}$args] out}
        assert_match "*The RDB file contains module data I can't load: no matching module type 'typed-all'*" \
            [load_says $dir]
        set out [load_says $dir --loadmodule $module refuses]
        assert_match "*<typed> typed refuses a value*" $out
        assert_match "*The RDB file contains module data for the module type 'typed', that the responsible module is\
            not able to load. Check for modules log above for additional clues.*" $out
        r flushall
        r typed.aux text
        r save
        assert_match "*The RDB file contains AUX module data I can't load: no matching module 'typed-all'*" \
            [load_says $dir]
        assert_match "*The RDB file contains module AUX data for the module type 'typed-all', that the responsible\
            module is not able to load. Check for modules log above for additional clues.*" \
            [load_says $dir --loadmodule $module aux-refuses]
    }
}

start_server [list overrides [typed emits-nonsense aux-always] tags {modules}] {
    test "a module that emits an unknown command ends the rewrite" {
        set_k
        r config set aof-use-rdb-preamble no
        r config set appendonly yes
        wait_for_log "AOF method for module data type 'typed-all' tried to emit unknown command 'TYPED.NONSENSE'"
        r config set appendonly no
        r typed.aux ""
        r save
        set got [run [tool valkey-check-rdb] [file join [srv dir] dump.rdb]]
        assert_match "*MODULE AUX for: typed-all*" [dict get $got out]
    }
}

start_server [list overrides [list {*}[typed handles async] repl-diskless-sync-delay 0] tags {modules}] {
    test "a replica loads a copy as it arrives only if its modules handle that" -needs {ours 1} {
        set_k
        foreach {how arguments says} {
            swapdb {} "Skipping diskless-load because there are modules that don't handle read errors."
            flush-before-load {} "Skipping diskless-load because there are modules that don't handle read errors."
            swapdb handles "Skipping diskless-load because there are modules that are not aware of async replication."
            flush-before-load handles "EOF to parser"
            swapdb {handles async} "EOF to parser"
        } {
            start_server [list overrides [list {*}[typed {*}$arguments] repl-diskless-load $how]] {
                r replicaof [srv -1 host] [srv -1 port]
                wait_for_condition 10000 {[info_field master_link_status] eq "up"} "the replica is not connected"
                wait_for_log $says
                assert_equal $::value [r typed.get k]
            }
        }
    }
}
