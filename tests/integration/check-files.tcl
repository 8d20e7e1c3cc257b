# valkey-check-rdb and valkey-check-aof: their output, which scripts parse, their exit status, and their repairs.

proc check_directory {} {
    set dir [file join $::unit_dir check[incr ::server_next]]
    file mkdir $dir
    return $dir
}
proc check {program args} {run [tool $program] {*}$args}
proc wire {args} {
    set out "*[llength $args]\r\n"
    foreach argument $args {append out "\$[string length $argument]\r\n$argument\r\n"}
    return $out
}
# An RDB file of this version with the key k, without checksum.
proc small_rdb {magic} {return "$magic\xfe\x00\x00\x01k\x01v\xff[string repeat \0 8]"}

# --- valkey-check-rdb ---

proc check_rdb {bytes} {
    set path [check_directory]/dump.rdb
    write_file $path $bytes
    set got [check valkey-check-rdb $path]
    assert_equal $bytes [file_bytes $path]
    return [list [dict get $got code] [string map [list $path FILE] [dict get $got out]]]
}

test "valkey-check-rdb: a sound file" {
    assert_equal [list 0 [join {
        {[offset 0] Checking RDB file FILE}
        {[offset 11] Selecting DB ID 0}
        {[offset 25] RDB file was saved with checksum disabled: no check performed.}
        {[offset 25] Check RDB returned error code 0 (0 means success)}
        {[offset 25] \o/ RDB looks OK! \o/}
        {[info] 1 keys read}
        {[info] 0 expires}
        {[info] 0 already expired}
        {[info] 0 functions} ""} \n]] [check_rdb [small_rdb VALKEY080]]
}

set module_id [binary decode hex 811234567890abcc01]
set module_items "\x05\x03abc\x01\x05\x02\x07\x03[string repeat \0 4]\x04[string repeat \0 8]\x00"
test "valkey-check-rdb: data of modules are read past, and the rest is checked" {
    set aux "\xf7$::module_id\x02\x02$::module_items"
    set value "\x07\x01m$::module_id$::module_items"
    foreach {first keys} [list $aux 1 "\xfe\x00$value" 2 "$aux\xfe\x00$value" 2] {
        lassign [check_rdb "REDIS0009$first\x00\x01k\x01v\xff[string repeat \0 8]"] code out
        assert_equal 0 $code
        assert_match "*RDB looks OK*info? $keys keys read*" $out
        assert_equal [string match \xf7* $first] [string match "*offset 21? MODULE AUX for: EjRWeJCrz*" $out]
    }
    foreach {first reason} [list "\xf7$::module_id\x05\x02\x00" "bad when_opcode" \
                                "\xfe\x00\x07\x01m$::module_id\x09\x00" "Unknown code 9 in the data of a module" \
                                "\xfe\x00\x06\x01m$::module_id\x00" "Pre-release module format not supported"] {
        lassign [check_rdb "REDIS0009$first\x00\x01k\x01v\xff[string repeat \0 8]"] code out
        assert_equal 1 $code
        assert_match "*offset * $reason*" $out
    }
}

test "valkey-check-rdb: a file that ends early, with the offset and the key" {
    lassign [check_rdb [string range [small_rdb VALKEY080] 0 13]] code out
    assert_equal 1 $code
    foreach line {
        "--- RDB ERROR DETECTED ---" "*offset 14* Unexpected EOF reading RDB file"
        "*additional info* While doing: read-object-value" "*additional info* Reading key 'k'"
        "*additional info* Reading type 0 (string)" "*Check RDB returned error code 1 (0 means success)"
    } {assert_match "*$line*" $out}
}

test "valkey-check-rdb: a version that does not exist, no file and no argument" {
    lassign [check_rdb [small_rdb REDIS0080]] code out
    assert_equal 1 $code
    assert_match "*offset 9* Can't handle RDB format version 80*" $out
    assert_equal 1 [dict get [check valkey-check-rdb [check_directory]/missing.rdb] code]
    set got [check valkey-check-rdb]
    assert_equal 1 [dict get $got code]
    assert_match "*Usage: *" "[dict get $got out][dict get $got err]"
}

start_server {} {
    test "valkey-check-rdb: counts of a file that a server has written; a changed byte is found by the checksum" {
        for {set i 0} {$i < 100} {incr i} {r set key:$i value:$i}
        r expire key:1 10000
        r hset hash f v
        r save
        set bytes [file_bytes [srv dir]/dump.rdb]
        lassign [check_rdb $bytes] code out
        assert_equal 0 $code
        assert_match "*Checksum OK*RDB looks OK!*101 keys read*1 expires*0 already expired*" $out
        set at [expr {[string first "value:50" $bytes] + 1}]
        lassign [check_rdb [string replace $bytes $at $at X]] code out
        assert_equal 1 $code
        assert_match "*RDB ERROR DETECTED*" $out
    }
}

# The values of one metric in the statistics, by type.
proc stats_of {out metric} {
    set line "db\\.0\\.type\\.(\\w+)\\.${metric}:(\\S+)"
    return [concat {*}[lmap {- type value} [regexp -all -inline $line $out] {list $type $value}]]
}
test "valkey-check-rdb --stats: a file without keys has statistics of database 0, a damaged one those until then" {
    set path [check_directory]/dump.rdb
    write_file $path "VALKEY080\xff[string repeat \0 8]"
    set out [dict get [check valkey-check-rdb $path --stats --format info] out]
    assert_equal {string 0 list 0 set 0 zset 0 hash 0 module 0 stream 0} [stats_of $out keys.total]
    write_file $path [string range [small_rdb VALKEY080] 0 end-4]
    set got [check valkey-check-rdb $path --stats --format info]
    assert_equal 1 [dict get $got code]
    set out [dict get $got out]
    assert_equal 1 [dict get [stats_of $out keys.total] string]
    assert_match "*RDB ERROR DETECTED*db.0.type.stream.elements.size.p50:0.00\n*returned error code 1*" $out
}

start_server {} {
    test "valkey-check-rdb --stats: sizes of elements, rounded as by Valkey" {
        for {set i 1} {$i <= 40} {incr i} {
            r rpush list:$i {*}[lrepeat $i x]
            r rpush long:$i x y z
            r zadd zset:$i 1 a 2 b $i c$i
        }
        r xadd stream * a b c d
        r zadd skiplist 1.5 [string repeat m 100]
        r save
        set out [dict get [check valkey-check-rdb [srv dir]/dump.rdb --stats --format info] out]
        foreach {metric type value} {
            elements.num.p99 list 39.00  elements.num.max list 40
            elements.total zset 241  elements.size zset 445  elements.size.max zset 103  elements.size.p90 zset 5.00
            elements.total stream 1  elements.size stream 4  elements.size.max stream 2  elements.size.avg stream 4.00
        } {assert_equal $value [dict get [stats_of $out $metric] $type] "$metric $type"}
    }
}

# --- valkey-check-aof ---

set ::first "#TS:1700000000\r\n[wire SET a 1]"
set ::second "#TS:1700000100\r\n[wire SET b 2]"

# Writes a base and an incremental file with these bytes. Returns the path of the manifest.
proc aof_of {bytes} {
    set dir [check_directory]
    write_file $dir/x.aof.1.base.aof [wire SET base 1]
    write_file $dir/x.aof.1.incr.aof $bytes
    write_file $dir/x.aof.manifest "file x.aof.1.base.aof seq 1 type b\nfile x.aof.1.incr.aof seq 1 type i\n"
    return $dir/x.aof.manifest
}
proc incremental {manifest} {file_bytes [file dirname $manifest]/x.aof.1.incr.aof}
proc check_aof {input args} {
    set got [run sh -c "printf '$input' | \"\$0\" \"\$@\"" [tool valkey-check-aof] {*}$args]
    return [list [dict get $got code] [dict get $got out]]
}

test "valkey-check-aof: sound files" {
    lassign [check_aof "" [aof_of $::first$::second]] code out
    assert_equal 0 $code
    assert_equal [join {
        "Start checking Multi Part AOF" "Start to check BASE AOF (RESP format)."
        "AOF analyzed: filename=x.aof.1.base.aof, size=30, ok_up_to=30, ok_up_to_line=8, diff=0"
        "BASE AOF x.aof.1.base.aof is valid" "Start to check INCR files."
        "AOF analyzed: filename=x.aof.1.incr.aof, size=86, ok_up_to=86, ok_up_to_line=22, diff=0"
        "INCR AOF x.aof.1.incr.aof is valid" "All AOF files and manifest are valid" ""} \n] $out
}

test "valkey-check-aof: a file that ends inside a command is reported, and --fix cuts it when the user agrees" {
    set cut "$::first$::second[string range [wire SET c 3] 0 end-5]"
    set manifest [aof_of $cut]
    lassign [check_aof "" $manifest] code out
    assert_equal 1 $code
    assert_match "*size=108, ok_up_to=86, ok_up_to_line=27, diff=22\nAOF x.aof.1.incr.aof is not valid. Use the\
        --fix option to try fixing it.\n" $out
    lassign [check_aof {n\n} --fix $manifest] code out
    assert_equal 1 $code
    assert_match "*This will shrink the AOF x.aof.1.incr.aof from 108 bytes, with 22 bytes, to 86\
        bytes\n*Aborting...\n" $out
    assert_equal $cut [incremental $manifest]
    lassign [check_aof {y\n} --fix $manifest] code out
    assert_equal 0 $code
    assert_match "*Successfully truncated AOF x.aof.1.incr.aof\nAll AOF files and manifest are valid\n" $out
    assert_equal $::first$::second [incremental $manifest]
}

test "valkey-check-aof: a transaction without its EXEC is cut as a whole" {
    set manifest [aof_of "$::first[wire MULTI][wire SET b 2]"]
    lassign [check_aof {y\n} --fix $manifest] code out
    assert_equal 0 $code
    assert_equal $::first [incremental $manifest]
}

test "valkey-check-aof: --truncate-to-timestamp keeps what was executed until then" {
    set manifest [aof_of $::first$::second]
    lassign [check_aof "" --truncate-to-timestamp 1700000050 $manifest] code out
    assert_equal 0 $code
    assert_match "*Truncate nothing in AOF x.aof.1.base.aof to timestamp 1700000050*Successfully truncated AOF\
        x.aof.1.incr.aof to timestamp 1700000050*" $out
    assert_equal $::first [incremental $manifest]
    write_file [file dirname $manifest]/x.aof.1.base.aof $::second
    lassign [check_aof "" --truncate-to-timestamp 1700000050 $manifest] code out
    assert_equal 1 $code
    assert_match "*AOF */x.aof.1.base.aof has nothing before timestamp 1700000050, aborting...\n" $out
}

test "valkey-check-aof: damage in the middle, and a file that the manifest names and that is missing" {
    lassign [check_aof "" [aof_of "${::first}garbage$::second"]] code out
    assert_equal 1 $code
    assert_match "*AOF x.aof.1.incr.aof is not valid.*" $out
    set manifest [aof_of $::first]
    file delete [file dirname $manifest]/x.aof.1.base.aof
    lassign [check_aof "" $manifest] code out
    assert_equal 1 $code
    assert_match "*Cannot open file */x.aof.1.base.aof: No such file or directory, aborting...\n" $out
}

start_server {no_rdma 1 overrides {appendonly yes aof-timestamp-enabled yes}} {
    test "valkey-check-aof: files of a server, and what --fix leaves is what the server loads" {
        r set k v
        r set large [string repeat x 20000]
        set file [aof_file i]
        kill_process KILL [srv pid]
        server_reap [srv id]
        set bytes [file_bytes $file]
        write_file $file [string range $bytes 0 end-100]
        lassign [check_aof {y\n} --fix [aof_dir]/appendonly.aof.manifest] code out
        assert_equal 0 $code
        server_start_again
        assert_equal v [r get k]
        assert_equal 0 [r exists large]
        assert {![log_has "short read"]}
    }
}
